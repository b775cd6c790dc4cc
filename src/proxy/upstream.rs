//! Where requests go: the upstream's address and how long to wait for it.

use std::time::Duration;

/// The one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// `host:port` or `address:port`. A host name is resolved in the background, never for a request.
    pub address: String,
    /// For a TCP connection to be established. Default 1 s.
    pub connect_timeout: Duration,
    /// Between two reads of a response. Default 60 s.
    pub read_timeout: Duration,
    /// For one write of a request. Default 60 s.
    pub write_timeout: Duration,
    /// How long an idle connection is kept for reuse; shorter than the upstream's own. Default 50 s.
    pub idle_timeout: Duration,
    /// How often a host name is resolved again. Default 5 s.
    pub resolve_interval: Duration,
}
