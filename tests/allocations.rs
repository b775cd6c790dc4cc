//! How often a request asks for memory: a number that does not wobble, and grows without anybody noticing.
//!
//! A binary of its own, since its allocator counts for the whole process: slidegate runs in it, the upstream and Redis do
//! not, and the client makes do with one buffer.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use support::{app::App, nginx::Nginx, redis::RedisServer};

mod support {
    #[expect(dead_code, reason = "the other tests use more of it")]
    pub mod app;
    #[expect(dead_code, reason = "the other tests use more of it")]
    pub mod nginx;
    #[expect(dead_code, reason = "the other tests use more of it")]
    pub mod redis;
    #[expect(dead_code, reason = "the other tests use more of it")]
    pub mod upstream;
}

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// One after the other, since all are counted.
#[test]
fn a_request_asks_for_memory_no_more_often_than_this() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let (nginx, server) = (Nginx::start(), RedisServer::start());
    let upstream = format!("upstream: {{address: \"{}\"}}\nthreads: 1\n", nginx.address);
    let policy = |limit: &str| {
        format!("policies: [{{name: p, identifier: [header:x-api-key], limits: [{limit}]}}]\n")
    };
    let redis = format!("store: {{url: \"{}\", budget: 10s}}\n", server.url());
    let cases = [
        ("admitted by memory", "", "1000000/366d", 200, 126.0),
        ("admitted by Redis", &*redis, "1000000/366d", 200, 143.0),
        ("denied by memory", "", "1/366d", 429, 59.0),
    ];
    for (what, store, limit, status, bound) in cases {
        let app = App::start(&format!("{upstream}{store}{}", policy(limit)));
        let mut client = Client::new(app.proxy);
        let mut ask = |requests: u64| {
            for _ in 0..requests {
                client.ask();
            }
            assert_eq!(client.status(), status, "{what}");
        };
        ask(200);
        let before = dhat::HeapStats::get();
        ask(REQUESTS);
        let after = dhat::HeapStats::get();
        let each = |before: u64, after: u64| (after - before) as f64 / REQUESTS as f64;
        let blocks = each(before.total_blocks, after.total_blocks);
        let bytes = each(before.total_bytes, after.total_bytes);
        println!("{what}: {blocks:.2} blocks, {bytes:.0} bytes a request");
        assert!(blocks <= bound, "{what}: {blocks} of {bound}");
    }
}

const REQUESTS: u64 = 1_000;

struct Client {
    stream: TcpStream,
    buffer: [u8; 4_096],
}

impl Client {
    fn new(target: SocketAddr) -> Self {
        let stream = TcpStream::connect(target).expect("it listens");
        stream.set_nodelay(true).expect("an option of TCP");
        Self {
            stream,
            buffer: [0; 4_096],
        }
    }

    /// One request and its whole answer.
    fn ask(&mut self) {
        self.stream.write_all(REQUEST).expect("it is sent");
        let mut filled = 0;
        loop {
            let read = self
                .stream
                .read(&mut self.buffer[filled..])
                .expect("an answer");
            assert!(read > 0, "it is answered");
            filled += read;
            if is_whole(&self.buffer[..filled]) {
                return;
            }
        }
    }

    /// Of the last answer.
    fn status(&self) -> u16 {
        let digits = std::str::from_utf8(&self.buffer[9..12]).expect("a status");
        digits.parse().expect("a number")
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return false;
    };
    let head = std::str::from_utf8(&answer[..end]).expect("ASCII").lines();
    let mut lengths = head.filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then_some(value)
    });
    let length: usize = lengths.next().expect("a length").parse().expect("a number");
    answer.len() >= end + 4 + length
}

const REQUEST: &[u8] =
    b"GET /orders/7 HTTP/1.1\r\nHost: test\r\nX-API-Key: 0123456789abcdef\r\n\r\n";
