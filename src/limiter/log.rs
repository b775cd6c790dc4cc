//! The log line for decisions near a limit, bounded so that it can not become the load.

use std::sync::atomic::{AtomicU64, Ordering};

use super::LimitDecision;
use crate::{clock::Clock, policy::PolicySet};

/// Writes at most [`LINES_PER_SECOND`] lines in any second of the clock.
#[derive(Debug)]
pub(super) struct NearLimitLog {
    clock: Clock,
    /// The second in the upper half, its lines so far in the lower.
    state: AtomicU64,
    suppressed: AtomicU64,
}

impl NearLimitLog {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Writes the line, or counts it as suppressed. The identifier is an address or a hash, never a key.
    pub(super) fn write(&self, policies: &PolicySet, limit: &LimitDecision, utilization: f64) {
        if !self.grants_a_line() {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let policy = &policies.policies()[limit.policy];
        let decision = &limit.decision;
        tracing::info!(
            policy = &*policy.name,
            limit = &*policy.limits[limit.limit].name,
            identifier = %limit.identifier,
            decision = if decision.allowed { "allow" } else { "deny" },
            decided_by = limit.decided_by.name(),
            utilization,
            current = decision.counts.current,
            previous = decision.counts.previous,
            suppressed = self.suppressed.swap(0, Ordering::Relaxed),
            "A decision fell near its limit."
        );
    }

    fn grants_a_line(&self) -> bool {
        let second = self.clock.now().as_seconds() & u64::from(u32::MAX);
        let next = |state: u64| {
            let lines = if state >> 32 == second {
                state & u64::from(u32::MAX)
            } else {
                0
            };
            (lines < LINES_PER_SECOND).then_some(second << 32 | (lines + 1))
        };
        self.state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok()
    }
}

/// Enough to see that it happens and to whom; too few to matter.
const LINES_PER_SECOND: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratelimit::Timestamp;

    #[test]
    fn no_second_grants_more_lines_than_the_bound() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000));
        let log = NearLimitLog::new(clock.clone());
        let granted = |log: &NearLimitLog| (0..1_000).filter(|_| log.grants_a_line()).count();
        assert_eq!(granted(&log), 10);
        clock.set(Timestamp::from_seconds(1_001));
        assert_eq!(granted(&log), 10);
    }
}
