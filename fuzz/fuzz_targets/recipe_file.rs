//! libFuzzer on the target `recipe_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("recipe_file", data));
