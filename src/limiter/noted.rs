//! What is told of single decisions and of the store's failures: log lines, and the list for who asks a running proxy.

use std::sync::Arc;

use super::LimitDecision;
use crate::{
    bounded_log::{Event, KeptBack},
    policy::{Identifier, Mode, Policy},
    ratelimit::{Decision, Wait},
    store::{DecidedBy, StoreError},
};

/// A decision, with all that is told of it. The identifier is an address or a hash, never a key.
#[derive(Clone, Debug)]
pub struct Noted {
    /// The policy's name.
    pub policy: Arc<str>,
    /// The limit's.
    pub limit: Arc<str>,
    /// Whether a denial stops the request.
    pub mode: Mode,
    /// Who was counted.
    pub identifier: Identifier,
    /// The result.
    pub decision: Decision,
    /// Who decided.
    pub decided_by: DecidedBy,
}

/// A decision near its limit.
#[derive(Clone, Debug)]
pub struct NearLimit(pub Noted);

/// A denial.
#[derive(Clone, Debug)]
pub(super) struct Denied(pub Noted);

/// What the store did not decide.
#[derive(Clone, Debug)]
pub(super) struct StoreFailure(pub StoreError);

impl Noted {
    pub(super) fn of(limit: &LimitDecision, policy: &Policy) -> Self {
        Self {
            policy: policy.name.clone(),
            limit: policy.tiers.limits(limit.tier)[limit.limit].name.clone(),
            mode: policy.mode,
            identifier: limit.identifier,
            decision: limit.decision,
            decided_by: limit.decided_by,
        }
    }

    /// `allow` or `deny`.
    pub const fn outcome(&self) -> &'static str {
        if self.decision.allowed {
            "allow"
        } else {
            "deny"
        }
    }

    /// Limits have names of their own, so that the policy need not be looked at.
    fn is_like(&self, other: &Self) -> bool {
        self.identifier == other.identifier
            && self.decision.allowed == other.decision.allowed
            && self.mode == other.mode
            && self.limit == other.limit
    }

    /// By whom and what: the limits of one identifier are few.
    fn mark(&self) -> u64 {
        let bits = self.identifier.bits();
        (bits >> 64) as u64 ^ bits as u64 ^ u64::from(self.decision.allowed)
    }
}

impl Event for NearLimit {
    fn topic(&self) -> &str {
        &self.0.policy
    }

    fn is_like(&self, other: &Self) -> bool {
        self.0.is_like(&other.0)
    }

    fn mark(&self) -> u64 {
        self.0.mark()
    }

    fn tell(&self, KeptBack { more, suppressed }: KeptBack) {
        let Self(noted) = self;
        tracing::info!(
            policy = &*noted.policy,
            limit = &*noted.limit,
            identifier = %noted.identifier,
            decision = noted.outcome(),
            mode = noted.mode.name(),
            decided_by = noted.decided_by.name(),
            utilization = noted.decision.utilization(),
            current = noted.decision.counts.current,
            previous = noted.decision.counts.previous,
            exact = noted.decision.exact,
            more,
            suppressed,
            "A decision fell near its limit."
        );
    }

    fn tell_number(suppressed: u64) {
        tracing::info!(
            suppressed,
            "Decisions fell near their limits, of which no line tells."
        );
    }
}

impl Event for Denied {
    fn topic(&self) -> &str {
        &self.0.policy
    }

    fn is_like(&self, other: &Self) -> bool {
        self.0.is_like(&other.0)
    }

    fn mark(&self) -> u64 {
        self.0.mark()
    }

    fn tell(&self, KeptBack { more, suppressed }: KeptBack) {
        let Self(noted) = self;
        let wait = match noted.decision.retry_after() {
            Some(Wait::For(wait)) => u64::try_from(wait.as_millis()).ok(),
            Some(Wait::Never) | None => None,
        };
        tracing::info!(
            policy = &*noted.policy,
            limit = &*noted.limit,
            identifier = %noted.identifier,
            mode = noted.mode.name(),
            decided_by = noted.decided_by.name(),
            current = noted.decision.counts.current,
            previous = noted.decision.counts.previous,
            retry_after_ms = wait,
            more,
            suppressed,
            "A limit denied a request."
        );
    }

    fn tell_number(suppressed: u64) {
        tracing::info!(
            suppressed,
            "Limits denied requests, of which no line tells."
        );
    }
}

impl Event for StoreFailure {
    /// There is one store.
    fn topic(&self) -> &'static str {
        ""
    }

    fn is_like(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn tell(&self, KeptBack { more, suppressed }: KeptBack) {
        let Self(error) = self;
        tracing::warn!(%error, more, suppressed, "The store did not decide.");
    }

    fn tell_number(suppressed: u64) {
        tracing::warn!(
            suppressed,
            "The store did not decide, and no line tells of it."
        );
    }
}
