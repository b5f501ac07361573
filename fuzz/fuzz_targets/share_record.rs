//! libFuzzer on the target `share_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("share_record", data));
