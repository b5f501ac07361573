//! libFuzzer on the target `filter_rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("filter_rules", data));
