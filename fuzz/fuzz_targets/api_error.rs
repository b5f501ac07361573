//! libFuzzer on the target `api_error`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("api_error", data));
