//! libFuzzer on `towpath_fuzz::live_statement`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::live_statement(data));
