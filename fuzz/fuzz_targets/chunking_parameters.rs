//! libFuzzer on `towpath_fuzz::chunking_parameters`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::chunking_parameters(data));
