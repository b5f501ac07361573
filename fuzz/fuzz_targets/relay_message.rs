//! libFuzzer on the target `relay_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("relay_message", data));
