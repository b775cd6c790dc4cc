//! What came of the decisions by one limit, and how right they were.

use std::collections::HashMap;

use super::{
    footprint::{Footprint, Held},
    log::Log,
    near::Near,
};
use crate::{
    policy::{Identifier, NamedLimit, PolicySet},
    ratelimit::{Limit, Timestamp},
};

/// A decision of one limit, whoever made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub slot: Slot,
    pub identifier: Identifier,
    pub cost: u64,
    /// The units that were taken to be in use.
    pub estimate: f64,
    /// By this limit; another may have denied the request all the same.
    pub allowed: bool,
    /// Whether it was charged, and stayed so.
    pub charged: bool,
}

/// Which limit: its policy, tier and place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot {
    pub policy: usize,
    pub tier: usize,
    pub limit: usize,
}

impl Slot {
    /// What is there.
    pub fn of(self, policies: &PolicySet) -> &NamedLimit {
        let tiers = &policies.policies()[self.policy].tiers;
        &tiers.limits(self.tier)[self.limit]
    }
}

/// What came of the decisions by one limit.
#[derive(Debug)]
pub(super) struct Tally {
    limit: Limit,
    pub requests: u64,
    pub denied: u64,
    pub false_allows: u64,
    pub false_denials: u64,
    /// The most units above the quota in a window, wherever it begins.
    pub max_excess: u64,
    pub footprint: Footprint,
    pub near: Near,
    pub identifiers: HashMap<Identifier, Counted>,
    logs: HashMap<Identifier, Log>,
    /// How many entries the logs may have before they are swept.
    sweep_at: usize,
    entries: usize,
    newest: u64,
}

/// Requests of one identifier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub requests: u64,
    pub denied: u64,
    held: Held,
}

impl Tally {
    pub fn new(named: &NamedLimit) -> Self {
        let limit = named.limit;
        Self {
            limit,
            footprint: Footprint::new(named.algorithm, limit.window()),
            near: Near::default(),
            requests: 0,
            denied: 0,
            false_allows: 0,
            false_denials: 0,
            max_excess: 0,
            identifiers: HashMap::new(),
            logs: HashMap::new(),
            sweep_at: MOST_ENTRIES,
            entries: 0,
            newest: 0,
        }
    }

    pub fn count(&mut self, decided: &Decided, now: Timestamp) {
        let Decided {
            identifier, cost, ..
        } = *decided;
        self.requests += 1;
        let counted = self.identifiers.entry(identifier).or_default();
        counted.requests += 1;
        if !decided.allowed {
            counted.denied += 1;
            self.denied += 1;
        }
        let (exact, quota) = (self.units(identifier, now), self.limit.quota());
        self.near.add(exact, decided.estimate, quota);
        let fits = exact.saturating_add(cost) <= quota;
        match (decided.allowed, fits) {
            (true, false) => self.false_allows += 1,
            (false, true) => self.false_denials += 1,
            (true, true) | (false, false) => {}
        }
        if decided.charged {
            self.charge(identifier, cost, now);
        }
    }

    pub fn denied_identifiers(&self) -> usize {
        let counted = self.identifiers.values();
        counted.filter(|counted| counted.denied > 0).count()
    }

    /// How many count at this time.
    fn units(&mut self, identifier: Identifier, now: Timestamp) -> u64 {
        let window = self.limit.window();
        let Some(log) = self.logs.get_mut(&identifier) else {
            return 0;
        };
        let before = log.len();
        let units = log.units(window.moment_of(now), window.length());
        self.entries -= before - log.len();
        units
    }

    fn charge(&mut self, identifier: Identifier, cost: u64, now: Timestamp) {
        let window = self.limit.window();
        let now = window.moment_of(now);
        let log = self.logs.entry(identifier).or_default();
        let before = log.len();
        log.add(now, cost);
        self.entries += log.len() - before;
        let peak = log.peak_around(now, window.length());
        let excess = peak.saturating_sub(self.limit.quota());
        self.max_excess = self.max_excess.max(excess);
        self.newest = self.newest.max(now);
        let units = log.units(now, window.length());
        let counted = self.identifiers.entry(identifier).or_default();
        self.footprint.charged(&mut counted.held, now, units);
        if self.entries > self.sweep_at {
            self.sweep();
        }
    }

    /// Forgets whose units have all left the window by the newest stamp. Only stamps that go back by more than
    /// that could still have met them.
    fn sweep(&mut self) {
        let (newest, window) = (self.newest, self.limit.window().length());
        self.logs.retain(|_, log| log.units(newest, window) > 0);
        self.logs.shrink_to_fit();
        self.entries = self.logs.values().map(Log::len).sum();
        self.sweep_at = (2 * self.entries).max(MOST_ENTRIES);
    }
}

/// Some 20 MB.
const MOST_ENTRIES: usize = 300_000;
