//! libFuzzer on the target `direct_session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("direct_session", data));
