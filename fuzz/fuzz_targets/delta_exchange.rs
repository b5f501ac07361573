//! libFuzzer on the target `delta_exchange`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("delta_exchange", data));
