//! Who decides while the store can not: each policy says it by its failure mode.

use smallvec::SmallVec;

use super::{Intent, Limiter, Outcome, Verdict};
use crate::{
    policy::{Asked, FailureMode},
    store::DecidedBy,
};

impl Limiter {
    /// `deny` wins and charges nothing; else `local` decides, and `allow` has no say.
    pub(super) fn decide_without_store(&self, enforced: &[Asked], intent: Intent) -> Verdict {
        let mode = |asked: &Asked| self.policies.policies()[asked.policy].failure_mode;
        let with = |wanted| enforced.iter().filter(move |asked| mode(asked) == wanted);

        if with(FailureMode::Deny).next().is_some() {
            for asked in with(FailureMode::Deny).filter(|_| intent == Intent::Take) {
                self.counted.decided(
                    (asked.policy, asked.tier),
                    false,
                    DecidedBy::FailureMode,
                    None,
                );
            }
            let retry_after = self.shared.store.health().next_probe;
            return self.verdict(Outcome::Unavailable { retry_after });
        }
        for asked in with(FailureMode::Allow).filter(|_| intent == Intent::Take) {
            self.counted.decided(
                (asked.policy, asked.tier),
                true,
                DecidedBy::FailureMode,
                None,
            );
        }
        let local: SmallVec<[Asked; 2]> = with(FailureMode::Local).copied().collect();
        if local.is_empty() {
            return self.verdict(Outcome::Pass);
        }
        let mut group = self.group(&local, intent);
        for demand in &mut group {
            demand.limit = demand
                .limit
                .share(self.expected_replicas, demand.cost.units());
        }
        let decisions = self.shared.local.take_group(&group, self.shared.at());
        self.conclude(
            &local,
            self.limit_decisions(&local, decisions, DecidedBy::Local),
        )
    }
}
