//! Fuzzes `slidegate_fuzz::client_address`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| slidegate_fuzz::client_address::check(data));
