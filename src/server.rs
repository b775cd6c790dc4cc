//! Listeners, worker threads, and how they stop.

use std::{net::SocketAddr, time::Duration};

/// Where to listen and how to stop.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Where the proxy listens. Default `0.0.0.0:8000`.
    pub listen: SocketAddr,
    /// Where metrics and health are served. Default `0.0.0.0:9464`.
    pub metrics_listen: SocketAddr,
    /// Worker threads. Default: the CPUs this process may use, by affinity and cgroup limit.
    pub threads: usize,
    /// How long new requests are still served after readiness is off. Default 2 s: what a load balancer
    /// needs to notice.
    pub drain_delay: Duration,
    /// How long requests in flight may take to finish after that. Default 20 s, so that both fit the 30 s
    /// that Kubernetes grants.
    pub grace: Duration,
}
