//! Candidates for a limit, from what identifiers did in their busiest windows, each with what it would have cost.
//!
//! Any limit trades: a lower one cuts more of the load, and denies more. So there is no best one here; there is a
//! ladder of them, each run over all requests by the sliding window counter, alone.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::Serialize;

use super::{log::Log, record::Record, run};
use crate::{
    policy::{ClientRule, Identifier, PolicySet},
    ratelimit::{Algorithm, Cost, Counts, Limit, Timestamp, Window, decide},
};

/// What is under way to a suggestion.
#[derive(Debug)]
pub struct Suggesting {
    clients: ClientRule,
    policies: Arc<PolicySet>,
    asked: BTreeMap<(usize, Window), Asked>,
}

/// What may be chosen for the requests that a policy asks about.
#[derive(Clone, Debug, Serialize)]
pub struct Suggestion {
    /// The policy that says who is counted, and for which requests.
    pub policy: String,
    /// The window.
    pub window: String,
    /// How many requests it asks about.
    pub requests: u64,
    /// How many identifiers there are.
    pub identifiers: usize,
    /// How many units an identifier took in its busiest window, wherever that begins: so many identifiers of a
    /// hundred took no more.
    pub busiest: Busiest,
    /// The same as a distribution, from the least busy to the busiest; for pictures.
    #[serde(skip)]
    pub peaks: Vec<Peaks>,
    /// The most units in one window, of all identifiers together.
    pub peak: u64,
    /// From the first that denies no more than half of the identifiers to the first that denies nothing.
    pub candidates: Vec<Candidate>,
}

/// Busiest windows, over all identifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Busiest {
    /// Of the least busy half of the identifiers.
    pub p50: u64,
    /// Of 90 in a hundred.
    pub p90: u64,
    /// Of 99 in a hundred.
    pub p99: u64,
    /// Of 999 in a thousand.
    pub p999: u64,
    /// Of all.
    pub max: u64,
}

/// Identifiers whose busiest windows are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peaks {
    /// They took so many units, or fewer but more than those before.
    pub up_to: u64,
    /// How many they are.
    pub identifiers: usize,
}

/// A limit, and what it would have cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// So many units per window.
    pub limit: String,
    /// How many identifiers it would have denied something.
    pub denied_identifiers: u64,
    /// How many requests.
    pub denied: u64,
    /// The most units that it would have admitted in one window, of all identifiers together.
    pub peak: u64,
}

/// What a suggestion takes for granted.
pub const ASSUMPTIONS: [&str; 4] = [
    "clients go on as in these logs, and do not ask again because they were denied",
    "each limit is the only one, by sliding_window_counter",
    "who is busiest is known by these logs alone: a longer log knows busier windows",
    "whether what a limit denies was wanted, no log tells",
];

impl Suggesting {
    /// One for whom these policies count, in the windows of their limits; how high those are does not matter.
    pub fn new(clients: ClientRule, policies: Arc<PolicySet>) -> Self {
        Self {
            clients,
            policies,
            asked: BTreeMap::new(),
        }
    }

    /// Looks at the next request.
    pub fn see(&mut self, record: &Record) {
        let view = run::view(&self.clients, record);
        let Ok(asked) = self.policies.asked(&view) else {
            return;
        };
        for asked in &asked {
            for named in self.policies.limits(asked) {
                let window = named.limit.window();
                let seen = self.asked.entry((asked.policy, window));
                let seen = seen.or_insert_with(|| Asked::new(window));
                seen.see(asked.identifier, asked.cost, record.at);
            }
        }
    }

    /// What may be chosen, policy by policy.
    pub fn suggestions(&self) -> Vec<Suggestion> {
        let asked = self.asked.iter();
        let suggestions = asked.map(|((policy, window), asked)| {
            asked.suggestion(&self.policies.policies()[*policy].name, *window)
        });
        suggestions.collect()
    }
}

/// What one policy asks about, in one window.
#[derive(Debug)]
struct Asked {
    window: Window,
    ladder: Vec<Limit>,
    requests: u64,
    identifiers: HashMap<Identifier, Seen>,
    denied: Vec<u64>,
    load: Load,
}

/// One identifier.
#[derive(Debug, Default)]
struct Seen {
    /// Everything that it sent.
    log: Log,
    peak: u64,
    /// The window that is counted.
    number: u64,
    /// What is counted where nothing was denied yet.
    all: Counts,
    /// What is counted by each rung that has denied something: the lowest of the ladder.
    rungs: Vec<Counts>,
}

impl Asked {
    fn new(window: Window) -> Self {
        let rungs = (0..=6).flat_map(|power| [1, 2, 5].map(|step| step * 10_u64.pow(power)));
        let ladder: Vec<_> = rungs
            .filter_map(|rung| Limit::new(rung, window).ok())
            .collect();
        Self {
            window,
            requests: 0,
            identifiers: HashMap::new(),
            denied: vec![0; ladder.len()],
            load: Load::default(),
            ladder,
        }
    }

    fn see(&mut self, identifier: Identifier, cost: Cost, at: Timestamp) {
        self.requests += 1;
        let seen = self.identifiers.entry(identifier).or_default();
        let (moment, units) = (self.window.moment_of(at), cost.units());
        seen.log.units(moment, self.window.length());
        seen.log.add(moment, units);
        let peak = seen.log.peak_around(moment, self.window.length());
        seen.peak = seen.peak.max(peak);

        let now = seen.turn(self.window, at);
        let allows = |limit: &Limit, counts| {
            decide(Algorithm::SlidingWindowCounter, *limit, counts, cost, now).allowed
        };
        // A higher rung that has denied nothing so far has counted the same as the lowest of its kind.
        while let Some(rung) = self.ladder.get(seen.rungs.len())
            && !allows(rung, seen.all)
        {
            seen.rungs.push(seen.all);
        }
        let number = self.window.position(at).number;
        let load = self.load.of(number, self.ladder.len());
        load.units += units;
        seen.all.current = seen.all.current.saturating_add(units);
        for (rung, counts) in seen.rungs.iter_mut().enumerate() {
            if allows(&self.ladder[rung], *counts) {
                counts.current = counts.current.saturating_add(units);
            } else {
                self.denied[rung] += 1;
                load.denied[rung] += units;
            }
        }
    }

    fn suggestion(&self, policy: &str, window: Window) -> Suggestion {
        let mut peaks: Vec<u64> = self.identifiers.values().map(|seen| seen.peak).collect();
        peaks.sort_unstable();
        let many = self.identifiers.len() as u64;
        let denied_identifiers = |rung: usize| {
            let identifiers = self.identifiers.values();
            identifiers.filter(|seen| seen.rungs.len() > rung).count() as u64
        };
        let peaks_of_all = self.load.peaks(self.ladder.len());
        let mut candidates = Vec::new();
        for (rung, limit) in self.ladder.iter().enumerate() {
            let denied_identifiers = denied_identifiers(rung);
            if 2 * denied_identifiers > many {
                continue;
            }
            candidates.push(Candidate {
                limit: limit.to_string(),
                denied_identifiers,
                denied: self.denied[rung],
                peak: peaks_of_all.1[rung],
            });
            if denied_identifiers == 0 {
                break;
            }
        }
        Suggestion {
            policy: policy.to_owned(),
            window: window.to_string(),
            requests: self.requests,
            identifiers: self.identifiers.len(),
            busiest: Busiest::of(&peaks),
            peaks: Peaks::of(&peaks),
            peak: peaks_of_all.0,
            candidates,
        }
    }
}

impl Seen {
    /// Counts in the window of `at` from here on; returns the moment to decide at. A stamp that goes back into an
    /// earlier window is decided at the start of the present one.
    fn turn(&mut self, window: Window, at: Timestamp) -> Timestamp {
        let number = window.position(at).number;
        if number < self.number {
            return window.moment(self.number, 0);
        }
        let passed = number - self.number;
        self.number = number;
        for counts in self.rungs.iter_mut().chain([&mut self.all]) {
            *counts = match passed {
                0 => *counts,
                1 => Counts {
                    current: 0,
                    previous: counts.current,
                },
                _ => Counts::default(),
            };
        }
        at
    }
}

impl Busiest {
    /// Of peaks in ascending order.
    fn of(peaks: &[u64]) -> Self {
        let of = |thousandths: usize| {
            let place = (peaks.len() * thousandths)
                .div_ceil(1_000)
                .saturating_sub(1);
            peaks.get(place).copied().unwrap_or_default()
        };
        Self {
            p50: of(500),
            p90: of(900),
            p99: of(990),
            p999: of(999),
            max: of(1_000),
        }
    }
}

impl Peaks {
    /// Of peaks in ascending order, in steps of 1, 2 and 5.
    fn of(peaks: &[u64]) -> Vec<Self> {
        let steps = (0..18).flat_map(|power| [1, 2, 5].map(|step| step * 10_u64.pow(power)));
        let (mut distribution, mut before) = (Vec::new(), 0);
        for up_to in steps {
            if before == peaks.len() {
                break;
            }
            let within = peaks.partition_point(|peak| *peak <= up_to);
            distribution.push(Self {
                up_to,
                identifiers: within - before,
            });
            before = within;
        }
        distribution
    }
}

/// What all identifiers took, window by window, as far as it may still grow.
#[derive(Debug, Default)]
struct Load {
    windows: BTreeMap<u64, WindowLoad>,
    /// Of windows that are forgotten.
    peak: u64,
    peaks: Vec<u64>,
}

#[derive(Debug, Default)]
struct WindowLoad {
    units: u64,
    /// By each rung.
    denied: Vec<u64>,
}

impl Load {
    /// That of a window. Of many, the oldest can no longer grow.
    fn of(&mut self, number: u64, rungs: usize) -> &mut WindowLoad {
        if self.windows.len() > Self::MOST_WINDOWS
            && !self.windows.contains_key(&number)
            && let Some((_, oldest)) = self.windows.pop_first()
        {
            self.peaks.resize(rungs, 0);
            (self.peak, self.peaks) = oldest.added(self.peak, &self.peaks);
        }
        let load = self.windows.entry(number).or_default();
        load.denied.resize(rungs, 0);
        load
    }

    /// The most units in a window: all, and what each rung admits.
    fn peaks(&self, rungs: usize) -> (u64, Vec<u64>) {
        let mut peaks = (self.peak, self.peaks.clone());
        peaks.1.resize(rungs, 0);
        let windows = self.windows.values();
        windows.fold(peaks, |(peak, peaks), load| load.added(peak, &peaks))
    }

    /// Some 2 MB.
    const MOST_WINDOWS: usize = 10_000;
}

impl WindowLoad {
    fn added(&self, peak: u64, peaks: &[u64]) -> (u64, Vec<u64>) {
        let admitted = self.denied.iter().map(|denied| self.units - denied);
        let peaks = peaks.iter().zip(admitted);
        let peaks = peaks.map(|(peak, admitted)| admitted.max(*peak));
        (peak.max(self.units), peaks.collect())
    }
}
