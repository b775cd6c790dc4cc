//! `GET /near-limit`: the last decisions near a limit, those alike as one, the newest first.

use serde_json::{Value, json};

use crate::{
    bounded_log::Kind,
    limiter::{NearLimit, Noted},
};

pub(super) fn told(recent: Vec<Kind<NearLimit>>) -> Value {
    let recent = recent.into_iter();
    recent
        .map(|kind| decision(&kind.last.0, kind.times))
        .collect()
}

fn decision(noted: &Noted, times: u64) -> Value {
    let decision = &noted.decision;
    json!({
        "policy": &*noted.policy,
        "name": &*noted.limit,
        "limit": decision.limit.to_string(),
        "quota": decision.limit.quota(),
        "window_seconds": decision.limit.window().seconds(),
        "mode": noted.mode.name(),
        "identifier": noted.identifier.to_string(),
        "decision": noted.outcome(),
        "decided_by": noted.decided_by.name(),
        "current": decision.counts.current,
        "previous": decision.counts.previous,
        "estimate": decision.estimate(),
        "utilization": decision.utilization(),
        "now_ms": decision.now.as_millis(),
        "times": times,
    })
}
