//! The metrics of upstreams: they come and go with the configuration, and their counts survive it.

use prometheus::{IntCounter, IntGauge};

use super::Metrics;
use crate::upstream::State;

/// The handles of the metrics of one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    requests: [IntCounter; UpstreamOutcome::ALL.len()],
    retries: IntCounter,
    ejections: IntCounter,
    addresses: [IntGauge; State::ALL.len()],
}

/// What became of a request that was to go to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamOutcome {
    /// The upstream answered, with whatever status.
    Answered,
    /// It did not: it took no connection, or broke one off. The client was answered 502.
    Failed,
    /// It did not within its time. The client was answered 504.
    TimedOut,
    /// The client left before there was an answer, or sent what is no request.
    Abandoned,
}

impl UpstreamOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Answered,
        Self::Failed,
        Self::TimedOut,
        Self::Abandoned,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Abandoned => "abandoned",
        }
    }
}

impl UpstreamMetrics {
    /// Counts a request, once.
    pub fn request(&self, outcome: UpstreamOutcome) {
        self.requests[outcome as usize].inc();
    }

    /// Counts an attempt that was not a request's first.
    pub fn retried(&self) {
        self.retries.inc();
    }

    /// Counts an address that was left out for what requests saw of it.
    pub fn ejected(&self) {
        self.ejections.inc();
    }

    /// Tells how many addresses stand in each state, in the order of [`State::ALL`].
    pub fn stand(&self, counts: [usize; State::ALL.len()]) {
        for (gauge, count) in self.addresses.iter().zip(counts) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// What was told last.
    fn standing(&self) -> [i64; State::ALL.len()] {
        self.addresses.each_ref().map(IntGauge::get)
    }
}

impl Metrics {
    /// The handles for the upstream of this name. A series that is there goes on from its count; one that is not
    /// begins at 0.
    pub fn upstream(&self, name: &str) -> UpstreamMetrics {
        let mut upstreams = self.upstreams.lock();
        let metrics = upstreams.entry(name.into()).or_insert_with(|| {
            let addresses = |state: State| {
                self.upstream_addresses
                    .with_label_values(&[name, state.name()])
            };
            UpstreamMetrics {
                requests: UpstreamOutcome::ALL.map(|outcome| {
                    self.upstream_requests
                        .with_label_values(&[name, outcome.name()])
                }),
                retries: self.upstream_retries.with_label_values(&[name]),
                ejections: self.upstream_ejections.with_label_values(&[name]),
                addresses: State::ALL.map(addresses),
            }
        });
        metrics.clone()
    }

    /// Removes the series of every upstream but these. What is counted of another from now on is lost.
    pub fn keep_upstreams(&self, names: &[&str]) {
        self.upstreams.lock().retain(|name, _| {
            let stays = names.contains(&&**name);
            if !stays {
                self.forget_upstream(name);
            }
            stays
        });
    }

    /// For each upstream, by name, how many of its addresses are in rotation, and how many there are.
    pub fn upstreams_in_rotation(&self) -> Vec<(Box<str>, i64, i64)> {
        let upstreams = self.upstreams.lock();
        let told = upstreams.iter().map(|(name, metrics)| {
            let counts = metrics.standing();
            (name.clone(), counts[0], counts.iter().sum())
        });
        told.collect()
    }

    /// Of what is not there nothing is removed.
    fn forget_upstream(&self, name: &str) {
        for outcome in UpstreamOutcome::ALL {
            let labels = [name, outcome.name()];
            drop(self.upstream_requests.remove_label_values(&labels));
        }
        for state in State::ALL {
            let labels = [name, state.name()];
            drop(self.upstream_addresses.remove_label_values(&labels));
        }
        drop(self.upstream_retries.remove_label_values(&[name]));
        drop(self.upstream_ejections.remove_label_values(&[name]));
    }
}
