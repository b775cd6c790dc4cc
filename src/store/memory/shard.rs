//! One shard: the counters and logs of the identifiers that fall into it, oldest first.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
};

use hashlink::LinkedHashMap;

use super::logs::{self, Logs};
use crate::{
    policy::Identifier,
    ratelimit::{Counts, Decision, Leaving, Timestamp, Window},
    store::Demand,
};

/// The counters and logs of some of the identifiers.
#[derive(Debug)]
pub(super) struct Shard {
    /// One list per window length. Within a list counters are created in the order of their windows, so
    /// the front is always the first to stop mattering.
    lists: Vec<(Window, LinkedHashMap<Key, u64>)>,
    logs: Logs,
    /// Policy names as small numbers, so that a counter does not carry its policy's name. As many as the
    /// configuration has.
    policies: HashMap<Box<str>, u32>,
    max_counters: usize,
}

/// How long a counter is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// Until it is no longer the previous window's.
    TwoWindows,
    /// As long as the cap allows: stamps may go back.
    Run,
}

#[derive(Debug, PartialEq, Eq)]
struct Key {
    policy: u32,
    identifier: Identifier,
    window_number: u64,
}

/// Three numbers: what is derived would hash the identifier's kind and length too, each by itself.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.identifier.bits());
        state.write_u64(self.window_number);
        state.write_u32(self.policy);
    }
}

impl Shard {
    pub(super) fn new(max_counters: usize) -> Self {
        Self {
            lists: Vec::new(),
            logs: Logs::default(),
            policies: HashMap::new(),
            max_counters,
        }
    }

    /// How many counters it has, or could have in the place of its logs.
    pub(super) fn len(&self) -> usize {
        let counters = self.lists.iter().map(|(_, counters)| counters.len());
        counters.sum::<usize>() + self.logs.size()
    }

    /// What is counted in the window of `now` and in the one before; or in a log, which forgets what has left.
    pub(super) fn counts(&mut self, demand: &Demand<'_>, now: Timestamp) -> Counts {
        if demand.algorithm.keeps_a_log() {
            let key = self.log_key(demand);
            return key.map_or_else(Counts::default, |key| {
                self.logs.counts(demand.limit.window(), key, now)
            });
        }
        let window = demand.limit.window();
        let number = window.position(now).number;
        let (Some(mut key), Some(counters)) =
            (self.key(demand, number), self.existing_list(window))
        else {
            return Counts::default();
        };
        let mut count = |number| {
            key.window_number = number;
            counters.get(&key).copied().unwrap_or(0)
        };
        Counts {
            current: count(number),
            previous: number.checked_sub(1).map_or(0, count),
        }
    }

    /// Of a log: when the units leave that a client waits for.
    pub(super) fn leaving(&self, demand: &Demand<'_>, decision: &Decision) -> Leaving {
        let key = self.log_key(demand);
        key.map_or_else(Leaving::default, |key| self.logs.leaving(key, decision))
    }

    /// Adds the demand's cost to the window of `now`, or to a log.
    pub(super) fn charge(&mut self, demand: &Demand<'_>, now: Timestamp, lifetime: Lifetime) {
        let window = demand.limit.window();
        if demand.algorithm.keeps_a_log() {
            let key = logs::Key {
                policy: self.intern(demand.policy),
                identifier: demand.identifier,
            };
            if lifetime == Lifetime::TwoWindows {
                self.logs.drop_expired(window, now);
            }
            self.logs.charge(key, demand.limit, demand.cost, now);
            // All but the log itself, which is the youngest: what was counted just now must count.
            while self.len() > self.max_counters && self.drop_oldest(Some(key)) {}
            return;
        }
        let number = window.position(now).number;
        if let Some(counter) = self.counter_mut(demand, number) {
            *counter = counter.saturating_add(demand.cost.units());
            return;
        }
        if lifetime == Lifetime::TwoWindows {
            self.drop_expired(window, number);
        }
        while self.len() >= self.max_counters && self.drop_oldest(None) {}
        let key = Key {
            policy: self.intern(demand.policy),
            identifier: demand.identifier,
            window_number: number,
        };
        self.list(window).insert(key, demand.cost.units());
    }

    /// Takes the demand's cost back from the window it was charged in, if that counter is still here; or from a log.
    pub(super) fn give_back(&mut self, demand: &Demand<'_>, charged_at: Timestamp) {
        let window = demand.limit.window();
        if demand.algorithm.keeps_a_log() {
            if let Some(key) = self.log_key(demand) {
                self.logs.give_back(window, key, demand.cost, charged_at);
            }
            return;
        }
        let window_number = window.position(charged_at).number;
        if let Some(counter) = self.counter_mut(demand, window_number) {
            *counter = counter.saturating_sub(demand.cost.units());
        }
    }

    /// Forgets the window `number` and the one before, and the log: whatever counted until now.
    pub(super) fn forget(&mut self, demand: &Demand<'_>, number: u64) {
        if let Some(key) = self.log_key(demand) {
            self.logs.remove(demand.limit.window(), key);
        }
        for number in number.saturating_sub(1)..=number {
            if let Some(key) = self.key(demand, number)
                && let Some(counters) = self.existing_list(demand.limit.window())
            {
                counters.remove(&key);
            }
        }
    }

    /// Drops a few counters that no longer matter: more than are created, so that they never pile up.
    fn drop_expired(&mut self, window: Window, number: u64) {
        let counters = self.list(window);
        for _ in 0..DROPPED_PER_CREATED {
            match counters.front() {
                Some((key, _)) if key.window_number.saturating_add(1) < number => {
                    counters.pop_front();
                }
                _ => break,
            }
        }
    }

    /// Drops the counter whose window ends first, or a log, but not this one, whose last unit is older; tells whether
    /// there was any.
    fn drop_oldest(&mut self, but: Option<logs::Key>) -> bool {
        let counters = self
            .lists
            .iter_mut()
            .filter_map(|(window, counters)| {
                let (key, _) = counters.front()?;
                Some((window.moment(key.window_number + 1, 0), counters))
            })
            .min_by_key(|(ends, _)| *ends);
        match (counters, self.logs.oldest(but)) {
            (Some((ends, counters)), Some(log)) if ends <= log => counters.pop_front().is_some(),
            (_, Some(_)) => self.logs.drop_oldest(but),
            (Some((_, counters)), None) => counters.pop_front().is_some(),
            (None, None) => false,
        }
    }

    fn counter_mut(&mut self, demand: &Demand<'_>, number: u64) -> Option<&mut u64> {
        let key = self.key(demand, number)?;
        self.existing_list(demand.limit.window())?.get_mut(&key)
    }

    /// The key of a demand's counter; `None` if its policy never had one here.
    fn key(&self, demand: &Demand<'_>, window_number: u64) -> Option<Key> {
        self.policies.get(demand.policy).map(|&policy| Key {
            policy,
            identifier: demand.identifier,
            window_number,
        })
    }

    /// The key of a demand's log; `None` if its policy never had anything here.
    fn log_key(&self, demand: &Demand<'_>) -> Option<logs::Key> {
        self.policies.get(demand.policy).map(|&policy| logs::Key {
            policy,
            identifier: demand.identifier,
        })
    }

    fn intern(&mut self, policy: &str) -> u32 {
        if let Some(&number) = self.policies.get(policy) {
            return number;
        }
        let number = u32::try_from(self.policies.len()).expect("fewer policies than 2^32");
        self.policies.insert(policy.into(), number);
        number
    }

    fn existing_list(&mut self, window: Window) -> Option<&mut LinkedHashMap<Key, u64>> {
        let mut lists = self.lists.iter_mut();
        let list = lists.find(|(length, _)| *length == window);
        list.map(|(_, counters)| counters)
    }

    fn list(&mut self, window: Window) -> &mut LinkedHashMap<Key, u64> {
        let index = match self.lists.iter().position(|(length, _)| *length == window) {
            Some(index) => index,
            None => {
                self.lists.push((window, LinkedHashMap::new()));
                self.lists.len() - 1
            }
        };
        &mut self.lists[index].1
    }
}

const DROPPED_PER_CREATED: usize = 2;
