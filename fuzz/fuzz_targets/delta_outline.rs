//! libFuzzer on the target `delta_outline`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("delta_outline", data));
