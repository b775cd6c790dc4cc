//! The denial horizon: denials that need no call, since they follow from what the store said a moment ago.
//!
//! What is kept is not a verdict but what was seen of a counter; [`proof`] makes a denial of it for each
//! request anew, or does not. A proof can not know of units given back, of counters forgotten or lost, of a
//! store whose clock was set or that took over with another one, or of time that this machine slept: a
//! denial may then be late, by the lifetime of an entry at most.
//!
//! It lives with the limiter and not with the store, since the limiter has the moments of sending and
//! receiving anyway, and alone knows which policies' counts only grow.

mod proof;
mod sightings;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use self::{
    proof::Sighting,
    sightings::{Counter, Sightings},
};
use super::{LimitDecision, LimitDecisions};
use crate::{
    policy::{Asked, NamedLimit, PolicySet},
    store::DecidedBy,
};

/// What was seen of the counters of one set of policies.
#[derive(Debug)]
pub(super) struct DenialCache {
    policies: Arc<PolicySet>,
    sightings: Sightings,
}

impl DenialCache {
    /// An empty cache that believes what it saw for `lifetime`.
    pub fn new(policies: Arc<PolicySet>, lifetime: Duration) -> Self {
        Self {
            policies,
            sightings: Sightings::new(lifetime, MAX_SIGHTINGS),
        }
    }

    /// The limits that would deny a request if the store were asked now, as far as that is proven.
    pub fn denials<'a>(
        &self,
        asked: impl Iterator<Item = &'a Asked>,
        now: Instant,
    ) -> LimitDecisions {
        let mut denials = SmallVec::new();
        for asked in asked {
            let policy = &self.policies.policies()[asked.policy];
            if !policy.charge.is_final_at_request() {
                continue;
            }
            for (counter, limit) in self.counters(*asked) {
                let seen = self.sightings.get(counter, now);
                if let Some(decision) = seen.and_then(|seen| seen.denial(limit, asked.cost, now)) {
                    denials.push(LimitDecision {
                        policy: asked.policy,
                        tier: asked.tier,
                        limit: counter.limit,
                        identifier: asked.identifier,
                        decision,
                        decided_by: DecidedBy::DenialCache,
                    });
                }
            }
        }
        denials
    }

    /// Remembers which limits the store found without room, in a call sent and received then.
    pub fn learn(&self, decided: &[LimitDecision], sent: Instant, received: Instant) {
        for limit in decided.iter().filter(|limit| !limit.decision.allowed) {
            let policy = &self.policies.policies()[limit.policy];
            if policy.charge.is_final_at_request() {
                let counter = Counter {
                    policy: limit.policy,
                    limit: limit.limit,
                    identifier: limit.identifier,
                };
                let seen = Sighting::of(&limit.decision, sent, received);
                self.sightings.add(counter, seen);
            }
        }
    }

    /// Forgets what was seen of an identifier under a policy.
    pub fn forget(&self, asked: Asked) {
        for (counter, _) in self.counters(asked) {
            self.sightings.remove(counter);
        }
    }

    fn counters(&self, asked: Asked) -> impl Iterator<Item = (Counter, &NamedLimit)> {
        let limits = self.policies.limits(&asked);
        limits.iter().enumerate().map(move |(limit, named)| {
            let counter = Counter {
                policy: asked.policy,
                limit,
                identifier: asked.identifier,
            };
            (counter, named)
        })
    }
}

/// The most counters it remembers.
const MAX_SIGHTINGS: usize = 100_000;
