//! libFuzzer on the target `vault_client_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("vault_client_record", data));
