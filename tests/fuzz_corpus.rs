//! What the fuzz targets of `fuzz/` look for holds for every input that they have collected.

#[path = "../fuzz/src/lib.rs"]
mod invariants;

use std::{collections::BTreeSet, fs, path::PathBuf};

use self::invariants::{client_address, config_text, identifier, path};

#[test]
fn what_holds_for_any_input_holds_for_the_collected_ones() {
    let checks: [(&str, fn(&[u8])); 4] = [
        ("client_address", client_address::check),
        ("config_text", config_text::check),
        ("identifier", identifier::check),
        ("path", path::check),
    ];
    for (target, check) in checks {
        let inputs = files(&format!("corpus/{target}"));
        assert!(inputs.len() >= 10, "{target} has only {}", inputs.len());
        for input in inputs {
            println!("{}", input.display());
            check(&fs::read(&input).expect("an input is read"));
        }
    }
    let listed: BTreeSet<_> = checks.iter().map(|(target, _)| (*target).into()).collect();
    let found: BTreeSet<_> = files("targets")
        .iter()
        .filter_map(|file| Some(file.file_stem()?.to_owned()))
        .collect();
    assert_eq!(found, listed, "every target is checked here");
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
