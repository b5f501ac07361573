//! libFuzzer on the target `oid_binary`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("oid_binary", data));
