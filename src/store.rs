//! Where counters live: one contract, two stores.
//!
//! A store decides; it does not get and set. [`Store::take`] is handed groups of [`Demand`]s and charges
//! each group to all of its counters or to none, in one step that nothing can come between. The store's
//! own clock decides in which window a request falls. What a denial means for a request, and what happens
//! when a store fails, is the limiter's.

mod memory;
mod redis;

use std::time::Duration;

use smallvec::SmallVec;

pub use memory::{MemorySettings, MemoryStore};
pub use redis::{
    ClientFiles, ClusterSettings, HostPort, ParseRedisUrlError, Password, RedisSettings,
    RedisStore, RedisUrl, SentinelSettings, TlsFiles, Topology, files,
};

use crate::{
    policy::Identifier,
    ratelimit::{Algorithm, Cost, Decision, Limit, Timestamp},
};

/// Where counters live.
#[derive(Debug)]
pub enum Store {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis, shared by every proxy that uses it.
    Redis(RedisStore),
}

/// Who decided: the store, or what stood in for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The configured store.
    Store,
    /// What the store told a moment ago, from which a denial follows.
    DenialCache,
    /// This proxy's own memory store, since the configured one could not.
    Local,
    /// Nobody: the failure mode allows or denies.
    FailureMode,
}

impl DecidedBy {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Store,
        Self::DenialCache,
        Self::Local,
        Self::FailureMode,
    ];

    /// Whether what it charged is in this proxy's own memory. A failure mode alone charges nothing.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::Local)
    }

    /// The word in labels and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenialCache => "denial_cache",
            Self::Local => "local",
            Self::FailureMode => "failure_mode",
        }
    }
}

/// What a store is asked about: one identifier under one limit.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// The name of the policy that asks; counters belong to it.
    pub policy: &'a str,
    /// Who is counted.
    pub identifier: Identifier,
    /// So many units per window.
    pub limit: Limit,
    /// The rule that decides.
    pub algorithm: Algorithm,
    /// What the request takes.
    pub cost: Cost,
    /// Whether the limit is asked, charged, or both.
    pub action: Action,
    /// Whether the identifier is audited: the store then keeps an exact log of what it admits, and tells
    /// of it in [`Decision::exact`]. Only Redis does, for quotas up to [`MAX_AUDITED_QUOTA`].
    pub audited: bool,
}

/// The largest quota that can be audited, in units. A log has up to twice as many members of about 120 bytes
/// each, and what Redis does with them all at once keeps others waiting.
pub const MAX_AUDITED_QUOTA: u64 = 10_000;

/// What is done with one demand of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Decide, and charge if the whole group is allowed.
    Take,
    /// Decide; charge nothing, but let a denial stop the group.
    Peek,
    /// Charge whatever the counts say, unless another demand of the group stops it.
    Charge,
}

/// Demands that are admitted and charged together, or not at all. No two share a counter.
pub type Group<'a> = SmallVec<[Demand<'a>; 2]>;

/// One decision per demand, in order; or why this group, and only this group, was not decided.
pub type GroupReply = Result<SmallVec<[Decision; 2]>, StoreError>;

/// Whose clock decides in which window a request falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The store's own: production.
    Now,
    /// The stamp given: tests and replay. Stamps may go back; a store asked this way keeps every window
    /// touched, and is asked in no other way.
    Stamp(Timestamp),
}

/// A unit to be given back: which counter, in the window where it was charged.
#[derive(Clone, Copy, Debug)]
pub struct GiveBack<'a> {
    /// The demand that was charged.
    pub demand: Demand<'a>,
    /// The store's time when it was.
    pub charged_at: Timestamp,
}

impl GiveBack<'_> {
    /// The number of the window that was charged.
    fn window_number(&self) -> u64 {
        self.demand.limit.window().position(self.charged_at).number
    }
}

/// Why a store did not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no connection, and the request does not wait for one.
    #[error("the store is not connected")]
    Disconnected,
    /// More requests wait for it than may; this one does not.
    #[error("too many requests wait for the store")]
    Overloaded,
    /// The budget ran out. The call may have run.
    #[error("the store did not answer within the budget")]
    Timeout,
    /// The connection broke while the call was under way. The call may have run.
    #[error("the connection to the store broke: {0}")]
    Io(String),
    /// The store answered with an error.
    #[error("the store refused: {0}")]
    Refused(String),
    /// The store answered something that is not the script's reply.
    #[error("the store's answer is not understood: {0}")]
    Reply(String),
    /// Each time it was asked, its clock was in another window than expected.
    #[error("the window turned whenever the store was asked")]
    WindowTurned,
}

impl StoreError {
    /// Every [`Self::kind`], for metrics that are present before the first error.
    pub const KINDS: [&'static str; 7] = [
        "disconnected",
        "overloaded",
        "timeout",
        "io",
        "refused",
        "reply",
        "window_turned",
    ];

    /// One word for a metric label.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Io(_) => "io",
            Self::Refused(_) => "refused",
            Self::Reply(_) => "reply",
            Self::WindowTurned => "window_turned",
        }
    }
}

/// How a store is, from its own point of view; reading it costs no call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether calls fail at once, because the last ones did.
    pub tripped: bool,
    /// When the store is next tried, if it is tripped.
    pub next_probe: Duration,
    /// How many requests wait for it.
    pub pending: usize,
}

impl Store {
    /// How it is.
    pub fn health(&self) -> Health {
        match self {
            Self::Memory(_) => Health::default(),
            Self::Redis(store) => store.health(),
        }
    }

    /// Whether asking it is a call to somebody else.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    /// Whether one group may hold demands of several policies or identifiers. In a cluster it may not: a step
    /// reaches one slot. The same holds for [`Self::give_back`] and [`Self::forget`].
    pub fn spans_policies(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(store) => store.spans_policies(),
        }
    }

    /// The longest a request may wait for it, over all its calls; zero where there is nothing to wait for.
    pub fn budget(&self) -> Duration {
        match self {
            Self::Memory(_) => Duration::ZERO,
            Self::Redis(store) => store.budget(),
        }
    }

    /// Decides each group on its own and charges it to all of its counters or to none, within the budget.
    ///
    /// The replies are in the order of `groups`.
    pub async fn take(&self, groups: &[Group<'_>], at: At) -> Vec<GroupReply> {
        self.take_within(groups, at, self.budget()).await
    }

    /// As [`Self::take`], for a request that has only so much of its budget left.
    pub async fn take_within(
        &self,
        groups: &[Group<'_>],
        at: At,
        within: Duration,
    ) -> Vec<GroupReply> {
        match self {
            Self::Memory(store) => store.take(groups, at),
            Self::Redis(store) => store.take(groups, at, within).await,
        }
    }

    /// As [`Self::take`] of one group, but a reply past the budget is waited for, up to two seconds: it tells
    /// what was charged.
    pub async fn take_patiently(&self, group: &Group<'_>, at: At) -> GroupReply {
        match self {
            Self::Memory(store) => Ok(store.take_group(group, at)),
            Self::Redis(store) => store.take_patiently(group, at).await,
        }
    }

    /// Takes charged units back: in the window charged, only where the counter still exists, never below 0.
    pub async fn give_back(&self, charged: &[GiveBack<'_>]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => {
                store.give_back(charged);
                Ok(())
            }
            Self::Redis(store) => store.give_back(charged).await,
        }
    }

    /// Deletes the counters of these demands: the current window's, the previous one's, and the next one's
    /// should the window turn meanwhile.
    pub async fn forget(&self, demands: &[Demand<'_>], at: At) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => {
                store.forget(demands, at);
                Ok(())
            }
            Self::Redis(store) => store.forget(demands, at).await,
        }
    }
}
