//! What an audit costs: processor time of proxy and Redis, and memory of Redis.

use super::{
    compare::{Comparison, ask, others, spent},
    load::{Load, Plan},
    report::{Bound, Report},
    scenarios::Scale,
    support::{binary::Binary, nginx::Nginx, redis::RedisServer},
    system::{info, keys},
};

/// A proxy that audits one identifier in a hundred, and one that audits all, each beside two that audit nobody.
pub fn audit(scale: &Scale, report: &mut Report) {
    let nginx = Nginx::start();
    for (what, sample, bound) in [
        ("1 of 100 identifiers audited", "0.01", Bound::AtMost(3.0)),
        ("all identifiers audited", "1", Bound::None),
    ] {
        let audited = ["0", "0", sample].map(|sample| Audited::start(&nginx, sample, LIMIT));
        let found = Comparison::of(&audited, scale, |audited| {
            let (gate, store) = (&audited.gate, audited.store);
            let (store, (gate, answers)) =
                spent(store, || spent(gate.child.id(), || ask(gate, scale)));
            (gate + store, others(&answers))
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
    fn start(nginx: &Nginx, sample: &str, limit: &str) -> Self {
        let server = RedisServer::start();
        let gate = Binary::start(&format!(
            "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 5s}}\naudit: {{sample: {sample}}}\n\
             log: {{level: warn}}\n\
             policies: [{{name: p, identifier: [header:x-api-key], limits: [{limit}]}}]\n",
            nginx.address,
            server.url()
        ));
        let store = info(&server, "server", "process_id:") as u32;
        Self {
            gate,
            server,
            store,
        }
    }
}

/// Of one identifier, in bytes.
fn bytes_of_a_log(nginx: &Nginx, units: u64) -> f64 {
    let audited = Audited::start(nginx, "1", LIMIT);
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
