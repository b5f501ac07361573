//! libFuzzer on the target `live_statement`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("live_statement", data));
