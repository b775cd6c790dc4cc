//! The task that connects, waits for the loss of the connection, and connects again, for ever.

use std::{
    fmt,
    sync::{Arc, Weak, atomic::AtomicU32, atomic::AtomicU64, atomic::Ordering},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError,
    aio::MultiplexedConnection,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::{sync::mpsc, time};

use super::{Link, NEVER, Shared, exchange::error_text};
use crate::{clock, store::redis::RedisUrl};

/// An attempt takes no longer: name, TCP, authentication and probe together.
const ATTEMPT: Duration = Duration::from_millis(250);

/// The pause after the first failed attempt; it doubles with each further one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// So a store that is back is found within half a second. It is also how long a connection must have
/// lived for its loss to be met with an attempt at once: one that never lasts is retried ever slower.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Calls that may wait to be written; more wait for their turn, within their budgets.
const BUFFERED_CALLS: usize = 1024;

/// Connects, holds, and connects again.
pub(super) async fn run(dialer: Dialer, shared: Arc<Shared>, mut losses: mpsc::Receiver<String>) {
    let mut pause = SHORTEST_PAUSE;
    let mut trouble = None;
    for generation in 1.. {
        let reason = match dialer.dial(generation, &shared).await {
            Ok(connection) => {
                tracing::info!(store = %dialer, "Connected to the store.");
                trouble = None;
                let since = clock::instant();
                shared.hold(generation, connection);
                let reason = losses.recv().await.expect("the sender is in shared");
                if clock::elapsed(since) >= LONGEST_PAUSE {
                    pause = Duration::ZERO;
                }
                reason
            }
            Err(reason) => reason,
        };
        shared.fail(pause);
        // Once, not at every attempt; a new reason is news.
        if trouble.as_ref() != Some(&reason) {
            tracing::warn!(store = %dialer, %reason, "The store is not connected: until it is, failure modes decide.");
            trouble = Some(reason);
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

/// Makes connections. Its `Display` is the address: no user, no password.
pub(in crate::store::redis) struct Dialer {
    client: Client,
    probe: redis::Pipeline,
}

impl Dialer {
    /// One that connects to `url`, and takes a server for sound that answers `probe`.
    pub(in crate::store::redis) fn new(url: &RedisUrl, probe: redis::Pipeline) -> Self {
        let info = url.connection_info().clone();
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(
                TcpKeepalive::new()
                    .with_time(Duration::from_secs(5))
                    .with_interval(Duration::from_secs(1))
                    .with_retries(3),
            )
            .set_user_timeout(Duration::from_secs(2));
        // RESP3 for its push messages, by which a lost connection is noticed before it is used.
        let redis = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_tcp_settings(tcp).set_redis_settings(redis));
        Self {
            client: client.expect("what was a URL opens without I/O"),
            probe,
        }
    }

    /// One attempt; the address is looked up anew each time.
    async fn dial(
        &self,
        generation: u64,
        shared: &Arc<Shared>,
    ) -> Result<MultiplexedConnection, String> {
        let shared = Arc::downgrade(shared);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BUFFERED_CALLS)
            .set_push_sender(move |push: PushInfo| notice(&push, &shared, generation));
        let attempt = async {
            let mut connection = self
                .client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            self.probe.exec_async(&mut connection).await?;
            Ok(connection)
        };
        match time::timeout(ATTEMPT, attempt).await {
            Ok(result) => result.map_err(|error: RedisError| self.without_password(&error)),
            Err(_) => Err("it does not answer".to_owned()),
        }
    }

    /// A server that does not know `HELLO` quotes it, password and all.
    fn without_password(&self, error: &RedisError) -> String {
        let text = error_text(error);
        match self.info().redis_settings().password() {
            Some(password) if !password.is_empty() => text.replace(password, "***"),
            _ => text,
        }
    }

    fn info(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }
}

/// Drops a link whose connection has ended.
fn notice(
    push: &PushInfo,
    shared: &Weak<Shared>,
    generation: u64,
) -> Result<(), redis::aio::SendError> {
    if push.kind == PushKind::Disconnection
        && let Some(shared) = shared.upgrade()
    {
        shared.drop_link(generation, "it closed the connection".to_owned());
    }
    Ok(())
}

impl fmt::Display for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info().addr().fmt(f)
    }
}
