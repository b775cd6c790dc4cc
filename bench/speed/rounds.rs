//! Every subject asked by turns, for many short rounds, of which the middle one counts: most of what else the machine does
//! comes and goes slower than that.

use std::time::Duration;

use super::{
    Scale,
    report::median,
    subjects::{Subject, Subjects},
    system::processor,
    wrk,
};

/// What was found of each subject, in the order in which they were started.
pub struct Rounds(pub Vec<Found>);

/// Of one subject, a number for each round.
pub struct Found {
    pub name: &'static str,
    /// Requests per second on the clock on the wall.
    pub rates: Vec<f64>,
    /// Microseconds of processor a request, of the proxy and of Redis.
    pub proxy: Vec<f64>,
    pub store: Vec<f64>,
    /// Milliseconds, under full load.
    pub p50: Vec<f64>,
    pub p99: Vec<f64>,
    /// Not answered, or otherwise than was meant.
    pub wrong: u64,
    shares_core: bool,
}

impl Rounds {
    /// Of all that are at hand.
    pub fn of_all(scale: &Scale) -> Self {
        let subjects = Subjects::start(scale).all_measured(scale);
        Self(subjects)
    }

    /// The one of this name, if it was at hand.
    pub fn of(&self, name: &str) -> Option<&Found> {
        self.0.iter().find(|found| found.name == name)
    }
}

impl Subjects {
    fn all_measured(self, scale: &Scale) -> Vec<Found> {
        let mut found: Vec<_> = self.all.iter().map(Found::none).collect();
        for subject in &self.all {
            // The first requests pay for memory and connections that later ones find, and use up what is to be denied.
            wrk::ask(subject.target, subject.identifiers, Duration::from_secs(1));
        }
        for round in 0..scale.rounds as usize {
            for turn in 0..self.all.len() {
                let place = (turn + round) % self.all.len();
                found[place].round(&self.all[place], scale.round);
            }
        }
        found
    }
}

impl Found {
    fn none(subject: &Subject) -> Self {
        Self {
            name: subject.name,
            rates: Vec::new(),
            proxy: Vec::new(),
            store: Vec::new(),
            p50: Vec::new(),
            p99: Vec::new(),
            wrong: 0,
            shares_core: subject.shares_core,
        }
    }

    fn round(&mut self, subject: &Subject, time: Duration) {
        let spent = || {
            let store = subject.store.map_or(Duration::ZERO, processor);
            [processor(subject.proxy), store]
        };
        let before = spent();
        let counted = wrk::ask(subject.target, subject.identifiers, time);
        let after = spent();
        let each = |place: usize| {
            let took = after[place].saturating_sub(before[place]);
            took.as_secs_f64() * 1e6 / counted.requests as f64
        };
        let meant = if subject.is_denied {
            counted.requests
        } else {
            0
        };
        self.wrong += meant.abs_diff(counted.refused) + counted.failed;
        self.rates
            .push(counted.requests as f64 / counted.took.as_secs_f64());
        self.proxy.push(each(0));
        self.store.push(each(1));
        self.p50.push(counted.p50.as_secs_f64() * 1e3);
        self.p99.push(counted.p99.as_secs_f64() * 1e3);
    }

    /// How many requests its core would answer if the others never held it up, against what another's would: of each
    /// round, and the middle one.
    pub fn speed_against(&self, other: &Self) -> f64 {
        let ratios = self.costs().into_iter().zip(other.costs());
        median(&mut ratios.map(|(own, others)| others / own).collect::<Vec<_>>())
    }

    /// The same on the clock on the wall, where whoever shares the other core may be what holds it up.
    pub fn rate_against(&self, other: &Self) -> f64 {
        let ratios = self.rates.iter().zip(&other.rates);
        median(&mut ratios.map(|(own, others)| own / others).collect::<Vec<_>>())
    }

    /// What a request takes of the proxy's core.
    fn costs(&self) -> Vec<f64> {
        let store = self
            .store
            .iter()
            .map(|store| if self.shares_core { *store } else { 0.0 });
        self.proxy
            .iter()
            .zip(store)
            .map(|(proxy, store)| proxy + store)
            .collect()
    }
}
