//! The sightings that are kept: bounded in number and in time, sharded.

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use hashlink::LinkedHashMap;
use parking_lot::{Mutex, MutexGuard};

use super::proof::Sighting;
use crate::policy::Identifier;

/// What was last seen of counters that left no room.
#[derive(Debug)]
pub(super) struct Sightings {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// Counted from the sending of the call, so that it is never longer since the store's decision.
    lifetime: Duration,
    max_per_shard: usize,
}

/// Which counter: one identifier under one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Counter {
    /// The policy's place in its set.
    pub policy: usize,
    /// The limit's place in its policy.
    pub limit: usize,
    pub identifier: Identifier,
}

/// What was remembered longest ago comes first.
type Shard = LinkedHashMap<Counter, Sighting>;

impl Sightings {
    /// None yet; each will be kept for `lifetime`, and at the cap the oldest go first.
    pub fn new(lifetime: Duration, max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            lifetime,
            max_per_shard: max.div_ceil(SHARDS).max(1),
        }
    }

    /// What was last seen of a counter, if that was not too long ago.
    pub fn get(&self, counter: Counter, now: Instant) -> Option<Sighting> {
        let known = self.shard(counter.identifier).get(&counter).cloned();
        known.filter(|known| self.lives(known, now))
    }

    /// Remembers what was seen of a counter, unless something newer is known.
    pub fn add(&self, counter: Counter, seen: Sighting) {
        let now = seen.received;
        let mut shard = self.shard(counter.identifier);
        match shard.get(&counter) {
            Some(known) if self.lives(known, now) && known.is_newer_than(&seen) => return,
            Some(_) => {}
            None => self.make_room(&mut shard, now),
        }
        shard.insert(counter, seen);
    }

    /// Forgets a counter.
    pub fn remove(&self, counter: Counter) {
        self.shard(counter.identifier).remove(&counter);
    }

    /// Drops a few that have ended, more than are added; at the cap the oldest.
    fn make_room(&self, shard: &mut Shard, now: Instant) {
        for _ in 0..DROPPED_PER_ADDED {
            match shard.front() {
                Some((_, oldest)) if !self.lives(oldest, now) => shard.pop_front(),
                _ => break,
            };
        }
        if shard.len() >= self.max_per_shard {
            shard.pop_front();
        }
    }

    fn lives(&self, seen: &Sighting, now: Instant) -> bool {
        now.saturating_duration_since(seen.sent) < self.lifetime
    }

    fn shard(&self, identifier: Identifier) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(identifier);
        let index = usize::try_from(hash % SHARDS as u64).expect("below the number of shards");
        self.shards[index].lock()
    }
}

/// Enough that two threads seldom meet; a lock is held for well under a microsecond.
const SHARDS: usize = 64;

const DROPPED_PER_ADDED: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock,
        ratelimit::{Counts, Timestamp},
    };

    const LIFETIME: Duration = Duration::from_secs(1);

    fn counter(number: u32) -> Counter {
        Counter {
            policy: 0,
            limit: 0,
            identifier: Identifier::Address(std::net::Ipv4Addr::from_bits(number).into()),
        }
    }

    fn sighting(current: u64, store_ms: u64, sent: Instant, took_ms: u64) -> Sighting {
        Sighting {
            counts: Counts {
                current,
                previous: 0,
            },
            log: None,
            at: Timestamp::from_millis(store_ms),
            sent,
            received: sent + Duration::from_millis(took_ms),
        }
    }

    fn len(sightings: &Sightings) -> usize {
        sightings
            .shards
            .iter()
            .map(|shard| shard.lock().len())
            .sum()
    }

    #[test]
    fn a_sighting_ends_with_its_lifetime_counted_from_the_sending() {
        let (sightings, sent) = (Sightings::new(LIFETIME, 10), clock::instant());
        sightings.add(counter(1), sighting(5, 0, sent, 400));
        assert!(sightings.get(counter(1), sent).is_some());
        let last = sent + LIFETIME - Duration::from_nanos(1);
        assert!(sightings.get(counter(1), last).is_some());
        assert!(sightings.get(counter(1), sent + LIFETIME).is_none());
    }

    #[test]
    fn a_reply_that_was_overtaken_replaces_nothing() {
        let (sightings, sent) = (Sightings::new(LIFETIME, 10), clock::instant());
        let known = || {
            sightings
                .get(counter(1), sent)
                .map(|seen| seen.counts.current)
        };
        sightings.add(counter(1), sighting(7, 20, sent, 1));
        sightings.add(counter(1), sighting(6, 19, sent, 5));
        assert_eq!(known(), Some(7));
        sightings.add(counter(1), sighting(8, 20, sent, 5));
        assert_eq!(known(), Some(8), "in the same millisecond, but more");
    }

    #[test]
    fn what_has_ended_is_replaced_whatever_the_stores_clock_says() {
        let (sightings, sent) = (Sightings::new(LIFETIME, 10), clock::instant());
        sightings.add(counter(1), sighting(7, 90_000, sent, 1));
        let later = sent + LIFETIME;
        sightings.add(counter(1), sighting(2, 0, later, 1));
        let known = sightings
            .get(counter(1), later)
            .map(|seen| seen.counts.current);
        assert_eq!(known, Some(2));
    }

    #[test]
    fn a_counter_is_known_by_policy_limit_and_identifier() {
        let (sightings, sent) = (Sightings::new(LIFETIME, 10), clock::instant());
        sightings.add(counter(1), sighting(5, 0, sent, 1));
        let others = [
            counter(2),
            Counter {
                policy: 1,
                ..counter(1)
            },
            Counter {
                limit: 1,
                ..counter(1)
            },
        ];
        for other in others {
            assert!(sightings.get(other, sent).is_none(), "{other:?}");
            sightings.remove(other);
        }
        assert!(sightings.get(counter(1), sent).is_some());
        sightings.remove(counter(1));
        assert!(sightings.get(counter(1), sent).is_none());
    }

    #[test]
    fn many_counters_leave_no_more_sightings_than_the_cap_and_the_youngest() {
        let (sightings, sent) = (Sightings::new(LIFETIME, 6_400), clock::instant());
        for number in 0..100_000 {
            sightings.add(counter(number), sighting(5, 0, sent, 1));
        }
        assert!(len(&sightings) <= 6_400, "{}", len(&sightings));
        assert!(sightings.get(counter(99_999), sent).is_some());
        assert!(sightings.get(counter(0), sent).is_none());
    }

    #[test]
    fn sightings_that_have_ended_make_room_as_new_ones_come() {
        let (sightings, sent) = (Sightings::new(LIFETIME, 1_000_000), clock::instant());
        for number in 0..10_000 {
            sightings.add(counter(number), sighting(5, 0, sent, 1));
        }
        for number in 10_000..20_000 {
            sightings.add(counter(number), sighting(5, 0, sent + LIFETIME, 1));
        }
        assert!(len(&sightings) < 11_000, "{}", len(&sightings));
    }
}
