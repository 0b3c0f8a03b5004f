//! See `postonce_fuzz::json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| postonce_fuzz::json(data));
