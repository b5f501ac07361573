//! libFuzzer on the target `oid_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("oid_text", data));
