//! `GET /policies`: what each policy is, and what has come of it so far.

use serde_json::{Map, Value, json};

use crate::{
    held,
    limiter::{Limiter, StoreStatus},
    policy::{Charge, NamedLimit, Policy},
    proxy::Rules,
    store::DecidedBy,
};

/// The store, and every policy in configuration order.
pub(super) fn told(rules: &Rules, store: &StoreStatus) -> Value {
    let policies = rules.limiter.policies().policies().iter().enumerate();
    let settings = &rules.origin.settings["policies"];
    let policies = policies.map(|(place, policy)| {
        let mut told = described(policy, &settings[place]["match"]);
        told["live"] = live(&rules.limiter, place, policy);
        told
    });
    let policies: Vec<Value> = policies.collect();
    let health = store.health();
    json!({
        "store": {
            "kind": if store.is_remote() { "redis" } else { "memory" },
            "away": health.tripped,
            "next_probe_ms": u64::try_from(health.next_probe.as_millis()).unwrap_or(u64::MAX),
            "waiting": health.pending,
            "counters_here": store.counters_here(),
        },
        "policies": policies,
    })
}

/// `matches` is what the configuration says of it, as it may be shown.
fn described(policy: &Policy, matches: &Value) -> Value {
    let identifier = policy.identifier.entries.iter().map(ToString::to_string);
    let identifier: Vec<String> = identifier.collect();
    let missing = (!policy.identifier.is_never_missing()).then_some(policy.identifier.missing);
    let cost_header = policy.cost.header.as_ref();
    let cost_header =
        cost_header.map(|header| json!({"name": header.name.as_str(), "max": header.max.units()}));
    let tiers = policy.tiers.all().iter().enumerate();
    let plans = tiers.clone().filter_map(|(_, tier)| {
        let plan = tier.plan.as_deref()?;
        Some((plan.to_owned(), limits(&tier.limits)))
    });
    let plans: Map<String, Value> = plans.collect();
    let overrides = tiers.skip(1).filter(|(_, tier)| tier.plan.is_none());
    let overrides = overrides.map(|(place, tier)| {
        let clients = policy.tiers.overrides().filter(|(_, tier)| *tier == place);
        json!({"clients": clients.count(), "limits": limits(&tier.limits)})
    });
    let overrides: Vec<Value> = overrides.collect();
    json!({
        "policy": &*policy.name,
        "match": matches,
        "identifier": identifier,
        "missing_identifier": missing.map(|missing| missing.name()),
        "limits": limits(policy.tiers.own()),
        "plans": plans,
        "overrides": overrides,
        "cost": policy.cost.fixed.units(),
        "cost_header": cost_header,
        "charge": charge(&policy.charge),
        "mode": policy.mode.name(),
        "failure_mode": policy.failure_mode.name(),
    })
}

/// None is unlimited.
fn limits(limits: &[NamedLimit]) -> Value {
    limits.iter().map(held::limit).collect()
}

fn charge(charge: &Charge) -> Value {
    match charge {
        Charge::AtRequest { take_back_5xx } => {
            json!({"at": "request", "take_back_5xx": take_back_5xx})
        }
        Charge::AtResponse { statuses } => {
            let statuses: Vec<u16> = statuses.iter().map(http::StatusCode::as_u16).collect();
            json!({"at": "response", "statuses": statuses})
        }
    }
}

/// The metrics of it, since the start of the process.
fn live(limiter: &Limiter, place: usize, policy: &Policy) -> Value {
    let counted = limiter.counted(place);
    let both = |[denied, allowed]: [u64; 2]| json!({"allow": allowed, "deny": denied});
    let decisions = DecidedBy::ALL.iter().zip(counted.decisions);
    let decisions = decisions.map(|(by, counted)| (by.name().to_owned(), both(counted)));
    let near_limit = counted.near_limit.into_iter();
    let near_limit = near_limit.map(|(band, counted)| (band, both(counted)));
    let sources = policy.identifier.entries.iter().map(ToString::to_string);
    let sources = sources.chain([FALLBACK.to_owned()]);
    let identified = sources.zip(counted.identified.into_iter().map(Value::from));
    json!({
        "decisions": decisions.collect::<Map<_, _>>(),
        "near_limit": near_limit.collect::<Map<_, _>>(),
        "identified": identified.collect::<Map<_, _>>(),
    })
}

/// An address that was counted for want of any source, as in the metrics.
const FALLBACK: &str = "fallback";
