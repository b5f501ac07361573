//! libFuzzer on the target `tree_decoder`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("tree_decoder", data));
