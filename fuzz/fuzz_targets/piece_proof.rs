//! libFuzzer on the target `piece_proof`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("piece_proof", data));
