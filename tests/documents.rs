//! What the documents say of the repository is so: links, places in documents and paths lead somewhere, and every metric
//! and every alert is named. Their YAML blocks are the configuration's to check.

use std::{collections::BTreeMap, fs, path::Path};

use crate::support::binary::output;

const DOCUMENTS: [&str; 23] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/accuracy.md",
    "docs/bench.md",
    "docs/configuration.md",
    "docs/edge.md",
    "docs/limits.md",
    "docs/listeners.md",
    "docs/metrics.md",
    "docs/observe.md",
    "docs/redis.md",
    "docs/replay.md",
    "docs/responses.md",
    "docs/sidecar.md",
    "docs/soak.md",
    "docs/upgrade.md",
    "docs/upstreams.md",
    "lua/README.md",
    "k8s/README.md",
    "tests/logs/README.md",
    "src/lib.rs",
];

#[test]
fn every_document_is_looked_at_and_the_readme_leads_to_it() {
    let readme = text("README.md");
    let mut found = 0;
    for entry in fs::read_dir(root().join("docs")).expect("a folder") {
        let name = entry.expect("a file").file_name();
        let path = format!("docs/{}", name.to_str().expect("text"));
        found += 1;
        assert!(DOCUMENTS.contains(&&*path), "{path} is in no list");
        // That of the metrics is reached by the one on observing.
        let leads = readme.contains(&format!("]({path})")) || path == "docs/metrics.md";
        assert!(leads, "README.md leads nowhere near {path}");
    }
    assert!(found >= 10, "found {found}");
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading_in_it() {
    let (mut found, mut headings_found) = (0, 0);
    for document in DOCUMENTS {
        let here = text(document);
        for rest in here.split("](").skip(1) {
            let (target, _) = rest.split_once(')').expect("a link ends");
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            if path.contains("://") || !(path.contains('.') || path.is_empty()) {
                continue;
            }
            found += 1;
            let file = match path {
                "" => root().join(document),
                _ => root().join(document).with_file_name(path),
            };
            assert!(file.exists(), "{document}: {target}");
            if !heading.is_empty() {
                headings_found += 1;
                let there = fs::read_to_string(&file).expect("text");
                let mut headings = headings(&there);
                assert!(
                    headings.any(|found| found == heading),
                    "{document}: {target}"
                );
            }
        }
    }
    assert!(
        found >= 40 && headings_found >= 15,
        "found {found}, {headings_found}"
    );
}

/// As links name them: in lower case, hyphens for blanks, and no other marks.
fn headings(document: &str) -> impl Iterator<Item = String> {
    let outside = document.split("```").step_by(2);
    let lines = outside.flat_map(str::lines);
    let headings = lines.filter_map(|line| {
        line.trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with('#'))
    });
    headings.map(|heading| {
        let kept = heading
            .chars()
            .filter(|char| char.is_alphanumeric() || "-_ ".contains(*char));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    })
}

/// A path in backticks, of a file or of a module: `src/store` is `src/store.rs` and what is below it.
#[test]
fn every_path_exists() {
    let rooms = [
        "src/",
        "bench/",
        "tests/",
        "lua/",
        "dashboards/",
        "k8s/",
        "scripts/",
        "examples/",
        ".ci/",
    ];
    let mut found = 0;
    for document in DOCUMENTS {
        for path in text(document).split('`').skip(1).step_by(2) {
            let is_path = rooms.iter().any(|room| path.starts_with(room));
            if is_path && !path.contains(['<', ' ']) {
                found += 1;
                let path = root().join(path);
                let exists = path.exists() || path.with_extension("rs").exists();
                assert!(exists, "{document}: {}", path.display());
            }
        }
    }
    assert!(found >= 30, "found {found}");
}

#[test]
fn every_metric_is_named() {
    let (document, exposed) = (
        text("docs/observe.md"),
        text("tests/snapshots/exposition.txt"),
    );
    let families = exposed
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE slidegate_"));
    let mut found = 0;
    for family in families {
        let (name, _) = family.split_once(' ').expect("a type");
        found += 1;
        let named = [format!("`{name}`"), format!("`{name}{{")];
        assert!(
            named.iter().any(|named| document.contains(named)),
            "it lacks {name}"
        );
    }
    assert!(found >= 10, "found {found}");
}

#[test]
fn every_alert_is_named_as_severe_as_it_is() {
    let (document, rules) = (text("docs/observe.md"), text("dashboards/alerts.yaml"));
    let rules: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(rules.len() >= 6, "found {}", rules.len());
    for rule in rules {
        let name = rule.lines().next().expect("a name");
        let severity = rule.split("severity: ").nth(1);
        let severity = severity.and_then(|rest| rest.lines().next());
        let severity = severity.expect("a severity");
        let mut rows = document
            .lines()
            .filter(|line| line.contains(&format!("| `{name}` |")));
        let row = rows.next().unwrap_or_else(|| panic!("it lacks {name}"));
        assert!(row.ends_with(&format!("| {severity} |")), "{row}");
    }
}

/// What a reader is told to type is known to what reads it: commands with their options, targets, directories.
#[test]
fn every_command_that_is_shown_is_known() {
    let (mut slidegate, mut make, mut kubectl) = (0, 0, 0);
    let mut help = BTreeMap::new();
    let makefile = text("Makefile");
    for document in DOCUMENTS {
        let text = text(document);
        for command in commands(&text, "slidegate") {
            let [name, rest @ ..] = &command[..] else {
                continue;
            };
            let known = help.entry((*name).to_owned()).or_insert_with(|| {
                let output = output(&[name, "--help"]);
                assert!(output.status.success(), "{document}: slidegate {name}");
                String::from_utf8(output.stdout).expect("text")
            });
            slidegate += 1;
            let options = rest.iter().filter(|word| word.starts_with('-'));
            for option in options.map(|word| word.trim_end_matches(',')) {
                let is_known = known
                    .split([' ', ',', '\n'])
                    .any(|candidate| candidate == option);
                assert!(is_known, "{document}: slidegate {name} {option}");
            }
        }
        for command in commands(&text, "make") {
            let Some(target) = command.first() else {
                continue;
            };
            make += 1;
            let begin = format!("{target}:");
            let is_known = makefile.lines().any(|line| line.starts_with(&begin));
            assert!(is_known, "{document}: make {target}");
        }
        for command in commands(&text, "kubectl") {
            if let ["apply", "-k", directory] = command[..] {
                kubectl += 1;
                let file = root().join(directory).join("kustomization.yaml");
                assert!(file.exists(), "{document}: {}", file.display());
            }
        }
    }
    assert!(
        slidegate >= 10 && make >= 8 && kubectl >= 6,
        "found {slidegate}, {make}, {kubectl}"
    );
}

/// The words after the program's name, of each command in a block or in backticks: up to what a shell takes for itself,
/// and without what is quoted.
fn commands<'a>(document: &'a str, program: &str) -> Vec<Vec<&'a str>> {
    let parts = document.split("```").enumerate();
    let lines = parts.flat_map(|(place, part)| match place % 2 {
        0 => part.split('`').skip(1).step_by(2).collect::<Vec<_>>(),
        _ => part.lines().collect(),
    });
    let found = lines.filter_map(|line| {
        let line = line.trim_start_matches("$ ");
        let rest = line.strip_prefix(program)?;
        let rest = rest.strip_prefix(' ')?;
        let unquoted = rest.split('\'').step_by(2);
        let words = unquoted.flat_map(str::split_whitespace);
        let own = words.take_while(|word| !word.starts_with(['<', '>', '|', '#', '\\']));
        Some(own.collect())
    });
    found.collect()
}

#[test]
fn explain_answers_what_is_shown() {
    let document = text("docs/observe.md");
    let (_, shown) = document
        .split_once("$ slidegate explain ")
        .expect("it is shown");
    let (command, shown) = shown.split_once('\n').expect("an answer follows");
    assert_eq!(
        command,
        "--config config.yaml --request 'POST /login' -H 'X-API-Key: k' --from 203.0.113.7"
    );
    let config = root().join("config.yaml");
    let output = output(&[
        "explain",
        "--config",
        config.to_str().expect("text"),
        "--request",
        "POST /login",
        "-H",
        "X-API-Key: k",
        "--from",
        "203.0.113.7",
    ]);
    let told = String::from_utf8(output.stdout).expect("text");
    let (shown, _) = shown.split_once("```").expect("a block ends");
    let mut told = told.lines();
    let mut found = 0;
    for line in shown.lines().filter(|line| line.trim() != "…") {
        found += 1;
        // What stands for "…" is passed over.
        assert!(told.any(|told| told == line), "{line}");
    }
    assert!(found >= 8, "found {found}");
}

fn text(document: &str) -> String {
    fs::read_to_string(root().join(document)).expect(document)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
