//! libFuzzer on the target `bound_secret`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("bound_secret", data));
