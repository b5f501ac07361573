//! libFuzzer on the target `rendezvous_cluster`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("rendezvous_cluster", data));
