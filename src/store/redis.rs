//! Counters in Redis, decided by one script call.

use std::time::Duration;

use super::{At, Charged, Demand, Group, GroupReply, Health, StoreError};
use crate::clock::Clock;

/// Where Redis is and how long to wait for it.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// `redis://user:password@host:port/db`, or `unix:/path`. It may hold a password: never printed.
    pub url: String,
    /// The longest a request may wait for the store, connecting included. Default 25 ms.
    pub budget: Duration,
    /// Matches `[a-z0-9_-]{1,32}`; proxies that share counters share it. Default `default`.
    pub namespace: String,
}

/// Counters in Redis, shared by every proxy that uses the same server and namespace.
#[derive(Debug)]
pub struct RedisStore {}

impl RedisStore {
    /// A store that connects in the background, on `runtime`, and for ever tries again.
    ///
    /// # Errors
    /// If the URL is not one.
    pub fn open(
        _settings: RedisSettings,
        _clock: Clock,
        _runtime: &tokio::runtime::Handle,
    ) -> Result<Self, StoreError> {
        todo!()
    }
    pub(super) async fn take(&self, _groups: &[Group<'_>], _at: At) -> Vec<GroupReply> {
        todo!()
    }
    pub(super) async fn give_back(&self, _charged: &[Charged<'_>]) -> Result<(), StoreError> {
        todo!()
    }
    pub(super) async fn forget(&self, _demands: &[Demand<'_>], _at: At) -> Result<(), StoreError> {
        todo!()
    }
    pub(super) fn health(&self) -> Health {
        todo!()
    }
}
