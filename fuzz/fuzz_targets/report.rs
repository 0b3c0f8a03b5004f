//! See `postonce_fuzz::report`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| postonce_fuzz::report(data));
