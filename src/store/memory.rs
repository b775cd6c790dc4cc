//! Counters in this process: sharded, bounded, expiring.
//!
//! One counter per identifier, limit and window number, or one log per identifier and limit, just as in Redis, so that
//! both stores decide alike by construction. Nothing here is shared with another process, and nothing survives this one.

mod logs;
mod shard;

use std::hash::{BuildHasher, RandomState};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use self::shard::{Lifetime, Shard};
use super::{Action, At, Demand, GiveBack, Group, GroupReply};
use crate::{
    clock::Clock,
    policy::Identifier,
    ratelimit::{Decision, Timestamp, decide},
};

/// How the memory store is sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// The most counters it keeps, rounded up to a multiple of 64; at the cap the oldest go first. One identifier under one limit has up
    /// to two, or a log, which counts as one and one more for every four moments in it. Default 1,000,000: about 100 MB when full.
    pub max_counters: usize,
}

impl MemorySettings {
    /// Into so many parts, by identifiers, its memory is divided; a full one forgets its own. Enough that two threads seldom
    /// meet: a lock is held for well under a microsecond.
    pub const SHARDS: usize = 64;
}

/// Counters in this process, with its own clock.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    clock: Clock,
}

impl MemoryStore {
    /// An empty store that tells time by `clock`.
    pub fn new(settings: MemorySettings, clock: Clock) -> Self {
        let per_shard = settings
            .max_counters
            .div_ceil(MemorySettings::SHARDS)
            .max(1);
        Self {
            shards: (0..MemorySettings::SHARDS)
                .map(|_| Mutex::new(Shard::new(per_shard)))
                .collect(),
            hasher: RandomState::new(),
            clock,
        }
    }

    /// How many counters it holds, logs by their size, expired ones that nothing has pushed out included.
    pub fn counters(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// See [`super::Store::take`]; it can not fail.
    pub fn take(&self, groups: &[Group<'_>], at: At) -> Vec<GroupReply> {
        groups
            .iter()
            .map(|group| Ok(self.take_group(group, at)))
            .collect()
    }

    /// See [`super::Store::give_back`].
    pub fn give_back(&self, charged: &[GiveBack<'_>]) {
        for unit in charged {
            let mut shard = self.shards[self.shard_of(unit.demand.identifier)].lock();
            shard.give_back(&unit.demand, unit.charged_at);
        }
    }

    /// See [`super::Store::forget`].
    pub fn forget(&self, demands: &[Demand<'_>], at: At) {
        for demand in demands {
            let mut shard = self.shards[self.shard_of(demand.identifier)].lock();
            let (now, _) = self.time(at);
            shard.forget(demand, demand.limit.window().position(now).number);
        }
    }

    /// Decides one group and charges it to all of its counters or to none.
    pub fn take_group(&self, group: &Group<'_>, at: At) -> SmallVec<[Decision; 2]> {
        let places: SmallVec<[usize; 2]> = group
            .iter()
            .map(|demand| self.shard_of(demand.identifier))
            .collect();
        let mut shards = self.lock(&places);
        // Read under the locks: within a shard, time never goes back.
        let (now, lifetime) = self.time(at);

        let mut decisions: SmallVec<[Decision; 2]> = group
            .iter()
            .zip(&places)
            .map(|(demand, place)| {
                let counts = shards.of(*place).counts(demand, now);
                decide(demand.algorithm, demand.limit, counts, demand.cost, now)
            })
            .collect();

        let admitted = group
            .iter()
            .zip(&decisions)
            .all(|(demand, decision)| decision.allowed || demand.action == Action::Charge);
        if admitted {
            for ((demand, place), decision) in group.iter().zip(&places).zip(&mut decisions) {
                if demand.action != Action::Peek {
                    shards.of(*place).charge(demand, now, lifetime);
                    decision.charged = true;
                }
            }
        }
        for ((demand, place), decision) in group.iter().zip(&places).zip(&mut decisions) {
            if demand.algorithm.keeps_a_log() {
                decision.leaving = shards.of(*place).leaving(demand, decision);
            }
        }
        decisions
    }

    /// These shards, locked in ascending order so that no two groups wait for each other.
    fn lock(&self, places: &[usize]) -> LockedShards<'_> {
        let mut indexes: SmallVec<[usize; 2]> = places.into();
        indexes.sort_unstable();
        indexes.dedup();
        LockedShards(
            indexes
                .into_iter()
                .map(|index| (index, self.shards[index].lock()))
                .collect(),
        )
    }

    fn shard_of(&self, identifier: Identifier) -> usize {
        let hash = self.hasher.hash_one(identifier.bits());
        // The upper half: the lower bits choose the place within the shard's table.
        usize::try_from(hash >> 32).expect("32 bits fit an index") % MemorySettings::SHARDS
    }

    fn time(&self, at: At) -> (Timestamp, Lifetime) {
        match at {
            At::Now => (self.clock.now(), Lifetime::TwoWindows),
            At::Stamp(now) => (now, Lifetime::Run),
        }
    }
}

struct LockedShards<'a>(SmallVec<[(usize, MutexGuard<'a, Shard>); 2]>);

impl LockedShards<'_> {
    fn of(&mut self, index: usize) -> &mut Shard {
        self.0
            .iter_mut()
            .find(|(locked, _)| *locked == index)
            .map(|(_, shard)| &mut **shard)
            .expect("every shard of the group was locked")
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::ratelimit::{Algorithm, Cost};

    fn store(max_counters: usize, clock: &Clock) -> MemoryStore {
        MemoryStore::new(MemorySettings { max_counters }, clock.clone())
    }

    fn group(identifier: u32, limit: &str) -> Group<'static> {
        smallvec![Demand {
            policy: "test",
            identifier: Identifier::Address(std::net::Ipv4Addr::from_bits(identifier).into()),
            limit: limit.parse().expect(limit),
            algorithm: Algorithm::SlidingWindowCounter,
            cost: Cost::ONE,
            action: Action::Take,
            audited: false,
        }]
    }

    fn admits(store: &MemoryStore, group: &Group<'_>) -> bool {
        store.take(std::slice::from_ref(group), At::Now)[0]
            .as_ref()
            .expect("the memory store does not fail")[0]
            .allowed
    }

    #[test]
    fn a_million_identifiers_leave_no_more_counters_than_the_cap() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000_000));
        let store = store(6_400, &clock);
        for identifier in 0..100_000 {
            admits(&store, &group(identifier, "10/1m"));
            admits(&store, &group(identifier, "10/1h"));
        }
        assert!(store.counters() <= 6_400, "{}", store.counters());
    }

    #[test]
    fn at_the_cap_the_oldest_go_first() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000_000));
        let store = store(64 * 100, &clock);
        let (old, young) = (group(u32::MAX, "1/1h"), group(u32::MAX - 1, "1/1h"));
        assert!(admits(&store, &old));
        for identifier in 0..20_000 {
            admits(&store, &group(identifier, "1/1h"));
        }
        assert!(admits(&store, &young));
        for identifier in 20_000..20_100 {
            admits(&store, &group(identifier, "1/1h"));
        }
        assert!(!admits(&store, &young), "charged lately: remembered");
        assert!(admits(&store, &old), "charged long ago: forgotten");
    }

    #[test]
    fn counters_that_can_no_longer_matter_make_room_as_new_ones_come() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000_000));
        let store = store(1_000_000, &clock);
        for identifier in 0..10_000 {
            admits(&store, &group(identifier, "10/10s"));
        }
        clock.set(Timestamp::from_seconds(1_000_020));
        for identifier in 10_000..20_000 {
            admits(&store, &group(identifier, "10/10s"));
        }
        assert!(store.counters() < 11_000, "{}", store.counters());
    }

    #[test]
    fn a_previous_window_counts_to_its_last_millisecond() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000_000));
        let store = store(1_000_000, &clock);
        let group = group(1, "1/10s");
        assert!(admits(&store, &group));
        for millis in [1_000_009_999, 1_000_010_000] {
            clock.set(Timestamp::from_millis(millis));
            assert!(!admits(&store, &group), "{millis}");
        }
        clock.set(Timestamp::from_millis(1_000_010_001));
        assert!(admits(&store, &group), "the estimate is below one unit");
    }

    #[test]
    fn groups_that_share_identifiers_in_any_order_never_wait_for_each_other_for_ever() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000_000));
        let store = store(1_000_000, &clock);
        std::thread::scope(|threads| {
            for thread in 0..4u32 {
                let store = &store;
                threads.spawn(move || {
                    for step in 0..5_000u32 {
                        let (a, b) = ((step + thread) % 7, (step * 3 + thread) % 7);
                        let mut pair = group(a, "1000000/1m");
                        pair.extend(group(b, "1000000/1h"));
                        store.take(&[pair], At::Now);
                    }
                });
            }
        });
        let total: u64 = (0..7)
            .map(|identifier| {
                let mut peek = group(identifier, "1000000/1m");
                peek[0].action = Action::Peek;
                store.take(&[peek], At::Now)[0].as_ref().expect("decided")[0]
                    .counts
                    .current
            })
            .sum();
        assert_eq!(total, 20_000, "every charge was counted once");
    }

    fn logged(identifier: u32, limit: &str) -> Group<'static> {
        let mut group = group(identifier, limit);
        group[0].algorithm = Algorithm::SlidingLog;
        group
    }

    #[test]
    fn logs_leave_no_more_than_the_cap_in_counters_of_their_size_and_the_youngest_stay() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000_000));
        let store = store(6_400, &clock);
        for identifier in 0..3_000 {
            for _ in 0..20 {
                clock.set(clock.now().offset_by(1));
                assert!(admits(&store, &logged(identifier, "20/1d")), "{identifier}");
            }
            admits(&store, &group(identifier, "20/1d"));
        }
        assert!(store.counters() <= 6_400, "{}", store.counters());
        assert!(store.counters() > 5_000, "{}", store.counters());
        assert!(!admits(&store, &logged(2_999, "20/1d")), "it is full");
        assert!(admits(&store, &logged(0, "20/1d")), "it was forgotten");
    }

    #[test]
    fn a_log_that_is_larger_than_the_cap_counts_all_the_same() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000_000));
        let store = store(64, &clock);
        for _ in 0..500 {
            clock.set(clock.now().offset_by(1));
            assert!(admits(&store, &logged(1, "500/1d")));
        }
        assert!(!admits(&store, &logged(1, "500/1d")));
        for identifier in 2..2_000 {
            admits(&store, &group(identifier, "1/1d"));
        }
        assert!(store.counters() <= 64, "{}", store.counters());
    }

    #[test]
    fn logs_whose_units_have_left_make_room_as_others_are_charged() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000_000));
        let store = store(1_000_000, &clock);
        for identifier in 0..10_000 {
            admits(&store, &logged(identifier, "10/10s"));
        }
        clock.set(Timestamp::from_seconds(1_000_010));
        for identifier in 10_000..20_000 {
            admits(&store, &logged(identifier, "10/10s"));
        }
        assert!(store.counters() < 11_000, "{}", store.counters());
        for identifier in 0..20_000 {
            let demand = logged(identifier, "10/10s")[0];
            for units in [
                demand,
                Demand {
                    action: Action::Charge,
                    ..demand
                },
            ] {
                admits(&store, &Group::from_elem(units, 1));
            }
            let charged_at = clock.now();
            store.give_back(&[GiveBack { demand, charged_at }]);
            store.forget(&[demand], At::Now);
        }
        assert_eq!(store.counters(), 0, "what goes is counted off");
        let one = logged(1, "20/10s");
        for seconds in [0, 5] {
            for millis in 0..10 {
                clock.set(Timestamp::from_millis(
                    2_000_000_000 + 1_000 * seconds + millis,
                ));
                admits(&store, &one);
            }
        }
        assert_eq!(store.counters(), 1 + 20 / 4);
        clock.set(Timestamp::from_seconds(2_000_014));
        assert!(admits(&store, &one), "half of them have left");
        assert_eq!(store.counters(), 1 + 11 / 4);
    }
}
