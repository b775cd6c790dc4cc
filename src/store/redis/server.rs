//! One server that takes writes, and what waits for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use super::{
    batch::Batcher,
    connection::{Connection, Dialer},
    script::Script,
    topology::HostPort,
};
use crate::{ratelimit::Timestamp, store::Health};

/// A server with its own connection, its own queue and its own clock.
///
/// Dropping it ends the connection.
#[derive(Debug)]
pub(super) struct Server {
    /// Where it is, if a cluster told.
    pub(super) at: Option<HostPort>,
    pub(super) connection: Arc<Connection>,
    pub(super) batcher: Batcher,
    /// Whether it said that it can not know what its cluster is like.
    doubted: AtomicBool,
    /// Milliseconds from our clock, when a call is sent, to the server's, when the script runs.
    offset: AtomicI64,
}

impl Server {
    /// Starts to connect, on `runtime`; `take` is what its batches call.
    pub(super) fn open(
        at: Option<HostPort>,
        dialer: Dialer,
        take: Arc<Script>,
        budget: Duration,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let connection = Arc::new(Connection::open(dialer, runtime));
        Self {
            at,
            batcher: Batcher::start(&connection, take, budget, runtime),
            connection,
            doubted: AtomicBool::new(false),
            offset: AtomicI64::new(0),
        }
    }

    /// What its clock will show when a call that is sent at `sent` runs, as far as is known.
    pub(super) fn guess(&self, sent: Timestamp) -> Timestamp {
        sent.offset_by(self.offset.load(Ordering::Relaxed))
    }

    /// Learns that a call sent at `sent` ran at `now` by its clock.
    pub(super) fn learn(&self, sent: Timestamp, now: Timestamp) {
        let offset = now.as_millis().checked_signed_diff(sent.as_millis());
        self.offset
            .store(offset.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Takes it for cut off from its cluster, or not any more.
    pub(super) fn doubt(&self, doubted: bool) {
        self.doubted.store(doubted, Ordering::Relaxed);
    }

    /// Whether its slots are better looked for elsewhere.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.doubted.load(Ordering::Relaxed) || self.connection.health().tripped
    }

    pub(super) fn health(&self) -> Health {
        Health {
            pending: self.batcher.waiting(),
            ..self.connection.health()
        }
    }
}
