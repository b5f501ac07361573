//! libFuzzer on the target `direct_answering`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("direct_answering", data));
