//! Counters in Redis, decided by one script call.
//!
//! A request's groups travel in one call and are answered in one reply. Which window a request falls in
//! is decided by Redis's clock inside the script; the proxy only guesses it, to name the keys, and a
//! wrong guess costs one more call. Everything a request waits for is within one budget, and a call
//! that may have run is never sent again.

mod access;
mod connection;
pub mod files;
mod key;
mod script;
mod topology;
mod url;

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use redis::RedisWrite;
use smallvec::SmallVec;
use tokio::time::timeout;

use self::{
    connection::{Connection, Dialer, Exchange},
    key::Key,
    script::{Answer, Script},
};
pub use self::{
    files::{ClientFiles, Password, TlsFiles, UnusableFile},
    topology::{SentinelAddress, SentinelSettings, Topology},
    url::{ParseRedisUrlError, RedisUrl},
};
use super::{At, Charged, Demand, Group, GroupReply, Health, StoreError};
use crate::{clock::Clock, ratelimit::Timestamp};

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
    connection: Connection,
    scripts: Scripts,
    namespace: String,
    budget: Duration,
    clock: Clock,
    /// Milliseconds from `clock`, when a call is sent, to Redis's clock, when the script runs.
    offset: AtomicI64,
}

#[derive(Debug)]
struct Scripts {
    take: Script,
    give_back: Script,
}

impl RedisStore {
    /// A store that connects in the background, on `runtime`, and for ever tries again.
    pub fn open(settings: RedisSettings, clock: Clock, runtime: &tokio::runtime::Handle) -> Self {
        let scripts = Scripts {
            take: Script::take(),
            give_back: Script::give_back(),
        };
        let dialer = Dialer::new(&settings, probe(&scripts, &settings.namespace));
        let RedisSettings {
            budget, namespace, ..
        } = settings;
        Self {
            connection: Connection::open(dialer, runtime),
            scripts,
            namespace,
            budget,
            clock,
            offset: AtomicI64::new(0),
        }
    }

    pub(super) async fn take(&self, groups: &[Group<'_>], at: At) -> Vec<GroupReply> {
        // What is not answered when the budget runs out has timed out; what is, stays answered.
        let mut replies = vec![Err(StoreError::Timeout); groups.len()];
        let mut exchange = self.connection.exchange();
        let decided = self.decide(&mut exchange, groups, at, &mut replies);
        if timeout(self.budget, decided).await.is_err() {
            exchange.timed_out();
        }
        replies
    }

    /// Asks, and asks again about the groups whose window was guessed wrong.
    async fn decide(
        &self,
        exchange: &mut Exchange<'_>,
        groups: &[Group<'_>],
        at: At,
        replies: &mut [GroupReply],
    ) {
        let mut open: Open = (0..groups.len()).collect();
        for _ in 0..MOST_GUESSES {
            if open.is_empty() {
                return;
            }
            open = self.ask(exchange, groups, open, at, replies).await;
        }
        for index in open {
            replies[index] = Err(StoreError::WindowTurned);
        }
    }

    /// One call for the groups that are `open`; returns those that were asked about another window.
    ///
    /// This is all that lies between a request and the connection: a batch of the groups of many
    /// requests would be formed here.
    async fn ask(
        &self,
        exchange: &mut Exchange<'_>,
        groups: &[Group<'_>],
        open: Open,
        at: At,
        replies: &mut [GroupReply],
    ) -> Open {
        let asked = open.iter().map(|index| &groups[*index]);
        let sent = self.clock.now();
        let guess = match at {
            At::Now => sent.offset_by(self.offset.load(Ordering::Relaxed)),
            At::Stamp(stamp) => stamp,
        };
        let reply = exchange
            .run(&self.scripts.take, |command| {
                script::write_take(command, &self.namespace, asked.clone(), guess, at);
            })
            .await;
        let (now, answers) = match reply.and_then(|reply| script::read_take(reply, asked)) {
            Ok(read) => read,
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
                Answer::Decided(decisions) => replies[index] = Ok(decisions),
                Answer::OtherWindow => elsewhere.push(index),
                Answer::Failed(error) => {
                    if let StoreError::Refused(text) = &error {
                        exchange.heed(text);
                    }
                    replies[index] = Err(error);
                }
            }
        }
        if !elsewhere.is_empty() && at == At::Now {
            self.offset.store(offset(sent, now), Ordering::Relaxed);
        }
        elsewhere
    }

    pub(super) async fn give_back(&self, charged: &[Charged<'_>]) -> Result<(), StoreError> {
        if charged.is_empty() {
            return Ok(());
        }
        let mut exchange = self.connection.exchange();
        let call = exchange.run(&self.scripts.give_back, |command| {
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
        self.connection.health()
    }
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
fn probe(scripts: &Scripts, namespace: &str) -> redis::Pipeline {
    let mut probe = redis::pipe();
    for script in [&scripts.take, &scripts.give_back] {
        probe.cmd("SCRIPT").arg("LOAD").arg(script.source());
    }
    probe.cmd("DEL").arg(key::probe(namespace));
    probe
}
