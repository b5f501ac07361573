//! libFuzzer on the target `tls_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("tls_record", data));
