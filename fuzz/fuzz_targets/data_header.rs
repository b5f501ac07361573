//! libFuzzer on `towpath_fuzz::data_header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::data_header(data));
