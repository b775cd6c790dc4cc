//! Fuzzes `slidegate_fuzz::config_text`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slidegate_fuzz::config_text::check(data));
