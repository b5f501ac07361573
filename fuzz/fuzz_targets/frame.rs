//! libFuzzer on the target `frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("frame", data));
