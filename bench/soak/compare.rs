//! What one thing adds to another: processor time, not the clock on the wall, of which client and nginx have their
//! part.
//!
//! Three of them, two alike and one with what is measured, do the same by turns, for many short rounds, and the
//! middle one of the ratios counts: most of what else the machine does comes and goes slower than that. How far the two
//! are apart is what this measurement can not tell from nothing.

use std::time::Duration;

use super::{
    load::{Answers, Load, Plan},
    report::{Bound, Report, median},
    scenarios::{Scale, mix},
    support::binary::Binary,
    system::processor,
};

/// What three of them took.
pub struct Comparison {
    requests: u64,
    failed: f64,
    /// Microseconds a request, of the first.
    costs: Vec<f64>,
    /// What the third adds to the first two, in percent.
    added: Vec<f64>,
    /// What the second adds to the first.
    noise: Vec<f64>,
}

impl Comparison {
    /// Of the two first and the third; `round` is one round of [`Scale::crowd_requests`], and tells the processor
    /// time that it took, and how many requests failed.
    pub fn of<S>(
        subjects: &[S; 3],
        scale: &Scale,
        mut round: impl FnMut(&S) -> (Duration, f64),
    ) -> Self {
        // The first requests of a process pay for memory and connections that later ones find.
        for subject in subjects {
            round(subject);
        }
        let mut found = Self {
            requests: scale.crowd_requests * u64::from(scale.crowd_rounds),
            failed: 0.0,
            costs: Vec::new(),
            added: Vec::new(),
            noise: Vec::new(),
        };
        for turn in 0..scale.crowd_rounds {
            let mut turns = [0, 1, 2];
            turns.rotate_left(turn as usize % 3);
            let mut spent = [0.0; 3];
            for place in turns {
                let (took, failed) = round(&subjects[place]);
                spent[place] = took.as_secs_f64() * 1e6 / scale.crowd_requests as f64;
                found.failed += failed;
            }
            let [first, second, third] = spent;
            found.costs.push(first);
            found
                .added
                .push(100.0 * (2.0 * third / (first + second) - 1.0));
            found.noise.push(100.0 * (second / first - 1.0));
        }
        found
    }

    /// Adds it to the report; `alike` says what the first two are.
    pub fn tell(
        mut self,
        scenario: &'static str,
        what: &str,
        alike: &str,
        bound: Bound,
        report: &mut Report,
    ) {
        let mut add = |what: &str, value, unit, bound| {
            report.add(scenario, what, value, unit, bound);
        };
        let requests = self.requests as f64;
        add(&format!("{what}: requests"), requests, "", Bound::None);
        add(
            "  answers other than 200",
            self.failed,
            "",
            Bound::Exactly(0.0),
        );
        let cost = median(&mut self.costs);
        let what = format!("  processor time of a request, {alike}");
        add(&what, cost, "us", Bound::None);
        let added = median(&mut self.added);
        add("  added to it, middle of all rounds", added, "%", bound);
        let what = format!("  the same between two {alike}");
        add(&what, median(&mut self.noise), "%", Bound::None);
    }
}

/// One round of requests, by [`CLIENTS`].
pub fn ask(gate: &Binary, scale: &Scale) -> Answers {
    let load = Load::start(Plan {
        targets: vec![gate.proxy],
        connections: 16,
        rate: None,
        requests: scale.crowd_requests,
        identifier: |number| mix(number % CLIENTS),
    });
    load.finish()
}

/// The processor time that a process took for this.
pub fn spent<T>(process: u32, work: impl FnOnce() -> T) -> (Duration, T) {
    let before = processor(process);
    let result = work();
    (processor(process) - before, result)
}

/// How many were not answered 200.
pub fn others(answers: &Answers) -> f64 {
    (answers.count() - answers.with(200..201)) as f64
}

/// Who asks.
pub const CLIENTS: u64 = 1_000;
