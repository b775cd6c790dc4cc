//! Fuzzes `slidegate_fuzz::path`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slidegate_fuzz::path::check(data));
