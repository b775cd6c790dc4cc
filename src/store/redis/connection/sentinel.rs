//! Asks sentinels where the primary is, by the plain command.
//!
//! The client library's own sentinel client is not used: it verifies a primary by commands that a user
//! for the proxy need not be allowed, has no timeout for each sentinel, and keeps what it found.

use std::fmt;

use crate::store::redis::{
    RedisSettings,
    access::Access,
    topology::{HostPort, SentinelSettings},
    trouble::Trouble,
};

/// Those who watch a service.
pub(super) struct Sentinels {
    service: String,
    /// The last one that was right comes first.
    addresses: Vec<HostPort>,
    access: Access,
}

impl Sentinels {
    pub(super) fn new(sentinels: &SentinelSettings, settings: &RedisSettings) -> Self {
        Self {
            // The configuration refuses a socket here, which has none.
            service: settings.url.host_port().unwrap_or_default().host,
            addresses: sentinels.addresses.clone(),
            access: Access::to_sentinels(sentinels, settings),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Where the primary is, as the sentinel number `index` has it. Where one is that does not answer, it is
    /// waited for once: the one that did is asked first from then on.
    pub(super) async fn ask(&self, index: usize) -> Result<HostPort, Trouble> {
        let sentinel = &self.addresses[index];
        let primary = self.primary(sentinel).await;
        primary.map_err(|trouble| trouble.with(format_args!("sentinel {sentinel}")))
    }

    /// Asks this one first from now on.
    pub(super) fn prefer(&mut self, index: usize) {
        self.addresses[..=index].rotate_right(1);
    }

    async fn primary(&self, sentinel: &HostPort) -> Result<HostPort, Trouble> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let found: Option<(String, u16)> = self.access.ask(sentinel, &question).await?;
        found
            .map(|(host, port)| HostPort { host, port })
            .ok_or_else(|| Trouble::Unwatched(self.service.clone()))
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.service)
    }
}
