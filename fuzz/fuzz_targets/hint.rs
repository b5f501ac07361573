//! libFuzzer on `towpath_fuzz::hint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::hint(data));
