//! libFuzzer on `towpath_fuzz::ticket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::ticket(data));
