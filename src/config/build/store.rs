//! `store` and `identity`: where counters live and under whose name.
//!
//! The identity's secret is never shown. How a Redis is reached is `redis`'s.

use std::{num::NonZeroU32, time::Duration};

use crate::{
    config::{
        duration::duration,
        leaf::{Rejected, integer, name},
        section::Section,
    },
    policy::IdentifierHasher,
    store::{MemorySettings, RedisSettings},
};

/// What `store` says.
pub struct Store {
    pub redis: Option<RedisSettings>,
    pub memory: MemorySettings,
    pub expected_replicas: NonZeroU32,
    pub denial_cache: Duration,
}

/// What `identity` says.
pub struct Identity {
    pub hasher: IdentifierHasher,
    /// Whether the hasher's key is a secret.
    pub keyed: bool,
}

pub fn read(section: &mut Section<'_>) -> Store {
    let redis = super::redis::read(section);
    let budget = section.word(
        "budget",
        Duration::from_millis(25),
        duration(Duration::from_millis(1)..=Duration::from_secs(10)),
    );
    let denial_cache = section.word(
        "denial_cache",
        Duration::from_secs(1),
        duration(Duration::ZERO..=Duration::from_secs(60)),
    );
    let namespace = section.word("namespace", "default".to_owned(), |text| {
        name(text).map(str::to_owned)
    });
    let max_counters = section.word("max_counters", 1_000_000, |text| {
        let counters = integer(1..=1_000_000_000)(text)?;
        Ok::<_, Rejected>(usize::try_from(counters).expect("fits 32 bits"))
    });
    Store {
        redis: redis.map(|redis| RedisSettings {
            budget,
            namespace,
            ..redis
        }),
        memory: MemorySettings { max_counters },
        expected_replicas: super::replicas(section),
        denial_cache,
    }
}

pub fn read_identity(section: &mut Section<'_>) -> Identity {
    let secret = section.secret("secret", |text| Ok::<_, Rejected>(text.to_owned()));
    let secret = secret.filter(|secret| !secret.is_empty());
    let default = IdentifierHasher::DEFAULT_IPV6_PREFIX;
    let prefix = section.word("ipv6_prefix", default, |text| {
        let prefix = integer(0..=128)(text)?;
        Ok::<_, Rejected>(u8::try_from(prefix).expect("at most 128"))
    });
    Identity {
        hasher: IdentifierHasher::new(secret.as_deref(), prefix),
        keyed: secret.is_some(),
    }
}
