//! libFuzzer on `towpath_fuzz::oid_binary`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::oid_binary(data));
