//! Settling: what depends on the status of the response is charged, or given back, once it is known.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{Intent, LimitDecision, Limiter, Outcome, Verdict, can_be_audited};
use crate::{
    clock,
    policy::Charge,
    ratelimit::Decision,
    store::{Action, Demand, GiveBack, Group},
};

/// What a decision is due once the response's status is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Charge,
    GiveBack,
}

impl Limiter {
    /// Charges or takes back what depends on the response's status; for most policies, nothing.
    ///
    /// It is called once, before the head of the response is sent, and goes to whoever decided. What the
    /// response's headers tell is waited for, within what is left of the store's budget; what they do not,
    /// shadow charges and units given back, is done behind the request's back.
    pub async fn settle(self: &Arc<Self>, verdict: &mut Verdict, status: http::StatusCode) {
        if verdict.settled || verdict.outcome != Outcome::Pass {
            return;
        }
        verdict.settled = true;
        let due = |limit: &LimitDecision| self.due(limit, status);

        let given_back = verdict
            .limits
            .iter()
            .filter(|limit| due(limit) == Some(Due::GiveBack));
        let shadow = verdict.shadow.iter().filter(|limit| due(limit).is_some());
        let (calls, here): (Vec<LimitDecision>, Vec<LimitDecision>) = given_back
            .chain(shadow)
            .partition(|limit| self.shared.store.is_remote() && !limit.decided_by.is_local());
        if !here.is_empty() {
            self.settle_behind(here, status).await;
        }
        if !calls.is_empty() {
            self.settle_unawaited(calls, status);
        }
        for limit in &mut verdict.limits {
            if due(limit) == Some(Due::GiveBack) {
                limit.decision.charged = false;
            }
        }
        let left = self.shared.store.budget().saturating_sub(verdict.waited);
        let charged: Vec<&mut LimitDecision> = verdict
            .limits
            .iter_mut()
            .filter(|limit| due(limit) == Some(Due::Charge))
            .collect();
        if charged.is_empty() {
            return;
        }
        if left.is_zero() && self.shared.store.is_remote() {
            // Another slot took all of the budget; the charge is owed all the same.
            let limits = charged.into_iter().map(|limit| *limit).collect();
            self.settle_unawaited(limits, status);
        } else {
            self.charge(charged, left).await;
        }
    }

    /// What a decision is due once the status is known.
    fn due(&self, limit: &LimitDecision, status: http::StatusCode) -> Option<Due> {
        match &self.policies.policies()[limit.policy].charge {
            Charge::AtRequest { take_back_5xx } => {
                let due = *take_back_5xx && status.is_server_error() && limit.decision.charged;
                due.then_some(Due::GiveBack)
            }
            Charge::AtResponse { statuses } => statuses.contains(&status).then_some(Due::Charge),
        }
    }

    /// Settles with the store, behind the request's back.
    fn settle_unawaited(self: &Arc<Self>, limits: Vec<LimitDecision>, status: http::StatusCode) {
        let due = |limit: &&LimitDecision| self.due(limit, status) == Some(Due::GiveBack);
        let lost = limits.iter().filter(due).count();
        let limiter = Arc::clone(self);
        self.behind(&self.shared.settling, lost, async move {
            limiter.settle_behind(limits, status).await;
        });
    }

    /// Charges and gives back.
    async fn settle_behind(&self, mut limits: Vec<LimitDecision>, status: http::StatusCode) {
        let mut given_back = limits.clone();
        given_back.retain(|limit| self.due(limit, status) == Some(Due::GiveBack));
        if !given_back.is_empty() {
            self.give_back(&given_back).await;
        }
        let charged: Vec<&mut LimitDecision> = limits
            .iter_mut()
            .filter(|limit| self.due(limit, status) == Some(Due::Charge))
            .collect();
        if !charged.is_empty() {
            self.charge(charged, self.shared.store.budget()).await;
        }
    }

    /// Charges these limits whatever their counts say, with whoever decided, and brings the decisions up to
    /// date; they stay as they were where the store does not answer.
    async fn charge(&self, limits: Vec<&mut LimitDecision>, within: Duration) {
        let (local, mut by_store): (Vec<_>, Vec<_>) = limits
            .into_iter()
            .partition(|limit| limit.decided_by.is_local());
        if !local.is_empty() {
            let decisions = self
                .shared
                .local
                .take_group(&self.charges(&local), self.shared.at());
            update(local.into_iter(), decisions);
        }
        let parts: Vec<_> = by_store
            .chunk_by_mut(|a, b| self.share_a_step(a, b))
            .collect();
        if !parts.is_empty() {
            let groups: Vec<Group<'_>> = parts.iter().map(|part| self.charges(part)).collect();
            let (replies, _) = self
                .ask(&groups, clock::instant(), within, Intent::Take)
                .await;
            for (part, reply) in parts.into_iter().zip(replies) {
                let limits = part.iter_mut().map(|limit| &mut **limit);
                update(limits, reply.into_iter().flatten());
            }
        }
    }

    fn charges(&self, limits: &[&mut LimitDecision]) -> Group<'_> {
        let charge = |limit: &LimitDecision| Demand {
            action: Action::Charge,
            ..self.demand(limit)
        };
        limits.iter().map(|limit| charge(limit)).collect()
    }

    /// Gives back with whoever decided.
    pub(super) async fn give_back(&self, limits: &[LimitDecision]) {
        let together = |a: &LimitDecision, b: &LimitDecision| {
            a.decided_by == b.decided_by && self.share_a_step(a, b)
        };
        for limits in limits.chunk_by(together) {
            let charged: SmallVec<[GiveBack<'_>; 4]> = limits
                .iter()
                .map(|limit| GiveBack {
                    demand: self.demand(limit),
                    charged_at: limit.decision.now,
                })
                .collect();
            let done = if limits[0].decided_by.is_local() {
                self.shared.local.give_back(&charged);
                true
            } else {
                let result = self.shared.store.give_back(&charged).await;
                if let Err(error) = &result {
                    self.store_failed(error);
                }
                result.is_ok()
            };
            for _ in limits {
                self.shared.metrics.gave_back(done);
            }
        }
    }

    fn demand(&self, limit: &LimitDecision) -> Demand<'_> {
        Demand {
            policy: &self.policies.policies()[limit.policy].name,
            identifier: limit.identifier,
            limit: limit.decision.limit,
            algorithm: limit.decision.algorithm,
            cost: limit.decision.cost,
            action: Action::Take,
            audited: self.audits(limit.identifier)
                && can_be_audited(limit.decision.algorithm, limit.decision.limit),
        }
    }
}

fn update<'l>(
    limits: impl Iterator<Item = &'l mut LimitDecision>,
    decisions: impl IntoIterator<Item = Decision>,
) {
    for (limit, decision) in limits.zip(decisions) {
        // The request was allowed; what was charged since says nothing against it.
        limit.decision = Decision {
            allowed: limit.decision.allowed,
            ..decision
        };
    }
}
