//! local
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thread_local!(static NAME: String = std::env::var("FUZZ").expect("FUZZ"));
    NAME.with(|name| towpath_fuzz::run(name, data));
});
