//! A verdict: all decisions on a request combined.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    policy::{Identifier, NamedLimit, PolicySet, Refusal, Tiers},
    ratelimit::{Decision, Wait},
    store::DecidedBy,
};

/// What a request gets.
#[derive(Debug)]
pub struct Verdict {
    policies: Arc<PolicySet>,
    /// What happens to the request.
    pub outcome: Outcome,
    /// The enforced policies whose limits are in force, in configuration order, and which tier of each.
    pub(super) in_force: SmallVec<[(usize, usize); 4]>,
    /// Every enforced limit that decided, in configuration order.
    pub(super) limits: LimitDecisions,
    /// What shadow policies decided; no client sees it.
    pub(super) shadow: LimitDecisions,
    /// How long the request waited for the store.
    pub(super) waited: Duration,
    /// Whether the response's status has been accounted for.
    pub(super) settled: bool,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It goes to the upstream.
    Pass,
    /// A limit denies it.
    Denied,
    /// Its identity cannot be taken as sent; no store was asked.
    Refused(Refusal),
    /// The store cannot decide, and a policy would rather stop than guess.
    Unavailable {
        /// When the store is tried next.
        retry_after: Duration,
    },
}

impl Outcome {
    /// The word in explanations and the access log.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Denied => "denied",
            Self::Refused(_) => "refused",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}

/// Decisions of the limits of a request: mostly one or two, and then without an allocation.
pub type LimitDecisions = SmallVec<[LimitDecision; 2]>;

/// The decision of one limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitDecision {
    /// The policy's place in its [`PolicySet`].
    pub policy: usize,
    /// Which tier of it applies.
    pub tier: usize,
    /// The limit's place in its tier.
    pub limit: usize,
    /// Who was counted.
    pub identifier: Identifier,
    /// The result. Its limit is the one applied: a share of the configured one, if this proxy decided
    /// alone.
    pub decision: Decision,
    /// Who decided.
    pub decided_by: DecidedBy,
}

impl Verdict {
    pub(super) fn new(policies: Arc<PolicySet>, outcome: Outcome) -> Self {
        Self {
            policies,
            outcome,
            in_force: SmallVec::new(),
            limits: SmallVec::new(),
            shadow: SmallVec::new(),
            waited: Duration::ZERO,
            settled: false,
        }
    }

    /// Every enforced limit that decided, in configuration order; empty where no limit is in force.
    ///
    /// Where a denial needed no call, these are the limits that were proven to deny.
    pub fn limits(&self) -> &[LimitDecision] {
        &self.limits
    }

    /// What shadow policies decided, limit by limit. No client is told of it.
    pub fn shadow(&self) -> &[LimitDecision] {
        &self.shadow
    }

    /// The enforced policies whose limits are in force, in configuration order, each with which of its tiers.
    pub fn tiers_in_force(&self) -> &[(usize, usize)] {
        &self.in_force
    }

    /// Whether the limits in force are those of so many policies, and of each its own: no plan's, nor those of a
    /// single identifier.
    pub fn are_own_limits_of(&self, policies: usize) -> bool {
        let mut tiers = self.in_force.iter().map(|(_, tier)| *tier);
        self.in_force.len() == policies && tiers.all(|tier| tier == Tiers::OWN)
    }

    /// The limit as configured, and its name.
    pub fn named(&self, limit: &LimitDecision) -> &NamedLimit {
        &self.policies.policies()[limit.policy]
            .tiers
            .limits(limit.tier)[limit.limit]
    }

    /// The limit to tell a client about: the one with the least remaining; on a denial, the one with the
    /// longest wait. The first configured of equals. `None` where no limit is in force.
    pub fn reported(&self) -> Option<&LimitDecision> {
        match self.outcome {
            Outcome::Denied => self.slowest().map(|(limit, _)| limit),
            _ => self
                .limits
                .iter()
                .min_by_key(|limit| limit.decision.remaining()),
        }
    }

    /// How long until the same request would be admitted: as long as the slowest limit takes.
    pub fn retry_after(&self) -> Option<Wait> {
        self.slowest().map(|(_, wait)| wait)
    }

    /// The names of the enforced limits that denied, in configuration order.
    pub fn violated(&self) -> impl Iterator<Item = &str> {
        self.limits
            .iter()
            .filter(|limit| !limit.decision.allowed)
            .map(|limit| &*self.named(limit).name)
    }

    fn slowest(&self) -> Option<(&LimitDecision, Wait)> {
        self.limits
            .iter()
            .filter_map(|limit| Some((limit, limit.decision.retry_after()?)))
            .rev()
            .max_by_key(|(_, wait)| *wait)
    }
}
