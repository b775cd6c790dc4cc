//! A cluster of one's own.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redis::{Cmd, FromRedisValue, RedisResult};
use slidegate::{
    clock::Clock,
    store::{Demand, RedisSettings, RedisStore, Store},
};

use super::redis::{PATIENT, RedisServer, eventually, settings};

/// The slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// Running servers that know of each other.
pub struct Cluster {
    /// The primaries first, which share the slots, then as many replicas as were asked for, of the first,
    /// the second and so on.
    pub servers: Vec<RedisServer>,
}

impl Cluster {
    /// One primary that has all slots.
    pub async fn of_one() -> Self {
        Self::start(1, 0).await
    }

    /// One that takes writes to every slot, with no, or one replica for each primary.
    pub async fn start(primaries: u16, replicas: u16) -> Self {
        assert!(
            replicas == 0 || replicas == primaries,
            "one for each, or none"
        );
        // Where nobody takes over, nobody is given up either: on a busy machine a server may be late by more than that.
        let timeout = ["--cluster-node-timeout", "1000"];
        let options = if replicas > 0 { &timeout[..] } else { &[] };
        let servers: Vec<_> = (0..primaries + replicas)
            .map(|_| RedisServer::start_for_cluster(options))
            .collect();
        let cluster = Self { servers };
        for (index, server) in (0..primaries).zip(&cluster.servers) {
            let part = |index| u32::from(SLOTS) * u32::from(index) / u32::from(primaries);
            tell(
                server,
                &[
                    "ADDSLOTSRANGE",
                    &part(index).to_string(),
                    &(part(index + 1) - 1).to_string(),
                ],
            );
        }
        for server in &cluster.servers[1..] {
            cluster.meet(server).await;
        }
        let all = cluster.servers.len();
        for server in &cluster.servers {
            eventually("all know of each other", async || {
                info(server).contains(&format!("cluster_known_nodes:{all}"))
            })
            .await;
        }
        for (primary, replica) in cluster
            .servers
            .iter()
            .zip(&cluster.servers[primaries.into()..])
        {
            let id: String = ask(primary, &["MYID"]).expect("an id");
            eventually("the replica takes its primary", async || {
                ask::<String>(replica, &["REPLICATE", &id]).is_ok()
            })
            .await;
            eventually("it is in step", async || {
                replication(replica).contains("master_link_status:up")
            })
            .await;
        }
        cluster.until_whole().await;
        cluster
    }

    /// A further server, without slots.
    pub async fn add(&mut self) -> usize {
        self.servers.push(RedisServer::start_for_cluster(&[]));
        let all = self.servers.len();
        self.meet(&self.servers[all - 1]).await;
        for server in &self.servers {
            eventually("all know of it", async || {
                info(server).contains(&format!("cluster_known_nodes:{all}"))
            })
            .await;
        }
        eventually("it takes the cluster for whole", async || {
            info(&self.servers[all - 1]).contains("cluster_state:ok")
        })
        .await;
        all - 1
    }

    /// Has each server answer for its slots though others are not there.
    pub fn bear_gaps(&self) {
        for server in &self.servers {
            let mut bear = redis::cmd("CONFIG");
            bear.arg("SET")
                .arg("cluster-require-full-coverage")
                .arg("no");
            bear.exec(&mut server.client()).expect("OK");
        }
    }

    /// Makes a server and the first known to each other. Either forgets the other where that takes longer than a
    /// timeout, and does not try again.
    async fn meet(&self, server: &RedisServer) {
        let (port, bus) = (server.port().to_string(), server.bus().to_string());
        let first = &self.servers[0];
        let ids = [first, server].map(|server| ask::<String>(server, &["MYID"]).expect("an id"));
        eventually("two know of each other", async || {
            let known = [first, server].map(nodes);
            let know = known
                .iter()
                .all(|known| ids.iter().all(|id| known.contains(id)));
            if !know {
                // While it is on its way this is nothing.
                tell(first, &["MEET", "127.0.0.1", &port, &bus]);
            }
            know
        })
        .await;
    }

    /// Until every server takes calls for all slots, and they agree on who has which.
    pub async fn until_whole(&self) {
        for server in &self.servers {
            eventually("the cluster is whole", async || {
                let info = info(server);
                info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:16384")
            })
            .await;
        }
        self.until_agreed().await;
    }

    /// Until all servers tell alike who has which slots since which epoch. While they do not, what one of them still
    /// says of a slot may undo what another was told.
    pub async fn until_agreed(&self) {
        eventually("the servers agree", async || {
            let told: BTreeSet<_> = self.servers.iter().map(owners).collect();
            let first = told.first().expect("there are some");
            let epochs: BTreeSet<_> = first.values().map(|(epoch, _)| epoch).collect();
            told.len() == 1 && epochs.len() == first.len()
        })
        .await;
    }

    /// What stands under `store` in a configuration that leads to it.
    pub fn section(&self) -> String {
        let url = self.servers[0].url();
        let others: Vec<_> = self.servers[1..]
            .iter()
            .map(|server| format!("'127.0.0.1:{}'", server.port()))
            .collect();
        let addresses = format!("addresses: [{}]", others.join(", "));
        let addresses = if others.is_empty() { "" } else { &addresses };
        format!("url: '{url}', cluster: {{{addresses}}}")
    }

    /// A patient store on it, on the current runtime.
    pub fn store(&self) -> Store {
        self.store_within(PATIENT)
    }

    /// A store on it with a budget.
    pub fn store_within(&self, budget: Duration) -> Store {
        let section = format!("{{{}, namespace: test}}", self.section());
        let settings = RedisSettings {
            budget,
            ..settings(&section)
        };
        let runtime = tokio::runtime::Handle::current();
        Store::Redis(RedisStore::open(settings, Clock::system(), &runtime))
    }

    /// The slot of the counters of `demand`, in the namespace `test`.
    pub fn slot(&self, demand: &Demand<'_>) -> u16 {
        let tag = format!("{{test:{}:{}}}", demand.policy, demand.identifier);
        ask(&self.servers[0], &["KEYSLOT", &tag]).expect("a slot")
    }

    /// Which server has a slot, by what the first says: its place.
    pub fn owner(&self, slot: u16) -> usize {
        self.owner_by(0, slot)
    }

    /// Which server has a slot, by what one of them says.
    pub fn owner_by(&self, told_by: usize, slot: u16) -> usize {
        let rows: Vec<Vec<redis::Value>> = ask(&self.servers[told_by], &["SLOTS"]).expect("slots");
        let number = |value: &redis::Value| -> u16 {
            redis::from_redis_value(value.clone()).expect("a number")
        };
        let port = rows.iter().find_map(|row| {
            let server: Vec<redis::Value> =
                redis::from_redis_value(row[2].clone()).expect("a server");
            let slots = number(&row[0])..=number(&row[1]);
            slots.contains(&slot).then(|| number(&server[1]))
        });
        let place = self
            .servers
            .iter()
            .position(|server| Some(server.port()) == port);
        place.expect("one of ours")
    }

    /// Puts a slot on its way from one server to another.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, [from, to]) = (
            slot.to_string(),
            [from, to].map(|place| &self.servers[place]),
        );
        let id = |server| ask::<String>(server, &["MYID"]).expect("an id");
        tell(to, &["SETSLOT", &slot, "IMPORTING", &id(from)]);
        tell(from, &["SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// Moves what a slot holds that is on its way.
    pub fn move_counters(&self, slot: u16, from: usize, to: usize) {
        let (slot, [from, to]) = (
            slot.to_string(),
            [from, to].map(|place| &self.servers[place]),
        );
        loop {
            let keys: Vec<String> = ask(from, &["GETKEYSINSLOT", &slot, "100"]).expect("keys");
            if keys.is_empty() {
                return;
            }
            let mut migrate = redis::cmd("MIGRATE");
            migrate
                .arg("127.0.0.1")
                .arg(to.port())
                .arg("")
                .arg(0)
                .arg(5000);
            migrate.arg("KEYS").arg(keys);
            migrate.exec(&mut from.client()).expect("moved");
        }
    }

    /// Moves what the slot holds, and then the slot.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        self.move_counters(slot, from, to);
        let (number, to) = (slot.to_string(), &self.servers[to]);
        let id: String = ask(to, &["MYID"]).expect("an id");
        // Whoever gets it first; then whoever had it, and all others.
        let others = self
            .servers
            .iter()
            .filter(|server| server.port() != to.port());
        for server in [to].into_iter().chain(others) {
            let done: RedisResult<String> = ask(server, &["SETSLOT", &number, "NODE", &id]);
            // A replica is told by its primary.
            assert!(
                done.is_ok() || replication(server).contains("role:slave"),
                "{done:?}"
            );
        }
    }
}

/// The answer to a subcommand of `CLUSTER`.
pub fn ask<T: FromRedisValue>(server: &RedisServer, words: &[&str]) -> RedisResult<T> {
    Cmd::new()
        .arg("CLUSTER")
        .arg(words)
        .query(&mut server.client())
}

fn tell(server: &RedisServer, words: &[&str]) {
    ask::<redis::Value>(server, words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

fn info(server: &RedisServer) -> String {
    ask(server, &["INFO"]).expect("an answer")
}

fn nodes(server: &RedisServer) -> String {
    ask(server, &["NODES"]).expect("an answer")
}

/// Of each server that has slots the epoch since when, and which, by what one of them says.
fn owners(server: &RedisServer) -> BTreeMap<String, (String, Vec<String>)> {
    let told = nodes(server);
    let rows = told.lines().filter_map(|row| {
        let words: Vec<String> = row.split(' ').map(str::to_owned).collect();
        let moving = |word: &&String| !word.starts_with('[');
        let slots: Vec<String> = words.get(8..)?.iter().filter(moving).cloned().collect();
        (!slots.is_empty()).then(|| (words[0].clone(), (words[6].clone(), slots)))
    });
    rows.collect()
}

fn replication(server: &RedisServer) -> String {
    redis::cmd("INFO")
        .arg("replication")
        .query(&mut server.client())
        .expect("an answer")
}
