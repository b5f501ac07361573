//! libFuzzer on the target `vault_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("vault_log", data));
