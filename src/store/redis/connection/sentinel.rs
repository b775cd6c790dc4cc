//! Asks sentinels where the primary is: the plain command, by a connection of its own each time.
//!
//! The client library's own sentinel client is not used: it verifies a primary by commands that a user
//! for the proxy need not be allowed, has no timeout for each sentinel, and keeps what it found.

use std::{fmt, time::Duration};

use redis::AsyncConnectionConfig;
use tokio::time;

use crate::store::redis::{
    RedisSettings,
    access::{Access, without_password},
    topology::{SentinelAddress, SentinelSettings},
};

/// One sentinel gets no longer: name, TCP, TLS, authentication and answer together. Where one is that
/// does not answer, it is paid once: the one that did is asked first from then on.
const ANSWER: Duration = Duration::from_millis(200);

/// Those who watch a service.
pub(super) struct Sentinels {
    service: String,
    /// The last one that was right comes first.
    addresses: Vec<SentinelAddress>,
    access: Access,
}

impl Sentinels {
    pub(super) fn new(sentinels: &SentinelSettings, settings: &RedisSettings) -> Self {
        Self {
            service: settings.url.host(),
            addresses: sentinels.addresses.clone(),
            access: Access::to_sentinels(sentinels, settings),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Where the primary is, as the sentinel number `index` has it.
    pub(super) async fn ask(&self, index: usize) -> Result<SentinelAddress, String> {
        let sentinel = &self.addresses[index];
        let answer = time::timeout(ANSWER, self.primary(sentinel)).await;
        answer
            .unwrap_or_else(|_| Err("it does not answer".to_owned()))
            .map_err(|reason| format!("sentinel {sentinel}: {reason}"))
    }

    /// Asks this one first from now on.
    pub(super) fn prefer(&mut self, index: usize) {
        self.addresses[..=index].rotate_right(1);
    }

    async fn primary(&self, sentinel: &SentinelAddress) -> Result<SentinelAddress, String> {
        let client = self.access.client(self.access.address(sentinel)).await?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answer = async {
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            question.query_async(&mut connection).await
        };
        let found: Option<(String, u16)> = answer
            .await
            .map_err(|error| without_password(&error, &client))?;
        found
            .map(|(host, port)| SentinelAddress { host, port })
            .ok_or_else(|| format!("it watches no {}", self.service))
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.service)
    }
}
