//! Counters in Redis, decided by one script call.
//!
//! A request's groups travel in one call, with those of whoever else asks at that moment (`batch`); in a
//! cluster each in its own, all at once. Which window a request falls in is decided by Redis's clock inside
//! the script; the proxy only guesses it, to name the keys, and a wrong guess costs one more call.
//! Everything a request waits for is within one budget, and a call that may have run is never sent again.

mod access;
mod batch;
mod cluster;
mod connection;
pub mod files;
mod key;
mod script;
mod server;
mod servers;
mod topology;
mod url;

use std::{slice, sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::Cmd;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use self::{
    cluster::Cluster,
    connection::{Dialer, Exchange},
    key::Names,
    script::{Answer, Answers, Class, Counted, Logged, Script},
    server::Server,
    servers::{Route, Servers},
};
pub use self::{
    files::{ClientFiles, Password, TlsFiles},
    topology::{ClusterSettings, HostPort, SentinelSettings, Topology},
    url::{ParseRedisUrlError, RedisUrl},
};
use super::{Action, At, Demand, GiveBack, Group, GroupReply, Health, StoreError};
use crate::{
    bounded_log::BoundedLog,
    clock::{self, Clock},
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
    /// The budget where none is configured.
    pub const DEFAULT_BUDGET: Duration = Duration::from_millis(25);
    /// The namespace where none is configured.
    pub const DEFAULT_NAMESPACE: &str = "default";

    /// The server at `url`, and every default.
    pub fn new(url: RedisUrl) -> Self {
        Self {
            url,
            password: None,
            tls: TlsFiles::default(),
            topology: Topology::Single,
            budget: Self::DEFAULT_BUDGET,
            namespace: Self::DEFAULT_NAMESPACE.to_owned(),
        }
    }
}

/// Counters in Redis, shared by every proxy that uses the same server, or cluster, and namespace.
///
/// Dropping it ends its connections.
#[derive(Debug)]
pub struct RedisStore {
    servers: Servers,
    give_back: Script,
    namespace: String,
    budget: Duration,
    clock: Clock,
    audit_log: BoundedLog,
}

impl RedisStore {
    /// A store that connects in the background, on `runtime`, and for ever tries again.
    pub fn open(settings: RedisSettings, clock: Clock, runtime: &tokio::runtime::Handle) -> Self {
        let (take, give_back) = (Arc::new(Script::take()), Script::give_back());
        let probe = probe([&take, &give_back]);
        let (namespace, budget) = (settings.namespace.clone(), settings.budget);
        let one = |dialer| {
            Servers::One(Arc::new(Server::open(
                None,
                dialer,
                take.clone(),
                budget,
                runtime,
            )))
        };
        let servers = match settings.topology.clone() {
            Topology::Single => one(Dialer::direct(&settings, probe_writes(probe, &namespace))),
            Topology::Sentinel(sentinels) => {
                let probe = probe_writes(probe, &namespace);
                one(Dialer::by_sentinels(&sentinels, &settings, probe))
            }
            Topology::Cluster(cluster) => {
                Servers::Cluster(Cluster::open(&cluster, settings, take, probe, runtime))
            }
        };
        Self {
            servers,
            give_back,
            namespace,
            budget,
            audit_log: BoundedLog::new(clock.clone()),
            clock,
        }
    }

    pub(super) fn budget(&self) -> Duration {
        self.budget
    }

    pub(super) fn spans_policies(&self) -> bool {
        self.servers.spans_policies()
    }

    pub(super) async fn take(
        &self,
        groups: &[Group<'_>],
        at: At,
        within: Duration,
    ) -> Vec<GroupReply> {
        let until = from_now(within);
        // What is not answered when the budget runs out has timed out; what is, stays answered.
        let mut replies = vec![Err(StoreError::Timeout); groups.len()];
        if self.spans_policies() {
            // Its end is in the replies.
            drop(timeout_at(until, self.decide(groups, at, until, &mut replies)).await);
        } else {
            // All at once.
            let calls = groups.iter().zip(&mut replies).map(|(group, reply)| {
                let (group, reply) = (slice::from_ref(group), slice::from_mut(reply));
                timeout_at(until, self.decide(group, at, until, reply))
            });
            join_all(calls).await;
        }
        replies
    }

    /// As [`Self::take`] of one group, but waits for a reply past the budget, that tells what was charged.
    pub(super) async fn take_patiently(&self, group: &Group<'_>, at: At) -> GroupReply {
        let until = from_now(self.budget);
        let mut replies = [Err(StoreError::Timeout)];
        self.decide(slice::from_ref(group), at, until, &mut replies)
            .await;
        let [reply] = replies;
        reply
    }

    /// Asks, and asks again about the groups whose window was guessed wrong, but not past `until`.
    async fn decide(
        &self,
        groups: &[Group<'_>],
        at: At,
        until: Instant,
        replies: &mut [GroupReply],
    ) {
        let mut open: Open = (0..groups.len()).collect();
        for guess in 0..MOST_GUESSES {
            // Past the budget the replies say so already.
            if open.is_empty() || guess > 0 && from_now(Duration::ZERO) >= until {
                return;
            }
            open = self.ask(groups, open, at, until, replies).await;
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
        until: Instant,
        replies: &mut [GroupReply],
    ) -> Open {
        let sent = self.clock.now();
        let asked = open.iter().map(|index| &groups[*index]);
        let (server, now, answers) = match self.question(asked, at, sent, until).await {
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
                    self.tell_failed_logs(&counted);
                    replies[index] = decisions(&groups[index], admitted, &counted, now);
                }
                Answer::OtherWindow => elsewhere.push(index),
                Answer::Failed(error) => replies[index] = Err(error),
            }
        }
        if !elsewhere.is_empty() && at == At::Now {
            server.learn(sent, now);
        }
        elsewhere
    }

    /// Asks the server that has the counters of `groups`, and whom it names instead: at least one group.
    async fn question<'g, 'd: 'g>(
        &self,
        groups: impl Iterator<Item = &'g Group<'d>> + Clone,
        at: At,
        sent: Timestamp,
        until: Instant,
    ) -> Result<(Arc<Server>, Timestamp, Answers), StoreError> {
        let first = groups.clone().flatten().next();
        let mut route = self.servers.route(&self.namespace, first, until).await?;
        loop {
            let Route { slot, asking, .. } = route;
            let guess = match at {
                At::Now => route.server.guess(sent),
                At::Stamp(stamp) => stamp,
            };
            let class = Class { at, slot, asking };
            let part = script::write_part(&self.namespace, groups.clone(), guess, class, until);
            match route.server.batcher.ask(part).await {
                Ok((now, answers)) => return Ok((route.server, now, answers)),
                // A late redirect is not followed: whoever asked has been answered.
                Err(_) if from_now(Duration::ZERO) >= until => return Err(StoreError::Timeout),
                Err(error) => route = self.servers.follow(&route, &error).ok_or(error)?,
            }
        }
    }

    pub(super) async fn give_back(&self, charged: &[GiveBack<'_>]) -> Result<(), StoreError> {
        match charged.first() {
            Some(first) => self.call(&first.demand, Call::GiveBack(charged)).await,
            None => Ok(()),
        }
    }

    pub(super) async fn forget(&self, demands: &[Demand<'_>], at: At) -> Result<(), StoreError> {
        match demands.first() {
            Some(first) => self.call(first, Call::Forget(demands, at)).await,
            None => Ok(()),
        }
    }

    /// Calls the server that has the counters of `demand`, or whom it names instead, within the budget.
    async fn call(&self, demand: &Demand<'_>, call: Call<'_>) -> Result<(), StoreError> {
        let until = from_now(self.budget);
        let route = self.servers.route(&self.namespace, Some(demand), until);
        let mut route = route.await?;
        loop {
            let exchange = route.server.connection.exchange(route.asking);
            let called = timeout_at(until, self.make(&call, &exchange)).await;
            match exchange.outcome(called) {
                Ok(()) => return Ok(()),
                Err(error) => route = self.servers.follow(&route, &error).ok_or(error)?,
            }
        }
    }

    async fn make(&self, call: &Call<'_>, exchange: &Exchange<'_>) -> Result<(), StoreError> {
        match call {
            Call::GiveBack(charged) => {
                let write =
                    |command: &mut Cmd| script::write_give_back(command, &self.namespace, charged);
                script::read_give_back(&exchange.run(&self.give_back, write).await?)
            }
            Call::Forget(demands, at) => self.delete(exchange, demands, *at).await,
        }
    }

    /// The window's number is the store's; should the window turn before the counters are deleted, the
    /// new one goes too.
    async fn delete(
        &self,
        exchange: &Exchange<'_>,
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
            let mut names = Names::new(&self.namespace, demand);
            command
                .arg(names.previous(number))
                .arg(names.counter(number))
                .arg(names.counter(number + 1))
                .arg(names.audit())
                .arg(names.log());
        }
        exchange.call(&command).await.map(drop)
    }

    /// An audit that fails concerns nobody but who wants to see it.
    fn tell_failed_logs(&self, counted: &[Counted]) {
        for counted in counted {
            if let Logged::Failed(error) = &counted.logged
                && let Some(suppressed) = self.audit_log.line()
            {
                tracing::warn!(
                    error,
                    suppressed,
                    "An audited decision could not be compared."
                );
            }
        }
    }

    pub(super) fn health(&self) -> Health {
        self.servers.health()
    }
}

/// What is done to counters without a decision.
enum Call<'a> {
    GiveBack(&'a [GiveBack<'a>]),
    Forget(&'a [Demand<'a>], At),
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
        decision.leaving = counted.leaving;
        if let Logged::Exactly(units) = counted.logged {
            decision.exact = Some(units);
        }
        Ok(decision)
    };
    group.iter().zip(counted).map(decision).collect()
}

fn from_now(within: Duration) -> Instant {
    Instant::from_std(clock::instant()) + within
}

/// A wrong guess charged nothing and teaches the offset, so the second is right, unless the window turns
/// just then or the call takes another time than the last one did; both happen only within a round trip
/// of a window's edge. The budget bounds them too.
const MOST_GUESSES: usize = 4;

/// Groups of a call, by their place.
type Open = SmallVec<[usize; 4]>;

/// What a new connection must answer: the scripts are then known.
fn probe(scripts: [&Script; 2]) -> redis::Pipeline {
    let mut probe = redis::pipe();
    for script in scripts {
        probe.cmd("SCRIPT").arg("LOAD").arg(script.source());
    }
    probe
}

/// The same, and that it takes writes. `DEL` of a name that no counter has writes nothing, but only such a
/// server accepts it; one that is out of memory does. Not in a cluster: no server there has the slots of all
/// names. One that takes no writes then passes the probe, and is dropped again by the call that it refuses;
/// one that has become a replica answers with a redirect.
fn probe_writes(mut probe: redis::Pipeline, namespace: &str) -> redis::Pipeline {
    probe.cmd("DEL").arg(key::probe(namespace));
    probe
}
