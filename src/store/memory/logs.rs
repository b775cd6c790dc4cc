//! The logs of one shard, those that were charged longest ago first.

use hashlink::LinkedHashMap;

use crate::{
    policy::Identifier,
    ratelimit::{Cost, Counts, Decision, Leaving, Limit, Log, Timestamp, Window},
};

/// Logs by who is counted, in a list for each length of window.
#[derive(Debug, Default)]
pub(super) struct Logs {
    lists: Vec<(Window, LinkedHashMap<Key, Log>)>,
    size: usize,
}

/// Whose log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub policy: u32,
    pub identifier: Identifier,
}

impl Logs {
    /// How many counters have as much memory.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The units that count at `now`; those that have left are dropped.
    pub(super) fn counts(&mut self, window: Window, key: Key, now: Timestamp) -> Counts {
        let Some(log) = find(&mut self.lists, window, key) else {
            return Counts::default();
        };
        let before = size(log);
        log.drop_left(window, now);
        self.size = self.size + size(log) - before;
        log.counts()
    }

    /// When the units leave that a client waits for.
    pub(super) fn leaving(&self, key: Key, decision: &Decision) -> Leaving {
        let mut lists = self.lists.iter();
        let list = lists.find(|(length, _)| *length == decision.limit.window());
        let log = list.and_then(|(_, logs)| logs.get(&key));
        log.map_or_else(Leaving::default, |log| {
            log.leaving(decision.limit, decision.cost, decision.allowed)
        })
    }

    /// Adds units; the log is then the youngest.
    pub(super) fn charge(&mut self, key: Key, limit: Limit, cost: Cost, now: Timestamp) {
        let window = limit.window();
        let mut log = match find_list(&mut self.lists, window) {
            Some(logs) => logs.remove(&key),
            None => {
                self.lists.push((window, LinkedHashMap::new()));
                None
            }
        }
        .inspect(|log| self.size -= size(log))
        .unwrap_or_default();
        log.charge(limit, cost, now);
        if !log.is_empty() {
            self.size += size(&log);
            find_list(&mut self.lists, window)
                .expect("it was there, or was added")
                .insert(key, log);
        }
    }

    /// Takes units back, where there is a log.
    pub(super) fn give_back(&mut self, window: Window, key: Key, cost: Cost, then: Timestamp) {
        if let Some(log) = find(&mut self.lists, window, key) {
            let before = size(log);
            log.give_back(window, cost, then);
            self.size = self.size + size(log) - before;
        }
    }

    /// Forgets a log.
    pub(super) fn remove(&mut self, window: Window, key: Key) {
        let found = find_list(&mut self.lists, window).and_then(|logs| logs.remove(&key));
        self.size -= found.as_ref().map_or(0, size);
    }

    /// Drops a few logs whose units have all left: more than are added, so that they never pile up.
    pub(super) fn drop_expired(&mut self, window: Window, now: Timestamp) {
        let Some(logs) = find_list(&mut self.lists, window) else {
            return;
        };
        let now = window.moment_of(now);
        for _ in 0..DROPPED_PER_CHARGE {
            match logs.front() {
                Some((_, log)) if ends(window, log) <= now => {
                    self.size -= size(log);
                    logs.pop_front();
                }
                _ => break,
            }
        }
    }

    /// When the last unit came of the log that was charged longest ago; not of this one.
    pub(super) fn oldest(&self, but: Option<Key>) -> Option<Timestamp> {
        self.place_of_oldest(but).map(|(newest, _)| newest)
    }

    /// Drops that log, and tells whether there was one.
    pub(super) fn drop_oldest(&mut self, but: Option<Key>) -> bool {
        let Some((_, place)) = self.place_of_oldest(but) else {
            return false;
        };
        let dropped = self.lists[place].1.pop_front();
        self.size -= dropped.as_ref().map_or(0, |(_, log)| size(log));
        dropped.is_some()
    }

    fn place_of_oldest(&self, but: Option<Key>) -> Option<(Timestamp, usize)> {
        let oldest = |(place, (window, logs)): (usize, &(Window, LinkedHashMap<Key, Log>))| {
            let (key, log) = logs.front()?;
            let newest = window.moment(0, log.newest().unwrap_or(0));
            (Some(*key) != but).then_some((newest, place))
        };
        self.lists.iter().enumerate().filter_map(oldest).min()
    }
}

fn find_list(
    lists: &mut [(Window, LinkedHashMap<Key, Log>)],
    window: Window,
) -> Option<&mut LinkedHashMap<Key, Log>> {
    let mut lists = lists.iter_mut();
    let list = lists.find(|(length, _)| *length == window);
    list.map(|(_, logs)| logs)
}

fn find(
    lists: &mut [(Window, LinkedHashMap<Key, Log>)],
    window: Window,
    key: Key,
) -> Option<&mut Log> {
    find_list(lists, window).and_then(|logs| logs.get_mut(&key))
}

/// How many counters have as much memory.
fn size(log: &Log) -> usize {
    1 + log.len() / MOMENTS_PER_COUNTER
}

/// The moment at which the last unit leaves.
fn ends(window: Window, log: &Log) -> u64 {
    log.newest()
        .map_or(0, |newest| newest.saturating_add(window.length()))
}

/// A moment has 16 bytes, twice where the list has just grown, and a counter about 100.
const MOMENTS_PER_COUNTER: usize = 4;

const DROPPED_PER_CHARGE: usize = 2;
