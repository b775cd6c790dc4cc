//! The promises of the rule, for any counts: checked by brute force against the formula, one time unit and
//! one request at a time.

use std::time::Duration;

use proptest::prelude::*;
use slidegate::ratelimit::{Algorithm, Cost, Counts, Decision, Limit, Timestamp, Wait, decide};

/// Small enough that a test can walk every unit of it, large enough to be interesting.
#[derive(Clone, Debug)]
struct Case {
    algorithm: Algorithm,
    limit: Limit,
    counts: Counts,
    cost: Cost,
    now: Timestamp,
}

impl Case {
    fn decide(&self) -> Decision {
        self.at(self.now)
    }

    /// The same request at another moment, if nobody else comes.
    fn at(&self, moment: Timestamp) -> Decision {
        let window = self.limit.window();
        let passed = window.position(moment).number - window.position(self.now).number;
        let counts = match passed {
            0 => self.counts,
            1 => Counts {
                current: 0,
                previous: self.counts.current,
            },
            _ => Counts::default(),
        };
        decide(self.algorithm, self.limit, counts, self.cost, moment)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let quota = prop_oneof![Just(0u64), 1u64..5, 5u64..200, 200u64..100_000];
    let window = prop_oneof![1u64..100, Just(86_400u64), 86_401u64..31_622_400];
    (quota, window).prop_flat_map(|(quota, seconds)| {
        // Counts may pass the quota: it was lowered, or charged by response.
        let count = prop_oneof![0..=quota, 0..=2 * quota + 3];
        let elapsed_ms = prop_oneof![Just(0u64), Just(seconds * 1000 - 1), 0..seconds * 1000];
        (
            proptest::sample::select(Algorithm::ALL.to_vec()),
            count.clone(),
            count,
            1..=u32::try_from(quota + 2).expect("small"),
            elapsed_ms,
        )
            .prop_map(
                move |(algorithm, current, previous, cost, elapsed_ms)| Case {
                    algorithm,
                    limit: format!("{quota}/{seconds}s").parse().expect("a limit"),
                    counts: Counts { current, previous },
                    cost: Cost::new(cost).expect("at least 1"),
                    now: Timestamp::from_millis(1_000 * seconds * 1000 + elapsed_ms),
                },
            )
    })
}

/// The formula of the design in rational numbers, written without looking at the code under test.
fn floor_of_estimate(case: &Case, counts: Counts) -> u128 {
    let seconds = case.limit.window().seconds();
    let (length, now) = if seconds > 86_400 {
        (seconds, case.now.as_millis() / 1000)
    } else {
        (seconds * 1000, case.now.as_millis())
    };
    let rest = match case.algorithm {
        Algorithm::SlidingWindowCounter => u128::from(length - now % length),
        Algorithm::FixedWindow => 0,
    };
    u128::from(counts.current) + u128::from(counts.previous) * rest / u128::from(length)
}

/// The next time unit after `moment`: when a decision can first differ.
fn next_unit(limit: Limit, moment: Timestamp) -> Timestamp {
    if limit.window().seconds() > 86_400 {
        Timestamp::from_seconds(moment.as_seconds() + 1)
    } else {
        Timestamp::from_millis(moment.as_millis() + 1)
    }
}

fn later(moment: Timestamp, wait: Duration) -> Timestamp {
    moment.offset_by(i64::try_from(wait.as_millis()).expect("within two windows"))
}

/// The moment one time unit before `moment`.
fn unit_before(limit: Limit, moment: Timestamp) -> Timestamp {
    let unit = if limit.window().seconds() > 86_400 {
        1000
    } else {
        1
    };
    moment.offset_by(-unit)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_admitted_if_and_only_if_the_floor_of_the_estimate_leaves_room(case in cases()) {
        let room = floor_of_estimate(&case, case.counts) + u128::from(case.cost.units())
            <= u128::from(case.limit.quota());
        prop_assert_eq!(case.decide().allowed, room);
    }

    #[test]
    fn remaining_is_exactly_how_many_more_requests_of_cost_one_are_admitted_at_this_instant(case in cases()) {
        let mut decision = case.decide();
        decision.charged = decision.allowed;
        let charge = if decision.charged { case.cost.units() } else { 0 };
        let admits_after = |more: u64| {
            let counts = Counts { current: case.counts.current + charge + more, ..case.counts };
            decide(case.algorithm, case.limit, counts, Cost::ONE, case.now).allowed
        };
        let remaining = decision.remaining();
        prop_assert!(remaining <= case.limit.quota());
        prop_assert!(!admits_after(remaining), "one more than remaining is denied");
        if remaining > 0 {
            prop_assert!(admits_after(remaining - 1), "the last of remaining is admitted");
        }
    }

    #[test]
    fn a_denied_request_is_admitted_after_its_wait_and_not_one_time_unit_before(case in cases()) {
        let decision = case.decide();
        match decision.retry_after() {
            None => prop_assert!(decision.allowed),
            Some(Wait::Never) => {
                prop_assert!(case.cost.units() > case.limit.quota());
            }
            Some(Wait::For(wait)) => {
                let then = later(case.now, wait);
                prop_assert!(!decision.allowed);
                prop_assert!(wait <= 2 * case.limit.window().duration());
                prop_assert!(case.at(then).allowed, "told too early: {wait:?}");
                let before = unit_before(case.limit, then);
                if before > case.now {
                    prop_assert!(!case.at(before).allowed, "told too late: {wait:?}");
                }
            }
        }
    }

    #[test]
    fn once_admitted_a_lone_request_stays_admitted(case in cases()) {
        if case.decide().allowed {
            prop_assert!(case.at(next_unit(case.limit, case.now)).allowed);
            prop_assert!(case.at(case.decide().reset()).allowed);
        }
    }

    #[test]
    fn the_next_unit_comes_when_told_and_not_before(case in cases()) {
        let mut decision = case.decide();
        decision.charged = decision.allowed;
        let charge = if decision.charged { case.cost.units() } else { 0 };
        let charged = Case {
            counts: Counts { current: case.counts.current + charge, ..case.counts },
            ..case.clone()
        };
        let remaining_at = |moment| {
            let mut decision = charged.at(moment);
            decision.charged = false;
            decision.remaining()
        };
        let remaining = decision.remaining();
        match decision.next_unit() {
            None => prop_assert_eq!(remaining, case.limit.quota()),
            Some(wait) => {
                let then = later(case.now, wait);
                prop_assert!(remaining_at(then) > remaining);
                let before = unit_before(case.limit, then);
                if before > case.now {
                    prop_assert!(remaining_at(before) <= remaining);
                }
            }
        }
    }

    #[test]
    fn no_counts_however_large_overflow(
        current in any::<u64>(),
        previous in any::<u64>(),
        cost in 1u32..,
        now in 0u64..1 << 50,
    ) {
        for limit in ["0/1s", "1/1s", "104249991/1d", "9007199254740/1s", "280000000/366d"] {
            let limit: Limit = limit.parse().expect(limit);
            let counts = Counts { current, previous };
            let cost = Cost::new(cost).expect("at least 1");
            let now = Timestamp::from_millis(now);
            for algorithm in Algorithm::ALL {
                let mut decision = decide(algorithm, limit, counts, cost, now);
                decision.charged = decision.allowed;
                decision.remaining();
                decision.retry_after();
                decision.next_unit();
                decision.utilization();
            }
        }
    }
}

/// A client that comes all the time is admitted no more than twice the quota in any trailing window: the
/// bound that the documents state, met with equality by a burst at the end of a window.
#[test]
fn no_trailing_window_admits_more_than_twice_the_quota_and_a_burst_at_a_window_s_end_comes_close() {
    let limit: Limit = "20/10s".parse().expect("a limit");
    let length = limit.window().length();
    let mut admitted = Vec::new();
    let mut counts = [0u64; 4];
    // Silence until the last millisecond of window 1, then a request every millisecond.
    for moment in 2 * length - 1..4 * length {
        let number = usize::try_from(moment / length).expect("small");
        loop {
            let found = Counts {
                current: counts[number],
                previous: counts[number - 1],
            };
            let now = Timestamp::from_millis(moment);
            if !decide(
                Algorithm::SlidingWindowCounter,
                limit,
                found,
                Cost::ONE,
                now,
            )
            .allowed
            {
                break;
            }
            counts[number] += 1;
            admitted.push(moment);
        }
    }
    let most = admitted
        .iter()
        .map(|end| {
            admitted
                .iter()
                .filter(|at| **at <= *end && **at + length > *end)
                .count()
        })
        .max()
        .expect("some were admitted");
    assert!((38..=40).contains(&most), "{most}");
}
