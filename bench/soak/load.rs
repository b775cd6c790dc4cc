//! Load: requests over kept connections, at a steady rate or as fast as they are answered.
//!
//! At a steady rate a request's latency counts from the moment at which it was meant to be sent. One that
//! waits behind a slow answer is as late as its client would find it, and no slow stretch hides by being
//! asked less. The client's own timer, of a millisecond, is in every figure.

use std::{
    io,
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use slidegate::clock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

/// What every request asks for, for policies that go by it.
pub const PATH: &str = "/orders/7";
/// Of which host.
pub const HOST: &str = "soak";

/// What is asked of whom.
pub struct Plan {
    /// The proxies, by turns.
    pub targets: Vec<SocketAddr>,
    pub connections: u64,
    /// Requests per second; none: each connection asks again when it is answered.
    pub rate: Option<u32>,
    /// Of how many requests it consists; else it goes on until it is ended.
    pub requests: u64,
    /// The identifier of the request of this number.
    pub identifier: fn(u64) -> u64,
}

/// Load that goes on.
pub struct Load {
    shared: Arc<Shared>,
    started: Instant,
    thread: JoinHandle<Vec<Answer>>,
}

struct Shared {
    plan: Plan,
    started: Instant,
    over: AtomicBool,
    next: AtomicU64,
}

/// How one request ended.
#[derive(Clone, Copy)]
pub struct Answer {
    /// When it was meant to be sent, since the start.
    pub at: Duration,
    pub latency: Duration,
    /// Its status, or 0 where the connection failed.
    pub status: u16,
}

impl Load {
    /// Starts it on a thread of its own.
    pub fn start(plan: Plan) -> Self {
        let started = clock::instant();
        let shared = Arc::new(Shared {
            plan,
            started,
            over: AtomicBool::new(false),
            next: AtomicU64::new(0),
        });
        let running = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(run(running))
        });
        Self {
            shared,
            started,
            thread,
        }
    }

    /// How long it has been going on.
    pub fn age(&self) -> Duration {
        clock::elapsed(self.started)
    }

    /// How many requests it has begun.
    pub fn begun(&self) -> u64 {
        self.shared.next.load(Ordering::Relaxed)
    }

    /// Ends it; every answer in the order of `at`.
    pub fn end(self) -> Answers {
        self.shared.over.store(true, Ordering::Relaxed);
        self.finish()
    }

    /// Waits until all requests of the plan are answered.
    pub fn finish(self) -> Answers {
        let mut answers = self.thread.join().expect("the load does not panic");
        answers.sort_by_key(|answer| answer.at);
        Answers(answers)
    }
}

async fn run(shared: Arc<Shared>) -> Vec<Answer> {
    let mut tasks = JoinSet::new();
    for number in 0..shared.plan.connections {
        tasks.spawn(ask(Arc::clone(&shared), number));
    }
    tasks.join_all().await.concat()
}

/// One connection's share.
async fn ask(shared: Arc<Shared>, connection: u64) -> Vec<Answer> {
    let plan = &shared.plan;
    let target = plan.targets[connection as usize % plan.targets.len()];
    let mut client = Client::new(target);
    let mut answers = Vec::new();
    for turn in 0.. {
        if shared.over.load(Ordering::Relaxed) {
            break;
        }
        let begun = shared.next.fetch_add(1, Ordering::Relaxed);
        // At a steady rate each connection has its own times, so that none waits for another's answer.
        let number = match plan.rate {
            Some(_) => turn * plan.connections + connection,
            None => begun,
        };
        if number >= plan.requests {
            break;
        }
        let intended = match plan.rate {
            Some(rate) => {
                let at = shared.started + Duration::from_secs(1) * number as u32 / rate;
                tokio::time::sleep_until(at.into()).await;
                at
            }
            None => clock::instant(),
        };
        let status = client.status_of((plan.identifier)(number)).await;
        answers.push(Answer {
            at: intended - shared.started,
            latency: clock::elapsed(intended),
            status: status.unwrap_or(0),
        });
    }
    answers
}

/// A connection that is kept, and made anew when it failed.
struct Client {
    target: SocketAddr,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl Client {
    fn new(target: SocketAddr) -> Self {
        Self {
            target,
            stream: None,
            buffer: Vec::new(),
        }
    }

    async fn status_of(&mut self, identifier: u64) -> io::Result<u16> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.target).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        let request =
            format!("GET {PATH} HTTP/1.1\r\nHost: {HOST}\r\nx-api-key: {identifier:016x}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        let (status, length, closes) = loop {
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(head) = head(&self.buffer) {
                break head;
            }
        };
        while self.buffer.len() < length {
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // After requests_per_connection the proxy says that it is the last.
        self.stream = (!closes).then_some(stream);
        Ok(status)
    }
}

/// The status, the length of head and body, and whether the connection ends with it, once the head is whole.
fn head(bytes: &[u8]) -> Option<(u16, usize, bool)> {
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.get(9..12)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok())?
    });
    let closes = head
        .lines()
        .any(|line| line.eq_ignore_ascii_case("connection: close"));
    Some((status, end + length.unwrap_or(0), closes))
}

/// How all requests ended, by time.
pub struct Answers(Vec<Answer>);

impl Answers {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Answered with one of these statuses; 0 is no answer.
    pub fn with(&self, statuses: Range<u16>) -> usize {
        let of = |answer: &&Answer| statuses.contains(&answer.status);
        self.0.iter().filter(of).count()
    }

    /// Requests per second, from the first to the last.
    pub fn rate(&self) -> f64 {
        let last = self.0.last().map(|answer| answer.at + answer.latency);
        self.0.len() as f64 / last.unwrap_or(Duration::MAX).as_secs_f64()
    }

    /// Latencies of those that were meant to be sent in one of the spans, ascending.
    pub fn latencies(&self, spans: &[Range<Duration>]) -> Latencies {
        let within = |answer: &&Answer| spans.iter().any(|span| span.contains(&answer.at));
        let mut found: Vec<Duration> = self
            .0
            .iter()
            .filter(within)
            .map(|answer| answer.latency)
            .collect();
        found.sort();
        Latencies(found)
    }
}

/// Latencies, ascending.
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// In milliseconds, that of which so many hundredths are no later.
    pub fn percentile(&self, hundredths: usize) -> f64 {
        let place = (self.0.len() * hundredths).div_ceil(100);
        let latency = self.0.get(place.saturating_sub(1));
        latency.expect("requests were sent").as_secs_f64() * 1_000.0
    }
}
