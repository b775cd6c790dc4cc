//! What the fuzz targets of `fuzz/` look for holds for every input that they have collected.

#[path = "../fuzz/src/lib.rs"]
mod invariants;

use std::{collections::BTreeSet, fs, path::PathBuf};

use self::invariants::{client_address, config_text, identifier, path, replayed_log};

#[test]
fn no_header_leads_past_what_trusted_proxies_wrote() {
    check_all("client_address", client_address::check);
}

#[test]
fn no_text_takes_the_loader_down_or_makes_it_tell_a_secret() {
    check_all("config_text", config_text::check);
}

#[test]
fn no_two_identities_have_one_identifier() {
    check_all("identifier", identifier::check);
}

#[test]
fn no_way_of_writing_a_path_changes_what_it_is() {
    check_all("path", path::check);
}

#[test]
fn no_line_of_a_log_is_lost_or_spoils_another() {
    check_all("replayed_log", replayed_log::check);
}

#[test]
fn every_target_is_checked_here() {
    let targets: Vec<_> = files("targets")
        .iter()
        .filter_map(|file| Some(file.file_stem()?.to_owned()))
        .collect();
    assert_eq!(
        targets,
        [
            "client_address",
            "config_text",
            "identifier",
            "path",
            "replayed_log"
        ]
    );
}

fn check_all(target: &str, check: fn(&[u8])) {
    let inputs = files(&format!("corpus/{target}"));
    assert!(inputs.len() >= 10, "{target} has only {}", inputs.len());
    for input in inputs {
        // Told if the next line fails.
        println!("{}", input.display());
        check(&fs::read(&input).expect("an input is read"));
    }
}

#[test]
fn what_is_fuzzed_is_built_from_the_versions_that_ship() {
    let shipped = locked("Cargo.lock");
    let fuzzed = locked("fuzz/Cargo.lock");
    let own: Vec<_> = fuzzed
        .difference(&shipped)
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(own, ["arbitrary", "libfuzzer-sys", "slidegate-fuzz"]);
    let direct = |file: &str| fs::read_to_string(root().join(file)).expect("a lock file");
    let (shipped, fuzzed) = (direct("Cargo.lock"), direct("fuzz/Cargo.lock"));
    let (shipped, fuzzed) = (dependencies(&shipped), dependencies(&fuzzed));
    let missing: Vec<_> = shipped
        .difference(&fuzzed)
        .filter(|name| !only_tests_need(name))
        .collect();
    assert!(missing.is_empty(), "fuzz/Cargo.lock lacks {missing:?}");
}

/// What `slidegate` itself depends on by a lock file.
fn dependencies(lock: &str) -> BTreeSet<&str> {
    let from = "name = \"slidegate\"\n";
    let (_, package) = lock.split_once(from).expect("slidegate in a lock file");
    let (_, list) = package.split_once("dependencies = [").expect("a list");
    let (list, _) = list.split_once(']').expect("the list's end");
    // A version follows where the file has several of a name.
    let names = list.split('"').filter(|part| part.trim() != ",");
    names
        .filter_map(|name| name.split_whitespace().next())
        .collect()
}

/// Whether the manifest has a dependency for tests alone.
fn only_tests_need(name: &str) -> bool {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let (shipped, tests) = manifest
        .split_once("[dev-dependencies]")
        .expect("what tests need");
    let is_in = |part: &str| {
        part.lines()
            .any(|line| line.starts_with(&format!("{name} = ")))
    };
    is_in(tests) && !is_in(shipped)
}

/// Names and versions in a lock file.
fn locked(file: &str) -> BTreeSet<(String, String)> {
    let text = fs::read_to_string(root().join(file)).expect("a lock file");
    let value = |line: &str, key| {
        let value = line.strip_prefix(key)?.strip_prefix(" = ")?;
        Some(value.trim_matches('"').to_owned())
    };
    let lines: Vec<&str> = text.lines().collect();
    lines
        .windows(2)
        .filter_map(|two| Some((value(two[0], "name")?, value(two[1], "version")?)))
        .collect()
}

/// What is in a folder of `fuzz/`, by name.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("fuzz").join(folder)).expect(folder);
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
