//! How many connections there are, in all and from each address, and how many there may be.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    metrics::{ConnectionEnd, Metrics},
    policy::{Client, ClientRule, IdentifierHasher},
};

/// How many connections of clients there may be.
#[derive(Clone, Debug)]
pub struct CensusSettings {
    /// In all. Default 20,000: each takes a descriptor, and one more towards the upstream.
    pub connections: usize,
    /// From one address, or one network of IPv6; those of trusted proxies are not counted, since many come by them.
    /// Default 2,000: a tenth, so that one client alone keeps nobody out.
    pub connections_per_address: u32,
}

impl Default for CensusSettings {
    fn default() -> Self {
        Self {
            connections: 20_000,
            connections_per_address: 2_000,
        }
    }
}

/// The connections there are; all workers share it.
#[derive(Debug)]
pub struct Census {
    settings: CensusSettings,
    /// Which addresses are one client's, as for limits.
    networks: IdentifierHasher,
    /// Whose addresses are not counted.
    trusted: ClientRule,
    all: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, u32>>,
    /// Who is told; nobody where it is not clients that connect.
    metrics: Option<Arc<Metrics>>,
}

/// A connection that was let in; it is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    census: Arc<Census>,
    address: Option<IpAddr>,
}

impl Census {
    /// Nobody is there yet.
    pub fn new(
        settings: CensusSettings,
        networks: IdentifierHasher,
        trusted: ClientRule,
        metrics: Option<Arc<Metrics>>,
    ) -> Self {
        Self {
            settings,
            networks,
            trusted,
            all: AtomicUsize::new(0),
            by_address: Mutex::default(),
            metrics,
        }
    }

    /// Counts a connection, of whoever it is; `None` if there are too many.
    pub(super) fn admit(self: &Arc<Self>) -> Option<Counted> {
        if self.all.fetch_add(1, Ordering::Relaxed) >= self.settings.connections {
            self.all.fetch_sub(1, Ordering::Relaxed);
            self.ended(ConnectionEnd::TooMany);
            return None;
        }
        if let Some(metrics) = &self.metrics {
            metrics.connections.inc();
        }
        Some(Counted {
            census: self.clone(),
            address: None,
        })
    }

    fn ended(&self, reason: ConnectionEnd) {
        if let Some(metrics) = &self.metrics {
            metrics.connection_ended(reason);
        }
    }
}

impl Counted {
    /// Counts it for its client's address too; `false` if that has too many.
    pub(super) fn is_of(&mut self, client: Option<IpAddr>) -> bool {
        let client = client.map_or(Client::Unix, Client::from);
        let Client::Address(address) = self.census.networks.grouped(client) else {
            return true;
        };
        if self.census.trusted.trusts(client) {
            return true;
        }
        let mut by_address = self.census.by_address.lock();
        let count = by_address.entry(address).or_insert(0);
        if *count >= self.census.settings.connections_per_address {
            drop(by_address);
            self.census.ended(ConnectionEnd::TooManyOfAddress);
            return false;
        }
        *count += 1;
        self.address = Some(address);
        true
    }

    /// Tells why it is ended.
    pub(super) fn ended(&self, reason: ConnectionEnd) {
        self.census.ended(reason);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.census.all.fetch_sub(1, Ordering::Relaxed);
        if let Some(metrics) = &self.census.metrics {
            metrics.connections.dec();
        }
        let Some(address) = self.address else {
            return;
        };
        let mut by_address = self.census.by_address.lock();
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
    }
}
