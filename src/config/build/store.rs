//! `store`: where counters live. How a Redis is reached is `redis`'s.

use std::{num::NonZeroU32, time::Duration};

use crate::{
    config::{
        duration::duration,
        leaf::{Rejected, integer, name},
        section::Section,
    },
    store::{MemorySettings, RedisSettings},
};

/// What `store` says.
pub struct Store {
    pub redis: Option<RedisSettings>,
    pub memory: MemorySettings,
    pub expected_replicas: NonZeroU32,
    pub denial_cache: Duration,
}

pub fn read(section: &mut Section<'_>) -> Store {
    let redis = super::redis::read(section);
    let budget = section.word(
        "budget",
        RedisSettings::DEFAULT_BUDGET,
        duration(Duration::from_millis(1)..=Duration::from_secs(10)),
    );
    let denial_cache = section.word(
        "denial_cache",
        Duration::from_secs(1),
        duration(Duration::ZERO..=Duration::from_secs(60)),
    );
    let default = RedisSettings::DEFAULT_NAMESPACE.to_owned();
    let namespace = section.word("namespace", default, |text| name(text).map(str::to_owned));
    let max_counters = section.word("max_counters", 1_000_000, integer(1..=1_000_000_000));
    Store {
        redis: redis.map(|redis| RedisSettings {
            budget,
            namespace,
            ..redis
        }),
        memory: MemorySettings { max_counters },
        expected_replicas: replicas(section),
        denial_cache,
    }
}

/// How many proxies share each limit.
fn replicas(section: &mut Section<'_>) -> NonZeroU32 {
    section.word("expected_replicas", NonZeroU32::MIN, |text| {
        let replicas = NonZeroU32::new(integer(1..=10_000)(text)?);
        Ok::<_, Rejected>(replicas.expect("at least 1"))
    })
}
