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
pub(crate) struct Slot {
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
    /// How many entries the logs may have before they are swept.
    sweep_at: usize,
    entries: usize,
    newest: u64,
}

/// Requests of one identifier.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub requests: u64,
    pub denied: u64,
    held: Held,
    log: Log,
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
            sweep_at: MOST_ENTRIES,
            entries: 0,
            newest: 0,
        }
    }

    pub fn count(&mut self, decided: &Decided, now: Timestamp) {
        let cost = decided.cost;
        let (quota, window) = (self.limit.quota(), self.limit.window());
        let (now, length) = (window.moment_of(now), window.length());
        self.requests += 1;
        // Looked up once: it is far away in memory, as a rule.
        let counted = self.identifiers.entry(decided.identifier).or_default();
        counted.requests += 1;
        if !decided.allowed {
            counted.denied += 1;
            self.denied += 1;
        }
        let before = counted.log.len();
        let exact = counted.log.units(now, length);
        self.near.add(exact, decided.estimate, quota);
        let fits = exact.saturating_add(cost) <= quota;
        match (decided.allowed, fits) {
            (true, false) => self.false_allows += 1,
            (false, true) => self.false_denials += 1,
            (true, true) | (false, false) => {}
        }
        if decided.charged {
            counted.log.add(now, cost);
            let peak = counted.log.peak_around(now, length);
            self.max_excess = self.max_excess.max(peak.saturating_sub(quota));
            let units = counted.log.units(now, length);
            self.footprint.charged(&mut counted.held, now, units);
            self.newest = self.newest.max(now);
        }
        self.entries = self.entries + counted.log.len() - before;
        if self.entries > self.sweep_at {
            self.sweep();
        }
    }

    pub fn denied_identifiers(&self) -> usize {
        let counted = self.identifiers.values();
        counted.filter(|counted| counted.denied > 0).count()
    }

    /// Forgets whose units have all left the window by the newest stamp. Only stamps that go back by more than
    /// that could still have met them.
    fn sweep(&mut self) {
        let (newest, window) = (self.newest, self.limit.window().length());
        self.entries = 0;
        for counted in self.identifiers.values_mut() {
            if counted.log.units(newest, window) == 0 {
                counted.log = Log::default();
            }
            self.entries += counted.log.len();
        }
        self.sweep_at = (2 * self.entries).max(MOST_ENTRIES);
    }
}

/// Some 20 MB.
const MOST_ENTRIES: usize = 300_000;
