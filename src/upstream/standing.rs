//! Whether an address gets requests: a state machine that any thread may move, without a lock.
//!
//! ```text
//!                 `after` failures in a row                  `lasts` later, one request
//!   in rotation ───────────────────────────────> ejected ────────────────────────────────> tried again
//!        ^                                          ^                                          │
//!        │                                          └───────────── it fails ───────────────────┤
//!        └───────────────────────────────────────────────────────── it is answered ────────────┘
//! ```
//!
//! Beside it stands what health checks say. An address gets requests if neither speaks against it.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use super::{EjectSettings, HealthCheckSettings};

/// What is known of one address. Times are since a moment that its owner chooses, and never go back.
#[derive(Debug, Default)]
pub struct Standing {
    /// Requests in a row that failed.
    failures: AtomicU32,
    /// When it may be tried again, in milliseconds; 0 while it is not ejected.
    out_until: AtomicU64,
    /// What the checks said last.
    unhealthy: AtomicBool,
    /// Checks in a row that said otherwise. Only who checks moves it.
    against: AtomicU32,
}

/// Whether an address gets requests, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    InRotation,
    /// Requests failed.
    Ejected,
    /// Health checks failed.
    Unhealthy,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::InRotation, Self::Ejected, Self::Unhealthy];

    /// The word in labels and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InRotation => "in_rotation",
            Self::Ejected => "ejected",
            Self::Unhealthy => "unhealthy",
        }
    }
}

impl Standing {
    /// How it stands.
    pub fn state(&self) -> State {
        if self.unhealthy.load(Ordering::Relaxed) {
            State::Unhealthy
        } else if self.out_until.load(Ordering::Relaxed) != 0 {
            State::Ejected
        } else {
            State::InRotation
        }
    }

    /// A request failed. Whether that ejected it.
    pub fn failed(&self, rule: &EjectSettings, now: Duration) -> bool {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if failures < rule.after {
            return false;
        }
        let before = self
            .out_until
            .fetch_max(until(rule, now), Ordering::Relaxed);
        before == 0
    }

    /// A request was answered. Whether that ended an ejection.
    pub fn answered(&self) -> bool {
        // Nearly always there is nothing to write, and what is not written does not travel between processors.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        self.out_until.load(Ordering::Relaxed) != 0
            && self.out_until.swap(0, Ordering::Relaxed) != 0
    }

    /// Whether it was ejected for long enough, and the caller is the one whose request tries it. Others are told
    /// no until that one had as long again. A request that can not be repeated elsewhere would be lost where it fails,
    /// so it has to wait twice as long: by then there are perhaps no others.
    pub fn takes_trial(&self, rule: &EjectSettings, repeats: bool, now: Duration) -> bool {
        let out_until = self.out_until.load(Ordering::Relaxed);
        let since = match repeats {
            true => now,
            false => now.saturating_sub(rule.lasts),
        };
        out_until != 0
            && out_until <= millis(since)
            && !self.unhealthy.load(Ordering::Relaxed)
            && self
                .out_until
                .compare_exchange(
                    out_until,
                    until(rule, now),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// A check passed or failed. Whether that changed how it stands.
    ///
    /// Checks of one address are made one after another.
    pub fn checked(&self, rule: &HealthCheckSettings, passed: bool) -> bool {
        let unhealthy = self.unhealthy.load(Ordering::Relaxed);
        if passed != unhealthy {
            self.against.store(0, Ordering::Relaxed);
            return false;
        }
        let against = self
            .against
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let needed = match passed {
            true => rule.healthy_after,
            false => rule.unhealthy_after,
        };
        if against < needed {
            return false;
        }
        self.against.store(0, Ordering::Relaxed);
        self.unhealthy.store(!passed, Ordering::Relaxed);
        // Who is well by its checks begins anew: what requests saw was before.
        if passed {
            self.answered();
        }
        true
    }
}

fn until(rule: &EjectSettings, now: Duration) -> u64 {
    millis(now + rule.lasts).max(1)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: EjectSettings = EjectSettings {
        after: 3,
        lasts: Duration::from_secs(2),
    };

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// One that was ejected at 0.
    fn ejected() -> Standing {
        let standing = Standing::default();
        let ejected = [(); 3].map(|()| standing.failed(&RULE, at(0)));
        assert_eq!(ejected, [false, false, true]);
        standing
    }

    #[test]
    fn failures_eject_only_in_a_row() {
        let standing = Standing::default();
        for _ in 0..10 {
            assert!(!standing.failed(&RULE, at(0)));
            assert!(!standing.failed(&RULE, at(0)));
            assert!(!standing.answered());
        }
        assert_eq!(standing.state(), State::InRotation);
        assert_eq!(ejected().state(), State::Ejected);
    }

    #[test]
    fn one_request_at_a_time_tries_an_ejected_address_and_only_when_the_time_is_over() {
        let standing = ejected();
        assert!(!standing.takes_trial(&RULE, true, at(1_999)));
        assert!(standing.takes_trial(&RULE, true, at(2_000)));
        assert!(
            !standing.takes_trial(&RULE, true, at(2_000)),
            "one does already"
        );
        assert!(!standing.takes_trial(&RULE, true, at(3_999)));
        assert!(
            standing.takes_trial(&RULE, true, at(4_000)),
            "the first got lost"
        );
        assert!(!Standing::default().takes_trial(&RULE, true, at(9_000)));
    }

    #[test]
    fn a_request_that_can_not_be_repeated_tries_only_where_no_other_came() {
        let standing = ejected();
        assert!(!standing.takes_trial(&RULE, false, at(3_999)));
        assert!(standing.takes_trial(&RULE, false, at(4_000)));
        assert!(!standing.takes_trial(&RULE, true, at(5_999)));
        assert!(standing.takes_trial(&RULE, true, at(6_000)));
        assert!(!standing.takes_trial(&RULE, false, at(9_999)));
    }

    #[test]
    fn a_trial_that_fails_ejects_for_as_long_again_and_one_that_is_answered_ends_it() {
        let standing = ejected();
        assert!(standing.takes_trial(&RULE, true, at(2_000)));
        assert!(!standing.failed(&RULE, at(2_500)), "it was ejected before");
        assert!(!standing.takes_trial(&RULE, true, at(4_499)));
        assert!(standing.takes_trial(&RULE, true, at(4_500)));
        assert!(standing.answered());
        assert_eq!(standing.state(), State::InRotation);
        assert!(!standing.failed(&RULE, at(5_000)), "it begins anew");
    }

    #[test]
    fn checks_take_out_and_bring_back_after_so_many_in_a_row() {
        let rule = HealthCheckSettings {
            unhealthy_after: 2,
            healthy_after: 3,
            ..HealthCheckSettings::default()
        };
        let standing = Standing::default();
        let check = |passed| (standing.checked(&rule, passed), standing.state());
        assert_eq!(check(false), (false, State::InRotation));
        assert_eq!(check(true), (false, State::InRotation));
        assert_eq!(check(false), (false, State::InRotation));
        assert_eq!(check(false), (true, State::Unhealthy));
        assert_eq!(check(false), (false, State::Unhealthy));
        assert_eq!(check(true), (false, State::Unhealthy));
        assert_eq!(check(true), (false, State::Unhealthy));
        assert_eq!(check(true), (true, State::InRotation));
    }

    #[test]
    fn what_is_not_well_by_its_checks_is_not_tried_and_what_is_well_again_is_not_ejected() {
        let rule = HealthCheckSettings {
            unhealthy_after: 1,
            ..HealthCheckSettings::default()
        };
        let standing = ejected();
        assert!(standing.checked(&rule, false));
        assert!(!standing.takes_trial(&RULE, true, at(9_000)));
        assert!(standing.checked(&rule, true));
        assert_eq!(standing.state(), State::InRotation);
    }
}
