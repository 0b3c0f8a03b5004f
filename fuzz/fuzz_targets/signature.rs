//! See `postonce_fuzz::signature`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| postonce_fuzz::signature(data));
