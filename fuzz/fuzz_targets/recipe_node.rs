//! libFuzzer on `towpath_fuzz::recipe_node`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::recipe_node(data));
