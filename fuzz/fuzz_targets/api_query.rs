//! libFuzzer on the target `api_query`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("api_query", data));
