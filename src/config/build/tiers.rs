//! `limits`, `plans` and `overrides` of a policy: how much each may take.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use super::identity::IdentitySettings;
use crate::{
    config::{
        field::Field,
        leaf::{Rejected, name, nearest},
        section::Section,
    },
    policy::{
        Client, Identifier, IdentifierHasher, IdentifierRule, NamedLimit, ParseIdentifierError,
        Tiers,
    },
    ratelimit::{Algorithm, Limit, Window},
};

/// What a policy grants, before its limits have names.
pub struct Grants {
    own: Vec<Limit>,
    plans: Vec<(Arc<str>, Vec<Limit>)>,
    overrides: Vec<(Vec<Identifier>, Vec<Limit>)>,
}

/// What a policy grants; `None` if its own limits are at fault.
pub fn read(
    policy: &mut Section<'_>,
    identity: &IdentitySettings,
    rule: &IdentifierRule,
    algorithm: Algorithm,
) -> Option<Grants> {
    let limits = |field: Field<'_>| limits(field, algorithm);
    policy.require("limits", "limits: [100/1m]");
    let own = policy.field("limits").and_then(limits);
    let plan = |key: &str, field: Field<'_>| plan(key, field, limits);
    let plans = policy
        .field("plans")
        .and_then(|field| field.mapping("{gold: [1000/1m]}", plan))
        .unwrap_or_default();
    if policy.has("plans") && !rule.counts_consumers() {
        let (problem, hint) = match &identity.consumers {
            None => (
                "has no effect: consumers have plans, and there are none",
                "list them in a file, and name it in identity.consumers",
            ),
            Some(_) => (
                "has no effect: the policy counts no consumer",
                "let identifier name a header that holds their keys (identity.consumers.headers)",
            ),
        };
        policy.conflict("plans", problem, Some(hint));
    }
    let mut seen = HashMap::new();
    let overrides = policy.list("overrides", OVERRIDE, |item| {
        item.section(|section| one_override(section, identity, rule, &mut seen, limits))?
    });
    Some(Grants {
        own: own?,
        plans,
        overrides: overrides.unwrap_or_default(),
    })
}

impl Grants {
    /// Names every limit after the policy.
    pub fn named(&self, policy: &Arc<str>, algorithm: Algorithm) -> Tiers {
        let named = |limits: &[Limit]| named(limits, policy, algorithm);
        let mut tiers = Tiers::of(named(&self.own));
        for (plan, limits) in &self.plans {
            tiers.add_plan(plan.clone(), named(limits));
        }
        for (identifiers, limits) in &self.overrides {
            tiers.add_override(identifiers.iter().copied(), named(limits));
        }
        tiers
    }
}

fn plan(
    key: &str,
    field: Field<'_>,
    limits: impl Fn(Field<'_>) -> Option<Vec<Limit>>,
) -> Option<(Arc<str>, Vec<Limit>)> {
    match name(key) {
        Ok(plan) => limits(field).map(|limits| (plan.into(), limits)),
        Err(rejected) => {
            field.conflict(rejected.accepted);
            None
        }
    }
}

/// Whom an entry of `overrides` names, and the limits it gives them.
fn one_override(
    section: &mut Section<'_>,
    identity: &IdentitySettings,
    rule: &IdentifierRule,
    seen: &mut HashMap<Identifier, String>,
    limits: impl Fn(Field<'_>) -> Option<Vec<Limit>>,
) -> Option<(Vec<Identifier>, Vec<Limit>)> {
    let mut identifiers = Vec::new();
    let mut named = false;
    let hasher = &identity.hasher;
    let path = section.path().key("consumer");
    let kinds: [Kind<'_>; 3] = [
        ("client_ip", "[203.0.113.7]", &|text| address(text, hasher)),
        ("consumer", "[acme]", &|text| {
            let identifier = identity.consumer(&path, text)?;
            if !rule.counts_consumers() {
                return Err(Rejected::new(
                    "has no effect: the policy counts no consumer",
                ));
            }
            Ok(identifier)
        }),
        ("identifier", "[0jNS3U2sIFZAFWrfXgW2jA]", &identifier),
    ];
    for (key, example, parse) in kinds {
        named |= section.has(key);
        let path = section.path().to_string();
        let read = section.list(key, example, |item| {
            item.word(|text| {
                let identifier = parse(text)?;
                if let Some(by) = seen.insert(identifier, path.clone()) {
                    return Err(Rejected::new(format!(
                        "each stands once, and this one is in {by}"
                    )));
                }
                if !rule.counts(identifier) {
                    return Err(Rejected::new(
                        "has no effect: the policy counts nobody like this",
                    ));
                }
                Ok(identifier)
            })
        });
        identifiers.extend(read.unwrap_or_default());
    }
    if !named {
        section.conflict_here(
            "names nobody",
            Some("list them under client_ip, consumer or identifier"),
        );
    }
    section.require("limits", "limits: [1000/1m]");
    let limits = section.field("limits").and_then(limits)?;
    (!identifiers.is_empty()).then_some((identifiers, limits))
}

type Parsed = Result<Identifier, Rejected>;

/// A key, an example of its list, and what its items mean.
type Kind<'a> = (&'static str, &'static str, &'a dyn Fn(&str) -> Parsed);

/// An address stands for all that are counted together with it.
fn address(text: &str, hasher: &IdentifierHasher) -> Parsed {
    let address: IpAddr = text.parse().map_err(|_| {
        Rejected::new("an address, as in 203.0.113.7; ranges go into a policy with match")
    })?;
    Ok(hasher.client(Client::Address(address)))
}

fn identifier(text: &str) -> Parsed {
    text.parse()
        .map_err(|ParseIdentifierError| Rejected::from(ParseIdentifierError))
}

/// A list of limits, or `unlimited`, which is none of them.
fn limits(field: Field<'_>, algorithm: Algorithm) -> Option<Vec<Limit>> {
    if !field.is_list() {
        return field.word(unlimited);
    }
    let mut windows: HashSet<Window> = HashSet::new();
    field.list(EXAMPLE, |item| {
        item.word(|text| {
            let limit: Limit = text
                .parse()
                .map_err(|error| Rejected::from(error).hint(limit_hint(text)))?;
            if let Some(largest) = algorithm.max_quota()
                && limit.quota() > largest
            {
                return Err(too_large(algorithm, largest));
            }
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

fn too_large(algorithm: Algorithm, largest: u64) -> Rejected {
    let accepted = format!(
        "at most {largest} units by {}, which keeps each of them",
        algorithm.name()
    );
    let counting = Algorithm::SlidingWindowCounter.name();
    let hint = format!("write algorithm: {counting}, which counts any number in two");
    Rejected::new(accepted).hint(Some(hint))
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
fn named(limits: &[Limit], policy: &Arc<str>, algorithm: Algorithm) -> Vec<NamedLimit> {
    let many = limits.len();
    let limits = limits.iter().map(|limit| NamedLimit {
        name: NamedLimit::name_of(policy, *limit, many),
        limit: *limit,
        algorithm,
    });
    limits.collect()
}

/// The word for no limit at all.
fn unlimited(text: &str) -> Result<Vec<Limit>, Rejected> {
    if text == UNLIMITED {
        return Ok(Vec::new());
    }
    let accepted = format!("a list of limits, as in {EXAMPLE}, or {UNLIMITED}");
    let hint = match text.parse::<Limit>() {
        Ok(limit) => Some(format!("write [{limit}]")),
        Err(_) => nearest(text, [UNLIMITED]),
    };
    Err(Rejected::new(accepted).hint(hint))
}

const UNLIMITED: &str = "unlimited";

const EXAMPLE: &str = "[100/1m, 1000/1h]";

const OVERRIDE: &str = "- {client_ip: [203.0.113.7], limits: [1000/1m]}";
