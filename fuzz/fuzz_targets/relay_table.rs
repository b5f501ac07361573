//! libFuzzer on the target `relay_table`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("relay_table", data));
