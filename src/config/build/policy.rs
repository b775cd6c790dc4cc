//! `policies`: which requests, who is counted, by which limits, and what a denial does.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use http::StatusCode;

use super::matching::{self, Earlier};
use crate::{
    config::{
        field::Field,
        leaf::{Choice, Rejected, boolean, choice, integer, name, nearest},
        section::Section,
    },
    policy::{
        Charge, FailureMode, IdentifierRule, IdentifierSource, MissingIdentifier, Mode, NamedLimit,
        Policy,
    },
    ratelimit::{Algorithm, Cost, Limit, Window},
};

/// Every policy; `None` if there is none without a fault.
pub fn read_all(root: &mut Section<'_>, mut earlier: Earlier) -> Option<Vec<Policy>> {
    root.require(
        "policies",
        "policies: [{name: per-client, limits: [100/1m]}]",
    );
    let mut names = Names::default();
    root.list(
        "policies",
        "- {name: per-client, limits: [100/1m]}",
        |item| {
            let policy = item.section(|section| {
                let policy = read(section, &mut names)?;
                earlier.leave(section, policy.mode, &policy.matches);
                Some(policy)
            });
            policy.flatten()
        },
    )
}

/// Whose names are taken, by the path of what has them.
#[derive(Default)]
struct Names {
    policies: HashMap<String, String>,
    limits: HashMap<String, String>,
}

fn read(section: &mut Section<'_>, names: &mut Names) -> Option<Policy> {
    section.require("name", "name: per-client");
    let path = section.path().to_string();
    let name = section.optional("name", |text| policy_name(text, &path, names));
    let matches = matching::read(section);
    let identifier = identifier(section);
    section.require("limits", "limits: [100/1m]");
    let limits = limits(section);
    let algorithm = section.word("algorithm", Algorithm::default(), algorithm);
    let cost = section.word("cost", Cost::ONE, str::parse);
    let charge = charge(section);
    let mode = section.word("mode", Mode::default(), choice);
    let failure_mode = section.word("failure_mode", FailureMode::default(), choice);

    let (name, limits) = (name?, limits?);
    let limits = named(limits, &name, algorithm);
    for limit in &limits {
        let taken = names.limits.insert(limit.name.to_string(), path.clone());
        if let Some(by) = taken {
            let problem = format!("its limit {} has the same name as one of {by}", limit.name);
            section.conflict("name", problem, Some("rename one of the two policies"));
        }
    }
    Some(Policy {
        name,
        matches: matches?,
        identifier,
        limits,
        cost,
        charge,
        mode,
        failure_mode,
    })
}

fn policy_name(text: &str, path: &str, names: &mut Names) -> Result<Arc<str>, Rejected> {
    let name = name(text)?;
    match names.policies.insert(name.to_owned(), path.to_owned()) {
        None => Ok(name.into()),
        Some(by) => Err(Rejected::new(format!(
            "names are unique, and {by} has this one"
        ))),
    }
}

/// By address unless configured: a header's value is the client's own choice.
fn identifier(section: &mut Section<'_>) -> IdentifierRule {
    let mut seen: Vec<IdentifierSource> = Vec::new();
    let example = "[header:x-api-key, client_ip]";
    let sources = section.list("identifier", example, |item| {
        let source = item.word(|text| source(text, &seen));
        seen.extend(source.clone());
        source
    });
    let missing = section.optional("missing_identifier", choice);
    let sources = sources.unwrap_or_else(|| vec![IdentifierSource::ClientIp]);
    let never_missing = sources.contains(&IdentifierSource::ClientIp);
    if never_missing && missing.is_some_and(|missing| missing != MissingIdentifier::ClientIp) {
        section.conflict(
            "missing_identifier",
            "has no effect: client_ip is among the sources, and every client has an address",
            Some("remove client_ip from identifier, or this line"),
        );
    }
    IdentifierRule {
        sources,
        missing: missing.unwrap_or_default(),
    }
}

fn source(text: &str, before: &[IdentifierSource]) -> Result<IdentifierSource, Rejected> {
    let source: IdentifierSource = text
        .parse()
        .map_err(|error| Rejected::from(error).hint(nearest(text, ["client_ip"])))?;
    if before.contains(&source) {
        return Err(Rejected::new("each source is tried once, and this one was"));
    }
    if before.contains(&IdentifierSource::ClientIp) {
        return Err(Rejected::new(
            "every client has an address, so nothing after client_ip is tried",
        )
        .hint(Some("put client_ip last".to_owned())));
    }
    Ok(source)
}

fn limits(section: &mut Section<'_>) -> Option<Vec<Limit>> {
    let mut windows: HashSet<Window> = HashSet::new();
    section.list("limits", "[100/1m, 1000/1h]", |item: Field<'_>| {
        item.word(|text| {
            let limit: Limit = text
                .parse()
                .map_err(|error| Rejected::from(error).hint(limit_hint(text)))?;
            if windows.insert(limit.window()) {
                return Ok(limit);
            }
            Err(Rejected::new(format!(
                "each window stands once in a policy, and {} was there",
                limit.window()
            )))
        })
    })
}

/// What was meant by a window in words: `100/minute`, `100 per minute`, `100rpm`.
fn limit_hint(text: &str) -> Option<String> {
    let (quota, window) = text
        .split_once('/')
        .or_else(|| text.split_once(" per "))
        .or_else(|| Some((text.strip_suffix("rps")?, "s")))
        .or_else(|| Some((text.strip_suffix("rpm")?, "m")))?;
    let window = match window.trim().trim_end_matches('s') {
        "" | "sec" | "second" => "1s",
        "m" | "min" | "minute" => "1m",
        "h" | "hour" => "1h",
        "d" | "day" => "1d",
        "w" | "1w" | "week" => "7d",
        _ => return None,
    };
    let limit = format!("{}/{window}", quota.trim());
    limit
        .parse::<Limit>()
        .ok()
        .map(|limit| format!("write {limit}"))
}

/// A lone limit has the policy's name; several have their window after it.
fn named(limits: Vec<Limit>, policy: &Arc<str>, algorithm: Algorithm) -> Vec<NamedLimit> {
    let alone = limits.len() == 1;
    let name = |limit: Limit| match alone {
        true => policy.clone(),
        false => format!("{policy}-{}", limit.window()).into(),
    };
    let limits = limits.into_iter().map(|limit| NamedLimit {
        name: name(limit),
        limit,
        algorithm,
    });
    limits.collect()
}

fn charge(section: &mut Section<'_>) -> Charge {
    let mut seen = HashSet::new();
    let statuses = section.list("charge_on", "[401, 403]", |item| {
        item.word(|text| status(text, &mut seen))
    });
    let take_back = section.optional("take_back_5xx", boolean);
    if section.has("charge_on") && section.has("take_back_5xx") {
        section.conflict(
            "take_back_5xx",
            "does not go with charge_on, which charges nothing before the response",
            Some("remove one of the two"),
        );
    }
    match statuses {
        Some(statuses) => Charge::AtResponse { statuses },
        None => Charge::AtRequest {
            take_back_5xx: take_back.unwrap_or(false),
        },
    }
}

fn status(text: &str, seen: &mut HashSet<u64>) -> Result<StatusCode, Rejected> {
    let status = integer(200..=599)(text)?;
    if !seen.insert(status) {
        return Err(Rejected::new("each status stands once, and this one did"));
    }
    let status = u16::try_from(status).expect("at most 599");
    Ok(StatusCode::from_u16(status).expect("from 200 to 599"))
}

fn algorithm(text: &str) -> Result<Algorithm, Rejected> {
    text.parse().map_err(|()| {
        let names = Algorithm::ALL.map(Algorithm::name);
        Rejected::new(format!("accepted: {}", names.join(", "))).hint(nearest(text, names))
    })
}

impl Choice for MissingIdentifier {
    const ALL: &'static [Self] = &[Self::ClientIp, Self::Allow, Self::Deny];

    fn name(self) -> &'static str {
        match self {
            Self::ClientIp => "client_ip",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl Choice for Mode {
    const ALL: &'static [Self] = &[Self::Enforce, Self::Shadow];

    fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

impl Choice for FailureMode {
    const ALL: &'static [Self] = &[Self::Local, Self::Allow, Self::Deny];

    fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}
