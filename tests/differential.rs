//! The script against its specification: long random runs, decided by Lua on a real Redis and by
//! [`decide`] over a plain map, must agree in every decision.
//!
//! A run follows from its seed; a failure names the seed and the step.

use std::collections::HashMap;

use slidegate::{
    policy::Identifier,
    ratelimit::{Algorithm, Counts, Decision, Timestamp, decide},
    store::{Action, At, Demand, GiveBack, Group},
};
use smallvec::SmallVec;

use crate::support::{demand::*, random::Random, redis::RedisServer};

const SEEDS: [u64; 6] = [1, 2, 3, 20_260_101, 0xdead_beef, u64::MAX];
const STEPS: u64 = 2_500;

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
        let demand = costing(units, demand(policy, who, self.random.one_of(&LIMITS)));
        match self.random.below(8) {
            0 => peek(demand),
            1 => charge(demand),
            _ => demand,
        }
    }

    /// One to three groups of one to three demands, no two of a group on one counter.
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
        (0..=self.random.below(3)).map(|_| group(self)).collect()
    }

    fn charged(&mut self) -> Vec<GiveBack<'static>> {
        let demand = self.demand();
        let number = demand.limit.window().position(self.now).number;
        let window_number = number.saturating_sub(self.random.below(2));
        vec![GiveBack {
            demand,
            window_number,
        }]
    }
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
                let counts = Counts {
                    current: self.count(demand, Some(number(demand))),
                    previous: self.count(demand, number(demand).checked_sub(1)),
                };
                decide(demand.algorithm, demand.limit, counts, demand.cost, now)
            })
            .collect();
        let stopped = group
            .iter()
            .zip(&decisions)
            .any(|(demand, decision)| demand.action != Action::Charge && !decision.allowed);
        for (demand, decision) in group.iter().zip(&mut decisions) {
            decision.charged = !stopped && demand.action != Action::Peek;
            if decision.charged {
                let key = (counter(demand), number(demand));
                *self.counters.entry(key).or_default() += demand.cost.units();
            }
        }
        decisions
    }

    fn give_back(&mut self, charged: &[GiveBack<'static>]) {
        for GiveBack {
            demand,
            window_number,
        } in charged
        {
            if let Some(units) = self.counters.get_mut(&(counter(demand), *window_number)) {
                *units = units.saturating_sub(demand.cost.units());
            }
        }
    }

    fn forget(&mut self, demand: &Demand<'static>, now: Timestamp) {
        let number = demand.limit.window().position(now).number;
        for number in number.saturating_sub(1)..=number + 1 {
            self.counters.remove(&(counter(demand), number));
        }
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
            assert!(decision.remaining() <= full);
        }
    }

    fn was_worth_it(&self) {
        let Self {
            admitted,
            denied,
            charged_nothing,
            beyond_exact,
            decided_by_previous,
        } = *self;
        let all = [
            admitted,
            denied,
            charged_nothing,
            beyond_exact,
            decided_by_previous,
        ];
        assert!(
            all.iter().all(|count| *count > 100),
            "hardly any of a kind: {all:?}"
        );
        assert_eq!(
            Algorithm::ALL.len(),
            1,
            "the runs draw no other algorithm yet"
        );
    }
}
