//! From sections of the file to the settings of every component: one file per part of it.
//!
//! Every part is read to its end whatever is wrong with it, so that one run finds every fault; only then
//! is a missing part a reason to stop.

mod gate;
mod identifier;
mod identity;
mod listeners;
mod matching;
mod policy;
mod redis;
mod responses;
mod store;
mod tiers;
mod upstream;
mod warnings;

use std::num::NonZeroU32;

use self::matching::Earlier;
use super::{
    Config, LogSettings, Shown,
    leaf::{Choice, Rejected, choice, decimal, integer},
    section::Section,
    values::Values,
};
use crate::{
    limiter::{LimiterSettings, LineSettings},
    policy::{Apply, Consumers},
};

/// The configuration that `root` holds. `None` if there are faults without which it has no meaning.
pub fn build(root: &mut Section<'_>) -> Option<Config> {
    let server = listeners::read(root);
    let admin_token = listeners::admin_token(root, &server);
    let upstream = root.section("upstream", |section| upstream::read(section, &server));
    let store = root.section("store", store::read);
    let identity = root.section("identity", identity::read).unwrap_or_default();
    let responses = root.section("responses", responses::read);
    let near_limit_edges = root.section("near_limit", near_limit_edges);
    let log = root.section("log", log);
    let lines = log.as_ref().map(|log| log.lines);
    let apply = root.word("apply", Apply::default(), choice);
    let lists = gate::read(root, &identity);
    let policies = policy::read_all(root, &identity, Earlier::new(apply, &lists));

    let store = store?;
    let policies = policies?;
    let warnings = warnings::of(&policies, apply, &lists, &store, &identity);
    Some(Config {
        server,
        admin_token,
        upstream: upstream??,
        redis: store.redis,
        memory: store.memory,
        limiter: LimiterSettings {
            expected_replicas: store.expected_replicas,
            near_limit_edges: near_limit_edges?,
            denial_cache: store.denial_cache,
            lines: lines.unwrap_or_default(),
        },
        responses: responses?,
        gate: lists.gate(),
        apply,
        policies,
        clients: identity.clients,
        hasher: identity.hasher,
        consumers_settings: identity.consumers,
        consumers_named: identity.named.into_inner(),
        consumers: Consumers::default(),
        log: log?,
        warnings,
        files: Vec::new(),
        values: Values::default(),
        shown: Shown::default(),
    })
}

fn near_limit_edges(section: &mut Section<'_>) -> Vec<f64> {
    let mut edges: Vec<f64> = Vec::new();
    let mut given = 0;
    let read = section.list("edges", "[0.90, 0.95, 1.00, 1.05, 1.10]", |item| {
        given += 1;
        let edge = item.word(|text| {
            let edge = decimal(0.0..=10.0)(text)?;
            match edges.last() {
                Some(&last) if edge <= last => Err(Rejected::new(format!(
                    "edges ascend, and the one before is {last}"
                ))),
                _ => Ok(edge),
            }
        });
        edges.extend(edge);
        edge
    });
    match read {
        Some(edges) => {
            if given < 2 {
                section.conflict("edges", "a band has two edges; give at least two", None);
            }
            edges
        }
        None => vec![0.90, 0.95, 1.00, 1.05, 1.10],
    }
}

fn log(section: &mut Section<'_>) -> LogSettings {
    let lines = LineSettings::default();
    LogSettings {
        json: section.word("format", LogFormat::Human, choice) == LogFormat::Json,
        level: section.word("level", "info".to_owned(), level),
        lines: LineSettings {
            near_limit: section.word("near_limit_lines", lines.near_limit, integer(0..=1000)),
            denied: section.word("denied_lines", lines.denied, integer(0..=1000)),
        },
    }
}

/// A level, or several `target=level` with commas: what `tracing` would take for a target with a slip in
/// it (`inof`) would silence everything else, so a lone word must be a level.
fn level(text: &str) -> Result<String, Rejected> {
    let target = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
        !text.is_empty() && text.bytes().all(plain)
    };
    let directive = |text: &str| match text.split_once('=') {
        Some((name, level)) => target(name) && LEVELS.contains(&level),
        None => LEVELS.contains(&text),
    };
    if text.split(',').all(directive) {
        return Ok(text.to_owned());
    }
    let accepted = format!(
        "a level is one of {}; targets have their own as in slidegate=debug,info",
        LEVELS.join(", ")
    );
    Err(Rejected::new(accepted).hint(super::leaf::nearest(text, LEVELS)))
}

/// How many proxies share each limit.
fn replicas(section: &mut Section<'_>) -> NonZeroU32 {
    section.word("expected_replicas", NonZeroU32::MIN, |text| {
        let replicas = integer(1..=10_000)(text)?;
        let replicas = u32::try_from(replicas).ok().and_then(NonZeroU32::new);
        Ok::<_, Rejected>(replicas.expect("from 1 to 10,000"))
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LogFormat {
    Human,
    Json,
}

impl Choice for LogFormat {
    const ALL: &'static [Self] = &[Self::Human, Self::Json];

    fn name(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
        }
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
