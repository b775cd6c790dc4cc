//! The promises of the rule, for any counts: checked by brute force against the formula, one time unit and
//! one request at a time.

use std::time::Duration;

use proptest::prelude::*;
use slidegate::ratelimit::{
    Algorithm, Cost, Counts, Decision, Limit, Log, Timestamp, Wait, decide,
};

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
            proptest::sample::select(by_windows()),
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

/// Those of two counters.
fn by_windows() -> Vec<Algorithm> {
    let algorithms = Algorithm::ALL.into_iter();
    algorithms.filter(|one| !one.keeps_a_log()).collect()
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
        Algorithm::SlidingLog => unreachable!("it has no windows"),
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

/// What happened to a log, in time units, which may go back; and a request at the end.
#[derive(Clone, Debug)]
struct LogCase {
    limit: Limit,
    steps: Vec<LogStep>,
    last: LogStep,
}

#[derive(Clone, Copy, Debug)]
struct LogStep {
    moment: u64,
    cost: Cost,
    /// Whatever the log says: charged by response.
    forced: bool,
}

fn log_cases() -> impl Strategy<Value = LogCase> {
    let windows = prop_oneof![1u64..5, Just(86_400u64), 86_401u64..31_622_400];
    (0u64..12, windows, any::<bool>()).prop_flat_map(|(quota, seconds, goes_back)| {
        let limit: Limit = format!("{quota}/{seconds}s").parse().expect("a limit");
        let length = limit.window().length();
        let gap =
            prop_oneof![3 => Just(0u64), 3 => 1u64..4, 3 => 0..length / 2, 1 => 0..2 * length];
        let cost = prop_oneof![4 => Just(1u32), 2 => 1u32..6, 1 => 1u32..40];
        let step = (
            gap,
            cost,
            prop::bool::weighted(0.2),
            prop::bool::weighted(0.15),
        );
        (Just(limit), prop::collection::vec(step, 1..40)).prop_map(move |(limit, steps)| {
            let mut moment = 10 * limit.window().length();
            let step = |(gap, cost, forced, back): (u64, u32, bool, bool)| {
                moment = match goes_back && back {
                    true => moment.saturating_sub(gap),
                    false => moment + gap,
                };
                LogStep {
                    moment,
                    cost: Cost::new(cost).expect("at least 1"),
                    forced,
                }
            };
            let mut steps: Vec<_> = steps.into_iter().map(step).collect();
            let last = steps.pop().expect("one at least");
            LogCase { limit, steps, last }
        })
    })
}

impl LogCase {
    fn stamp(&self, moment: u64) -> Timestamp {
        self.limit.window().moment(0, moment)
    }

    /// A decision as a store makes it; charged if it is allowed, or forced.
    fn ask(&self, log: &mut Log, step: LogStep) -> Decision {
        let now = self.stamp(step.moment);
        log.drop_left(self.limit.window(), now);
        let mut decision = decide(
            Algorithm::SlidingLog,
            self.limit,
            log.counts(),
            step.cost,
            now,
        );
        decision.charged = decision.allowed || step.forced;
        if decision.charged {
            log.charge(self.limit, step.cost, now);
        }
        decision.leaving = log.leaving(self.limit, step.cost, decision.allowed);
        decision
    }

    /// The log before the last request; the log of a client that is asked nothing else.
    fn log(&self) -> Log {
        let mut log = Log::default();
        for step in &self.steps {
            self.ask(&mut log, *step);
        }
        log
    }

    /// How it would be decided at another moment, if nobody else comes.
    fn at(&self, log: &Log, moment: u64, cost: Cost) -> Decision {
        let step = LogStep {
            moment,
            cost,
            forced: false,
        };
        self.ask(&mut log.clone(), step)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_log_admits_if_and_only_if_the_units_of_the_trailing_window_leave_room(case in log_cases()) {
        let (quota, length) = (case.limit.quota(), case.limit.window().length());
        let mut log = Log::default();
        // Never cut: each unit that was charged.
        let mut units: Vec<u64> = Vec::new();
        for step in case.steps.iter().chain([&case.last]) {
            units.retain(|unit| unit + length > step.moment);
            let room = units.len() as u64 + step.cost.units() <= quota;
            let decision = case.ask(&mut log, *step);
            prop_assert_eq!(decision.allowed, room);
            if decision.charged {
                units.extend((0..step.cost.units()).map(|_| step.moment));
            }
            let left = quota.saturating_sub(units.len() as u64);
            prop_assert_eq!(decision.remaining(), left);
            prop_assert!(log.counts().current >= quota.min(units.len() as u64));
            prop_assert!(log.counts().current <= 2 * quota);
        }
    }

    #[test]
    fn a_request_denied_by_a_log_is_admitted_after_its_wait_and_not_one_time_unit_before(case in log_cases()) {
        let mut log = case.log();
        let step = LogStep { forced: false, ..case.last };
        let decision = case.ask(&mut log, step);
        match decision.retry_after() {
            None => prop_assert!(decision.allowed),
            Some(Wait::Never) => prop_assert!(step.cost.units() > case.limit.quota()),
            Some(Wait::For(wait)) => {
                prop_assert!(!decision.allowed);
                let then = case.limit.window().moment_of(later(decision.now, wait));
                prop_assert!(case.at(&log, then, step.cost).allowed, "told too early: {wait:?}");
                prop_assert!(!case.at(&log, then - 1, step.cost).allowed, "told too late: {wait:?}");
            }
        }
    }

    #[test]
    fn the_next_unit_of_a_log_comes_when_told_and_not_before(case in log_cases()) {
        let mut log = case.log();
        let decision = case.ask(&mut log, case.last);
        let remaining = decision.remaining();
        let remaining_at = |moment| {
            let mut decision = case.at(&log, moment, Cost::ONE);
            decision.charged = false;
            decision.remaining()
        };
        match decision.next_unit() {
            None => {
                prop_assert_eq!(remaining, case.limit.quota());
                prop_assert_eq!(decision.reset(), decision.now);
            }
            Some(wait) => {
                let then = later(decision.now, wait);
                prop_assert_eq!(decision.reset(), then);
                let then = case.limit.window().moment_of(then);
                prop_assert!(remaining_at(then) > remaining);
                prop_assert!(remaining_at(then - 1) <= remaining);
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
