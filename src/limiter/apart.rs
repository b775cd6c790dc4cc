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
    policy::Asked,
    store::{DecidedBy, GroupReply, StoreError},
};

/// A question about one policy, and its answer to come.
type Call = (Asked, JoinHandle<GroupReply>);

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
        let until = time::Instant::from_std(started) + self.shared.store.budget();
        let calls: Vec<Call> = enforced
            .iter()
            .map(|asked| (*asked, self.call(*asked, intent)))
            .collect();
        let groups = self.shadow_groups(shadow, intent);
        let mut shadow_replies = Vec::new();
        if !groups.is_empty() {
            shadow_replies = self.shared.store.take(&groups, self.shared.at()).await;
        }
        let mut late = Vec::new();
        let mut replies = Vec::new();
        for (asked, mut call) in calls {
            replies.push(match timeout_at(until, &mut call).await {
                // It is cancelled only where the whole runtime stops.
                Ok(reply) => reply.unwrap_or(Err(StoreError::Disconnected)),
                Err(_) => {
                    late.push((asked, call));
                    Err(StoreError::Timeout)
                }
            });
        }
        let received = self.received(replies.iter().chain(&shadow_replies), started, intent);

        let (mut limits, mut undecided) = (LimitDecisions::new(), SmallVec::<[Asked; 2]>::new());
        for (asked, reply) in enforced.iter().zip(replies) {
            match reply {
                Ok(decisions) => {
                    limits.extend(self.limit_decisions(&[*asked], decisions, DecidedBy::Store));
                }
                Err(_) => undecided.push(*asked),
            }
        }
        let charged: Vec<LimitDecision> = limits
            .iter()
            .filter(|limit| limit.decision.charged)
            .copied()
            .collect();
        let mut verdict = self.combine(enforced, limits, &undecided, intent);
        if verdict.outcome != Outcome::Pass {
            for limit in &mut verdict.limits {
                limit.decision.charged = false;
            }
            self.undo(charged, late);
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
            limiter
                .shared
                .store
                .take_patiently(&group, limiter.shared.at())
                .await
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
        if matches!(verdict.outcome, Outcome::Unavailable { .. }) {
            // No client is told of limits then, but they have decided.
            if intent == Intent::Take {
                self.observe(&limits);
            }
            return verdict;
        }
        let decided = limits.iter().map(|limit| (limit.policy, limit.tier));
        verdict.in_force.extend(decided);
        verdict.in_force.sort_unstable();
        verdict.in_force.dedup();
        verdict.limits.extend(limits);
        verdict
            .limits
            .sort_by_key(|limit| (limit.policy, limit.limit));
        verdict
    }

    /// Gives back what a request that does not pass was charged, behind its back.
    fn undo(self: &Arc<Self>, charged: Vec<LimitDecision>, late: Vec<Call>) {
        let limiter = Arc::clone(self);
        if !charged.is_empty() {
            let lost = charged.len();
            self.behind(&self.shared.settling, lost, async move {
                limiter.give_back(&charged).await;
            });
        }
        let limiter = Arc::clone(self);
        if !late.is_empty() {
            // Some of it may not have been charged.
            let lost = late.len();
            self.behind(&self.shared.late, lost, async move {
                for (asked, call) in late {
                    if let Ok(Ok(decisions)) = call.await {
                        let mut limits =
                            limiter.limit_decisions(&[asked], decisions, DecidedBy::Store);
                        limits.retain(|limit| limit.decision.charged);
                        limiter.give_back(&limits).await;
                    }
                }
            });
        }
    }

    /// Whether the store charges both in one step.
    pub(super) fn share_a_step(&self, a: &LimitDecision, b: &LimitDecision) -> bool {
        self.shared.store.spans_policies() || a.policy == b.policy
    }
}
