//! libFuzzer on the target `delta_refine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("delta_refine", data));
