//! Where requests go: the upstream's addresses, found in the background, and how long to wait for it.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use arc_swap::ArcSwap;
use pingora::{Error, ErrorType, upstreams::peer::HttpPeer};

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

/// The upstream and its addresses as last resolved.
#[derive(Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    addresses: ArcSwap<Vec<SocketAddr>>,
    next: AtomicUsize,
}

impl Upstream {
    /// An upstream without addresses, unless it is named by one.
    pub fn new(settings: UpstreamSettings) -> Self {
        let literal = settings.address.parse().ok();
        Self {
            settings,
            addresses: ArcSwap::from_pointee(literal.into_iter().collect()),
            next: AtomicUsize::new(0),
        }
    }

    /// How many addresses it has.
    pub fn addresses(&self) -> usize {
        self.addresses.load().len()
    }

    /// Resolves a host name again and again, for ever; ends at once for an address.
    ///
    /// What was found stays until something else is: a name server that is away changes nothing.
    pub async fn keep_resolving(&self) {
        if self.settings.address.parse::<SocketAddr>().is_ok() {
            return;
        }
        loop {
            self.resolve().await;
            tokio::time::sleep(self.settings.resolve_interval).await;
        }
    }

    async fn resolve(&self) {
        let host = &self.settings.address;
        match tokio::net::lookup_host(host).await {
            Ok(found) => {
                let mut found: Vec<SocketAddr> = found.take(MOST_ADDRESSES).collect();
                found.sort_unstable();
                found.dedup();
                let known = self.addresses.load();
                if !found.is_empty() && **known != found {
                    tracing::info!(upstream = host, addresses = ?found, "The upstream's addresses changed.");
                    self.addresses.store(found.into());
                }
            }
            Err(error) => {
                tracing::warn!(upstream = host, %error, "The upstream's name was not resolved.");
            }
        }
    }

    /// Where a request's attempt number `attempt` goes: the addresses take turns.
    ///
    /// # Errors
    /// If the name was never resolved.
    pub(super) fn peer(&self, attempt: usize, upgrade: bool) -> pingora::Result<Box<HttpPeer>> {
        let addresses = self.addresses.load();
        let turn = match (addresses.len(), attempt) {
            (0, _) => return Err(unresolved(&self.settings.address)),
            (1, _) => 0,
            (_, 0) => self.next.fetch_add(1, Ordering::Relaxed),
            (_, retry) => self.next.load(Ordering::Relaxed).wrapping_add(retry - 1),
        };
        let mut peer = HttpPeer::new(addresses[turn % addresses.len()], false, String::new());
        let options = &mut peer.options;
        options.connection_timeout = Some(self.settings.connect_timeout);
        options.total_connection_timeout = Some(self.settings.connect_timeout);
        // A connection that was upgraded may be silent for long.
        options.read_timeout = (!upgrade).then_some(self.settings.read_timeout);
        options.write_timeout = Some(self.settings.write_timeout);
        options.idle_timeout = Some(self.settings.idle_timeout);
        Ok(Box::new(peer))
    }
}

fn unresolved(address: &str) -> Box<Error> {
    let reason = format!("the upstream's name {address} is not resolved");
    Error::explain(ErrorType::ConnectError, reason).into_up()
}

/// More than any service announces; an answer is not trusted to be short.
const MOST_ADDRESSES: usize = 64;
