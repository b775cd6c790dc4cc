//! Clients that begin requests and do not end them, beside others that do.

use std::{
    net::{Ipv4Addr, SocketAddr},
    thread,
    time::Duration,
};

use slidegate::clock;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

use super::{
    load::Load,
    report::{Bound, Report},
    scenarios::{Scale, steady, straight, warm_baseline},
    system::{System, metric, resident},
};

/// 2,000 connections with half a request each, and 200 that add a byte every second, under load.
pub fn slowloris(scale: &Scale, report: &mut Report) {
    let system = System::start("url: \"memory:\"", "1000000/1m");
    let gate = &system.gate;
    let base = warm_baseline(gate, scale);

    let (load, control) = (Load::start(steady(gate)), Load::start(straight(&system)));
    thread::sleep(Duration::from_secs(1));
    let (before, from) = (resident(gate), load.age());
    // From one address only so many connections are taken.
    let silent = Halves::open(gate.proxy, Ipv4Addr::new(127, 0, 0, 2), SILENT, false);
    let dripping = Halves::open(gate.proxy, Ipv4Addr::new(127, 0, 0, 3), DRIPPING, true);
    let (mut grown, mut open) = (0.0_f64, 0.0_f64);
    while !(silent.are_closed() && dripping.are_closed()) {
        grown = grown.max(resident(gate) - before);
        open = open.max(metric(gate, "slidegate_connections "));
        thread::sleep(Duration::from_millis(50));
    }
    let to = load.age();
    thread::sleep(Duration::from_secs(1));
    let left = metric(gate, "slidegate_connections ");
    let (answers, control) = (load.end(), control.end());
    let stopped = metric(gate, STOPPED);

    let mut add =
        |what: &str, value, unit, bound| report.add("slowloris", what, value, unit, bound);
    add(
        "connections open at once, most",
        open,
        "",
        Bound::AtLeast((SILENT + DRIPPING) as f64),
    );
    add(
        "  ended for their slow head",
        stopped,
        "",
        Bound::Exactly((SILENT + DRIPPING) as f64),
    );
    for (what, halves) in [
        ("  half a request and silence: open for, longest", silent),
        ("  a byte a second: open for, longest", dripping),
    ] {
        let longest = halves.longest().as_secs_f64();
        add(what, longest, "s", Bound::AtMost(HEADER_TIMEOUT + 1.5));
    }
    add(
        "  open a second later, with those of others",
        left,
        "",
        Bound::AtMost(MOST_LEFT),
    );
    add(
        "  resident memory, most grown by",
        grown,
        "MB",
        Bound::AtMost(120.0),
    );
    add(
        "requests per second of others, of 2,000 intended",
        answers.rate(),
        "/s",
        Bound::None,
    );
    add(
        "  answers other than 200",
        (answers.count() - answers.with(200..201)) as f64,
        "",
        Bound::Exactly(0.0),
    );
    let meanwhile = [from..to];
    let during = answers.latencies(&meanwhile);
    let machine = control.latencies(&meanwhile).percentile(99);
    add("  p99 before", base, "ms", Bound::None);
    add("  p99 meanwhile", during.percentile(99), "ms", Bound::None);
    add(
        "  p99 straight to nginx meanwhile",
        machine,
        "ms",
        Bound::None,
    );
    add(
        "  p99 meanwhile, less that before",
        during.percentile(99) - base,
        "ms",
        Bound::AtMost(25.0),
    );
    add(
        "  slowest answer",
        during.percentile(100),
        "ms",
        Bound::None,
    );
}

/// Connections that began a request, on a thread of their own.
struct Halves(thread::JoinHandle<Vec<Duration>>);

impl Halves {
    /// Opens so many from this address.
    fn open(gate: SocketAddr, from: Ipv4Addr, connections: usize, drip: bool) -> Self {
        Self(thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for _ in 0..connections {
                    let stream = half(gate, from).await;
                    tasks.spawn(until_closed(stream, drip));
                }
                tasks.join_all().await
            })
        }))
    }

    fn are_closed(&self) -> bool {
        self.0.is_finished()
    }

    /// From its first bytes to its end, that which took longest.
    fn longest(self) -> Duration {
        let times = self.0.join().expect("connections end");
        times.into_iter().max().expect("there were some")
    }
}

async fn half(gate: SocketAddr, from: Ipv4Addr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a descriptor: `ulimit -n` is 8192 or more");
    socket.bind((from, 0).into()).expect("an address of lo");
    let mut stream = socket.connect(gate).await.expect("it listens");
    let sent = stream
        .write_all(b"GET /orders/7 HTTP/1.1\r\nHost: soak\r\nx-")
        .await;
    sent.expect("half a request is sent");
    stream
}

/// How long it took until the proxy closed it, whatever it answered.
async fn until_closed(mut stream: TcpStream, drip: bool) -> Duration {
    let began = clock::instant();
    let mut answer = [0; 1024];
    loop {
        let pause = if drip { DRIP } else { Duration::MAX };
        match tokio::time::timeout(pause, stream.read(&mut answer)).await {
            Ok(Ok(read)) if read > 0 => {}
            Ok(_) => return clock::elapsed(began),
            // Where this fails the next read tells the end.
            Err(_) => drop(stream.write_all(b"x").await),
        }
    }
}

const SILENT: usize = 2_000;

const DRIPPING: usize = 200;

const DRIP: Duration = Duration::from_secs(1);

/// The default of `bounds.header_timeout`, in seconds.
const HEADER_TIMEOUT: f64 = 15.0;

/// Those of the load, with some to spare for whoever reads the metrics.
const MOST_LEFT: f64 = 130.0;

const STOPPED: &str = "slidegate_connections_ended_total{reason=\"slow_head\"}";
