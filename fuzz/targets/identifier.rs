//! Fuzzes `slidegate_fuzz::identifier`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slidegate_fuzz::identifier::check(data));
