//! libFuzzer on the target `vault_packed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("vault_packed", data));
