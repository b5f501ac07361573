//! libFuzzer on the target `packing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("packing", data));
