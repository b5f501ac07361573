//! libFuzzer on the target `code_exchange`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("code_exchange", data));
