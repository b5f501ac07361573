//! libFuzzer on the target `direct_decoder`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("direct_decoder", data));
