//! libFuzzer on the target `delta`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("delta", data));
