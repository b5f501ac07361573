//! libFuzzer on the target `vault_chain`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("vault_chain", data));
