//! libFuzzer on the target `vault_tree`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("vault_tree", data));
