//! How often a request asks the kernel for something, as strace counts it: a number that does not wobble.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::support::{binary::Binary, nginx::Nginx, redis::RedisServer, skip::skip, wire::Wire};

/// One request after the other, so that none shares a call with another.
#[test]
fn a_request_makes_as_many_system_calls_as_pingora_alone_and_few_for_redis() {
    let (nginx, server) = (Nginx::start(), RedisServer::start());
    let bare = Bare::start(nginx.address);
    let Some(bare) = calls(bare.process.id(), bare.address, "200") else {
        skip("strace can not trace: nobody counted system calls");
        return;
    };
    let gate = |store: &str, limit: &str| {
        Binary::start(&format!(
            "upstream: {{address: \"{}\"}}\nthreads: 1\n{store}\
             policies: [{{name: p, identifier: [header:x-api-key], limits: [{limit}]}}]\n",
            nginx.address
        ))
    };
    let memory = gate("", "1000000/366d");
    let memory = calls(memory.child.id(), memory.proxy, "200").expect("as before");
    let denied = gate("", "1/366d");
    let denied = calls(denied.child.id(), denied.proxy, "429").expect("as before");
    let redis = format!("store: {{url: \"{}\"}}\n", server.url());
    let redis = gate(&redis, "1000000/366d");
    let redis = calls(redis.child.id(), redis.proxy, "200").expect("as before");
    println!(
        "bare {bare:.2}, memory {memory:.2}, denied {denied:.2}, Redis {redis:.2} system calls a request"
    );
    assert!(memory <= bare + 0.2, "{memory} to {bare}");
    assert!(
        denied <= 3.2,
        "{denied}: waiting, reading, and writing head and body at once"
    );
    // Two of them wake the runtime; on a busy machine it sleeps more often.
    assert!(redis <= bare + 7.0, "{redis} to {bare}");
}

/// Of one request by a kept connection; `None` where strace can not do it.
fn calls(process: u32, proxy: SocketAddr, status: &str) -> Option<f64> {
    let mut wire = Wire::open(proxy);
    // The one unit of who is denied then.
    wire.send(REQUEST).response();
    let mut ask = |requests: u32| {
        for _ in 0..requests {
            let answer = wire.send(REQUEST).response();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
        }
    };
    // Connections and caches are there afterwards.
    ask(50);
    let counted = tempfile::NamedTempFile::new().expect("a file");
    let told = tempfile::NamedTempFile::new().expect("a file");
    let strace = Command::new("strace")
        .args(["-f", "-c", "-U", "calls,name", "-o"])
        .arg(counted.path())
        .args(["-p", &process.to_string()])
        .stdin(Stdio::null())
        .stderr(told.reopen().expect("a second handle"))
        .spawn();
    let mut strace = strace.ok()?;
    // It says so for each thread.
    let attached = || {
        let told = fs::read_to_string(told.path()).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{process}/task"))
            .expect("it runs")
            .count();
        told.contains(" attached") && (threads == 1 || told.contains(&format!("{threads} threads")))
    };
    for _ in 0..2_000 {
        if attached() || strace.try_wait().expect("our child").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if !attached() {
        drop(strace.kill());
        drop(strace.wait());
        return None;
    }
    ask(REQUESTS);
    let stopped = Command::new("kill")
        .args(["-INT", &strace.id().to_string()])
        .status();
    assert!(stopped.expect("kill runs").success());
    strace.wait().expect("it ends");
    let counted = fs::read_to_string(counted.path()).expect("strace has counted");
    let of_requests = counted.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let calls: u32 = words.next()?.parse().ok()?;
        let name = words.next().filter(|name| !OF_TIME.contains(name));
        name.map(|_| calls)
    });
    let total: u32 = of_requests.sum();
    assert!(total > REQUESTS, "they were counted: {counted}");
    Some(f64::from(total) / f64::from(REQUESTS))
}

/// Pingora alone: `examples/bare_proxy.rs`; killed on drop.
struct Bare {
    address: SocketAddr,
    process: Child,
}

impl Bare {
    fn start(upstream: SocketAddr) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("a bound listener");
        drop(free);
        let process = Command::new(env!("CARGO_BIN_EXE_bare_proxy"))
            .args([address, upstream].map(|address| address.to_string()))
            .spawn()
            .expect("it runs");
        let bare = Self { address, process };
        for _ in 0..2_000 {
            if TcpStream::connect(address).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bare
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nX-API-Key: 0123456789abcdef\r\n\r\n";
const REQUESTS: u32 = 500;

/// What there is more of the longer it takes, and the sum of all.
const OF_TIME: [&str; 3] = ["clock_nanosleep", "restart_syscall", "total"];
