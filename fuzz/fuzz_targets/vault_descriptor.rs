//! libFuzzer on the target `vault_descriptor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("vault_descriptor", data));
