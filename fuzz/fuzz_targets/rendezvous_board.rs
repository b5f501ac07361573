//! libFuzzer on the target `rendezvous_board`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("rendezvous_board", data));
