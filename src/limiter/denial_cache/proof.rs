//! What a reply told of one counter, and the denials that follow from it. Pure: the time is an argument.
//!
//! ```text
//!   this proxy    sent               received                           now
//!                  |--------------------|--------------------------------|
//!   the store              ^ at                         [earliest ... latest]
//!
//!   earliest = at + (now - received)         latest = at + (now - sent) + 1 time unit
//! ```
//!
//! The script ran somewhere between sending and receiving, so the store's time lies between the two ends;
//! both clocks are taken to run equally fast. As long as nothing is taken back, both counts only grow until
//! the window turns, and then the new previous count is at least what the current one was. Within a window
//! the estimate of given counts falls with time, and a turn lets it fall further, or stay. So a request that
//! would be denied at the latest moment is denied at every moment up to it, whatever the counts have become.
//!
//! A log grows too, and nothing of it leaves before the unit that was told to leave next: until then what was denied
//! is. From then on nothing follows, since what comes after that unit was not told.

use std::time::Instant;

use crate::{
    policy::NamedLimit,
    ratelimit::{Cost, Counts, Decision, Leaving, Limit, Timestamp, decide},
};

/// The counts that a reply told, and when.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    pub counts: Counts,
    /// What a log told besides; nothing of counters, which are many.
    pub log: Option<Box<LogSighting>>,
    /// The store's time when it decided; it says in which window the counts were found.
    pub at: Timestamp,
    /// No later than the call was sent.
    pub sent: Instant,
    /// No earlier than the reply was received.
    pub received: Instant,
}

/// What a log told of waits, and what it was asked: they are for the same limit and cost alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogSighting {
    limit: Limit,
    cost: Cost,
    leaving: Leaving,
}

impl Sighting {
    /// What a reply told, to a call sent and received then.
    pub fn of(decision: &Decision, sent: Instant, received: Instant) -> Self {
        Self {
            counts: decision.counts,
            log: decision.algorithm.keeps_a_log().then(|| {
                Box::new(LogSighting {
                    limit: decision.limit,
                    cost: decision.cost,
                    leaving: decision.leaving,
                })
            }),
            at: decision.now,
            sent,
            received,
        }
    }

    /// The decision on a request that is looked at now, if it is proven to be a denial.
    ///
    /// It is proven for the latest moment that the store's clock may show, which is the best for the
    /// client. What it tells, the wait above all, is of the earliest: the client is not told too early.
    pub fn denial(&self, limit: &NamedLimit, cost: Cost, now: Instant) -> Option<Decision> {
        self.denial_by(MARGIN, limit, cost, now)
    }

    /// Whether it tells more than `other` of the same counter: replies may overtake each other.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        let age = |one: &Self| (one.at, one.counts.current, one.sent);
        age(self) > age(other)
    }

    fn denial_by(
        &self,
        margin: u64,
        limit: &NamedLimit,
        cost: Cost,
        now: Instant,
    ) -> Option<Decision> {
        // Whoever has a sighting is past its receiving, though he may have read the time before.
        let now = now.max(self.received);
        let window = limit.limit.window();
        let latest = window.position(self.at.later(now - self.sent));
        let latest = window.moment(latest.number, latest.elapsed + margin);
        if self.decide(limit, cost, latest)?.allowed {
            return None;
        }
        self.decide(limit, cost, self.at.later(now - self.received))
    }

    /// The decision at a later moment on what the counts have become at the least.
    fn decide(&self, limit: &NamedLimit, cost: Cost, moment: Timestamp) -> Option<Decision> {
        if limit.algorithm.keeps_a_log() {
            return self.decide_by_log(limit, cost, moment);
        }
        let number = |moment| limit.limit.window().position(moment).number;
        let turns = number(moment) - number(self.at);
        let counts = limit.algorithm.counts_later(self.counts, turns)?;
        Some(decide(limit.algorithm, limit.limit, counts, cost, moment))
    }

    /// The same, before anything has left.
    fn decide_by_log(&self, limit: &NamedLimit, cost: Cost, moment: Timestamp) -> Option<Decision> {
        let told = self.log.as_deref()?;
        let window = limit.limit.window();
        let leaves = told.leaving.unit.saturating_add(window.length());
        let holds =
            (told.limit, told.cost) == (limit.limit, cost) && window.moment_of(moment) < leaves;
        holds.then(|| Decision {
            leaving: told.leaving,
            ..decide(limit.algorithm, limit.limit, self.counts, cost, moment)
        })
    }
}

/// Time units that the store may be ahead of what is computed. Its time and the elapsed time are each
/// rounded down, which hides less than two units, of which the store's clock can show one.
const MARGIN: u64 = 1;

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::BTreeMap, time::Duration};

    use proptest::{
        prelude::*,
        strategy::ValueTree,
        test_runner::{Config, TestRunner},
    };
    use smallvec::smallvec;

    use super::*;
    use crate::{
        clock::{self, Clock},
        limiter::denial_cache::sightings::{Counter, Sightings},
        policy::Identifier,
        ratelimit::{Algorithm, TimeUnit, Wait, Window},
        store::{Action, At, Demand, MemorySettings, MemoryStore},
    };

    const COUNTER: Counter = Counter {
        policy: 0,
        limit: 0,
        identifier: Identifier::Unix,
    };

    fn limit(text: &str) -> NamedLimit {
        limit_by(Algorithm::SlidingWindowCounter, text)
    }

    fn limit_by(algorithm: Algorithm, text: &str) -> NamedLimit {
        NamedLimit {
            name: "p".into(),
            limit: text.parse().expect(text),
            algorithm,
        }
    }

    /// Counts found `elapsed_ms` into the window with number 100, by a call that took no time.
    fn sighting(limit: &NamedLimit, current: u64, previous: u64, elapsed_ms: u64) -> Sighting {
        let now = clock::instant();
        let start = limit.limit.window().moment(100, 0).as_millis();
        Sighting {
            counts: Counts { current, previous },
            log: None,
            at: Timestamp::from_millis(start + elapsed_ms),
            sent: now,
            received: now,
        }
    }

    fn after(sighting: &Sighting, millis: u64) -> Instant {
        sighting.received + Duration::from_millis(millis)
    }

    #[test]
    fn a_denial_is_proven_until_the_request_could_be_admitted_and_its_wait_shrinks_meanwhile() {
        let limit = limit("100/1m");
        // 50 + 80 * (W - E) / W falls to 100 at 22,500 ms: the first moment to admit is 22,501.
        let seen = sighting(&limit, 50, 80, 15_000);
        for (passed, wait) in [(0, 7_501), (7_000, 501), (7_499, 2)] {
            let denial = seen.denial(&limit, Cost::ONE, after(&seen, passed));
            let denial = denial.expect("a denial");
            let told = denial.retry_after();
            let wait = Duration::from_millis(wait);
            assert_eq!(told, Some(Wait::For(wait)), "{passed}");
        }
        for passed in [7_500, 7_501, 20_000] {
            assert_eq!(seen.denial(&limit, Cost::ONE, after(&seen, passed)), None);
        }
    }

    #[test]
    fn a_full_window_proves_into_the_next_one_and_nothing_beyond() {
        let second = limit("5/1s");
        let seen = sighting(&second, 5, 0, 900);
        // 5 of 5 fade from the turn on: at 1,000 ms all are there, at 1,001 ms one has begun to go.
        assert!(seen.denial(&second, Cost::ONE, after(&seen, 99)).is_some());
        assert_eq!(seen.denial(&second, Cost::ONE, after(&seen, 100)), None);
        let five = Cost::new(5).expect("a cost");
        let told = seen
            .denial(&second, five, after(&seen, 800))
            .expect("still");
        assert_eq!(
            told.counts,
            Counts {
                current: 0,
                previous: 5
            }
        );
        let two_windows = after(&seen, 1_100);
        assert_eq!(
            seen.denial(&second, Cost::new(6).expect("a cost"), two_windows),
            None
        );
    }

    #[test]
    fn a_denial_by_a_log_is_proven_until_its_next_unit_leaves_for_the_same_limit_and_cost() {
        let ten = limit_by(Algorithm::SlidingLog, "10/1m");
        let two = Cost::new(2).expect("a cost");
        let mut seen = sighting(&ten, 9, 0, 0);
        let moment = ten.limit.window().moment_of(seen.at);
        let told = LogSighting {
            limit: ten.limit,
            cost: two,
            leaving: Leaving {
                request: moment - 59_500,
                unit: moment - 59_500,
            },
        };
        seen.log = Some(Box::new(told));
        for (passed, wait) in [(0, 500), (400, 100), (498, 2)] {
            let denial = seen.denial(&ten, two, after(&seen, passed));
            let told = denial.expect("a denial").retry_after();
            let wait = Duration::from_millis(wait);
            assert_eq!(told, Some(Wait::For(wait)), "{passed}");
        }
        for passed in [499, 500, 10_000] {
            let denial = seen.denial(&ten, two, after(&seen, passed));
            assert_eq!(denial, None, "{passed}");
        }
        let three = Cost::new(3).expect("a cost");
        let nine = limit_by(Algorithm::SlidingLog, "9/1m");
        for (limit, cost) in [(&ten, three), (&nine, two)] {
            assert_eq!(seen.denial(limit, cost, after(&seen, 1)), None);
        }
    }

    #[test]
    fn the_requests_own_cost_and_limit_are_applied_to_what_was_seen() {
        let seen = sighting(&limit("10/1m"), 8, 0, 0);
        let denied = |text: &str, cost| {
            let cost = Cost::new(cost).expect("a cost");
            seen.denial(&limit(text), cost, after(&seen, 5)).is_some()
        };
        assert!(denied("10/1m", 3));
        assert!(!denied("10/1m", 2));
        assert!(!denied("11/1m", 3), "a raised limit");
        assert!(denied("7/1m", 1), "a lowered limit");
    }

    #[test]
    fn the_time_that_a_call_took_widens_the_doubt_at_both_ends() {
        let limit = limit("100/1m");
        let mut seen = sighting(&limit, 50, 80, 15_000);
        seen.received = seen.sent + Duration::from_millis(7_000);
        let told = seen.denial(&limit, Cost::ONE, after(&seen, 400));
        let told = told.expect("at most 22,401 ms, to which 22,501 is missing");
        assert_eq!(
            told.position().elapsed,
            15_400,
            "the store may be no further"
        );
        assert_eq!(seen.denial(&limit, Cost::ONE, after(&seen, 500)), None);
    }

    #[test]
    fn a_request_that_read_the_time_before_the_reply_came_is_not_dated_back() {
        let limit = limit("100/1m");
        let mut seen = sighting(&limit, 50, 80, 15_000);
        seen.received = seen.sent + Duration::from_millis(7_500);
        assert_eq!(seen.denial(&limit, Cost::ONE, seen.sent), None);
    }

    #[test]
    fn without_the_margin_a_request_that_the_store_admits_would_be_denied() {
        // One unit fades in each millisecond. The script ran at the very end of its millisecond, so
        // that the store's clock shows 2 ms more after 1.5 ms.
        let limit = limit("1000/1s");
        let seen = sighting(&limit, 0, 1_002, 0);
        let now = seen.sent + Duration::from_micros(1_500);
        let truth = seen.decide(&limit, Cost::ONE, seen.at.later(Duration::from_millis(2)));
        assert!(truth.expect("the same window").allowed);
        assert!(seen.denial_by(0, &limit, Cost::ONE, now).is_some(), "false");
        assert_eq!(seen.denial(&limit, Cost::ONE, now), None);
    }

    #[test]
    fn of_two_sightings_the_one_that_the_store_made_later_is_newer() {
        let limit = limit("100/1m");
        let old = sighting(&limit, 50, 80, 15_000);
        let later = sighting(&limit, 50, 80, 15_001);
        let more = sighting(&limit, 51, 80, 15_000);
        for newer in [later, more] {
            assert!(newer.is_newer_than(&old) && !old.is_newer_than(&newer));
        }
    }

    /// A store, requests through one proxy that remembers denials, and requests that it does not see.
    #[derive(Clone, Debug)]
    struct Scenario {
        algorithm: Algorithm,
        window: Window,
        quota: u64,
        /// What is counted of the window before, in percent of the quota.
        previous: u64,
        /// How far the estimate is from the quota at the start, in units.
        room: i64,
        /// Microseconds before a window's edge.
        begins: u64,
        requests: Vec<Request>,
    }

    /// Times are in microseconds, of a second for windows that count in seconds.
    #[derive(Clone, Debug)]
    struct Request {
        gap: u64,
        /// From sending to the script, and from there to receiving.
        there: u64,
        back: u64,
        cost: Cost,
        /// Percent of the quota: a limit may be raised or lowered while its counter stays.
        of_quota: u64,
        /// Whether it comes through another proxy.
        unseen: bool,
    }

    /// What happens to a request, by its place.
    enum Event {
        Arrives(usize),
        Runs { index: usize, sent: Instant },
        Denied(Sighting),
    }

    fn scenarios() -> impl Strategy<Value = Scenario> {
        let delay = || prop_oneof![6 => 0u64..600, 1 => 0u64..100_000];
        let gap = prop_oneof![6 => 0u64..4_000, 3 => 0u64..60_000, 1 => 0u64..900_000];
        let cost = prop_oneof![3 => 1u32..4, 1 => 1u32..60];
        let of_quota = prop_oneof![8 => Just(100u64), 1 => 60u64..140];
        let request = (
            gap,
            delay(),
            delay(),
            cost.prop_map(|units| Cost::new(units).expect("at least 1")),
            of_quota,
            prop::bool::weighted(0.2),
        );
        let request = request.prop_map(|(gap, there, back, cost, of_quota, unseen)| Request {
            gap,
            there,
            back,
            cost,
            of_quota,
            unseen,
        });
        let seconds = prop_oneof![3 => 1u64..4, 1 => Just(2 * 86_400)];
        // From a unit in many moments to many units in a moment.
        let per_second = prop_oneof![1u64..50, 500u64..5_000];
        let requests = prop::collection::vec(request, 1..80);
        (
            proptest::sample::select(Algorithm::ALL.to_vec()),
            seconds,
            per_second,
            0u64..130,
            -20i64..60,
            0u64..1_500_000,
            requests,
        )
            .prop_map(
                |(algorithm, seconds, per_second, previous, room, begins, requests)| Scenario {
                    algorithm,
                    window: Window::from_seconds(seconds).expect("a window"),
                    quota: match seconds {
                        ..86_400 => per_second * seconds,
                        _ => per_second * seconds / 1_000,
                    },
                    previous,
                    room,
                    begins,
                    requests,
                },
            )
    }

    impl Scenario {
        /// Plays it, and tells of each denial from the cache, with what the store says just then.
        fn play(&self, margin: u64, mut tell: impl FnMut(&Sighting, Decision, Decision)) {
            let stretch = match self.window.unit() {
                TimeUnit::Millisecond => 1,
                TimeUnit::Second => 1_000,
            };
            let start = 1_000 * self.window.moment(1_000, 0).as_millis() - stretch * self.begins;
            let zero = clock::instant();
            let local = |time: u64| zero + Duration::from_micros(time - start);
            let store = self.store(start);
            let sightings = Sightings::new(Duration::from_secs(stretch), 64);

            let mut events = BTreeMap::new();
            let mut time = start;
            for (index, request) in self.requests.iter().enumerate() {
                time += stretch * request.gap;
                events.insert((time, index), Event::Arrives(index));
            }
            while let Some(((time, place), event)) = events.pop_first() {
                match event {
                    Event::Arrives(index) => {
                        let (request, now) = (&self.requests[index], local(time));
                        let denial = sightings
                            .get(COUNTER, now)
                            .filter(|_| !request.unseen)
                            .and_then(|known| {
                                let limit = self.limit(request);
                                let denial = known.denial_by(margin, &limit, request.cost, now)?;
                                Some((known, denial))
                            });
                        if let Some((known, denial)) = denial {
                            tell(
                                &known,
                                denial,
                                self.ask(&store, request, Action::Peek, time),
                            );
                        } else {
                            let runs = (time + stretch * request.there, place);
                            events.insert(runs, Event::Runs { index, sent: now });
                        }
                    }
                    Event::Runs { index, sent } => {
                        let request = &self.requests[index];
                        let decision = self.ask(&store, request, Action::Take, time);
                        let returns = time + stretch * request.back;
                        let seen = Sighting::of(&decision, sent, local(returns));
                        if !decision.allowed && !request.unseen {
                            events.insert((returns, place), Event::Denied(seen));
                        }
                    }
                    Event::Denied(seen) => sightings.add(COUNTER, seen),
                }
            }
        }

        /// A store with so many units that the estimate begins near the quota.
        fn store(&self, start: u64) -> MemoryStore {
            let settings = MemorySettings { max_counters: 100 };
            let store = MemoryStore::new(settings, Clock::manual(Timestamp::from_millis(0)));
            let length = self.window.length();
            let at = self.window.position(Timestamp::from_millis(start / 1_000));
            let previous = self.quota * self.previous / 100;
            let faded = previous * (length - at.elapsed) / length;
            let current = (self.quota - faded.min(self.quota)).saturating_add_signed(-self.room);
            let before = start - 1_000_000 * self.window.seconds();
            for (time, units) in [(before, previous), (start, current)] {
                let units = u32::try_from(units).expect("small");
                if let Some(cost) = Cost::new(units) {
                    let first = Request {
                        cost,
                        ..self.requests[0].clone()
                    };
                    self.ask(&store, &first, Action::Charge, time);
                }
            }
            store
        }

        fn ask(
            &self,
            store: &MemoryStore,
            request: &Request,
            action: Action,
            time: u64,
        ) -> Decision {
            let demand = Demand {
                policy: "p",
                identifier: COUNTER.identifier,
                limit: self.limit(request).limit,
                algorithm: self.algorithm,
                cost: request.cost,
                action,
                audited: false,
            };
            let stamp = Timestamp::from_millis(time / 1_000);
            store.take_group(&smallvec![demand], At::Stamp(stamp))[0]
        }

        fn limit(&self, request: &Request) -> NamedLimit {
            let quota = self.quota * request.of_quota / 100;
            limit_by(self.algorithm, &format!("{quota}/{}", self.window))
        }
    }

    #[test]
    fn no_denial_from_the_cache_is_one_that_the_store_would_not_make_at_that_moment() {
        let (proven, by_logs) = (Cell::new(0), Cell::new(0));
        let config = Config::with_cases(1_500);
        proptest!(config, |(scenario in scenarios())| {
            let mut wrong = None;
            scenario.play(MARGIN, |known, told, truth| {
                proven.set(proven.get() + 1);
                by_logs.set(by_logs.get() + u32::from(told.algorithm.keeps_a_log()));
                if truth.allowed || told.allowed {
                    wrong = Some((known.clone(), told, truth));
                }
            });
            prop_assert!(wrong.is_none(), "{wrong:?}");
        });
        assert!(proven.get() > 5_000, "{} denials were proven", proven.get());
        assert!(by_logs.get() > 500, "{} by logs", by_logs.get());
    }

    #[test]
    fn what_a_denial_from_the_cache_tells_is_what_the_store_would_tell_of_the_same_counts_and_no_better()
     {
        proptest!(Config::with_cases(1_000), |(scenario in scenarios())| {
            let mut wrong = None;
            scenario.play(MARGIN, |known, told, truth| {
                let limit = limit_by(told.algorithm, &told.limit.to_string());
                let of_store = known.decide(&limit, told.cost, truth.now).expect("the next window");
                let ends = |decision: &Decision| match decision.retry_after().expect("a denial") {
                    Wait::For(wait) => Some(decision.now.later(wait)),
                    Wait::Never => None,
                };
                let sound = told.now <= truth.now
                    && told.retry_after() >= of_store.retry_after()
                    && ends(&told) == ends(&of_store)
                    && told.remaining() <= of_store.remaining();
                if !sound {
                    wrong = Some((known.clone(), told, of_store));
                }
            });
            prop_assert!(wrong.is_none(), "{wrong:?}");
        });
    }

    #[test]
    fn without_the_margin_such_a_false_denial_is_found() {
        let mut runner = TestRunner::deterministic();
        let mut is_false = |margin| {
            let scenario = scenarios()
                .new_tree(&mut runner)
                .expect("a scenario")
                .current();
            let mut found = false;
            scenario.play(margin, |_, _, truth| found |= truth.allowed);
            found
        };
        assert!((0..5_000).any(|_| is_false(0)));
    }
}
