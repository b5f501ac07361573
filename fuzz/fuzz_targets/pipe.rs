//! libFuzzer on the target `pipe`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("pipe", data));
