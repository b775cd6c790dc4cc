//! The task that connects, waits for the loss of the connection, and connects again, for ever.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use tokio::{sync::mpsc, time};

use super::{Dialer, Link, NEVER, Shared};
use crate::{bounded_log::News, clock, store::redis::trouble::Trouble};

/// The pause after the first failed attempt; it doubles with each further one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// So a store that is back is found within half a second. It is also how long a connection must have
/// lived for its loss to be met with an attempt at once: one that never lasts is retried ever slower.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Connects, holds, and connects again.
pub(super) async fn run(
    mut dialer: Dialer,
    shared: Arc<Shared>,
    mut losses: mpsc::Receiver<Trouble>,
) {
    let mut pause = SHORTEST_PAUSE;
    let mut news = News::default();
    loop {
        let trouble = match dialer.dial(&shared).await {
            Ok(dialed) => {
                tracing::info!(store = %dialer, server = %dialed.address, "Connected to the store.");
                news.went_well();
                let since = clock::instant();
                shared.hold(dialed.generation, dialed.connection);
                let trouble = losses.recv().await.expect("the sender is in shared");
                if clock::elapsed(since) >= LONGEST_PAUSE {
                    pause = Duration::ZERO;
                }
                trouble
            }
            Err(trouble) => trouble,
        };
        shared.fail(pause);
        if let Some(reason) = news.failed(trouble) {
            tracing::warn!(store = %dialer, %reason, "The store is not connected: until it is, failure modes decide.");
        }
        time::sleep(pause).await;
        pause = (pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    }
}

impl Shared {
    /// Hands the connection to requests.
    fn hold(&self, generation: u64, connection: MultiplexedConnection) {
        self.link.store(Some(Arc::new(Link {
            generation,
            connection,
            timeouts: AtomicU32::new(0),
            timeout_counted: AtomicU64::new(NEVER),
        })));
        self.tripped.store(false, Ordering::Release);
        self.attempted.send_replace(true);
    }

    /// Tells requests that there is none, and when the next attempt is.
    fn fail(&self, pause: Duration) {
        let next = clock::elapsed(self.opened) + pause;
        let millis = u64::try_from(next.as_millis()).unwrap_or(u64::MAX);
        self.next_probe.store(millis, Ordering::Relaxed);
        self.tripped.store(true, Ordering::Release);
        self.attempted.send_replace(true);
    }
}
