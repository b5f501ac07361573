//! libFuzzer on the target `resume_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towpath_fuzz::run("resume_record", data));
