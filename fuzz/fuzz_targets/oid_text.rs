//! libFuzzer on `towpath_fuzz::oid_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::oid_text(data));
