//! What holds for any input at all. Each module has one `check`, which panics where it does not.
//!
//! Coverage-guided by `make fuzz`, and over the inputs of `fuzz/corpus` with every test: `tests/fuzz_corpus.rs`
//! includes this file. What an input means stands at each `check`, so that corpora can be read and written by hand.

pub mod client_address;
pub mod config_text;
pub mod identifier;
pub mod path;
pub mod replayed_log;
