//! The dependency rule, checked against what the code says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Which rooms a room may name. Absent from a list on purpose: a store or a clock in the pure rooms, YAML's
/// room in any that runs, the proxy in what decides.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("ratelimit", &[]),
    ("access_log", &["policy", "ratelimit", "upstream"]),
    ("bounded_log", &["clock", "ratelimit"]),
    ("clock", &["ratelimit"]),
    ("pem", &[]),
    ("policy", &["ratelimit"]),
    (
        "store",
        &["bounded_log", "clock", "pem", "policy", "ratelimit"],
    ),
    ("upstream", &["pem"]),
    ("metrics", &["policy", "ratelimit", "store", "upstream"]),
    (
        "limiter",
        &[
            "bounded_log",
            "clock",
            "metrics",
            "policy",
            "ratelimit",
            "store",
        ],
    ),
    ("server", &["clock", "metrics", "pem", "policy"]),
    (
        "proxy",
        &[
            "access_log",
            "bounded_log",
            "clock",
            "limiter",
            "metrics",
            "pem",
            "policy",
            "ratelimit",
            "server",
            "upstream",
        ],
    ),
    ("observe", &["limiter", "metrics", "pem", "server"]),
    ("explain", &["limiter", "policy", "proxy", "ratelimit"]),
    ("held", &["limiter", "policy", "store"]),
    (
        "replay",
        &[
            "access_log",
            "clock",
            "limiter",
            "metrics",
            "policy",
            "ratelimit",
            "store",
        ],
    ),
    (
        "admin",
        &[
            "bounded_log",
            "explain",
            "held",
            "limiter",
            "metrics",
            "observe",
            "policy",
            "proxy",
            "store",
        ],
    ),
    (
        "config",
        &[
            "access_log",
            "admin",
            "limiter",
            "pem",
            "policy",
            "proxy",
            "ratelimit",
            "server",
            "store",
            "upstream",
        ],
    ),
    (
        "app",
        &[
            "access_log",
            "admin",
            "bounded_log",
            "clock",
            "config",
            "limiter",
            "metrics",
            "observe",
            "pem",
            "policy",
            "proxy",
            "server",
            "store",
        ],
    ),
    (
        "cli",
        &[
            "access_log",
            "app",
            "clock",
            "config",
            "explain",
            "held",
            "limiter",
            "observe",
            "policy",
            "ratelimit",
            "replay",
            "server",
            "store",
            "upstream",
        ],
    ),
];

/// Which crates the pure rooms may name besides std: none that waits, reads a clock or speaks HTTP/1.
const PURE_CRATES: &[(&str, &[&str])] = &[
    ("ratelimit", &["thiserror"]),
    ("access_log", &["proptest", "serde", "serde_json"]),
    ("upstream", &["rustls", "thiserror", "x509_parser"]),
    (
        "policy",
        &[
            "base64",
            "blake3",
            "form_urlencoded",
            "http",
            "ipnet",
            "percent_encoding",
            "proptest",
            "smallvec",
            "thiserror",
        ],
    ),
];

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<_, _> = MAY_NAME.iter().copied().collect();
    let mut rooms = BTreeSet::new();
    for (room, file, text) in sources() {
        let may_name = allowed
            .get(room.as_str())
            .unwrap_or_else(|| panic!("{room} is a new room: say in MAY_NAME what it may name"));
        for named in rooms_named(&text) {
            assert!(
                named == room || may_name.contains(&named.as_str()),
                "{} names crate::{named}; {room} may only name {may_name:?}",
                file.display()
            );
        }
        rooms.insert(room);
    }
    assert_eq!(
        rooms.len(),
        MAY_NAME.len(),
        "every room was found: {rooms:?}"
    );
}

#[test]
fn the_pure_rooms_name_no_crate_that_does_io() {
    let mut looked_at = 0;
    for (room, file, text) in sources() {
        let Some((_, crates)) = PURE_CRATES.iter().find(|(pure, _)| *pure == room) else {
            continue;
        };
        looked_at += 1;
        for line in text.lines() {
            let Some(path) = line
                .trim_start()
                .trim_start_matches("pub ")
                .strip_prefix("use ")
            else {
                continue;
            };
            let root = path
                .split([':', ';', ' '])
                .next()
                .expect("split yields one");
            let known = ["std", "crate", "super", "self"].contains(&root) || crates.contains(&root);
            let module = file.with_extension("").join(format!("{root}.rs")).exists();
            assert!(
                known || module,
                "{}: {line}: {room} may only name {crates:?}",
                file.display()
            );
        }
    }
    assert!(looked_at > 5, "{looked_at}");
}

#[test]
fn nothing_past_config_sees_yaml_and_nothing_past_the_edges_sees_pingora_or_redis() {
    let only_in = [
        ("serde_yaml", &["config"][..]),
        ("saphyr", &["config"]),
        ("pingora", &["proxy", "server", "observe", "admin", "app"]),
        ("redis::", &["store"]),
        ("prometheus", &["metrics"]),
        ("clap", &["cli"]),
    ];
    for (room, file, text) in sources() {
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            for (word, rooms) in only_in {
                let names =
                    line.contains(&format!("use {word}")) || line.contains(&format!(" {word}::"));
                assert!(
                    !names || rooms.contains(&room.as_str()),
                    "{}: {line}: only {rooms:?} may name {word}",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn every_test_file_is_registered() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut seen = 0;
    for parent in ["main.rs", "support.rs"] {
        let registered = fs::read_to_string(root.join(parent)).expect("a source file");
        let folder = if parent == "main.rs" {
            root.clone()
        } else {
            root.join("support")
        };
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_str().expect("UTF-8");
            if name == "main" || path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            seen += 1;
            let line = format!("mod {name};");
            assert!(
                registered.contains(&line),
                "{} is not in {parent}",
                path.display()
            );
        }
    }
    assert!(seen > 15, "the walk found {seen}");
}

/// Every source file but lib.rs and main.rs, with its room.
fn sources() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(&root).expect("inside src");
            let first = inside
                .iter()
                .next()
                .expect("a name")
                .to_str()
                .expect("UTF-8");
            let room = first.trim_end_matches(".rs").to_owned();
            if room != "lib" && room != "main" {
                let text = fs::read_to_string(&path).expect("a source file");
                found.push((room, path, text));
            }
        }
    }
    assert!(found.len() > 20, "the walk found {}", found.len());
    found
}

/// The rooms after `crate::`, in paths and in braces.
fn rooms_named(text: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (place, _) in text.match_indices("crate::") {
        let rest = &text[place + "crate::".len()..];
        if !rest.starts_with('{') {
            named.insert(word(rest));
            continue;
        }
        let mut depth = 0;
        let mut expect_name = false;
        for (index, character) in rest.char_indices() {
            match character {
                '{' => {
                    depth += 1;
                    expect_name = depth == 1;
                }
                '}' => depth -= 1,
                ',' => expect_name = depth == 1,
                _ if expect_name && !character.is_whitespace() => {
                    named.insert(word(&rest[index..]));
                    expect_name = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    named.retain(|name| name.chars().next().is_some_and(char::is_lowercase));
    named
}

fn word(text: &str) -> String {
    text.chars()
        .take_while(|character| character.is_alphanumeric() || *character == '_')
        .collect()
}

#[test]
fn the_reader_of_paths_reads_braces_too() {
    let text = "use crate::{\n    clock::{self, Clock},\n    policy::Policy,\n};\ncrate::store::At";
    let named: Vec<String> = rooms_named(text).into_iter().collect();
    assert_eq!(named, ["clock", "policy", "store"]);
}
