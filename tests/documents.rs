//! What the documents say of the repository is so: links and paths lead somewhere, and the README names every
//! metric and every alert. Its YAML blocks are the configuration's to check.

use std::{fs, path::Path};

const DOCUMENTS: [&str; 10] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/metrics.md",
    "docs/soak.md",
    "lua/README.md",
    "k8s/README.md",
    "tests/logs/README.md",
    "src/lib.rs",
];

#[test]
fn every_link_leads_to_a_file() {
    let mut found = 0;
    for document in DOCUMENTS {
        let text = text(document);
        let beside = root().join(document);
        for rest in text.split("](").skip(1) {
            let (target, _) = rest.split_once(')').expect("a link ends");
            let is_here = !target.contains("://") && target.contains('.');
            if is_here {
                found += 1;
                assert!(
                    beside.with_file_name(target).exists(),
                    "{document}: {target}"
                );
            }
        }
    }
    assert!(found >= 5, "found {found}");
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
fn the_readme_names_every_metric() {
    let (readme, exposed) = (text("README.md"), text("tests/snapshots/exposition.txt"));
    let families = exposed
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE slidegate_"));
    let mut found = 0;
    for family in families {
        let (name, _) = family.split_once(' ').expect("a type");
        found += 1;
        let named = [format!("`{name}`"), format!("`{name}{{")];
        assert!(
            named.iter().any(|named| readme.contains(named)),
            "README.md lacks {name}"
        );
    }
    assert!(found >= 10, "found {found}");
}

#[test]
fn the_readme_names_every_alert_as_severe_as_it_is() {
    let (readme, rules) = (text("README.md"), text("dashboards/alerts.yaml"));
    let rules: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(rules.len() >= 6, "found {}", rules.len());
    for rule in rules {
        let name = rule.lines().next().expect("a name");
        let severity = rule.split("severity: ").nth(1);
        let severity = severity.and_then(|rest| rest.lines().next());
        let severity = severity.expect("a severity");
        let mut rows = readme
            .lines()
            .filter(|line| line.contains(&format!("| `{name}` |")));
        let row = rows
            .next()
            .unwrap_or_else(|| panic!("README.md lacks {name}"));
        assert!(row.ends_with(&format!("| {severity} |")), "{row}");
    }
}

fn text(document: &str) -> String {
    fs::read_to_string(root().join(document)).expect(document)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
