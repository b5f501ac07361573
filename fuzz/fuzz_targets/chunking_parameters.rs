//! libFuzzer on the target `chunking_parameters`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("chunking_parameters", data));
