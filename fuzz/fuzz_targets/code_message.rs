//! libFuzzer on the target `code_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("code_message", data));
