//! What a request waits longer because of slidegate and its Redis, under light load: about a tenth of what one core can.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use slidegate::clock;

use super::{
    Scale,
    cores::{Role, pin},
    peers::Kind,
    report::{Bound, Report, median, millis},
    subjects::{configuration, process_of},
    support::{binary::Binary, nginx::Nginx, redis::RedisServer},
};

/// Adds the latencies of Pingora alone, of slidegate with Redis, and of a round trip to Redis by itself.
pub fn added(scale: &Scale, report: &mut Report) {
    let (nginx, store) = (Nginx::start(), RedisServer::start());
    pin(nginx.process.id(), Role::Upstream);
    pin(process_of(&store), Role::Redis);
    let bare = Kind::Bare.start(nginx.address, 0).expect("it is built");
    let policy = "  - {name: per-key, identifier: [header:x-api-key], limits: [1000000000/1m]}\n";
    let gate = Binary::start(&configuration(nginx.address, &store.url(), policy, "light"));
    pin(gate.child.id(), Role::Proxy);
    let redis = SocketAddr::from(([127, 0, 0, 1], store.port()));
    let subjects = [(bare.address, HTTP), (gate.proxy, HTTP), (redis, PING)];

    let mut found: [[Vec<f64>; 2]; 3] = Default::default();
    // The first round warms up.
    for round in 0..=scale.rounds {
        for place in 0..subjects.len() {
            let place = (place + round as usize) % subjects.len();
            let (target, protocol) = subjects[place];
            let latencies = light_load(target, protocol, scale.round);
            if round > 0 {
                for (of, hundredths) in found[place].iter_mut().zip([50, 99]) {
                    of.push(latencies[latencies.len() * hundredths / 100]);
                }
            }
        }
    }
    let [bare, gate, trip] = found.map(|mut of| [median(&mut of[0]), median(&mut of[1])]);
    let mut add = |what: &str, value, bound| report.add("light load", what, value, "ms", bound);
    for (name, [p50, p99]) in [
        ("bare", bare),
        ("redis", gate),
        ("a round trip to Redis", trip),
    ] {
        add(&format!("{name}: p50"), p50, Bound::None);
        add(&format!("{name}: p99"), p99, Bound::None);
    }
    add("added at p50", gate[0] - bare[0], Bound::None);
    add(
        "added at p99",
        gate[1] - bare[1],
        Bound::AtMost(trip[1] + 0.2),
    );
}

/// What one client sends, and how it knows the end of the answer.
#[derive(Clone, Copy)]
struct Protocol {
    request: &'static [u8],
    /// With a head of lines up to an empty one, and a body; else one line.
    has_head: bool,
}

const HTTP: Protocol = Protocol {
    request: b"GET /orders/7 HTTP/1.1\r\nHost: bench\r\nX-API-Key: 0123456789abcdef\r\n\r\n",
    has_head: true,
};
const PING: Protocol = Protocol {
    request: b"PING\r\n",
    has_head: false,
};

/// Of some clients that pause between their requests, in milliseconds, ascending.
fn light_load(target: SocketAddr, protocol: Protocol, time: Duration) -> Vec<f64> {
    let mut all: Vec<f64> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(move || client(target, protocol, time)))
            .collect();
        let clients = clients.into_iter();
        clients
            .flat_map(|client| client.join().expect("it is answered"))
            .collect()
    });
    all.sort_by(f64::total_cmp);
    all
}

/// Blocking, so that no timer and no scheduler of its own is in the figures.
fn client(target: SocketAddr, protocol: Protocol, time: Duration) -> Vec<f64> {
    pin_self();
    let mut stream = BufReader::new(TcpStream::connect(target).expect("it listens"));
    stream
        .get_ref()
        .set_nodelay(true)
        .expect("an option of TCP");
    let mut latencies = Vec::new();
    let began = clock::instant();
    while clock::elapsed(began) < time {
        let sent = clock::instant();
        stream
            .get_mut()
            .write_all(protocol.request)
            .expect("it is sent");
        answer(&mut stream, protocol);
        latencies.push(millis(clock::elapsed(sent)));
        thread::sleep(PAUSE);
    }
    latencies
}

fn answer(stream: &mut BufReader<TcpStream>, protocol: Protocol) {
    let mut line = String::new();
    let mut length = 0;
    loop {
        line.clear();
        let read = stream.read_line(&mut line).expect("an answer");
        assert!(read > 0, "it is answered");
        let line = line.trim_end();
        if !protocol.has_head || line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
}

/// The thread that calls; new ones of it follow.
fn pin_self() {
    let link = std::fs::read_link("/proc/thread-self").expect("Linux");
    let thread = link
        .file_name()
        .and_then(|name| name.to_str()?.parse().ok());
    pin(thread.expect("a number"), Role::Client);
}

/// With pauses of a millisecond, some three thousand requests a second.
const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(1);
