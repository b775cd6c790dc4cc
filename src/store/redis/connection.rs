//! The connection to Redis, and what requests meet while there is none.
//!
//! A supervisor task owns connecting. Until its first attempt has ended, requests wait for it; after
//! that they either find a connection or fail at once, paying nothing. The connection is dropped when
//! it breaks, when the server says that it is not the one to ask (a replica, one that is loading, one
//! that wants another password), and after three timeouts in a row; the supervisor then tries
//! until a probe succeeds. Nothing here sends a call twice, except by the script's source to a server
//! that did not know its name.

mod dialer;
mod exchange;
mod sentinel;
mod supervisor;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
};

pub(super) use dialer::Dialer;
pub(super) use exchange::{Exchange, error_text};

use super::trouble::Trouble;
use crate::{
    clock,
    store::{Health, StoreError},
};

/// A connection that heals by itself.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    supervisor: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    /// `None` before the first connection and while tripped.
    link: ArcSwapOption<Link>,
    tripped: AtomicBool,
    /// In milliseconds since `opened`.
    next_probe: AtomicU64,
    opened: Instant,
    /// Whether the first attempt has ended.
    attempted: watch::Sender<bool>,
    /// Tells the supervisor why the link was dropped: once for each link.
    lost: mpsc::Sender<Trouble>,
}

/// One connection, from its probe until it is dropped.
struct Link {
    generation: u64,
    connection: MultiplexedConnection,
    /// Since the last answer.
    timeouts: AtomicU32,
    /// When the call was sent that was last counted among them, in milliseconds since `Shared::opened`.
    timeout_counted: AtomicU64,
}

/// A moment that does not come.
const NEVER: u64 = u64::MAX;

impl Connection {
    /// Starts to connect, on `runtime`.
    pub(super) fn open(dialer: Dialer, runtime: &tokio::runtime::Handle) -> Self {
        let (lost, losses) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            link: ArcSwapOption::empty(),
            tripped: AtomicBool::new(false),
            next_probe: AtomicU64::new(0),
            opened: clock::instant(),
            attempted: watch::Sender::new(false),
            lost,
        });
        let supervisor = runtime
            .spawn(supervisor::run(dialer, Arc::clone(&shared), losses))
            .abort_handle();
        Self { shared, supervisor }
    }

    pub(super) fn health(&self) -> Health {
        let tripped = self.shared.tripped.load(Ordering::Relaxed);
        let next_probe = Duration::from_millis(self.shared.next_probe.load(Ordering::Relaxed));
        Health {
            tripped,
            next_probe: if tripped {
                next_probe.saturating_sub(clock::elapsed(self.shared.opened))
            } else {
                Duration::ZERO
            },
            ..Health::default()
        }
    }

    /// Calls that belong together; `asking` is [`Class`](super::script::Class)'s.
    pub(super) fn exchange(&self, asking: bool) -> Exchange<'_> {
        Exchange::new(&self.shared, asking)
    }
}

/// The connection goes with it; calls under way fail.
impl Drop for Connection {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Shared {
    /// Milliseconds since it was opened.
    fn millis(&self) -> u64 {
        u64::try_from(clock::elapsed(self.opened).as_millis()).unwrap_or(u64::MAX)
    }

    /// The connection. Waits only while the first attempt is under way.
    async fn link(&self) -> Result<Arc<Link>, StoreError> {
        if let Some(link) = self.link.load_full() {
            return Ok(link);
        }
        if !self.tripped.load(Ordering::Acquire) {
            self.attempted
                .subscribe()
                .wait_for(|attempted| *attempted)
                .await
                .expect("the sender is in self");
        }
        self.link.load_full().ok_or(StoreError::Disconnected)
    }

    /// Drops the link of this generation, if it has not been dropped yet.
    fn drop_link(&self, generation: u64, reason: Trouble) {
        let current = self.link.load();
        let Some(link) = current
            .as_ref()
            .filter(|link| link.generation == generation)
        else {
            return;
        };
        let found = self.link.compare_and_swap(link, None);
        if found.as_ref().is_some_and(|found| Arc::ptr_eq(found, link)) {
            self.tripped.store(true, Ordering::Release);
            // The channel is empty: the supervisor takes a loss before it makes the next link.
            let _ = self.lost.try_send(reason);
        }
    }
}

/// Neither the address nor the password is in a connection's own form.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("generation", &self.generation)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}
