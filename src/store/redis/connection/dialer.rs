//! Makes connections to the server that takes the writes, wherever it is by now.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, ConnectionAddr, PushInfo, PushKind, aio::MultiplexedConnection,
};
use tokio::time;

use super::{Shared, sentinel::Sentinels};
use crate::store::redis::{
    RedisSettings,
    access::{Access, without_password},
    topology::{HostPort, SentinelSettings},
    trouble::Trouble,
};

/// A server gets no longer, or four budgets if that is more: files, name, TCP, TLS, authentication and probe
/// together, which are up to five round trips.
const ATTEMPT: Duration = Duration::from_millis(250);

/// Calls that may wait to be written; more wait for their turn, within their budgets.
const BUFFERED_CALLS: usize = 1024;

/// Makes connections. Its `Display` is where to: no user, no password.
pub(in crate::store::redis) struct Dialer {
    whereabouts: Whereabouts,
    prober: Prober,
}

/// Where to.
enum Whereabouts {
    Known(ConnectionAddr),
    /// Asked at each attempt: the primary changes.
    Told(Sentinels),
}

/// A connection whose server passed the probe.
pub(super) struct Dialed {
    pub(super) address: ConnectionAddr,
    /// No two connections have the same.
    pub(super) generation: u64,
    pub(super) connection: MultiplexedConnection,
}

impl Dialer {
    /// One to where the URL says. Takes a server for sound that answers `probe`.
    pub(in crate::store::redis) fn direct(
        settings: &RedisSettings,
        probe: redis::Pipeline,
    ) -> Self {
        let address = settings.url.connection_info().addr().clone();
        let access = Access::to_servers(settings);
        Self::new(Whereabouts::Known(address), access, settings, probe)
    }

    /// One to an address that was told.
    pub(in crate::store::redis) fn to(
        told: &HostPort,
        settings: &RedisSettings,
        probe: redis::Pipeline,
    ) -> Self {
        let access = Access::to_servers(settings);
        let address = access.address(told);
        Self::new(Whereabouts::Known(address), access, settings, probe)
    }

    /// One to wherever the sentinels say.
    pub(in crate::store::redis) fn by_sentinels(
        sentinels: &SentinelSettings,
        settings: &RedisSettings,
        probe: redis::Pipeline,
    ) -> Self {
        let sentinels = Sentinels::new(sentinels, settings);
        let access = Access::to_servers(settings);
        Self::new(Whereabouts::Told(sentinels), access, settings, probe)
    }

    fn new(
        whereabouts: Whereabouts,
        access: Access,
        settings: &RedisSettings,
        probe: redis::Pipeline,
    ) -> Self {
        Self {
            whereabouts,
            prober: Prober {
                access,
                probe,
                generation: 0,
                attempt: ATTEMPT.max(4 * settings.budget),
            },
        }
    }

    /// One attempt; names are looked up, and files read, anew each time.
    pub(super) async fn dial(&mut self, shared: &Arc<Shared>) -> Result<Dialed, Trouble> {
        let Self {
            whereabouts,
            prober,
        } = self;
        match whereabouts {
            Whereabouts::Known(address) => prober.connect(address.clone(), shared).await,
            Whereabouts::Told(sentinels) => prober.find(sentinels, shared).await,
        }
    }
}

/// Connects to servers that keep counters, and probes them.
struct Prober {
    access: Access,
    probe: redis::Pipeline,
    /// Of the last connection.
    generation: u64,
    /// How long a server gets.
    attempt: Duration,
}

impl Prober {
    /// Connects to the first server that a sentinel takes for the primary and that takes writes: one
    /// that was cut off from the others may be behind, and tell of the last primary.
    async fn find(
        &mut self,
        sentinels: &mut Sentinels,
        shared: &Arc<Shared>,
    ) -> Result<Dialed, Trouble> {
        let mut tried = Vec::new();
        let mut reasons = Vec::new();
        for index in 0..sentinels.count() {
            let told = match sentinels.ask(index).await {
                Ok(told) if tried.contains(&told) => continue,
                Ok(told) => told,
                Err(reason) => {
                    reasons.push(reason);
                    continue;
                }
            };
            match self.connect(self.access.address(&told), shared).await {
                Ok(dialed) => {
                    sentinels.prefer(index);
                    return Ok(dialed);
                }
                Err(reason) => reasons.push(reason.with(&told)),
            }
            tried.push(told);
        }
        Err(Trouble::All(reasons))
    }

    async fn connect(
        &mut self,
        address: ConnectionAddr,
        shared: &Arc<Shared>,
    ) -> Result<Dialed, Trouble> {
        self.generation += 1;
        let generation = self.generation;
        let shared = Arc::downgrade(shared);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BUFFERED_CALLS)
            .set_push_sender(move |push: PushInfo| notice(&push, &shared, generation));
        let attempt = async {
            let client = self.access.client(address.clone()).await?;
            let sound = async {
                let mut connection = client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?;
                self.probe.exec_async(&mut connection).await?;
                Ok(connection)
            };
            sound
                .await
                .map_err(|error| without_password(&error, &client))
        };
        let connection = time::timeout(self.attempt, attempt)
            .await
            .unwrap_or_else(|_| Err(Trouble::Silent))?;
        Ok(Dialed {
            address,
            generation,
            connection,
        })
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
        shared.drop_link(generation, Trouble::Closed);
    }
    Ok(())
}

impl fmt::Display for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.whereabouts {
            Whereabouts::Known(address) => address.fmt(f),
            Whereabouts::Told(sentinels) => sentinels.fmt(f),
        }
    }
}
