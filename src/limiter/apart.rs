//! Enforced policies that no step can charge together, as in a cluster: each is asked on its own, all at
//! once, and a denial by any gives back what the others have charged.
//!
//! Until it is given back it may deny others. What a reply past the budget tells to be charged is given
//! back when it comes; what no reply tells is not known to be charged, and stays.

use std::{sync::Arc, time::Instant};

use smallvec::SmallVec;
use tokio::{
    task::JoinHandle,
    time::{self, timeout_at},
};

use super::{Intent, LimitDecision, LimitDecisions, Limiter, Outcome, Verdict};
use crate::{
    metrics::DecidedBy,
    policy::Asked,
    store::{At, GroupReply, StoreError},
};

/// A call that has not been answered within the budget, and what it asks.
type Late = (Asked, JoinHandle<GroupReply>);

impl Limiter {
    /// As [`Self::decide`], where the store can not charge several policies in one step. A policy whose
    /// call fails goes by its failure mode, unless another one denies.
    pub(super) async fn decide_apart(
        self: &Arc<Self>,
        enforced: &[Asked],
        shadow: &[Asked],
        intent: Intent,
        started: Instant,
    ) -> Verdict {
        let until = time::Instant::from_std(started) + self.store.budget();
        let calls: Vec<Late> = enforced
            .iter()
            .map(|asked| (*asked, self.call(*asked, intent)))
            .collect();
        let groups = self.shadow_groups(shadow, intent);
        let mut shadow_replies = Vec::new();
        if !groups.is_empty() {
            shadow_replies = self.store.take(&groups, At::Now).await;
        }
        let mut late = Vec::new();
        let mut replies = Vec::new();
        for (asked, mut call) in calls {
            replies.push(match timeout_at(until, &mut call).await {
                Ok(reply) => reply.unwrap_or(Err(StoreError::Disconnected)),
                Err(_) => {
                    late.push((asked, call));
                    Err(StoreError::Timeout)
                }
            });
        }
        let received = self.received(replies.iter().chain(&shadow_replies), started);

        let (mut limits, mut undecided) = (LimitDecisions::new(), SmallVec::<[Asked; 2]>::new());
        for (asked, reply) in enforced.iter().zip(replies) {
            match reply {
                Ok(decisions) => {
                    limits.extend(self.limit_decisions(&[*asked], decisions, DecidedBy::Store));
                }
                Err(_) => undecided.push(*asked),
            }
        }
        if let Some(cache) = &self.denials {
            cache.learn(&limits, started, received);
        }
        let mut verdict = self.combine(enforced, limits, &undecided, intent);
        if verdict.outcome != Outcome::Pass {
            self.undo(&mut verdict, late);
        }
        verdict.shadow = self.shadow_decisions(shadow, shadow_replies);
        verdict.waited = received - started;
        verdict
    }

    /// Asks about one policy; the call lives on when nobody waits for it any more.
    fn call(self: &Arc<Self>, asked: Asked, intent: Intent) -> JoinHandle<GroupReply> {
        let limiter = Arc::clone(self);
        tokio::spawn(async move {
            let group = limiter.group(&[asked], intent);
            let budget = limiter.store.budget();
            limiter.store.take_patiently(&group, At::Now, budget).await
        })
    }

    /// The verdict of what the store decided and, if that denies nothing, of whoever decides the rest.
    fn combine(
        &self,
        enforced: &[Asked],
        limits: LimitDecisions,
        undecided: &[Asked],
        intent: Intent,
    ) -> Verdict {
        if undecided.is_empty() || limits.iter().any(|limit| !limit.decision.allowed) {
            return self.conclude(enforced, limits);
        }
        let mut verdict = self.decide_without_store(undecided, intent);
        verdict
            .in_force
            .extend(limits.iter().map(|limit| limit.policy));
        verdict.in_force.sort_unstable();
        verdict.in_force.dedup();
        verdict.limits.extend(limits);
        verdict
            .limits
            .sort_by_key(|limit| (limit.policy, limit.limit));
        verdict
    }

    /// Gives back what a request that does not pass was charged, behind its back.
    fn undo(self: &Arc<Self>, verdict: &mut Verdict, late: Vec<Late>) {
        let mut charged = Vec::new();
        for limit in &mut verdict.limits {
            if limit.decision.charged {
                charged.push(*limit);
                limit.decision.charged = false;
            }
        }
        if matches!(verdict.outcome, Outcome::Unavailable { .. }) {
            // Nobody is told of limits that did not decide.
            verdict.limits.clear();
            verdict.in_force.clear();
        }
        if charged.is_empty() && late.is_empty() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.settling).try_acquire_owned() else {
            for _ in charged {
                self.metrics.gave_back(false);
            }
            self.store_failed(&StoreError::Overloaded);
            return;
        };
        let limiter = Arc::clone(self);
        tokio::spawn(async move {
            limiter.give_back(&charged).await;
            for (asked, call) in late {
                if let Ok(Ok(decisions)) = call.await {
                    let mut limits = limiter.limit_decisions(&[asked], decisions, DecidedBy::Store);
                    limits.retain(|limit| limit.decision.charged);
                    limiter.give_back(&limits).await;
                }
            }
            drop(permit);
        });
    }

    /// Whether the store charges both in one step.
    pub(super) fn share_a_step(&self, a: &LimitDecision, b: &LimitDecision) -> bool {
        self.store.spans_policies() || a.policy == b.policy
    }
}
