//! libFuzzer on the target `data_header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("data_header", data));
