//! libFuzzer on `towpath_fuzz::filter_rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::filter_rules(data));
