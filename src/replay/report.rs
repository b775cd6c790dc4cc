//! What a replay found, to be told.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{
    near::Near,
    reader::Reading,
    run::{Replay, Run},
    tally::{Counted, Slot},
    timeline::Timeline,
};
use crate::{
    policy::{Identifier, IdentifierHasher},
    ratelimit::Limit,
};

/// What a replay found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was read.
    pub logs: LogsReport,
    /// What became of all requests, by rule.
    pub requests: BTreeMap<&'static str, Outcome>,
    /// The rule in force, whose numbers come first.
    pub in_force: &'static str,
    /// The rules by which what was counted first was forgotten for want of room, and may have been asked for: their numbers may
    /// differ from what a proxy would do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forgetful: Vec<&'static str>,
    /// When requests came, and when the rule in force denied them; for pictures.
    #[serde(skip)]
    pub timeline: Timeline,
    /// Every limit that was asked, in configuration order.
    pub limits: Vec<LimitReport>,
}

/// What was read.
#[derive(Clone, Debug, Serialize)]
pub struct LogsReport {
    /// How many requests the logs tell of.
    pub requests: u64,
    /// How many of them are no HTTP, and count as `GET /`.
    pub not_http: u64,
    /// The stamps of the first and the last request, in milliseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_ms: Option<(u64, u64)>,
    /// How many requests have a stamp before the newest so far.
    pub out_of_order: u64,
    /// By how much at most.
    pub out_of_order_by_ms: u64,
    /// Lines with a request, by format.
    pub formats: BTreeMap<&'static str, u64>,
    /// Lines with a request that a container's runtime wrapped.
    pub wrapped: BTreeMap<&'static str, u64>,
    /// Lines without a request, by reason.
    pub unreadable: BTreeMap<&'static str, u64>,
    /// The first of them.
    pub unreadable_lines: Vec<UnreadableLine>,
}

/// A line that tells of no request.
#[derive(Clone, Debug, Serialize)]
pub struct UnreadableLine {
    /// The log.
    pub file: String,
    /// Which line of it, from 1.
    pub line: u64,
    /// Why.
    pub reason: &'static str,
    /// How it begins.
    pub begins: String,
}

/// What became of requests.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Outcome {
    /// To the upstream.
    pub passed: u64,
    /// By a limit.
    pub denied: u64,
    /// For what they are, whatever the limits: blocked, or without an identity that is wanted.
    pub refused: u64,
}

/// What came of one limit.
#[derive(Clone, Debug, Serialize)]
pub struct LimitReport {
    /// The policy.
    pub policy: String,
    /// `enforce` or `shadow`.
    pub mode: &'static str,
    /// The plan whose limit it is, if it is one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The limit's name.
    pub name: String,
    /// So many units per window.
    pub limit: String,
    /// The same, as a value.
    #[serde(skip)]
    pub of: Limit,
    /// Which one it is, of all that the policies have.
    #[serde(skip)]
    pub(crate) slot: Slot,
    /// How the rule in force estimated around it; for pictures.
    #[serde(skip)]
    pub near: Near,
    /// How many requests it was asked about.
    pub requests: u64,
    /// Of all requests of the logs, from 0 to 1.
    pub share: f64,
    /// How many identifiers it counts.
    pub identifiers: usize,
    /// What it did by each rule.
    pub algorithms: BTreeMap<&'static str, RuleReport>,
    /// Whom it denied most by the rule in force, at most [`Report::MOST_WORST`].
    pub worst: Vec<Worst>,
}

/// What a limit did by one rule.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RuleReport {
    /// How many requests it denied.
    pub denied: u64,
    /// Of those it was asked about, from 0 to 1.
    pub denied_share: f64,
    /// How many identifiers it denied something.
    pub denied_identifiers: usize,
    /// How many it admitted though the exact count of what was admitted was at the limit.
    pub false_allows: u64,
    /// How many it denied though that was below.
    pub false_denials: u64,
    /// The most units above the limit that were admitted in a window, wherever that begins.
    pub max_excess: u64,
    /// The most bytes that its counters or logs would have had in Redis at once, within a quarter.
    pub redis_bytes: u64,
    /// The largest quota that a configuration takes of this algorithm, where this limit is above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beyond_max_quota: Option<u64>,
}

/// Somebody who was denied often.
#[derive(Clone, Debug, Serialize)]
pub struct Worst {
    /// Who: a hash, unless addresses are to be shown.
    pub identifier: String,
    /// Of how many requests.
    pub requests: u64,
    /// So many were denied.
    pub denied: u64,
}

/// How identifiers are told.
#[derive(Clone, Copy, Debug)]
pub struct Identifiers<'h> {
    /// Makes hashes of addresses.
    pub hasher: &'h IdentifierHasher,
    /// Whether addresses are shown as they are.
    pub show: bool,
}

impl Report {
    /// How many identifiers are told of each limit.
    pub const MOST_WORST: usize = 5;

    /// What `replay` found in what was read.
    pub fn new(reading: &Reading, replay: &Replay, identifiers: Identifiers<'_>) -> Self {
        let requests = replay
            .runs
            .iter()
            .map(|run| (run.rule.name(), outcome(run)));
        Self {
            logs: LogsReport::new(reading, replay),
            requests: requests.collect(),
            in_force: replay.runs[0].rule.name(),
            forgetful: replay.forgetful(),
            timeline: replay.timeline.clone(),
            limits: replay.runs[0]
                .tallies
                .keys()
                .map(|slot| limit(*slot, reading, &replay.runs, identifiers))
                .collect(),
        }
    }
}

impl LogsReport {
    fn new(reading: &Reading, replay: &Replay) -> Self {
        let (out_of_order, by) = replay.went_back;
        let shown = reading.shown.iter().map(|shown| UnreadableLine {
            file: shown.file.clone(),
            line: shown.line,
            reason: shown.reason.name(),
            begins: shown.begins.clone(),
        });
        Self {
            requests: reading.requests,
            not_http: reading.not_http,
            span_ms: replay
                .span
                .map(|(first, last)| (first.as_millis(), last.as_millis())),
            out_of_order,
            out_of_order_by_ms: u64::try_from(by.as_millis()).unwrap_or(u64::MAX),
            formats: named(&reading.formats, |format| format.name()),
            wrapped: named(&reading.wrappers, |wrapper| wrapper.name()),
            unreadable: named(&reading.unreadable, |reason| reason.name()),
            unreadable_lines: shown.collect(),
        }
    }
}

fn named<K>(
    counts: &BTreeMap<K, u64>,
    name: fn(&K) -> &'static str,
) -> BTreeMap<&'static str, u64> {
    counts
        .iter()
        .map(|(key, count)| (name(key), *count))
        .collect()
}

fn outcome(run: &Run) -> Outcome {
    Outcome {
        passed: run.verdicts.passed,
        denied: run.verdicts.denied,
        refused: run.verdicts.refused,
    }
}

fn limit(slot: Slot, reading: &Reading, runs: &[Run], identifiers: Identifiers<'_>) -> LimitReport {
    let policy = &runs[0].policies.policies()[slot.policy];
    let tier = &policy.tiers.all()[slot.tier];
    let limit = &tier.limits[slot.limit];
    let tally = &runs[0].tallies[&slot];
    let by_rule = runs
        .iter()
        .filter_map(|run| Some((run.rule.name(), by(run, slot)?)));
    LimitReport {
        policy: policy.name.to_string(),
        mode: policy.mode.name(),
        plan: tier.plan.as_ref().map(ToString::to_string),
        name: limit.name.to_string(),
        limit: limit.limit.to_string(),
        of: limit.limit,
        slot,
        near: tally.near.clone(),
        requests: tally.requests,
        share: share(tally.requests, reading.requests),
        identifiers: tally.identifiers.len(),
        algorithms: by_rule.collect(),
        worst: worst(&tally.identifiers, identifiers),
    }
}

fn by(run: &Run, slot: Slot) -> Option<RuleReport> {
    let (tally, named) = (run.tallies.get(&slot)?, slot.of(&run.policies));
    let max_quota = named.algorithm.max_quota();
    Some(RuleReport {
        denied: tally.denied,
        denied_share: share(tally.denied, tally.requests),
        denied_identifiers: tally.denied_identifiers(),
        false_allows: tally.false_allows,
        false_denials: tally.false_denials,
        max_excess: tally.max_excess,
        redis_bytes: tally.footprint.peak,
        beyond_max_quota: max_quota.filter(|largest| named.limit.quota() > *largest),
    })
}

fn worst(counted: &HashMap<Identifier, Counted>, identifiers: Identifiers<'_>) -> Vec<Worst> {
    let denied = counted.iter().filter(|(_, counted)| counted.denied > 0);
    let mut worst: Vec<_> = denied
        .map(|(who, counted)| (counted.denied, who, counted))
        .collect();
    worst.sort_unstable_by_key(|(denied, who, _)| (std::cmp::Reverse(*denied), who.to_string()));
    worst.truncate(Report::MOST_WORST);
    let told = worst.into_iter().map(|(denied, who, counted)| Worst {
        identifier: identifiers.told(*who),
        requests: counted.requests,
        denied,
    });
    told.collect()
}

impl Identifiers<'_> {
    fn told(&self, identifier: Identifier) -> String {
        match identifier {
            Identifier::Address(address) if !self.show => {
                let text = address.to_string();
                let hash = self.hasher.api_key(text.as_bytes());
                hash.ok().flatten().unwrap_or(Identifier::Unix).to_string()
            }
            told => told.to_string(),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share is told to a few digits"
)]
fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64,
    }
}
