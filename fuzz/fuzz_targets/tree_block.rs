//! libFuzzer on `towpath_fuzz::tree_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::tree_block(data));
