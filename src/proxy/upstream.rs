//! Where requests go: the upstream's addresses, found in the background, and how long to wait for it.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use arc_swap::ArcSwap;
use http::StatusCode;
use parking_lot::Mutex;
use pingora::{Error, ErrorType, upstreams::peer::HttpPeer};
use tokio::{net::TcpStream, time::timeout};

use crate::bounded_log::{Event, KeptBack};

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

/// A request that the upstream did not answer, or could not be sent to it.
#[derive(Clone, Debug)]
pub struct Failure {
    upstream: Box<str>,
    /// What the client was answered.
    status: StatusCode,
    /// What sort of error it was.
    kind: ErrorType,
    /// All that is known of it.
    error: Box<str>,
}

/// The upstream and its addresses as last resolved.
#[derive(Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    addresses: ArcSwap<Vec<SocketAddr>>,
    /// Why its name was not resolved the last time, if it was not.
    trouble: Mutex<Option<String>>,
    next: AtomicUsize,
}

impl Event for Failure {
    /// Details such as a descriptor's number differ each time.
    fn is_like(&self, other: &Self) -> bool {
        self.status == other.status && self.kind == other.kind
    }

    /// Where to look, and what to do.
    fn tell(&self, KeptBack { more, suppressed }: KeptBack) {
        let Self {
            upstream,
            status,
            error,
            ..
        } = self;
        let status_code = status.as_u16();
        match *status {
            StatusCode::BAD_GATEWAY => tracing::warn!(
                upstream,
                status = status_code,
                error,
                more,
                suppressed,
                "A request failed: the upstream did not answer it. Does it run, and does upstream.address name it?"
            ),
            StatusCode::GATEWAY_TIMEOUT => tracing::warn!(
                upstream,
                status = status_code,
                error,
                more,
                suppressed,
                "A request failed: the upstream was too slow. upstream.connect_timeout, read_timeout and write_timeout bound it."
            ),
            _ => tracing::warn!(
                status = status_code,
                error,
                more,
                suppressed,
                "A request failed."
            ),
        }
    }
}

impl Upstream {
    /// An upstream without addresses, unless it is named by one.
    pub fn new(settings: UpstreamSettings) -> Self {
        let literal = settings.address.parse().ok();
        Self {
            settings,
            addresses: ArcSwap::from_pointee(literal.into_iter().collect()),
            trouble: Mutex::default(),
            next: AtomicUsize::new(0),
        }
    }

    /// How many addresses it has.
    pub fn addresses(&self) -> usize {
        self.addresses.load().len()
    }

    /// Resolves a host name once, waiting no longer than `patience`.
    pub async fn resolve_within(&self, patience: Duration) {
        if !self.is_address() && timeout(patience, self.resolve()).await.is_err() {
            let upstream = &self.settings.address;
            tracing::warn!(upstream, "The upstream's name was not resolved in time.");
        }
    }

    /// Resolves a host name again and again, for ever; ends at once for an address.
    ///
    /// What was found stays until something else is: a name server that is away changes nothing.
    pub async fn keep_resolving(&self) {
        while !self.is_address() {
            let pause = match self.addresses() {
                0 => UNRESOLVED_PAUSE.min(self.settings.resolve_interval),
                _ => self.settings.resolve_interval,
            };
            tokio::time::sleep(pause).await;
            self.resolve().await;
        }
    }

    fn is_address(&self) -> bool {
        self.settings.address.parse::<SocketAddr>().is_ok()
    }

    async fn resolve(&self) {
        let host = &self.settings.address;
        match tokio::net::lookup_host(host).await {
            Ok(found) => {
                *self.trouble.lock() = None;
                let mut found: Vec<SocketAddr> = found.take(MOST_ADDRESSES).collect();
                found.sort_unstable();
                found.dedup();
                let known = self.addresses.load();
                if !found.is_empty() && **known != found {
                    tracing::info!(upstream = host, addresses = ?found, "The upstream's addresses changed.");
                    self.addresses.store(found.into());
                }
            }
            // Once, not at every attempt; a new reason is news.
            Err(error) => {
                let error = error.to_string();
                let mut trouble = self.trouble.lock();
                if trouble.as_ref() != Some(&error) {
                    tracing::warn!(
                        upstream = host,
                        error,
                        "The upstream's name was not resolved."
                    );
                    *trouble = Some(error);
                }
            }
        }
    }

    /// That a request failed, to be told.
    pub(super) fn failure(&self, status: StatusCode, error: &Error) -> Failure {
        Failure {
            upstream: self.settings.address.clone().into(),
            status,
            kind: error.etype().clone(),
            error: error.to_string().into(),
        }
    }

    /// Tells, once, if nothing takes connections at the upstream's address; requests are served all the same.
    pub async fn tell_if_unreachable(&self) {
        let Some(address) = self.addresses.load().first().copied() else {
            return;
        };
        let connecting = timeout(self.settings.connect_timeout, TcpStream::connect(address)).await;
        let reason = match connecting {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        tracing::warn!(
            upstream = self.settings.address,
            reason,
            "The upstream takes no connections: until it does, requests are answered 502. Does it run, and does upstream.address name it?"
        );
    }

    /// A request's place in the turn that the addresses take.
    pub(super) fn turn(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Where attempt number `attempt` of a request goes: to the address whose turn it is, then to those
    /// after it.
    ///
    /// # Errors
    /// If the name was never resolved.
    pub(super) fn peer(
        &self,
        turn: usize,
        attempt: usize,
        upgrade: bool,
    ) -> pingora::Result<Box<HttpPeer>> {
        let addresses = self.addresses.load();
        if addresses.is_empty() {
            return Err(unresolved(&self.settings.address));
        }
        let address = addresses[turn.wrapping_add(attempt) % addresses.len()];
        let mut peer = HttpPeer::new(address, false, String::new());
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

/// Between two attempts while no address is known at all.
const UNRESOLVED_PAUSE: Duration = Duration::from_secs(1);

/// More than any service announces; an answer is not trusted to be short.
const MOST_ADDRESSES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(address: &str) -> Upstream {
        let second = Duration::from_secs(1);
        Upstream::new(UpstreamSettings {
            address: address.to_owned(),
            connect_timeout: second,
            read_timeout: second,
            write_timeout: second,
            idle_timeout: second,
            resolve_interval: second,
        })
    }

    #[test]
    fn each_attempt_of_a_request_goes_to_another_address_whatever_other_requests_do() {
        let upstream = upstream("app.example:80");
        let addresses = ["192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80"];
        let addresses: Vec<SocketAddr> = addresses.map(|text| text.parse().expect(text)).into();
        upstream.addresses.store(addresses.clone().into());
        let mut first_choices = Vec::new();
        for _ in 0..6 {
            let turn = upstream.turn();
            let mut tried: Vec<String> = (0..3)
                .map(|attempt| {
                    upstream.turn();
                    let peer = upstream.peer(turn, attempt, false).expect("an address");
                    peer.to_string()
                })
                .collect();
            first_choices.push(tried[0].clone());
            tried.sort();
            tried.dedup();
            assert_eq!(tried.len(), 3, "{tried:?}");
        }
        first_choices.dedup();
        assert!(first_choices.len() > 1, "the addresses take turns");
    }

    #[test]
    fn a_name_that_was_never_resolved_has_no_peer() {
        assert!(upstream("app.example:80").peer(0, 0, false).is_err());
    }
}
