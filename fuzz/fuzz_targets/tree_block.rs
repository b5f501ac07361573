//! libFuzzer on the target `tree_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("tree_block", data));
