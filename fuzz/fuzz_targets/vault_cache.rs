//! libFuzzer on the target `vault_cache`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("vault_cache", data));
