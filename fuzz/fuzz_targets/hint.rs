//! libFuzzer on the target `hint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("hint", data));
