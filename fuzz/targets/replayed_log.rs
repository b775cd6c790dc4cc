//! Fuzzes `slidegate_fuzz::replayed_log`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slidegate_fuzz::replayed_log::check(data));
