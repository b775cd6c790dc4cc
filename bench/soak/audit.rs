//! What an audit costs: processor time of proxy and Redis, and memory of Redis.

use super::{
    compare::{Comparison, ask, others, spent},
    load::{Load, Plan},
    report::{Bound, Report},
    scenarios::Scale,
    support::{binary::Binary, nginx::Nginx, redis::RedisServer},
    system::{info, keys, reload},
};

/// A proxy that audits one identifier in a hundred, and then all, by turns with nobody.
pub fn audit(scale: &Scale, report: &mut Report) {
    let nginx = Nginx::start();
    for (what, sample, bound) in [
        ("1 of 100 identifiers audited", "0.01", Bound::AtMost(3.0)),
        ("all identifiers audited", "1", Bound::None),
    ] {
        let audited = Audited::start(&nginx, "other", sample);
        let states = [("first", "0"), ("second", "0"), ("third", sample)];
        let found = Comparison::of(&states, scale, |(policy, sample)| {
            audited.turn_to(&nginx, policy, sample);
            // What a reload begins anew is not what is compared.
            let failed = others(&ask(&audited.gate, scale));
            let (store, (gate, answers)) = spent(audited.store, || {
                spent(audited.gate.child.id(), || ask(&audited.gate, scale))
            });
            (gate + store, failed + others(&answers))
        });
        found.tell("audit", what, "without", bound, report);
    }
    for units in [100, 1_000, 10_000] {
        let bytes = bytes_of_a_log(&nginx, units);
        let what = format!("memory of Redis for a log of {units} units");
        report.add("audit", &what, bytes / 1e3, "kB", Bound::None);
    }
}

/// A proxy with a Redis of its own.
struct Audited {
    gate: Binary,
    server: RedisServer,
    /// The Redis's process.
    store: u32,
}

impl Audited {
    fn start(nginx: &Nginx, policy: &str, sample: &str) -> Self {
        let server = RedisServer::start();
        let gate = Binary::start(&Self::yaml(nginx, &server, policy, sample));
        let store = info(&server, "server", "process_id:") as u32;
        Self {
            gate,
            server,
            store,
        }
    }

    fn yaml(nginx: &Nginx, server: &RedisServer, policy: &str, sample: &str) -> String {
        format!(
            "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 5s}}\naudit:\n  sample: {sample}\n\
             log: {{level: warn}}\n\
             policies: [{{name: {policy}, identifier: [header:x-api-key], limits: [{LIMIT}]}}]\n",
            nginx.address,
            server.url()
        )
    }

    /// Has it audit another share from here on: processes that are started alike differ by more than an audit
    /// costs, one of them does not differ from itself. A policy of its own, so that a log misses nothing that was
    /// counted meanwhile.
    fn turn_to(&self, nginx: &Nginx, policy: &str, sample: &str) {
        self.gate
            .rewrite(&Self::yaml(nginx, &self.server, policy, sample));
        reload(&self.gate);
    }
}

/// Of one identifier, in bytes.
fn bytes_of_a_log(nginx: &Nginx, units: u64) -> f64 {
    let audited = Audited::start(nginx, "p", "1");
    let load = Load::start(Plan {
        targets: vec![audited.gate.proxy],
        connections: 16,
        rate: None,
        requests: units,
        identifier: |_| 1,
    });
    load.finish();
    let mut keys = keys(&audited.server).into_iter().flatten();
    let log = keys.find(|key| key.ends_with(":log")).expect("a log");
    let bytes: u64 = redis::cmd("MEMORY")
        .arg("USAGE")
        .arg(log)
        .arg("SAMPLES")
        .arg(0)
        .query(&mut audited.server.client())
        .expect("Redis tells");
    bytes as f64
}

/// The largest that can be audited.
const LIMIT: &str = "10000/10s";
