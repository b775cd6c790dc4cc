//! The metrics of policies: they come and go with the configuration, and their counts survive it.

use std::collections::HashSet;

use prometheus::{
    Histogram, IntCounter,
    core::{MetricVec, MetricVecBuilder},
};

use super::{DECISIONS, Metrics};
use crate::{
    policy::{Asked, Policy, PolicySet},
    ratelimit::{Decision, Judgement},
    store::DecidedBy,
};

/// The handles of the metrics of one set of policies.
#[derive(Debug)]
pub struct PolicyMetrics {
    policies: Vec<Handles>,
    labels: Labels,
}

#[derive(Debug)]
struct Handles {
    /// By tier.
    decisions: Vec<Decisions>,
    /// By entry, then the one for want of any.
    identified: Vec<IntCounter>,
    near_limit: Vec<Band>,
    utilization: Histogram,
    /// `None` where nobody is audited.
    audit: Option<Audit>,
}

/// What an exact log says of decisions.
#[derive(Debug)]
struct Audit {
    /// By [`Judgement`].
    decisions: [IntCounter; OUTCOMES.len()],
    estimate_error: Histogram,
}

/// By [`DecidedBy`], then denied and allowed.
type Decisions = [[IntCounter; 2]; DecidedBy::ALL.len()];

/// What was counted of one policy since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyCounts {
    /// By [`DecidedBy`], then denied and allowed; of all plans together.
    pub decisions: [[u64; 2]; DecidedBy::ALL.len()],
    /// By entry of its identifier, then for want of any.
    pub identified: Vec<u64>,
    /// The near-limit bands: their names, then denied and allowed.
    pub near_limit: Vec<(String, [u64; 2])>,
}

/// One near-limit band, its low edge included.
#[derive(Debug)]
struct Band {
    low: f64,
    high: f64,
    /// Denied and allowed.
    decisions: [IntCounter; 2],
}

/// Which series there are.
#[derive(Debug, Default)]
struct Labels {
    decisions: HashSet<[String; 5]>,
    identified: HashSet<[String; 2]>,
    near_limit: HashSet<[String; 3]>,
    utilization: HashSet<[String; 1]>,
    audit_decisions: HashSet<[String; 2]>,
    audit_estimate_error: HashSet<[String; 1]>,
}

impl PolicyMetrics {
    /// The handles for `policies` and the edges of the near-limit bands, and whether anybody is audited. A series
    /// that `metrics` has goes on from its count; one that it has not begins at 0.
    pub fn new(
        metrics: &Metrics,
        policies: &PolicySet,
        near_limit_edges: &[f64],
        audited: bool,
    ) -> Self {
        let mut labels = Labels::default();
        let policies = policies.policies().iter();
        let policies = policies
            .map(|policy| labels.resolve(metrics, policy, near_limit_edges, audited))
            .collect();
        Self { policies, labels }
    }

    /// Removes from `metrics` the series that these handles have and `those` have not. What is counted here
    /// from now on is lost.
    pub fn give_way_to(&self, those: &Self, metrics: &Metrics) {
        let (here, there) = (&self.labels, &those.labels);
        remove(&metrics.decisions, &here.decisions, &there.decisions);
        remove(&metrics.identified, &here.identified, &there.identified);
        remove(&metrics.near_limit, &here.near_limit, &there.near_limit);
        remove(&metrics.utilization, &here.utilization, &there.utilization);
        remove(
            &metrics.audit_decisions,
            &here.audit_decisions,
            &there.audit_decisions,
        );
        remove(
            &metrics.audit_estimate_error,
            &here.audit_estimate_error,
            &there.audit_estimate_error,
        );
    }

    /// Counts a decision of one of the policy's limits by what the exact log says of it, if that is known.
    pub fn judged(&self, policy: usize, decision: &Decision) {
        let audit = self.policies[policy].audit.as_ref();
        if let Some((audit, judgement)) = audit.zip(decision.judgement()) {
            audit.decisions[judgement as usize].inc();
            if let Some(error) = decision.estimate_error() {
                audit.estimate_error.observe(error);
            }
        }
    }

    /// What was counted of the policy in this place, which is `policy`.
    pub fn so_far(&self, place: usize, policy: &Policy) -> PolicyCounts {
        let handles = &self.policies[place];
        let mut decisions = <[[u64; 2]; DecidedBy::ALL.len()]>::default();
        // Limits of single identifiers are counted with the policy's own.
        let tiers = policy
            .tiers
            .all()
            .iter()
            .zip(&handles.decisions)
            .enumerate();
        let counted = tiers.filter(|(place, (tier, _))| *place == 0 || tier.plan.is_some());
        for (_, (_, by_whom)) in counted {
            for (sums, counters) in decisions.iter_mut().zip(by_whom) {
                for (sum, counter) in sums.iter_mut().zip(counters) {
                    *sum += counter.get();
                }
            }
        }
        let near_limit = handles.near_limit.iter().map(|band| {
            let decisions = band.decisions.each_ref().map(IntCounter::get);
            (band.name(), decisions)
        });
        PolicyCounts {
            decisions,
            identified: handles.identified.iter().map(IntCounter::get).collect(),
            near_limit: near_limit.collect(),
        }
    }

    /// Counts a request by what told a policy who is counted.
    pub fn identified(&self, asked: &Asked) {
        self.policies[asked.policy].identified[asked.entry].inc();
    }

    /// Counts what one policy decided on one request, by one of its tiers.
    ///
    /// `utilization` is the estimate / limit at its fullest limit, `None` where there is none to tell.
    /// Returns whether it lies within the near-limit bands.
    pub fn decided(
        &self,
        (policy, tier): (usize, usize),
        allowed: bool,
        by: DecidedBy,
        utilization: Option<f64>,
    ) -> bool {
        let metrics = &self.policies[policy];
        metrics.decisions[tier][by as usize][usize::from(allowed)].inc();
        let Some(utilization) = utilization else {
            return false;
        };
        metrics.utilization.observe(utilization);
        let band = metrics
            .near_limit
            .iter()
            .find(|band| (band.low..band.high).contains(&utilization));
        if let Some(band) = band {
            band.decisions[usize::from(allowed)].inc();
        }
        band.is_some()
    }
}

impl Labels {
    fn resolve(
        &mut self,
        metrics: &Metrics,
        policy: &Policy,
        edges: &[f64],
        audited: bool,
    ) -> Handles {
        let (name, mode) = (policy.name.to_string(), policy.mode.name());
        let mut decisions = |plan: &str, decision: &str, by: DecidedBy| {
            let labels = [&*name, plan, decision, by.name(), mode].map(str::to_owned);
            let counter = metrics.decisions.with_label_values(&words(&labels));
            self.decisions.insert(labels);
            counter
        };
        let decisions = policy.tiers.all().iter().map(|tier| {
            let plan = tier.plan.as_deref().unwrap_or_default();
            DecidedBy::ALL.map(|by| DECISIONS.map(|decision| decisions(plan, decision, by)))
        });
        let decisions = decisions.collect();
        let entries = policy.identifier.entries.iter().map(ToString::to_string);
        let fallback = policy.identifier.falls_back().then(|| FALLBACK.to_owned());
        let identified = entries.chain(fallback).map(|source| {
            let labels = [name.clone(), source];
            let counter = metrics.identified.with_label_values(&words(&labels));
            self.identified.insert(labels);
            counter
        });
        let identified = identified.collect();
        let near_limit = edges
            .windows(2)
            .map(|edges| Band {
                low: edges[0],
                high: edges[1],
                decisions: DECISIONS.map(|decision| {
                    let band = band_name(edges[0], edges[1]);
                    let labels = [&*name, decision, &band].map(str::to_owned);
                    let counter = metrics.near_limit.with_label_values(&words(&labels));
                    self.near_limit.insert(labels);
                    counter
                }),
            })
            .collect();
        let utilization = metrics.utilization.with_label_values(&[&name]);
        self.utilization.insert([name.clone()]);
        let audit = audited.then(|| {
            self.audit_estimate_error.insert([name.clone()]);
            Audit {
                decisions: OUTCOMES.map(|outcome| {
                    let labels = [&*name, outcome].map(str::to_owned);
                    let counter = metrics.audit_decisions.with_label_values(&words(&labels));
                    self.audit_decisions.insert(labels);
                    counter
                }),
                estimate_error: metrics.audit_estimate_error.with_label_values(&[&name]),
            }
        });
        Handles {
            decisions,
            identified,
            near_limit,
            utilization,
            audit,
        }
    }
}

/// Indexed by [`Judgement`].
const OUTCOMES: [&str; 3] = ["correct", "false_allow", "false_deny"];
const _: () = assert!(
    Judgement::Correct as usize == 0
        && Judgement::FalseAllow as usize == 1
        && Judgement::FalseDeny as usize == 2
);

impl Band {
    fn name(&self) -> String {
        band_name(self.low, self.high)
    }
}

fn band_name(low: f64, high: f64) -> String {
    format!("{low:.2}-{high:.2}")
}

/// Removes the series that are `here` and not `there`.
fn remove<B: MetricVecBuilder, const N: usize>(
    series: &MetricVec<B>,
    here: &HashSet<[String; N]>,
    there: &HashSet<[String; N]>,
) {
    for gone in here.difference(there) {
        // An error says that it was removed before, by handles of the same labels.
        drop(series.remove_label_values(&words(gone)));
    }
}

/// The source of an address that is counted for want of any other.
const FALLBACK: &str = "fallback";

fn words<const N: usize>(labels: &[String; N]) -> [&str; N] {
    labels.each_ref().map(String::as_str)
}
