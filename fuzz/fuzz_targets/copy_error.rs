//! libFuzzer on the target `copy_error`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("copy_error", data));
