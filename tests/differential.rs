//! The script against its specification: long random runs, decided by Lua on a real Redis and by
//! [`decide`] over a plain map, must agree in every decision.
//!
//! A run follows from its seed; a failure names the seed and the step.

use std::collections::HashMap;

use slidegate::{
    policy::Identifier,
    ratelimit::{Algorithm, Counts, Decision, Judgement, Leaving, Timestamp, decide},
    store::{Action, At, Demand, GiveBack, Group, MAX_AUDITED_QUOTA},
};
use smallvec::SmallVec;

use crate::support::{demand::*, random::Random, redis::RedisServer};

const SEEDS: [u64; 6] = [1, 2, 3, 20_260_101, 0xdead_beef, u64::MAX];
const STEPS: u64 = 4_000;

/// Small quotas that are met often, windows on both sides of a day, and quotas at the edge of what a
/// double can hold.
const LIMITS: [&str; 9] = [
    "0/1m",
    "3/1s",
    "10/1m",
    "25/1h",
    "7/1d",
    "40/2d",
    "9/30d",
    "9007199254740/1s",
    "104249991/1d",
];

#[tokio::test]
async fn the_script_decides_as_the_specification_does() {
    let server = RedisServer::start();
    let mut seen = Seen::default();
    for seed in SEEDS {
        // Each run meets a store of its own.
        redis::cmd("FLUSHALL")
            .exec(&mut server.client())
            .expect("OK");
        let store = server.store();
        let mut run = Run::new(seed);
        for step in 0..STEPS {
            let at = At::Stamp(run.advance());
            match run.random.below(40) {
                0 => {
                    let charged = run.charged();
                    store.give_back(&charged).await.expect("an answer");
                    run.model.give_back(&charged);
                }
                1 => {
                    let demand = run.demand();
                    store.forget(&[demand], at).await.expect("an answer");
                    run.model.forget(&demand, run.now);
                }
                _ => {
                    let groups = run.groups();
                    let replies = store.take(&groups, at).await;
                    assert_eq!(replies.len(), groups.len());
                    for (group, reply) in groups.iter().zip(replies) {
                        let expected = run.model.take(group, run.now);
                        let found = reply.expect("a decision");
                        assert_eq!(found, expected, "seed {seed}, step {step}: {group:?}");
                        seen.add(&found);
                    }
                }
            }
        }
    }
    seen.was_worth_it();
}

/// One random run.
struct Run {
    random: Random,
    now: Timestamp,
    model: Model,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // Some runs start where the epoch does.
        let start = if random.below(3) == 0 {
            0
        } else {
            1_700_000_000_000
        };
        Self {
            random,
            now: Timestamp::from_millis(start),
            model: Model::default(),
        }
    }

    /// Mostly onwards by a little; else to the edge of a window or next to it; sometimes back.
    fn advance(&mut self) -> Timestamp {
        let limit = demand("edge", 0, self.random.one_of(&LIMITS)).limit;
        let position = limit.window().position(self.now);
        let millis = self.now.as_millis();
        let edge = |number| limit.window().moment(number, 0).as_millis();
        let moved = match self.random.below(12) {
            0..7 => millis + self.random.below(40),
            7 => millis + self.random.below(2 * limit.window().seconds() * 1000),
            8 => millis.saturating_sub(self.random.below(limit.window().seconds() * 1000)),
            9 => edge(position.number + 1).saturating_sub(1),
            10 => edge(position.number + 1) + self.random.below(2),
            _ => edge(position.number).saturating_sub(self.random.below(2)),
        };
        self.now = Timestamp::from_millis(moved);
        self.now
    }

    fn demand(&mut self) -> Demand<'static> {
        let policy = self.random.one_of(&["a", "b"]);
        let who = self.random.below(3) as u8;
        let units = match self.random.below(20) {
            0..14 => 1,
            14..19 => 1 + self.random.below(6) as u32,
            _ => u32::MAX - self.random.below(3) as u32,
        };
        let mut demand = costing(units, demand(policy, who, self.random.one_of(&LIMITS)));
        // Who is audited is counted; a log is compared with no other.
        let quota = demand.limit.quota();
        let can_be = |one: &Algorithm| {
            one.max_quota().is_none_or(|largest| quota <= largest)
                && !(one.keeps_a_log() && who != 0)
        };
        let algorithms: Vec<_> = Algorithm::ALL.into_iter().filter(can_be).collect();
        demand.algorithm = self.random.one_of(&algorithms);
        demand.audited = who != 0 && quota <= MAX_AUDITED_QUOTA;
        match self.random.below(8) {
            0 => peek(demand),
            1 => charge(demand),
            _ => demand,
        }
    }

    /// One to three groups of one to three demands, no two of a group on one counter. One asks now and then what the
    /// one before it asks, of others.
    fn groups(&mut self) -> Vec<Group<'static>> {
        let group = |run: &mut Self| {
            let mut group = Group::new();
            for _ in 0..=run.random.below(3) {
                let demand = run.demand();
                if !group.iter().any(|other| counter(other) == counter(&demand)) {
                    group.push(demand);
                }
            }
            group
        };
        let mut groups: Vec<Group<'static>> = vec![group(self)];
        for _ in 0..self.random.below(3) {
            let next = match self.random.below(3) {
                0 => of_others(groups.last().expect("there is one")),
                _ => group(self),
            };
            groups.push(next);
        }
        groups
    }

    fn charged(&mut self) -> Vec<GiveBack<'static>> {
        let demand = self.demand();
        let back = self.random.below(2) * demand.limit.window().seconds() * 1000;
        let some_time = Timestamp::from_millis(self.now.as_millis().saturating_sub(back));
        let charged = match demand.algorithm.keeps_a_log() {
            true => {
                let log = self.model.exact.get(&counter(&demand));
                log.and_then(|log| log.charged.last().copied())
            }
            false => {
                let log = self.model.logs.get(&counter(&demand));
                log.and_then(|log| log.charged.last().copied())
            }
        };
        vec![GiveBack {
            demand,
            charged_at: match self.random.below(3) {
                0 => some_time,
                _ => charged.unwrap_or(some_time),
            },
        }]
    }
}

/// The same demands under the other policy, and by the next identifier where none of them keeps a log.
fn of_others(group: &Group<'static>) -> Group<'static> {
    let counted = !group.iter().any(|demand| demand.algorithm.keeps_a_log());
    let other = |before: &Demand<'static>| {
        let policy = if before.policy == "a" { "b" } else { "a" };
        let mut other = Demand { policy, ..*before };
        if counted {
            let at = |who| demand(policy, who, "1/1m").identifier;
            let who = (0..3).find(|who| at(*who) == before.identifier);
            let who = (who.expect("one of three") + 1) % 3;
            other.identifier = at(who);
            other.audited = who != 0 && before.limit.quota() <= MAX_AUDITED_QUOTA;
        }
        other
    };
    group.iter().map(other).collect()
}

type Counter = (&'static str, Identifier, u64);

fn counter(demand: &Demand<'static>) -> Counter {
    let window = demand.limit.window().seconds();
    (demand.policy, demand.identifier, window)
}

/// What a store is, without anything that makes it one.
#[derive(Default)]
struct Model {
    counters: HashMap<(Counter, u64), u64>,
    logs: HashMap<Counter, Log>,
    exact: HashMap<Counter, ExactLog>,
}

/// What `sliding_log` decides by: the moments of the units that it has, in order.
#[derive(Default)]
struct ExactLog {
    units: Vec<u64>,
    /// When something was charged.
    charged: Vec<Timestamp>,
}

impl ExactLog {
    /// How many count, when those that do not are gone.
    fn count(&mut self, demand: &Demand<'_>, now: Timestamp) -> u64 {
        let from = from(demand, now);
        self.units.retain(|unit| i128::from(*unit) > from);
        self.units.len() as u64
    }

    /// Keeps the newest of twice the quota, as far as older ones or these can make room.
    fn add(&mut self, demand: &Demand<'_>, now: Timestamp) {
        let moment = demand.limit.window().moment_of(now);
        let most = usize::try_from(2 * demand.limit.quota()).expect("small");
        let cost = usize::try_from(demand.cost.units()).expect("64 bits");
        let newer = self.units.iter().filter(|unit| **unit >= moment).count();
        let added = cost.min(most.saturating_sub(newer));
        let at = self.units.len() - self.units.iter().filter(|unit| **unit > moment).count();
        self.units.splice(at..at, vec![moment; added]);
        let mut over = self.units.len().saturating_sub(most);
        self.units.retain(|unit| {
            let goes = *unit < moment && over > 0;
            over -= usize::from(goes);
            !goes
        });
        self.charged.push(now);
    }

    fn give_back(&mut self, moment: u64, mut units: u64) {
        self.units.retain(|unit| {
            let goes = *unit == moment && units > 0;
            units -= u64::from(goes);
            !goes
        });
    }

    /// By trying: the moment of the last unit that must leave until so many fit.
    fn leaves(&self, units: u64, quota: u64) -> u64 {
        let has_room = |gone: &usize| (self.units.len() - gone) as u64 + units <= quota;
        let gone = (0..=self.units.len()).find(has_room).unwrap_or(0);
        gone.checked_sub(1).map_or(0, |last| self.units[last])
    }

    fn leaving(&self, decision: &Decision) -> Leaving {
        let (quota, has) = (decision.limit.quota(), self.units.len() as u64);
        let request = match decision.allowed {
            true => 0,
            false => self.leaves(decision.cost.units(), quota),
        };
        Leaving {
            request,
            unit: self.leaves(quota.saturating_sub(has) + 1, quota),
        }
    }
}

/// What was admitted of an audited identifier.
#[derive(Default)]
struct Log {
    /// The moments of the units that a log may still have, in the window's time unit.
    units: Vec<u64>,
    /// After it, no unit is missing.
    since: Option<i128>,
    /// What the counters of the last charge's window and of the one before held after it.
    remembered: HashMap<u64, u64>,
    /// The moments of every unit that was ever charged.
    all: Vec<u64>,
    /// When something was charged.
    charged: Vec<Timestamp>,
}

impl Log {
    /// `None` where something was charged or lost without it.
    fn whole_since(&self, demand: &Demand<'_>, now: Timestamp, counts: Counts) -> Option<i128> {
        let number = demand.limit.window().position(now).number;
        let remembered = |number: Option<u64>| {
            let found = number.and_then(|number| self.remembered.get(&number));
            found.copied().unwrap_or(0)
        };
        let alike = remembered(Some(number)) == counts.current
            && remembered(number.checked_sub(1)) == counts.previous;
        alike.then(|| self.since.unwrap_or(from(demand, now)))
    }

    fn exact(&self, demand: &Demand<'_>, now: Timestamp, counts: Counts) -> Option<u64> {
        let from = from(demand, now);
        let since = self.whole_since(demand, now, counts)?;
        let is_after = |moment: &&u64| i128::from(**moment) > from;
        let all = self.all.iter().filter(is_after).count();
        let found = self.units.iter().filter(is_after).count();
        (since <= from).then(|| {
            assert_eq!(found, all, "a unit is missing, or one too many");
            found as u64
        })
    }

    fn add(&mut self, demand: &Demand<'_>, now: Timestamp, counts: Counts) {
        let position = demand.limit.window().position(now);
        let moment = demand.limit.window().moment_of(now);
        let from = from(demand, now);
        let units = demand.cost.units();
        let mut since = if let Some(since) = self.whole_since(demand, now, counts) {
            self.units.retain(|unit| i128::from(*unit) > from);
            since.max(from)
        } else {
            let newest = self.units.iter().map(|unit| i128::from(*unit)).max();
            self.units.clear();
            newest
                .max(self.since)
                .max(Some(moment.into()))
                .expect("a moment")
        };
        let most = 2 * demand.limit.quota();
        let added = units.min(most.saturating_sub(self.units.len() as u64));
        if added < units {
            since = since.max(moment.into());
        }
        self.since = Some(since);
        let current = (position.number, counts.current + units);
        let previous = position
            .number
            .checked_sub(1)
            .map(|number| (number, counts.previous));
        self.remembered = [current].into_iter().chain(previous).collect();
        let added = usize::try_from(added).expect("twice a small quota");
        self.units.resize(self.units.len() + added, moment);
        // Those that a full log did not take lie before what it can tell of.
        self.all.resize(self.all.len() + added, moment);
        self.charged.push(now);
    }

    fn give_back(&mut self, moment: u64, units: u64) {
        for moments in [&mut self.units, &mut self.all] {
            let mut left = units;
            moments.retain(|unit| {
                let goes = *unit == moment && left > 0;
                left -= u64::from(goes);
                !goes
            });
        }
    }
}

/// The moment up to which units have left the trailing window.
fn from(demand: &Demand<'_>, now: Timestamp) -> i128 {
    let window = demand.limit.window();
    // Before the epoch there was nothing.
    (i128::from(window.moment_of(now)) - i128::from(window.length())).max(-1)
}

impl Model {
    fn count(&self, demand: &Demand<'static>, number: Option<u64>) -> u64 {
        let found = number.and_then(|number| self.counters.get(&(counter(demand), number)));
        found.copied().unwrap_or(0)
    }

    fn take(&mut self, group: &Group<'static>, now: Timestamp) -> SmallVec<[Decision; 2]> {
        let number = |demand: &Demand<'_>| demand.limit.window().position(now).number;
        let mut decisions: SmallVec<[Decision; 2]> = group
            .iter()
            .map(|demand| {
                let counts = if demand.algorithm.keeps_a_log() {
                    let log = self.exact.entry(counter(demand)).or_default();
                    Counts {
                        current: log.count(demand, now),
                        previous: 0,
                    }
                } else {
                    Counts {
                        current: self.count(demand, Some(number(demand))),
                        previous: self.count(demand, number(demand).checked_sub(1)),
                    }
                };
                let mut decision = decide(demand.algorithm, demand.limit, counts, demand.cost, now);
                if demand.audited {
                    let log = self.logs.entry(counter(demand)).or_default();
                    decision.exact = log.exact(demand, now, counts);
                }
                decision
            })
            .collect();
        let stopped = group
            .iter()
            .zip(&decisions)
            .any(|(demand, decision)| demand.action != Action::Charge && !decision.allowed);
        for (demand, decision) in group.iter().zip(&mut decisions) {
            decision.charged = !stopped && demand.action != Action::Peek;
            if demand.algorithm.keeps_a_log() {
                let log = self.exact.entry(counter(demand)).or_default();
                if decision.charged {
                    log.add(demand, now);
                }
                decision.leaving = log.leaving(decision);
            } else if decision.charged {
                let key = (counter(demand), number(demand));
                *self.counters.entry(key).or_default() += demand.cost.units();
                if demand.audited {
                    let log = self.logs.entry(counter(demand)).or_default();
                    log.add(demand, now, decision.counts);
                }
            }
        }
        decisions
    }

    fn give_back(&mut self, charged: &[GiveBack<'static>]) {
        for GiveBack { demand, charged_at } in charged {
            let window = demand.limit.window();
            if demand.algorithm.keeps_a_log() {
                if let Some(log) = self.exact.get_mut(&counter(demand)) {
                    log.give_back(window.moment_of(*charged_at), demand.cost.units());
                }
                continue;
            }
            let number = window.position(*charged_at).number;
            let mut taken = 0;
            if let Some(units) = self.counters.get_mut(&(counter(demand), number)) {
                taken = demand.cost.units().min(*units);
                *units -= taken;
            }
            let log = self.logs.get_mut(&counter(demand));
            if let Some(log) = log.filter(|_| demand.audited) {
                if let Some(remembered) = log.remembered.get_mut(&number) {
                    *remembered = remembered.saturating_sub(taken);
                }
                log.give_back(window.moment_of(*charged_at), demand.cost.units());
            }
        }
    }

    fn forget(&mut self, demand: &Demand<'static>, now: Timestamp) {
        let number = demand.limit.window().position(now).number;
        for number in number.saturating_sub(1)..=number + 1 {
            self.counters.remove(&(counter(demand), number));
        }
        self.logs.remove(&counter(demand));
        self.exact.remove(&counter(demand));
    }
}

/// What the runs came across; a run that meets no edge proves nothing.
#[derive(Default)]
struct Seen {
    admitted: u32,
    denied: u32,
    charged_nothing: u32,
    beyond_exact: u32,
    decided_by_previous: u32,
    spared_by_a_fixed_window: u32,
    logged: u32,
    denied_by_a_log: u32,
    beyond_the_quota_of_a_log: u32,
    compared: u32,
    false_allows: u32,
    false_denials: u32,
    not_compared: u32,
}

impl Seen {
    fn add(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            let full = decision.limit.quota();
            let counts = decision.counts;
            let product = u128::from(counts.current) * u128::from(decision.limit.window().length());
            self.admitted += u32::from(decision.allowed);
            self.denied += u32::from(!decision.allowed);
            self.charged_nothing += u32::from(decision.allowed && !decision.charged);
            self.beyond_exact += u32::from(product >= 1 << 53);
            self.decided_by_previous +=
                u32::from(!decision.allowed && counts.current + decision.cost.units() <= full);
            let sliding = Algorithm::SlidingWindowCounter;
            let as_sliding = decide(sliding, decision.limit, counts, decision.cost, decision.now);
            let is_log = decision.algorithm.keeps_a_log();
            let is_fixed = decision.algorithm == Algorithm::FixedWindow;
            self.spared_by_a_fixed_window +=
                u32::from(is_fixed && decision.allowed && !as_sliding.allowed);
            self.logged += u32::from(is_log && decision.charged);
            self.denied_by_a_log += u32::from(is_log && decision.leaving.request > 0);
            self.beyond_the_quota_of_a_log += u32::from(is_log && counts.current > full);
            assert!(decision.remaining() <= full);
            self.compared += u32::from(decision.exact.is_some());
            self.not_compared += u32::from(decision.exact.is_none());
            let judged = |judgement| u32::from(decision.judgement() == Some(judgement));
            self.false_allows += judged(Judgement::FalseAllow);
            self.false_denials += judged(Judgement::FalseDeny);
        }
    }

    fn was_worth_it(&self) {
        let Self {
            admitted,
            denied,
            charged_nothing,
            beyond_exact,
            decided_by_previous,
            spared_by_a_fixed_window,
            logged,
            denied_by_a_log,
            beyond_the_quota_of_a_log,
            compared,
            false_allows,
            false_denials,
            not_compared,
        } = *self;
        let all = [
            admitted,
            denied,
            charged_nothing,
            beyond_exact,
            decided_by_previous,
            spared_by_a_fixed_window,
            logged,
            denied_by_a_log,
            beyond_the_quota_of_a_log,
            compared,
            false_allows,
            false_denials,
            not_compared,
        ];
        assert!(
            all.iter().all(|count| *count > 20),
            "hardly any of a kind: {all:?}"
        );
    }
}
