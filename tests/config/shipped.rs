//! What ships is tested: `config.yaml`, and every configuration that the documents show.

use std::{fs, time::Duration};

use slidegate::config::{Config, Problem};

use super::{parse, root, text};

#[test]
fn the_shipped_configuration_starts_in_memory_without_any_environment() {
    let config = Config::load(&root().join("config.yaml"), &|_| None).expect("accepted");
    assert!(config.redis.is_none());
    assert_eq!(config.warnings, Vec::<String>::new());
    let names: Vec<_> = config.policies.iter().map(|policy| &*policy.name).collect();
    assert_eq!(names, ["per-client", "per-ip"]);
}

#[test]
fn the_shipped_configuration_says_what_a_minimal_one_leaves_out() {
    let shipped = Config::load(&root().join("config.yaml"), &|_| None).expect("accepted");
    let minimal = parse(
        "upstream: {address: 127.0.0.1:3000}\n\
         policies:\n\
         - {name: per-client, limits: [100/1m], identifier: [header:x-api-key, client_ip]}\n\
         - {name: per-ip, limits: [1000/1m]}",
    )
    .expect("accepted");
    assert_eq!(format!("{shipped:?}"), format!("{minimal:?}"));
}

/// An unknown key in every section makes the loader list the known ones.
#[test]
fn the_shipped_configuration_shows_every_key_there_is() {
    let sections = [
        "shutdown",
        "upstream",
        "store",
        "identity",
        "block",
        "exempt",
        "responses",
        "near_limit",
        "log",
    ];
    let sections = sections.map(|section| format!("{section}: {{zz: 1}}\n"));
    let nested = ["tls", "sentinel", "cluster"];
    let in_store = nested.map(|section| format!(", {section}: {{zz: 1}}"));
    let of_upstreams = ["tls", "eject", "health_check"];
    let in_upstream = of_upstreams.map(|section| format!(", {section}: {{zz: 1}}"));
    let policies = "policies: [{zz: 1, match: {zz: 1, not: {zz: 1}}}]";
    let odd = format!("zz: 1\n{}{policies}", sections.concat())
        .replace(
            "store: {zz: 1",
            &format!("store: {{zz: 1{}", in_store.concat()),
        )
        .replace(
            "upstream: {zz: 1",
            &format!("upstream: {{zz: 1{}", in_upstream.concat()),
        );
    let faults = parse(&odd).expect_err("unknown keys").faults;
    let lists = faults.into_iter().filter_map(|fault| match fault.problem {
        Problem::UnknownKey { known } => Some(known),
        _ => None,
    });
    let lists: Vec<_> = lists.collect();
    let expected = sections.len() + nested.len() + of_upstreams.len() + 4;
    assert_eq!(lists.len(), expected, "one list a section");
    let shipped = text(&root().join("config.yaml"));
    for key in lists.concat() {
        let shown = shipped.lines().any(|line| {
            let line = line.trim_start_matches([' ', '#', '-']);
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with(':'))
        });
        assert!(shown, "config.yaml does not show {key}");
    }
}

#[test]
fn the_shipped_configuration_uses_redis_and_the_secret_where_the_environment_has_them() {
    let load = |secret: bool| {
        let env = move |name: &str| match name {
            "REDIS_URL" => Some("redis://:pass%2Fword@redis:6379/1".to_owned()),
            "UPSTREAM" => Some("app:8080".to_owned()),
            "SLIDEGATE_SECRET" => secret.then(|| "0123".to_owned()),
            _ => None,
        };
        Config::load(&root().join("config.yaml"), &env).expect("accepted")
    };
    let config = load(true);
    let redis = config.redis.expect("Redis");
    assert_eq!(
        redis.url.to_string(),
        "redis:6379",
        "the password is not told"
    );
    assert_eq!(redis.budget, Duration::from_millis(25));
    assert_eq!(config.upstreams[0].told(), "app:8080");
    assert_eq!(config.warnings, Vec::<String>::new());
    let warnings = load(false).warnings;
    assert!(
        matches!(warnings.as_slice(), [one] if one.contains("a fixed key is used")),
        "{warnings:?}"
    );
}

#[test]
fn every_yaml_block_with_policies_in_the_documents_is_accepted() {
    let blocks = documented();
    for (document, block) in &blocks {
        if let Err(error) = Config::parse(block, document, &|_| None) {
            panic!("{error}\nin the block\n{block}");
        }
    }
    assert!(blocks.len() >= 20, "found {}", blocks.len());
}

/// Every whole configuration that the README and what is under `docs/` show, each with where it stands.
pub fn documented() -> Vec<(String, String)> {
    let docs = fs::read_dir(root().join("docs")).expect("a folder");
    let docs = docs.map(|entry| entry.expect("a file").path());
    let mut blocks = Vec::new();
    for file in docs.chain([root().join("README.md")]) {
        let text = fs::read_to_string(&file).expect("text");
        let found = yaml_blocks(&text).into_iter();
        let whole = found.filter(|block| block.contains("policies:"));
        blocks.extend(whole.map(|block| (file.display().to_string(), block)));
    }
    blocks
}

/// The contents of every block fenced as ```` ```yaml ````, without the indentation of its fence.
fn yaml_blocks(markdown: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = markdown.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "```yaml" {
            let indent = line.len() - line.trim_start().len();
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            let block: Vec<_> = block.map(|line| line.get(indent..).unwrap_or("")).collect();
            blocks.push(block.join("\n"));
        }
    }
    blocks
}
