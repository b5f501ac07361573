//! libFuzzer on the target `copy_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("copy_message", data));
