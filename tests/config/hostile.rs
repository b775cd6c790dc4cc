//! Nothing that a file or the environment can hold changes the structure, or brings the loader down.

use std::fs;

use proptest::prelude::*;
use slidegate::{
    config::{Config, MAX_BYTES},
    policy::Cidr,
};

use super::{env, parse, root, text};

#[test]
fn a_variable_can_change_a_value_but_not_the_structure_of_the_file() {
    let inject = |name: &str| {
        let value = "info\nthreads: 7\nstore: {url: \"redis://evil\"}";
        (name == "LEVEL").then(|| value.to_owned())
    };
    let text = "log: {level: \"${LEVEL}\"}\nupstream: {address: app:3000}\n\
                policies: [{name: a, limits: [10/1m]}]";
    let error = Config::parse(text, "config.yaml", &inject).expect_err("no level");
    assert_eq!(error.faults.len(), 1);
    assert_eq!(error.faults[0].path.to_string(), "log.level");
}

#[test]
fn a_file_that_can_not_be_read_is_told_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = |content: Option<&[u8]>| {
        let path = folder.path().join("config.yaml");
        if let Some(content) = content {
            fs::write(&path, content).expect("written");
        }
        let error = Config::load(&path, &env).expect_err("refused").to_string();
        error.replace(&path.display().to_string(), "config.yaml")
    };
    assert_eq!(
        told(None),
        "config.yaml: cannot be read: No such file or directory (os error 2)"
    );
    assert_eq!(told(Some(b"log: {level: \xff}")), "config.yaml: not UTF-8");
    let large = vec![b' '; MAX_BYTES + 1];
    assert_eq!(
        told(Some(&large)),
        "config.yaml: is larger than 1048576 bytes"
    );
}

#[test]
fn an_editor_may_write_a_byte_order_mark_and_line_ends_of_its_own() {
    let shipped = text(&root().join("config.yaml"));
    let config = parse(&shipped).expect("accepted");
    let edited = format!("{BYTE_ORDER_MARK}{}", shipped.replace('\n', "\r\n"));
    let edited = parse(&edited).expect("accepted");
    assert_eq!(format!("{config:?}"), format!("{edited:?}"));
}

/// As many as a file can hold: to compare each with all the others would take hours.
#[test]
fn a_list_of_addresses_may_be_as_long_as_a_file() {
    let policies = "upstream: {address: app:3000}\npolicies: [{name: a, limits: [10/1m]}]";
    let mut list = String::new();
    for number in 0u32.. {
        let [_, a, b, c] = number.to_be_bytes();
        let next = format!("10.{a}.{b}.{c},");
        if list.len() + next.len() + 200 > MAX_BYTES {
            break;
        }
        list += &next;
    }
    let accepted = parse(&format!("block: {{client_ip: [{list}]}}\n{policies}"));
    let blocked = accepted.expect("accepted").gate.blocked;
    assert!(blocked.contains("10.0.255.255".parse().expect("an address")));
    let error = parse(&format!(
        "block: {{client_ip: [{list}10.0.1.7]}}\n{policies}"
    ));
    let told = error.expect_err("there twice").to_string();
    assert!(
        told.contains("each stands once, and this one did"),
        "{told}"
    );
}

#[test]
fn hostile_files_are_refused_and_not_expanded() {
    let mut laughs = "a0: &a0 lol\n".to_owned();
    for level in 1..40 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs += &format!("a{level}: &a{level} [{inner}]\n");
    }
    let size = MAX_BYTES / 2;
    for text in [
        laughs,
        "[".repeat(size),
        "{a: ".repeat(size / 4),
        "- ".repeat(size / 2),
        "? ".repeat(size / 2),
        "a: 1\n".repeat(size / 5),
        format!("listen: {}", "x".repeat(size)),
        format!("threads: {}", "${TWO}".repeat(size / 6)),
    ] {
        assert!(parse(&text).is_err());
    }
}

/// A range of few addresses, so that one often covers another.
fn range() -> impl Strategy<Value = String> {
    (0u8..16, 0u32..5, any::<bool>()).prop_map(|(address, short, is_v4)| {
        let start = address >> short << short;
        match is_v4 {
            true => format!("10.0.0.{start}/{}", 32 - short),
            false => format!("'fd00::{start:x}/{}'", 128 - short),
        }
    })
}

proptest! {
    #[test]
    fn of_addresses_that_are_listed_none_covers_another(
        list in proptest::collection::vec(range(), 1..8),
    ) {
        let ranges = list.iter().map(|range| range.trim_matches('\''));
        let ranges: Vec<Cidr> = ranges.map(|range| range.parse().expect("a range")).collect();
        let covered = |place: usize| {
            let others = ranges.iter().enumerate().filter(|(other, _)| *other != place);
            others.into_iter().any(|(_, other)| other.covers(ranges[place]))
        };
        let apart = !(0..ranges.len()).any(covered);
        let read = parse(&format!(
            "block: {{client_ip: [{}]}}\nupstream: {{address: app:3000}}\n\
             policies: [{{name: a, limits: [10/1m]}}]",
            list.join(", "),
        ));
        prop_assert_eq!(read.is_ok(), apart, "{:?}", list);
    }

    #[test]
    fn no_bytes_bring_the_loader_down(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        survives(&String::from_utf8_lossy(&bytes))?;
    }

    /// Pieces of YAML and of configurations, in any order.
    #[test]
    fn no_yaml_brings_the_loader_down(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES.to_vec()), 0..40)
    ) {
        survives(&pieces.concat())?;
    }

    /// One character of the shipped configuration replaced or removed, or some inserted.
    #[test]
    fn no_slip_in_the_shipped_configuration_brings_the_loader_down(
        place in any::<proptest::sample::Index>(),
        removed in 0_usize..3,
        inserted in "[\\x00-\\x7fé\u{2028}\u{feff}]{0,3}",
    ) {
        let mut text: Vec<char> = text(&root().join("config.yaml")).chars().collect();
        let start = place.index(text.len());
        let end = (start + removed).min(text.len());
        text.splice(start..end, inserted.chars());
        survives(&text.into_iter().collect::<String>())?;
    }
}

/// It is accepted, or refused with at least one reason, each at a place that the text has.
fn survives(text: &str) -> Result<(), TestCaseError> {
    if let Err(error) = parse(text) {
        prop_assert!(!error.faults.is_empty());
        // The line after the last is where something is missing; a place beyond the last column is its end.
        let lines = text.split(LINE_ENDS).count() + 1;
        let widest = text.split('\n').map(str::len).max().unwrap_or(0) + 1;
        for place in error.faults.iter().filter_map(|fault| fault.place) {
            prop_assert!(
                (1..=lines).contains(&place.line),
                "{place} of {lines} lines"
            );
            prop_assert!((1..=widest).contains(&place.column), "{place} of {widest}");
        }
    }
    Ok(())
}

/// What ends a line for one YAML parser or the other.
const LINE_ENDS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

const PIECES: [&str; 44] = [
    "\n",
    "\n  ",
    "\n    ",
    "\n\t",
    " ",
    ": ",
    ":",
    "- ",
    "? ",
    ", ",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "# ",
    "&a ",
    "*a",
    "!!str ",
    "!",
    "<<: ",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "~",
    "null",
    "${",
    "${TWO}",
    "$$",
    "\\",
    "\u{feff}",
    "\0",
    "é",
    "policies",
    "limits",
    "100/1m",
    "name",
    "upstream",
    "address",
    "app:3000",
    "listen",
];

const BYTE_ORDER_MARK: char = '\u{feff}';
