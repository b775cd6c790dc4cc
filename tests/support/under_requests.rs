//! slidegate while clients ask it without end, whatever its Redis is up to: each of them must be answered by
//! the upstream.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use redis::Commands;
use tokio::task::JoinSet;

use super::{
    app::metric,
    binary::Binary,
    redis::{RedisServer, eventually},
    upstream::Upstream,
};

/// What a request may take: more than the budget and whatever a busy machine adds, and far less than the
/// system's patience with a server or a name server that is silent.
const AT_MOST: Duration = Duration::from_secs(20);

/// What the log says of a server that takes a connection or a question, and says nothing.
pub const SILENT: &str = "it does not answer";

const CLIENTS: usize = 4;

const TIMEOUTS: &str = "slidegate_store_errors_total{kind=\"timeout\"}";

const TRIPPED: &str = "slidegate_store_breaker_tripped";

/// The binary, with failure mode `local` and a limit that nobody reaches, its upstream, and clients.
pub struct UnderRequests {
    pub binary: Binary,
    stop: Arc<AtomicBool>,
    clients: Option<JoinHandle<Result<(), String>>>,
    /// How much of the log is older than the present trouble.
    known: usize,
    /// How many of its calls had timed out by then.
    timeouts: f64,
    _upstream: Upstream,
}

impl UnderRequests {
    /// Starts it before the Redis at `url`, which may be in trouble already.
    pub fn start(url: &str) -> Self {
        let upstream = Upstream::start();
        let binary = Binary::start(&format!(
            "upstream: {{address: \"{}\"}}\nstore: {{url: \"{url}\", budget: 200ms}}\n\
             policies: [{{name: p, identifier: [client_ip], limits: [100000000/366d]}}]\n",
            upstream.address
        ));
        let stop = Arc::new(AtomicBool::new(false));
        let (url, told) = (binary.url("/"), Arc::clone(&stop));
        // Of their own, since tests wait for Redis's answers on theirs.
        let clients = thread::spawn(move || ask_without_end(&url, &told));
        Self {
            binary,
            stop,
            clients: Some(clients),
            known: 0,
            timeouts: 0.0,
            _upstream: upstream,
        }
    }

    /// Waits until Redis decides, and no breaker is tripped.
    pub async fn redis_decides(&mut self) {
        self.more_of("Redis decides", &decided_by("store")).await;
        self.until("the breaker is not tripped", async |this| {
            this.metric(TRIPPED).await == 0.0
        })
        .await;
        self.known = self.binary.log().len();
        self.timeouts = self.metric(TIMEOUTS).await;
    }

    /// Waits until this proxy's own memory decides.
    async fn memory_decides(&mut self) {
        self.more_of("memory decides", &decided_by("local")).await;
    }

    /// Waits until the breaker is tripped, the log tells why in these words, and memory decides without a
    /// call to Redis.
    pub async fn trips(&mut self, why: &str) {
        self.until("the breaker trips", async |this| {
            this.metric(TRIPPED).await == 1.0
        })
        .await;
        self.logs(&["is not connected", why]).await;
        self.until("no request asks Redis", async |this| {
            let calls = "slidegate_store_duration_seconds_count";
            let asked = this.metric(calls).await;
            this.memory_decides().await;
            this.metric(calls).await == asked
        })
        .await;
        assert_eq!(self.metric(TRIPPED).await, 1.0, "no probe was content");
    }

    /// Waits until a Redis that does not answer any more [trips](Self::trips) the breaker, for which each
    /// client has waited a few times only.
    pub async fn gives_up(&mut self) {
        self.trips(SILENT).await;
        let waits = self.metric(TIMEOUTS).await - self.timeouts;
        let few = 5 * CLIENTS;
        assert!(waits <= few as f64, "{waits} waits of {CLIENTS} clients");
    }

    /// Waits until calls are refused in these words and memory decides, and no breaker is tripped by that.
    pub async fn is_refused(&mut self, words: &str) {
        self.logs(&["did not decide", words]).await;
        let refused = "slidegate_store_errors_total{kind=\"refused\"}";
        self.more_of("calls are refused", refused).await;
        self.memory_decides().await;
        let log = self.binary.log();
        let mut trips = log[self.known..]
            .lines()
            .filter(|line| line.contains("is not connected"));
        // A busy machine may be late with three answers.
        let trip = trips.find(|line| !line.contains(SILENT));
        assert_eq!(trip, None, "the breaker is not for that");
    }

    /// Waits until a line of the log since Redis last decided has all of these words.
    async fn logs(&mut self, words: &[&str]) {
        self.until(&format!("it logs {words:?}"), async |this| {
            let log = this.binary.log();
            let mut lines = log[this.known..].lines();
            lines.any(|line| words.iter().all(|words| line.contains(words)))
        })
        .await;
    }

    /// Waits until a series has grown by more than what may have been under way.
    async fn more_of(&mut self, what: &str, series: &str) {
        let before = self.metric(series).await;
        self.until(what, async |this| {
            this.metric(series).await >= before + 5.0 * CLIENTS as f64
        })
        .await;
    }

    /// The value of the one series that begins with `series`.
    async fn metric(&self, series: &str) -> f64 {
        let url = format!("http://{}/metrics", self.binary.metrics);
        let response = reqwest::get(url).await.expect("metrics are served");
        metric(&response.text().await.expect("metrics are text"), series)
    }

    /// Lets the clients end, and compares what `server` has counted with what it should have, if it has
    /// kept all it ever counted. Returns how many requests it counted and did not decide, as far as
    /// anybody knows.
    pub async fn each_was_counted_once(&mut self, server: &RedisServer) -> u64 {
        self.clients_end();
        let decided = self.metric(&decided_by("store")).await as u64;
        let broken = self
            .metric("slidegate_store_errors_total{kind=\"io\"}")
            .await;
        let may_have_run = (self.metric(TIMEOUTS).await + broken) as u64;
        let mut client = server.client();
        let keys: Vec<String> = client.keys("rl:*").expect("Redis answers");
        let counted: Vec<u64> = keys
            .iter()
            .map(|key| client.get(key).expect("a count"))
            .collect();
        let counted: u64 = counted.iter().sum();
        assert!(
            decided <= counted && counted <= decided + may_have_run,
            "{decided} decided, {may_have_run} may have been counted, {counted} were"
        );
        counted - decided
    }

    /// Lets the clients end: each was answered, and by the upstream.
    pub fn clients_end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(clients) = self.clients.take() {
            let end = clients.join().expect("no panic");
            end.unwrap_or_else(|fault| panic!("{fault}; the log:\n{}", self.binary.log()));
        }
    }

    /// Polls while clients ask.
    async fn until(&mut self, what: &str, mut holds: impl AsyncFnMut(&mut Self) -> bool) {
        eventually(what, async || {
            if self.clients.as_ref().is_some_and(JoinHandle::is_finished) {
                self.clients_end();
            }
            holds(self).await
        })
        .await;
    }
}

impl Drop for UnderRequests {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if thread::panicking() {
            // `eventually` does not know it.
            eprintln!("the log:\n{}", self.binary.log());
        } else {
            self.clients_end();
        }
    }
}

fn decided_by(whom: &str) -> String {
    format!("slidegate_decisions_total{{decided_by=\"{whom}\",decision=\"allow\"")
}

/// Several clients, until one is not answered by the upstream or they are told to stop.
fn ask_without_end(url: &str, stop: &Arc<AtomicBool>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(ask(url.to_owned(), Arc::clone(stop)));
        }
        while let Some(end) = clients.join_next().await {
            end.expect("no panic")?;
        }
        Ok(())
    })
}

async fn ask(url: String, stop: Arc<AtomicBool>) -> Result<(), String> {
    let client = reqwest::Client::new();
    while !stop.load(Ordering::Relaxed) {
        let answer = client.get(&url).timeout(AT_MOST).send().await;
        let answer = answer.map_err(|error| format!("no answer: {error:?}"))?;
        if answer.status() != 200 {
            return Err(format!("an answer of {}", answer.status()));
        }
        // So that two processors are not all theirs.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
