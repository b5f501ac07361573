//! libFuzzer on the target `ticket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("ticket", data));
