//! Counters in Redis, decided by one script call.
//!
//! A request's groups travel in one call, with those of whoever else asks at that moment (`batch`). Which window a request falls in
//! is decided by Redis's clock inside the script; the proxy only guesses it, to name the keys, and a
//! wrong guess costs one more call. Everything a request waits for is within one budget, and a call
//! that may have run is never sent again.

mod access;
mod batch;
mod connection;
pub mod files;
mod key;
mod script;
mod topology;
mod url;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use redis::RedisWrite;
use smallvec::SmallVec;
use tokio::time::timeout;

use self::{
    batch::Batcher,
    connection::{Connection, Dialer, Exchange},
    key::Key,
    script::{Answer, Counted, Script},
};
pub use self::{
    files::{ClientFiles, Password, TlsFiles, UnusableFile},
    topology::{HostPort, SentinelSettings, Topology},
    url::{ParseRedisUrlError, RedisUrl},
};
use super::{Action, At, Demand, GiveBack, Group, GroupReply, Health, StoreError};
use crate::{
    clock::Clock,
    ratelimit::{Timestamp, decide},
};

/// Where Redis is and how long to wait for it.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Where it is, and who we are there.
    pub url: RedisUrl,
    /// Instead of one in the URL. Default: none.
    pub password: Option<Password>,
    /// For a URL that asks for TLS.
    pub tls: TlsFiles,
    /// How the URL leads to the server.
    pub topology: Topology,
    /// The longest a request may wait for the store, connecting included. Default 25 ms.
    pub budget: Duration,
    /// Matches `[a-z0-9_-]{1,32}`; proxies that share counters share it. Default `default`.
    pub namespace: String,
}

impl RedisSettings {
    /// The server at `url`, and every default.
    pub fn new(url: RedisUrl) -> Self {
        Self {
            url,
            password: None,
            tls: TlsFiles::default(),
            topology: Topology::Single,
            budget: Duration::from_millis(25),
            namespace: "default".to_owned(),
        }
    }
}

/// Counters in Redis, shared by every proxy that uses the same server and namespace.
///
/// Dropping it ends its connection.
#[derive(Debug)]
pub struct RedisStore {
    connection: Arc<Connection>,
    batcher: Batcher,
    give_back: Script,
    namespace: String,
    budget: Duration,
    clock: Clock,
    /// Milliseconds from `clock`, when a call is sent, to Redis's clock, when the script runs.
    offset: AtomicI64,
}

impl RedisStore {
    /// A store that connects in the background, on `runtime`, and for ever tries again.
    pub fn open(settings: RedisSettings, clock: Clock, runtime: &tokio::runtime::Handle) -> Self {
        let (take, give_back) = (Arc::new(Script::take()), Script::give_back());
        let dialer = Dialer::new(&settings, probe([&take, &give_back], &settings.namespace));
        let connection = Arc::new(Connection::open(dialer, runtime));
        let RedisSettings {
            budget, namespace, ..
        } = settings;
        Self {
            batcher: Batcher::start(&connection, take, budget, runtime),
            connection,
            give_back,
            namespace,
            budget,
            clock,
            offset: AtomicI64::new(0),
        }
    }

    pub(super) fn budget(&self) -> Duration {
        self.budget
    }

    pub(super) async fn take(
        &self,
        groups: &[Group<'_>],
        at: At,
        within: Duration,
    ) -> Vec<GroupReply> {
        // What is not answered when the budget runs out has timed out; what is, stays answered.
        let mut replies = vec![Err(StoreError::Timeout); groups.len()];
        // Its end is in the replies.
        drop(timeout(within, self.decide(groups, at, &mut replies)).await);
        replies
    }

    /// Asks, and asks again about the groups whose window was guessed wrong.
    async fn decide(&self, groups: &[Group<'_>], at: At, replies: &mut [GroupReply]) {
        let mut open: Open = (0..groups.len()).collect();
        for _ in 0..MOST_GUESSES {
            if open.is_empty() {
                return;
            }
            open = self.ask(groups, open, at, replies).await;
        }
        for index in open {
            replies[index] = Err(StoreError::WindowTurned);
        }
    }

    /// One question about the groups that are `open`; returns those that were asked about another window.
    async fn ask(
        &self,
        groups: &[Group<'_>],
        open: Open,
        at: At,
        replies: &mut [GroupReply],
    ) -> Open {
        let sent = self.clock.now();
        let guess = match at {
            At::Now => sent.offset_by(self.offset.load(Ordering::Relaxed)),
            At::Stamp(stamp) => stamp,
        };
        let asked = open.iter().map(|index| &groups[*index]);
        let part = script::write_part(&self.namespace, asked, guess, at);
        let (now, answers) = match self.batcher.ask(part).await {
            Ok(answers) => answers,
            Err(error) => {
                for index in open {
                    replies[index] = Err(error.clone());
                }
                return Open::new();
            }
        };

        let mut elsewhere = Open::new();
        for (index, answer) in open.into_iter().zip(answers) {
            match answer {
                Answer::Decided { admitted, counted } => {
                    replies[index] = decisions(&groups[index], admitted, &counted, now);
                }
                Answer::OtherWindow => elsewhere.push(index),
                Answer::Failed(error) => replies[index] = Err(error),
            }
        }
        if !elsewhere.is_empty() && at == At::Now {
            self.offset.store(offset(sent, now), Ordering::Relaxed);
        }
        elsewhere
    }

    pub(super) async fn give_back(&self, charged: &[GiveBack<'_>]) -> Result<(), StoreError> {
        if charged.is_empty() {
            return Ok(());
        }
        let mut exchange = self.connection.exchange();
        let call = exchange.run(&self.give_back, |command| {
            script::write_give_back(command, &self.namespace, charged);
        });
        let reply = timeout(self.budget, call).await;
        script::read_give_back(&exchange.outcome(reply)?)
    }

    pub(super) async fn forget(&self, demands: &[Demand<'_>], at: At) -> Result<(), StoreError> {
        if demands.is_empty() {
            return Ok(());
        }
        let mut exchange = self.connection.exchange();
        let calls = self.delete(&mut exchange, demands, at);
        let deleted = timeout(self.budget, calls).await;
        exchange.outcome(deleted)
    }

    /// The window's number is the store's; should the window turn before the counters are deleted, the
    /// new one goes too.
    async fn delete(
        &self,
        exchange: &mut Exchange<'_>,
        demands: &[Demand<'_>],
        at: At,
    ) -> Result<(), StoreError> {
        let now = match at {
            At::Now => script::read_time(exchange.call(&redis::cmd("TIME")).await?)?,
            At::Stamp(stamp) => stamp,
        };
        let mut command = redis::cmd("DEL");
        for demand in demands {
            let number = demand.limit.window().position(now).number;
            let current = Key::new(&self.namespace, demand, number);
            for key in [current.previous(), current, current.next()] {
                command.write_arg_fmt(key);
            }
        }
        exchange.call(&command).await.map(drop)
    }

    pub(super) fn health(&self) -> Health {
        Health {
            pending: self.batcher.waiting(),
            ..self.connection.health()
        }
    }
}

/// What the script found, as the decisions that it made.
///
/// # Errors
/// If it decided otherwise than the rule does: what follows from its counts would be nonsense.
fn decisions(group: &Group<'_>, admitted: bool, counted: &[Counted], now: Timestamp) -> GroupReply {
    let decision = |(demand, counted): (&Demand<'_>, &Counted)| {
        let mut decision = decide(
            demand.algorithm,
            demand.limit,
            counted.counts,
            demand.cost,
            now,
        );
        if decision.allowed != counted.allowed {
            let found = format!("the script decided otherwise than the rule: {decision:?}");
            return Err(StoreError::Reply(found));
        }
        decision.charged = admitted && demand.action != Action::Peek;
        Ok(decision)
    };
    group.iter().zip(counted).map(decision).collect()
}

/// A wrong guess charged nothing and teaches the offset, so the second is right, unless the window turns
/// just then or the call takes another time than the last one did; both happen only within a round trip
/// of a window's edge. The budget bounds them too.
const MOST_GUESSES: usize = 4;

/// Groups of a call, by their place.
type Open = SmallVec<[usize; 4]>;

/// Milliseconds from `sent` to `now`.
fn offset(sent: Timestamp, now: Timestamp) -> i64 {
    now.as_millis()
        .checked_signed_diff(sent.as_millis())
        .unwrap_or_default()
}

/// What a new connection must answer. The scripts are then known. `DEL` of a name that no counter has
/// writes nothing, but only a server that takes writes accepts it; one that is out of memory does.
fn probe(scripts: [&Script; 2], namespace: &str) -> redis::Pipeline {
    let mut probe = redis::pipe();
    for script in scripts {
        probe.cmd("SCRIPT").arg("LOAD").arg(script.source());
    }
    probe.cmd("DEL").arg(key::probe(namespace));
    probe
}
