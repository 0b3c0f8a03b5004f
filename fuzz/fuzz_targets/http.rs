//! See `postonce_fuzz::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| postonce_fuzz::http(data));
