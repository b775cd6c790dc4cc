//! `policies`: which requests, who is counted, by which limits, and what a denial does.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use http::{HeaderName, StatusCode};

use super::{
    identifier,
    identity::IdentitySettings,
    matching::{self, Earlier},
    tiers,
};
use crate::{
    config::{
        leaf::{Choice, Rejected, boolean, choice, integer, name},
        section::Section,
    },
    policy::{Charge, CostHeader, CostRule, FailureMode, Mode, Policy, Tiers},
    ratelimit::{Algorithm, Cost},
};

/// Every policy; `None` if there is none without a fault.
pub fn read_all(
    root: &mut Section<'_>,
    identity: &IdentitySettings,
    mut earlier: Earlier,
) -> Option<Vec<Policy>> {
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
                let policy = read(section, &mut names, identity)?;
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

fn read(
    section: &mut Section<'_>,
    names: &mut Names,
    identity: &IdentitySettings,
) -> Option<Policy> {
    section.require("name", "name: per-client");
    let path = section.path().to_string();
    let name = section.optional("name", |text| policy_name(text, &path, names));
    let matches = matching::read(section);
    let identifier = identifier::read(section, identity.consumers.as_ref());
    let algorithm = section.word("algorithm", Algorithm::default(), choice);
    let grants = tiers::read(section, identity, &identifier, algorithm);
    let cost = cost(section, identity);
    let charge = charge(section);
    let mode = section.word("mode", Mode::default(), choice);
    let failure_mode = section.word("failure_mode", FailureMode::default(), choice);

    let (name, grants) = (name?, grants?);
    let tiers = grants.named(&name, algorithm);
    names.claim(section, &tiers, &path);
    Some(Policy {
        name,
        matches: matches?,
        identifier,
        tiers,
        cost,
        charge,
        mode,
        failure_mode,
    })
}

impl Names {
    /// Adds a fault for each limit whose name another policy has.
    fn claim(&mut self, section: &Section<'_>, tiers: &Tiers, path: &str) {
        let limits = tiers.all().iter().flat_map(|tier| &tier.limits);
        let names: BTreeSet<&Arc<str>> = limits.map(|limit| &limit.name).collect();
        for name in names {
            let taken = self.limits.insert(name.to_string(), path.to_owned());
            if let Some(by) = taken {
                let problem = format!("its limit {name} has the same name as one of {by}");
                section.conflict("name", problem, Some("rename one of the two policies"));
            }
        }
    }
}

/// What a request takes: fixed, or told by a trusted proxy.
fn cost(section: &mut Section<'_>, identity: &IdentitySettings) -> CostRule {
    let fixed = section.word("cost", Cost::ONE, str::parse);
    let name = section.optional("cost_header", |text| {
        HeaderName::from_bytes(text.as_bytes())
            .map_err(|_| Rejected::new("a header name is made of letters, digits and hyphens"))
    });
    let max = section.optional("max_cost", str::parse::<Cost>);
    let has = |key: &str| section.has(key);
    match (has("cost_header"), has("max_cost")) {
        (true, false) => section.conflict(
            "cost_header",
            "wants max_cost beside it: the most that it may say",
            Some("write for instance max_cost: 100"),
        ),
        (false, true) => {
            section.conflict("max_cost", "has no effect without cost_header", None);
        }
        (true, true) | (false, false) => {}
    }
    if has("cost_header") && !identity.trusts_anybody() {
        section.conflict(
            "cost_header",
            "has no effect: nobody is trusted to write it",
            Some("list the proxies before this one in identity.trusted_proxies"),
        );
    }
    let header = name.zip(max).map(|(name, max)| CostHeader { name, max });
    CostRule { fixed, header }
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

fn status(text: &str, seen: &mut HashSet<u16>) -> Result<StatusCode, Rejected> {
    let status = integer(200..=599)(text)?;
    if !seen.insert(status) {
        return Err(Rejected::new("each status stands once, and this one did"));
    }
    Ok(StatusCode::from_u16(status).expect("from 200 to 599"))
}

impl Choice for Algorithm {
    const ALL: &'static [Self] = &Self::ALL;

    fn name(self) -> &'static str {
        Self::name(self)
    }
}

impl Choice for Mode {
    const ALL: &'static [Self] = &[Self::Enforce, Self::Shadow];

    fn name(self) -> &'static str {
        Self::name(self)
    }
}

impl Choice for FailureMode {
    const ALL: &'static [Self] = &[Self::Local, Self::Allow, Self::Deny];

    fn name(self) -> &'static str {
        Self::name(self)
    }
}
