//! libFuzzer on `towpath_fuzz::recipe_root`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::recipe_root(data));
