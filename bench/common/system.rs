//! What stands under load: slidegate before an nginx, with its metrics; and what Redis holds.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use slidegate::clock;

use super::support::{binary::Binary, nginx::Nginx, redis::RedisServer};

/// A slidegate and its upstream.
pub struct System {
    pub gate: Binary,
    pub nginx: Nginx,
}

impl System {
    /// With this `store` and one policy by header, whose limit it is.
    pub fn start(store: &str, limit: &str) -> Self {
        let nginx = Nginx::start();
        let gate = gate(&nginx, store, limit);
        Self { gate, nginx }
    }
}

/// A slidegate in front of `nginx`; if it counts in Redis, one that has found it.
pub fn gate(nginx: &Nginx, store: &str, limit: &str) -> Binary {
    let gate = Binary::start(&format!(
        "upstream: {{address: \"{}\"}}\n\
         store: {{{store}}}\n\
         log: {{level: warn}}\n\
         policies: [{{name: per-key, identifier: [header:x-api-key], limits: [{limit}]}}]\n",
        nginx.address
    ));
    // It connects in the background.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(
        metric(&gate, "slidegate_store_breaker_tripped"),
        0.0,
        "it found its Redis"
    );
    gate
}

/// Has it read its configuration anew, and waits until that is in force.
pub fn reload(gate: &Binary) {
    let (applied, started) = (metric(gate, APPLIED), clock::instant());
    gate.signal("HUP");
    while metric(gate, APPLIED) == applied {
        let waited = clock::elapsed(started);
        assert!(waited < LONGEST_RELOAD, "the configuration was refused");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The sum of the series that begin with `series`.
pub fn metric(gate: &Binary, series: &str) -> f64 {
    let text = exposition(gate);
    let values: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with(series))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    assert!(!values.is_empty(), "no series begins with {series}");
    values.iter().sum()
}

fn exposition(gate: &Binary) -> String {
    let mut stream = TcpStream::connect(gate.metrics).expect("metrics are served");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
        .expect("the request is sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("metrics are text");
    text
}

/// Decisions of Redis so far.
pub fn by_store(gate: &Binary) -> f64 {
    metric(gate, "slidegate_decisions_total{decided_by=\"store\"")
}

/// Requests that Redis admitted.
pub fn admitted_by_store(gate: &Binary) -> f64 {
    metric(
        gate,
        "slidegate_decisions_total{decided_by=\"store\",decision=\"allow\"",
    )
}

/// Requests whose call may have run although its answer did not come.
pub fn unanswered(gate: &Binary) -> f64 {
    ["timeout", "io"]
        .map(|kind| {
            metric(
                gate,
                &format!("slidegate_store_errors_total{{kind=\"{kind}\""),
            )
        })
        .iter()
        .sum()
}

/// How long it takes until Redis decides again, at most ten seconds.
pub fn until_store_decides(gate: &Binary) -> Duration {
    let (started, before) = (clock::instant(), by_store(gate));
    while clock::elapsed(started) < Duration::from_secs(10) {
        if by_store(gate) > before {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    clock::elapsed(started)
}

/// The same, and no server that it knows is away.
pub fn until_all_decide(gate: &Binary) -> Duration {
    let started = clock::instant();
    while clock::elapsed(started) < Duration::from_secs(10)
        && metric(gate, "slidegate_store_breaker_tripped") > 0.0
    {
        thread::sleep(Duration::from_millis(5));
    }
    until_store_decides(gate);
    clock::elapsed(started)
}

/// In MB, what the process holds in memory.
pub fn resident(gate: &Binary) -> f64 {
    metric(gate, "process_resident_memory_bytes") / 1e6
}

/// The processor time that all threads of the process have taken so far.
pub fn processor(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let nanoseconds = threads.map(|thread| {
        let file = thread.expect("a thread").path().join("schedstat");
        // To a nanosecond: `stat` beside it tells hundredths of a second, which is too little of a short round.
        let text = fs::read_to_string(file).expect("the kernel has CONFIG_SCHED_INFO");
        let first = text.split(' ').next().and_then(|text| text.parse().ok());
        first.unwrap_or(0)
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// Every counter in Redis with its units.
pub fn counters(server: &RedisServer) -> BTreeMap<String, u64> {
    let mut connection = server.client();
    let mut counters = BTreeMap::new();
    for keys in keys(server) {
        // One by one: in a cluster they are in many slots.
        let mut asked = redis::pipe();
        for key in &keys {
            asked.get(key);
        }
        let units: Vec<Option<u64>> = asked.query(&mut connection).expect("counters hold numbers");
        // One may end meanwhile.
        let found = keys.into_iter().zip(units);
        counters.extend(found.filter_map(|(key, units)| Some((key, units?))));
    }
    counters
}

/// Every key in Redis, in parts; one may come twice.
pub fn keys(server: &RedisServer) -> Vec<Vec<String>> {
    let mut connection = server.client();
    let mut parts = Vec::new();
    let mut cursor = 0_u64;
    loop {
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg(["MATCH", "rl:*", "COUNT", "10000"].as_slice())
            .query(&mut connection)
            .expect("Redis scans");
        if !keys.is_empty() {
            parts.push(keys);
        }
        cursor = next;
        if cursor == 0 {
            return parts;
        }
    }
}

/// A number of `INFO`: what follows `name` in it.
pub fn info(server: &RedisServer, section: &str, name: &str) -> f64 {
    let text: String = redis::cmd("INFO")
        .arg(section)
        .query(&mut server.client())
        .expect("Redis tells");
    let found = text.split_once(name).map(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse()
    });
    match found {
        Some(Ok(number)) => number,
        _ => 0.0,
    }
}

/// How many configurations came into force by a reload.
const APPLIED: &str = "slidegate_config_reloads_total{result=\"applied\"}";

/// Far above what the largest configuration takes on a busy machine.
const LONGEST_RELOAD: Duration = Duration::from_secs(120);
