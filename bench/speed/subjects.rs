//! Who is measured: slidegate with each store and in each state, Pingora alone, and the peers that are at hand.

use std::{net::SocketAddr, thread, time::Duration};

use super::{
    Scale,
    cores::{Role, pin},
    peers::{Kind, Peer},
    support::{binary::Binary, nginx::Nginx, redis::RedisServer},
    system::info,
    wrk::{self, Identifiers},
};

/// One that is asked by turns with the others.
pub struct Subject {
    pub name: &'static str,
    pub target: SocketAddr,
    pub identifiers: Identifiers,
    /// Whether its requests are denied; else they are admitted.
    pub is_denied: bool,
    /// The process that proxies.
    pub proxy: u32,
    /// The Redis that it counts in, if it does.
    pub store: Option<u32>,
    /// Whether that has the proxy's core.
    pub shares_core: bool,
    _runs: Runs,
}

/// What ends with its subject.
enum Runs {
    Gate { _gate: Binary },
    Peer { _peer: Peer },
}

/// All of them, and what they stand before and count in.
pub struct Subjects {
    pub all: Vec<Subject>,
    _nginx: Nginx,
    _stores: [RedisServer; 2],
}

impl Subjects {
    /// Starts them; what is missing is told, and left out.
    pub fn start(scale: &Scale) -> Self {
        let nginx = Nginx::start();
        pin(nginx.process.id(), Role::Upstream);
        let stores = [Role::Redis, Role::Proxy].map(|role| {
            let store = RedisServer::start();
            pin(process_of(&store), role);
            store
        });
        let [apart, beside] = &stores;
        let mut all = Vec::new();
        let upstream = nginx.address;
        all.extend(peer("bare", Kind::Bare, upstream, None));
        let gates = [
            Gate::new("memory"),
            Gate {
                identifiers: 1_000,
                ..Gate::new("memory, 1,000 identifiers")
            },
            Gate {
                identifiers: scale.million,
                ..Gate::new("memory, 1,000,000 identifiers")
            },
            Gate {
                policies: 1_000,
                ..Gate::new("memory, 1,000 policies")
            },
            Gate {
                limit: "1/366d",
                identifiers: 100,
                ..Gate::new("denied, memory")
            },
            Gate {
                store: Some(apart),
                ..Gate::new("redis")
            },
            Gate {
                store: Some(apart),
                identifiers: 1_000,
                ..Gate::new("redis, 1,000 identifiers")
            },
            Gate {
                store: Some(apart),
                identifiers: scale.million,
                ..Gate::new("redis, 1,000,000 identifiers")
            },
            Gate {
                store: Some(beside),
                shares_core: true,
                ..Gate::new("redis on the proxy's core")
            },
            Gate {
                store: Some(apart),
                limit: "1/366d",
                identifiers: 100,
                ..Gate::new("denied, redis and horizon")
            },
        ];
        all.extend(gates.map(|gate| gate.start(upstream)));
        let peers = [
            ("nginx", Kind::Nginx, None),
            ("nginx limit_req", Kind::NginxLimitReq, None),
            ("haproxy stick table", Kind::Haproxy, None),
            ("envoy local limit", Kind::Envoy, None),
            ("traefik", Kind::Traefik, None),
            ("nginx + lua + redis", Kind::NginxLua, Some(beside)),
            ("traefik + redis", Kind::TraefikRedis, Some(beside)),
        ];
        all.extend(
            peers
                .into_iter()
                .filter_map(|(name, kind, store)| peer(name, kind, upstream, store)),
        );
        Self {
            all,
            _nginx: nginx,
            _stores: stores,
        }
    }
}

/// A slidegate that is to be started.
struct Gate<'a> {
    name: &'static str,
    store: Option<&'a RedisServer>,
    shares_core: bool,
    policies: usize,
    limit: &'static str,
    identifiers: u64,
}

impl<'a> Gate<'a> {
    /// Counting in memory, by one policy that admits every request.
    fn new(name: &'static str) -> Self {
        Self {
            name,
            store: None,
            shares_core: false,
            policies: 1,
            limit: "1000000000/1m",
            identifiers: 10_000,
        }
    }

    fn start(self, upstream: SocketAddr) -> Subject {
        let url = self
            .store
            .map_or_else(|| "memory:".to_owned(), RedisServer::url);
        let gate = Binary::start(&configuration(upstream, &url, &self.policies(), self.name));
        pin(gate.child.id(), Role::Proxy);
        if self.store.is_some() {
            // It connects in the background.
            thread::sleep(Duration::from_millis(500));
        }
        let identifiers = Identifiers::Random(self.identifiers);
        let is_denied = self.limit == "1/366d";
        if self.identifiers > 10_000 {
            wrk::ask_each(gate.proxy, self.identifiers);
        }
        Subject {
            name: self.name,
            target: gate.proxy,
            identifiers,
            is_denied,
            proxy: gate.child.id(),
            store: self.store.map(process_of),
            shares_core: self.shares_core,
            _runs: Runs::Gate { _gate: gate },
        }
    }

    /// The last of them is what every request is counted by.
    fn policies(&self) -> String {
        let others = (1..self.policies).map(|number| {
            format!("  - {{name: other-{number}, match: {{path: [/other/{number}/*]}}, identifier: [header:x-api-key], limits: [9/1m]}}\n")
        });
        let limit = self.limit;
        let last = format!(
            "  - {{name: per-key, match: {{path: [/orders/*]}}, identifier: [header:x-api-key], limits: [{limit}]}}\n"
        );
        others.chain([last]).collect()
    }
}

/// With one worker, as the others; all else by default.
pub fn configuration(upstream: SocketAddr, store: &str, policies: &str, namespace: &str) -> String {
    let namespace: String = namespace
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    format!(
        "threads: 1\n\
         upstream: {{address: \"{upstream}\"}}\n\
         store: {{url: \"{store}\", namespace: {namespace}}}\n\
         log: {{level: warn}}\n\
         policies:\n{policies}"
    )
}

fn peer(
    name: &'static str,
    kind: Kind,
    upstream: SocketAddr,
    store: Option<&RedisServer>,
) -> Option<Subject> {
    let port = store.map_or(0, RedisServer::port);
    match kind.start(upstream, port) {
        Ok(peer) => Some(Subject {
            name,
            target: peer.address,
            identifiers: Identifiers::Random(10_000),
            is_denied: false,
            proxy: peer.process.id(),
            store: store.map(process_of),
            shares_core: store.is_some(),
            _runs: Runs::Peer { _peer: peer },
        }),
        Err(missing) => {
            println!("{name:<36} left out: there is no {missing}");
            None
        }
    }
}

pub fn process_of(server: &RedisServer) -> u32 {
    info(server, "server", "process_id:") as u32
}
