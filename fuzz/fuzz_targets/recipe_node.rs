//! libFuzzer on the target `recipe_node`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("recipe_node", data));
