//! libFuzzer on the target `delta_requester`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("delta_requester", data));
