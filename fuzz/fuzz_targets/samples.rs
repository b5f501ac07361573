//! libFuzzer on the target `samples`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("samples", data));
