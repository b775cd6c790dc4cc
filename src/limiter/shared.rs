//! What all limiters of a process have in common, whatever policies they are of: the store, the bounds on what no
//! request waits for, and what is told now and then. How any of it is used is left to the limiter.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{
    LineSettings,
    noted::{Denied, NearLimit, StoreFailure},
};
use crate::{
    bounded_log::{FoldedLog, LINES_PER_SECOND},
    clock::Clock,
    metrics::Metrics,
    store::{At, Health, MemoryStore, Store},
};

/// What every limiter of a process shares: policies may be replaced, counters stay.
#[derive(Debug)]
pub(super) struct Shared {
    pub store: Store,
    /// Decides in failure mode `local`. Its counters are its own: never merged into the store.
    pub local: MemoryStore,
    /// Permits for shadow calls that no request waits for.
    pub unawaited: Arc<Semaphore>,
    /// Permits for settling that no request waits for: a flood of denials does not take them.
    pub settling: Arc<Semaphore>,
    /// Permits for replies past the budget, which take the longest.
    pub late: Arc<Semaphore>,
    pub metrics: Arc<Metrics>,
    pub near_limit: FoldedLog<NearLimit>,
    /// `None` if nobody asks for lines.
    pub denied: Option<FoldedLog<Denied>>,
    pub store_failures: FoldedLog<StoreFailure>,
    /// What tells at which stamp a request is decided, where that is not the store's to say.
    pub stamps: Option<Clock>,
}

impl Shared {
    /// What limiters over these share; `lines` is how much they tell.
    pub fn new(
        store: Store,
        local: MemoryStore,
        lines: LineSettings,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        let LineSettings { near_limit, denied } = lines;
        Self {
            store,
            local,
            unawaited: Arc::new(Semaphore::new(MAX_UNAWAITED)),
            settling: Arc::new(Semaphore::new(MAX_UNAWAITED)),
            late: Arc::new(Semaphore::new(MAX_UNAWAITED)),
            metrics,
            near_limit: FoldedLog::new(clock.clone(), near_limit),
            denied: (denied > 0).then(|| FoldedLog::new(clock.clone(), denied)),
            store_failures: FoldedLog::new(clock, LINES_PER_SECOND),
            stamps: None,
        }
    }

    /// The same, each request decided at the stamp that `stamps` shows.
    pub fn at_stamps_of(self, stamps: Clock) -> Self {
        let stamps = Some(stamps);
        Self { stamps, ..self }
    }

    /// When a request is decided.
    pub fn at(&self) -> At {
        match &self.stamps {
            Some(stamps) => At::Stamp(stamps.now()),
            None => At::Now,
        }
    }
}

/// What the limiters of a process tell only now and then.
#[derive(Clone, Debug)]
pub struct LimiterLogs(pub(super) Arc<Shared>);

impl LimiterLogs {
    /// See [`FoldedLog::fold`].
    pub fn fold(&self) {
        self.0.near_limit.fold();
        if let Some(denied) = &self.0.denied {
            denied.fold();
        }
        self.0.store_failures.fold();
    }

    /// See [`FoldedLog::finish`].
    pub fn finish(&self) {
        self.0.near_limit.finish();
        if let Some(denied) = &self.0.denied {
            denied.finish();
        }
        self.0.store_failures.finish();
    }
}

/// How the store of all limiters of a process is.
#[derive(Clone, Debug)]
pub struct StoreStatus(pub(super) Arc<Shared>);

impl StoreStatus {
    /// How it is now.
    pub fn health(&self) -> Health {
        self.0.store.health()
    }

    /// Whether it is somebody else, reached over a network.
    pub fn is_remote(&self) -> bool {
        self.0.store.is_remote()
    }

    /// How many counters this process holds: the store's, or those of failure mode `local`.
    pub fn counters_here(&self) -> usize {
        match &self.0.store {
            Store::Memory(store) => store.counters(),
            Store::Redis(_) => self.0.local.counters(),
        }
    }
}

/// Calls under way that no request waits for; each lasts no longer than the budget, or than a late reply is
/// waited for.
const MAX_UNAWAITED: usize = 1024;
