//! libFuzzer on the target `rendezvous_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("rendezvous_message", data));
