//! See `postonce_fuzz::interpret`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| postonce_fuzz::interpret(data));
