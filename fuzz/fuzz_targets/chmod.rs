//! libFuzzer on the target `chmod`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("chmod", data));
