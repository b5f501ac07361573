//! libFuzzer on the target `chunk_entries`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("chunk_entries", data));
