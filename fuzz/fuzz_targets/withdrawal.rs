//! libFuzzer on the target `withdrawal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("withdrawal", data));
