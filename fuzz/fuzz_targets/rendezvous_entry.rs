//! libFuzzer on the target `rendezvous_entry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("rendezvous_entry", data));
