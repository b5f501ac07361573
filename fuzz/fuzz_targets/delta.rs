//! libFuzzer on `towpath_fuzz::delta`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::delta(data));
