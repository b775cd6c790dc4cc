//! The dependency rule, checked against what the code says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use regex::Regex;

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
    let dependencies = dependencies();
    let mut looked_at = 0;
    for (room, file, text) in sources() {
        let Some((_, crates)) = PURE_CRATES.iter().find(|(pure, _)| *pure == room) else {
            continue;
        };
        looked_at += 1;
        for (line, root) in roots_named(&text) {
            assert!(
                crates.contains(&root.as_str()) || !dependencies.contains(&root),
                "{}:{line}: names {root}; {room} may only name {crates:?}",
                file.display()
            );
        }
    }
    assert!(looked_at > 5, "{looked_at}");
}

/// A crate stands for those of its family: `pingora` for `pingora_core`.
#[test]
fn nothing_past_config_sees_yaml_and_nothing_past_the_edges_sees_pingora_or_redis() {
    let only_in = [
        ("serde_yaml", &["config"][..]),
        ("saphyr", &["config"]),
        ("pingora", &["proxy", "server", "observe", "admin", "app"]),
        ("redis", &["store"]),
        ("prometheus", &["metrics"]),
        ("clap", &["cli"]),
    ];
    let mut met = BTreeSet::new();
    for (room, file, text) in sources() {
        for (line, root) in roots_named(&text) {
            for (family, rooms) in only_in {
                let of_family = root.strip_prefix(family);
                if of_family.is_none_or(|rest| !rest.is_empty() && !rest.starts_with('_')) {
                    continue;
                }
                assert!(
                    rooms.contains(&room.as_str()),
                    "{}:{line}: names {root}; only {rooms:?} may name {family}",
                    file.display()
                );
                met.insert((family, room.clone()));
            }
        }
    }
    for (family, rooms) in only_in {
        for room in rooms {
            let named = met.contains(&(family, (*room).to_owned()));
            assert!(named, "{room} may name {family}, and does not");
        }
    }
}

#[test]
fn every_test_file_is_registered() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let main = root.join("main.rs");
    let files = files_below(&root);
    let files = files
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let manifest = fs::read_to_string(root.with_file_name("Cargo.toml")).expect("a manifest");
    // What is a binary by itself: tests/main.rs, and what counts for a whole process.
    let is_binary = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        manifest.contains(&format!("path = \"tests/{}\"", name.expect("UTF-8")))
    };
    let mut folders = BTreeSet::new();
    for path in files.filter(|path| !is_binary(path)) {
        let folder = path.parent().expect("it is in tests");
        folders.insert(folder);
        // `foo.rs` beside `foo/`, never `mod.rs`.
        let parent = match folder {
            top if top == root => main.clone(),
            deeper => deeper.with_extension("rs"),
        };
        let registered = fs::read_to_string(&parent).expect("a source file");
        let name = path.file_stem().expect("a name").to_str().expect("UTF-8");
        let line = format!("mod {name};");
        assert!(
            registered
                .lines()
                .any(|told| told.trim_start_matches("pub ") == line),
            "{} is not in {}",
            path.display(),
            parent.display()
        );
    }
    assert!(folders.len() > 3, "the walk found {folders:?}");
}

/// The crates that `Cargo.toml` lists, as code spells them.
fn dependencies() -> BTreeSet<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let text = fs::read_to_string(manifest).expect("a manifest");
    let mut listed = BTreeSet::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]");
        } else if let Some((name, _)) = line.split_once(" = ")
            && inside
        {
            listed.insert(name.replace('-', "_"));
        }
    }
    for sure in ["tokio", "redis", "parking_lot", "proptest"] {
        assert!(listed.contains(sure), "{sure} is not in {listed:?}");
    }
    listed
}

/// What paths begin with, crates or not, with the number of the line: everywhere but in comments.
fn roots_named(text: &str) -> Vec<(usize, String)> {
    let mut named = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for pattern in [&*PATH, &*WHOLE] {
            let found = pattern.captures_iter(line);
            named.extend(found.map(|root| (index + 1, root[1].to_owned())));
        }
    }
    named
}

/// Of `a::b::C` only `a`; `::a::B` names it as well.
static PATH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|[^\w:])(?:::)?([a-z_]\w*)::").expect("a pattern"));

/// `use a;` and what is like it.
static WHOLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:use|extern crate)\s+([a-z_]\w*)\s*(?:;|as\b)").expect("a pattern")
});

/// Every source file but lib.rs and main.rs, with its room.
fn sources() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for path in files_below(&root) {
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
    assert!(found.len() > 20, "the walk found {}", found.len());
    found
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
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

#[test]
fn the_reader_of_crates_reads_every_line_that_is_no_comment() {
    for (line, named) in [
        ("use tokio::sync::watch;", &["tokio"][..]),
        ("pub use redis as client;", &["redis"]),
        ("    tracing::info!(name, \"told\");", &["tracing"]),
        ("    tokio::time::sleep(delay).await;", &["tokio"]),
        ("    lock: parking_lot::Mutex<u8>,", &["parking_lot"]),
        ("type Failure = Box<pingora::Error>;", &["pingora"]),
        ("fn all() -> Vec<redis::Value> {", &["redis"]),
        ("    let a = f(::redis::cmd(\"GET\"));", &["redis"]),
        ("(tokio::spawn(x), &redis::Value::Nil)", &["tokio", "redis"]),
        ("use crate::store::redis::Settings;", &["crate"]),
        ("    // redis::cmd", &[]),
        ("/// As [`redis::Value`] has it.", &[]),
    ] {
        let found = roots_named(line).into_iter().map(|(_, root)| root);
        assert_eq!(found.collect::<Vec<_>>(), named, "{line}");
    }
}
