//! From a request to a verdict: policy, then store, then what it means.

use std::num::NonZeroU32;

/// How verdicts are made.
#[derive(Clone, Debug)]
pub struct LimiterSettings {
    /// How many proxies share each limit while each decides alone. Default 1.
    pub expected_replicas: NonZeroU32,
    /// The edges of the near-limit bands, as shares of the quota; ascending, at least two.
    /// Default 0.90, 0.95, 1.00, 1.05, 1.10.
    pub near_limit_edges: Vec<f64>,
}
