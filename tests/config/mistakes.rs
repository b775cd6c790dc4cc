//! Every mistake is told with its place, what was found and what is accepted: whole messages, compared.

use std::{collections::BTreeSet, fs, path::PathBuf};

use slidegate::config::Config;

use super::{env, files, text};

/// Every `invalid/*.yaml` has its whole message in the `.txt` beside it. With `BLESS` set the messages
/// are written instead: read them before they are committed.
#[test]
fn every_mistake_is_told_word_for_word() {
    let files = files("invalid", "yaml");
    assert!(files.len() >= 233, "found only {}", files.len());
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for file in &files {
        let told = match Config::parse(&text(file), "config.yaml", &env) {
            Ok(_) => panic!("{} is accepted", file.display()),
            Err(error) => format!("{error}\n"),
        };
        let expected = file.with_extension("txt");
        assert!(!told.contains("hunter"), "a secret is told: {told}");
        if bless {
            fs::write(&expected, &told).expect("written");
        } else if fs::read_to_string(&expected).ok().as_ref() != Some(&told) {
            wrong.push(format!("{}:\n{told}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "other messages:\n{}", wrong.join("\n"));
}

#[test]
fn every_expected_message_belongs_to_a_mistake() {
    let stems = |extension| -> BTreeSet<PathBuf> {
        let files = files("invalid", extension);
        files.iter().map(|file| file.with_extension("")).collect()
    };
    assert!(stems("txt").len() >= 233);
    assert_eq!(stems("txt"), stems("yaml"));
}
