//! libFuzzer on the target `http_range`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("http_range", data));
