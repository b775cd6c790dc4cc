//! From `config.yaml` to the settings of every component, once, at start; nothing past this module sees YAML.

use crate::{
    limiter::LimiterSettings,
    policy::{IdentifierHasher, Policy},
    proxy::{response::ResponseSettings, upstream::UpstreamSettings},
    server::ServerSettings,
    store::{MemorySettings, RedisSettings},
};

/// Everything that `config.yaml` says.
#[derive(Debug)]
pub struct Config {
    /// Listeners, threads, shutdown.
    pub server: ServerSettings,
    /// Where requests go.
    pub upstream: UpstreamSettings,
    /// Where counters live; `None` is this process's own memory.
    pub redis: Option<RedisSettings>,
    /// The memory store: the only one without Redis, else the one behind failure mode `local`.
    pub memory: MemorySettings,
    /// How verdicts are made.
    pub limiter: LimiterSettings,
    /// How responses are written.
    pub responses: ResponseSettings,
    /// In configuration order; at least one.
    pub policies: Vec<Policy>,
    /// How identifiers are made.
    pub hasher: IdentifierHasher,
    /// How log lines are written.
    pub log: LogSettings,
    /// What is allowed and still worth a word: printed by `check`, logged by `run`.
    pub warnings: Vec<String>,
}

/// How log lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// As JSON objects, one a line, or for people. Default for people.
    pub json: bool,
    /// A `tracing` filter such as `info` or `slidegate=debug,info`. Default `info`.
    pub level: String,
}
