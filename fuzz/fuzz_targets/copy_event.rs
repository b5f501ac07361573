//! libFuzzer on the target `copy_event`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("copy_event", data));
