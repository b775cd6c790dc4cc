//! What a store holds of one client, limit by limit, and its deletion: for commands, and for who asks a running proxy.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::{
    limiter::{LimitDecision, LimitDecisions, Limiter},
    policy::{Identifier, NamedLimit, Policy},
    store::StoreError,
};

/// What the store holds of a client under one policy.
#[derive(Debug)]
pub struct Held<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// What each of its limits makes of it now.
    pub limits: LimitDecisions,
}

/// What the store holds under the policies in these places; nothing is charged.
///
/// # Errors
/// If the store does not answer.
pub async fn inspect<'l>(
    limiter: &'l Limiter,
    policies: &[usize],
    identifier: Identifier,
) -> Result<Vec<Held<'l>>, StoreError> {
    let mut held = Vec::new();
    for place in policies {
        let limits = limiter.inspect(*place, identifier).await?;
        let policy = &limiter.policies().policies()[*place];
        held.push(Held { policy, limits });
    }
    Ok(held)
}

/// Deletes what the store, and this process, hold under the policies in these places.
///
/// # Errors
/// If the store does not answer about one of them; the others are deleted, and this process has forgotten all.
pub async fn forget(
    limiter: &Limiter,
    policies: &[usize],
    identifier: Identifier,
) -> Result<(), StoreError> {
    let mut forgotten = Ok(());
    for place in policies {
        forgotten = forgotten.and(limiter.forget(*place, identifier).await);
    }
    forgotten
}

/// Whether the store holds anything at all.
pub fn any(held: &[Held<'_>]) -> bool {
    let mut limits = held.iter().flat_map(|held| &held.limits);
    limits.any(|limit| limit.decision.counts.current + limit.decision.counts.previous > 0)
}

/// What is held, for programs.
pub fn inspected(identifier: Identifier, held: &[Held<'_>]) -> Value {
    json!({"identifier": identifier.to_string(), "policies": policies(held)})
}

/// What was held just before it was deleted, for programs; `denial_cache` is how long proxies may not notice.
pub fn forgotten(identifier: Identifier, held: &[Held<'_>], denial_cache: Duration) -> Value {
    json!({
        "identifier": identifier.to_string(),
        "deleted": policies(held),
        "denial_cache_ms": u64::try_from(denial_cache.as_millis()).unwrap_or(u64::MAX),
    })
}

/// The policies with their limits. Moments are milliseconds since the epoch, by the store's clock.
fn policies(held: &[Held<'_>]) -> Value {
    let policies = held.iter().map(|held| {
        let policy = held.policy;
        let limits: Vec<Value> = held
            .limits
            .iter()
            .map(|limit| entry(policy, limit))
            .collect();
        json!({"policy": &*policy.name, "mode": policy.mode.name(), "limits": limits})
    });
    policies.collect()
}

fn entry(policy: &Policy, held: &LimitDecision) -> Value {
    let decision = &held.decision;
    let named = &policy.tiers.limits(held.tier)[held.limit];
    let next_unit = decision.next_unit();
    // The window of a log slides.
    let turns = (!decision.algorithm.keeps_a_log()).then(|| decision.reset().as_millis());
    let mut told = limit(named);
    let held = [
        ("cost", json!(decision.cost.units())),
        ("current", json!(decision.counts.current)),
        ("previous", json!(decision.counts.previous)),
        ("estimate", json!(decision.estimate())),
        ("remaining", json!(decision.remaining())),
        ("allowed", json!(decision.allowed)),
        ("now_ms", json!(decision.now.as_millis())),
        (
            "next_unit_ms",
            json!(next_unit.map(|wait| decision.now.later(wait).as_millis())),
        ),
        ("window_turns_ms", json!(turns)),
    ];
    told.extend(held.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(told)
}

/// A limit as configured, with all that answers in JSON tell of one; those that tell of a decision tell less.
pub fn limit(named: &NamedLimit) -> Map<String, Value> {
    let limit = named.limit;
    let told = [
        ("name", json!(&*named.name)),
        ("limit", json!(limit.to_string())),
        ("quota", json!(limit.quota())),
        ("window_seconds", json!(limit.window().seconds())),
        ("algorithm", json!(named.algorithm.name())),
    ];
    told.map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}
