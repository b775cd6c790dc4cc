//! A decision: the counts it was made from, its outcome, and what follows from them.

use std::time::Duration;

use super::{Algorithm, Cost, Counts, Leaving, Limit, Position, Timestamp};

/// The result for one limit.
///
/// It holds the snapshot that the store decided on, and derives what a client or a metric wants to know
/// only when asked: an allowed request that nobody looks at pays for no division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The rule that was applied.
    pub algorithm: Algorithm,
    /// The limit that was applied.
    pub limit: Limit,
    /// What the request costs.
    pub cost: Cost,
    /// The counts as found, before the request.
    pub counts: Counts,
    /// The store's time.
    pub now: Timestamp,
    /// Whether this limit has room for the request, whatever the others of its group say.
    pub allowed: bool,
    /// Whether the cost was added to the current count: its whole group was allowed, and not only asked.
    pub charged: bool,
    /// The units admitted in the trailing window before the request, by an exact log; `None` where none is
    /// kept, or where it began too late to tell.
    pub exact: Option<u64>,
    /// What a log tells of waits, after the charge; nothing of a counter.
    pub leaving: Leaving,
}

/// A decision against an exact log of the admitted units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The log would have decided so, too.
    Correct,
    /// Allowed, and the log would have denied it.
    FalseAllow,
    /// Denied, and the log would have allowed it.
    FalseDeny,
}

/// How long until something holds, if nobody else comes.
///
/// `Never` is the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait<T = Duration> {
    /// So long.
    For(T),
    /// It will not: the request costs more than the quota, or the quota is 0.
    Never,
}

/// Decides one request against one limit; nothing is charged yet. Of a log, whoever has it tells what is
/// [leaving](Decision::leaving), once it is charged.
pub fn decide(
    algorithm: Algorithm,
    limit: Limit,
    counts: Counts,
    cost: Cost,
    now: Timestamp,
) -> Decision {
    let at = limit.window().position(now);
    Decision {
        algorithm,
        limit,
        cost,
        counts,
        now,
        allowed: algorithm.admits(limit, counts, cost, at),
        charged: false,
        exact: None,
        leaving: Leaving::default(),
    }
}

impl Decision {
    /// The window in which the store decided, and how far into it.
    pub fn position(&self) -> Position {
        self.limit.window().position(self.now)
    }

    /// How many more requests of cost 1 would be admitted at this instant.
    pub fn remaining(&self) -> u64 {
        let estimate =
            self.algorithm
                .scaled_estimate(self.limit, self.counts_after(), self.position())
                / u128::from(self.limit.window().length());
        u128::from(self.limit.quota())
            .saturating_sub(estimate)
            .try_into()
            .expect("at most the quota, which is a u64")
    }

    /// When the next window starts. A log has none: when one more unit than now is available, which is `now` if
    /// nothing is used.
    pub fn reset(&self) -> Timestamp {
        if !self.algorithm.keeps_a_log() {
            return self.limit.window().moment(self.position().number + 1, 0);
        }
        match self.counts_after().current {
            0 => self.now,
            _ => {
                let window = self.limit.window();
                let left = self.leaving.unit.saturating_add(window.length());
                window.moment(0, left).max(self.now)
            }
        }
    }

    /// How long until the same request would be admitted; `None` if it was.
    pub fn retry_after(&self) -> Option<Wait> {
        (!self.allowed).then(|| self.wait_for(self.cost.units(), self.leaving.request))
    }

    /// How long until one more unit than now is available; `None` if nothing is used, or never.
    pub fn next_unit(&self) -> Option<Duration> {
        let remaining = self.remaining();
        if remaining == self.limit.quota() {
            return None;
        }
        match self.wait_for(remaining + 1, self.leaving.unit) {
            Wait::For(wait) => Some(wait),
            Wait::Never => None,
        }
    }

    /// The units in use before the request was charged, to be looked at, never to be decided by.
    pub fn estimate(&self) -> f64 {
        self.scaled_estimate() as f64 / self.limit.window().length() as f64
    }

    /// Estimate / quota before the request was charged, to be looked at, never to be decided by.
    /// `None` for a quota of 0.
    pub fn utilization(&self) -> Option<f64> {
        let full = u128::from(self.limit.quota()) * u128::from(self.limit.window().length());
        (full > 0).then(|| self.scaled_estimate() as f64 / full as f64)
    }

    /// Whether it is right: a denial if and only if the exact count and the cost together pass the quota.
    /// `None` where the exact count is not known.
    pub fn judgement(&self) -> Option<Judgement> {
        let with_it = self.exact?.saturating_add(self.cost.units());
        let is_over = with_it > self.limit.quota();
        Some(match (self.allowed, is_over) {
            (true, true) => Judgement::FalseAllow,
            (false, false) => Judgement::FalseDeny,
            (true, false) | (false, true) => Judgement::Correct,
        })
    }

    /// (estimate - exact count) / quota before the request was charged; `None` where the exact count is not
    /// known, and for a quota of 0.
    pub fn estimate_error(&self) -> Option<f64> {
        let (exact, quota) = (self.exact? as f64, self.limit.quota() as f64);
        (quota > 0.0).then(|| (self.estimate() - exact) / quota)
    }

    fn scaled_estimate(&self) -> u128 {
        self.algorithm
            .scaled_estimate(self.limit, self.counts, self.position())
    }

    fn counts_after(&self) -> Counts {
        let charge = if self.charged { self.cost.units() } else { 0 };
        Counts {
            current: self.counts.current.saturating_add(charge),
            ..self.counts
        }
    }

    fn wait_for(&self, units: u64, leaves: u64) -> Wait {
        let at = self.position();
        match self
            .algorithm
            .wait(self.limit, self.counts_after(), units, at, leaves)
        {
            Wait::For(wait) => {
                let admitted_at = self.limit.window().moment(at.number, at.elapsed + wait);
                Wait::For(admitted_at.since(self.now))
            }
            Wait::Never => Wait::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_NUMBER: u64 = 29_000_000;

    /// A decision at `elapsed` into a window, with the counts given.
    fn decision(limit: &str, current: u64, previous: u64, elapsed_ms: u64, cost: u32) -> Decision {
        let limit: Limit = limit.parse().expect(limit);
        let start = limit.window().moment(WINDOW_NUMBER, 0).as_millis();
        decide(
            Algorithm::SlidingWindowCounter,
            limit,
            Counts { current, previous },
            Cost::new(cost).expect("a cost"),
            Timestamp::from_millis(start + elapsed_ms),
        )
    }

    fn charged(mut decision: Decision) -> Decision {
        assert!(decision.allowed);
        decision.charged = true;
        decision
    }

    fn wait_ms(decision: &Decision) -> u128 {
        match decision.retry_after() {
            Some(Wait::For(wait)) => wait.as_millis(),
            other => panic!("no finite wait: {other:?}"),
        }
    }

    #[test]
    fn the_worked_examples_hold() {
        assert!(
            decision("100/1m", 30, 80, 15_000, 1).allowed,
            "30 + 60 = 90"
        );
        assert!(
            !decision("100/1m", 50, 80, 15_000, 1).allowed,
            "50 + 60 = 110"
        );
        assert!(
            decision("100/1m", 40, 70, 45_000, 1).allowed,
            "40 + 17.5 = 57.5"
        );
    }

    #[test]
    fn an_estimate_just_under_the_limit_is_admitted_and_one_at_it_denied() {
        assert!(
            decision("1/1m", 0, 1, 1, 1).allowed,
            "59.999 / 60 of one unit"
        );
        assert!(!decision("1/1m", 0, 1, 0, 1).allowed, "one whole unit");
        assert!(decision("1/10s", 0, 1, 1_000, 1).allowed, "0.9 of one unit");
        assert!(!decision("3/1m", 3, 0, 0, 1).allowed);
    }

    #[test]
    fn a_cost_is_admitted_if_the_floor_of_the_estimate_leaves_room_for_all_of_it() {
        assert!(decision("10/1m", 0, 10, 30_000, 5).allowed, "5 + 5 <= 10");
        assert!(!decision("10/1m", 0, 10, 30_000, 6).allowed, "5 + 6 > 10");
        assert!(
            decision("10/1m", 0, 10, 30_001, 6).allowed,
            "floor(4.9998) + 6 <= 10"
        );
        assert!(
            !decision("10/1m", 0, 0, 0, 11).allowed,
            "more than the quota"
        );
    }

    #[test]
    fn remaining_is_what_would_still_be_admitted() {
        let first = charged(decision("100/1m", 10, 50, 6_000, 1));
        assert_eq!(first.remaining(), 44, "100 - floor(11 + 45)");
        let fresh = charged(decision("5/1m", 0, 0, 0, 1));
        assert_eq!(fresh.remaining(), 4);
        let over = decision("5/1m", 9, 0, 0, 1);
        assert_eq!(
            over.remaining(),
            0,
            "a lowered limit leaves nothing, not less"
        );
    }

    #[test]
    fn five_requests_at_a_limit_of_three_leave_two_one_none() {
        let mut current = 0;
        let seen: Vec<_> = (0..5)
            .map(|_| {
                let mut decision = decision("3/1m", current, 0, 0, 1);
                decision.charged = decision.allowed;
                current += u64::from(decision.allowed);
                (decision.allowed, decision.remaining())
            })
            .collect();
        assert_eq!(
            seen,
            [(true, 2), (true, 1), (true, 0), (false, 0), (false, 0)]
        );
    }

    #[test]
    fn a_wait_ends_in_this_window_when_only_the_previous_one_is_in_the_way() {
        let denied = decision("100/1m", 50, 80, 15_000, 1);
        // 50 * W + 80 * (W - E) < 100 * W first holds after E = 3/8 of the window.
        assert_eq!(wait_ms(&denied), 22_500 + 1 - 15_000);
    }

    #[test]
    fn a_wait_ends_in_the_next_window_when_the_current_one_is_full() {
        let denied = decision("3/1m", 3, 0, 0, 1);
        assert_eq!(
            wait_ms(&denied),
            60_001,
            "one third of a unit must have faded: at once, 1 ms in"
        );
        let all = decision("3/1m", 3, 0, 10_000, 3);
        assert_eq!(wait_ms(&all), 50_000 + 40_001);
    }

    #[test]
    fn a_request_larger_than_the_quota_waits_for_ever() {
        assert_eq!(
            decision("3/1m", 0, 0, 0, 4).retry_after(),
            Some(Wait::Never)
        );
        assert_eq!(
            decision("0/1m", 0, 0, 0, 1).retry_after(),
            Some(Wait::Never)
        );
        assert!(Wait::Never > Wait::For(Duration::MAX));
    }

    #[test]
    fn the_next_unit_is_the_exact_wait_on_a_denial_and_absent_on_a_full_quota() {
        let denied = decision("100/1m", 50, 80, 15_000, 1);
        assert_eq!(denied.retry_after(), denied.next_unit().map(Wait::For));
        assert_eq!(decision("100/1m", 0, 0, 0, 1).next_unit(), None);
        assert_eq!(decision("0/1m", 0, 0, 0, 1).next_unit(), None);
        let used = charged(decision("100/1m", 0, 0, 15_000, 1));
        // 99 remain; the hundredth comes back as soon as the next window makes the unit fade.
        assert_eq!(used.next_unit(), Some(Duration::from_millis(45_001)));
    }

    #[test]
    fn windows_above_a_day_wait_in_seconds_but_tell_the_time_to_their_millisecond() {
        let limit: Limit = "1/2d".parse().expect("a limit");
        let start = limit.window().moment(1, 0).as_millis();
        let denied = decide(
            Algorithm::SlidingWindowCounter,
            limit,
            Counts {
                current: 0,
                previous: 1,
            },
            Cost::ONE,
            Timestamp::from_millis(start + 400),
        );
        assert_eq!(wait_ms(&denied), 600, "admitted at second 1 of the window");
    }

    #[test]
    fn the_reset_is_the_start_of_the_next_window() {
        let decision = decision("3/1m", 0, 0, 59_999, 1);
        assert_eq!(decision.reset().as_millis() - decision.now.as_millis(), 1);
    }

    #[test]
    fn utilization_is_estimate_over_quota_before_the_charge() {
        let decision = charged(decision("100/1m", 30, 80, 15_000, 1));
        assert_eq!(decision.utilization(), Some(0.9));
        assert_eq!(decision.estimate(), 90.0);
        assert_eq!(
            super::tests::decision("0/1m", 3, 0, 0, 1).utilization(),
            None
        );
    }
}
