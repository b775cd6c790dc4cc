//! A primary that sentinels watch: after a fail-over the new one decides, without a restart.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU16, Ordering},
};

use slidegate::store::{At, Store, StoreError};

use crate::support::{
    app::App, demand::*, fake_redis::FakeRedis, redis::*, sentinel::*, trace::Trace,
    upstream::Upstream,
};

fn store(sentinels: &str) -> Store {
    configured_store(&format!(
        "{{url: 'redis://mymaster', sentinel: {{addresses: [{sentinels}]}}}}"
    ))
}

async fn decides(store: &Store) {
    eventually("a decision", async || {
        let reply = take_group(store, &[demand("p", 1, "1000/366d")], At::Now).await;
        reply.is_ok()
    })
    .await;
}

/// How many counters a server holds.
fn counters(server: &RedisServer) -> u64 {
    let size = redis::cmd("DBSIZE").query(&mut server.client());
    size.expect("an answer")
}

/// A sentinel that tells of this port, which may change.
fn telling(port: &Arc<AtomicU16>) -> FakeRedis {
    let port = Arc::clone(port);
    FakeRedis::start(move |command| {
        Some(if command.starts_with("SENTINEL") {
            let port = port.load(Ordering::Relaxed).to_string();
            format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}", port.len())
        } else {
            "+OK".to_owned()
        })
    })
}

fn quoted(sentinels: &[String]) -> String {
    let quoted: Vec<_> = sentinels
        .iter()
        .map(|address| format!("'{address}'"))
        .collect();
    quoted.join(", ")
}

#[tokio::test]
async fn a_killed_primary_costs_no_request_and_the_next_one_decides() {
    let mut watched = Watched::start().await;
    let upstream = Upstream::start();
    let app = App::start(&format!(
        "upstream: {{address: '{}'}}\nthreads: 1\n\
         store: {{url: 'redis://mymaster', budget: 100ms, sentinel: {{addresses: [{}]}}}}\n\
         policies: [{{name: p, limits: [1000000/1d]}}]",
        upstream.address,
        watched.addresses()
    ));
    let by_store = "slidegate_decisions_total{decided_by=\"store\",decision=\"allow\"";
    let before = watched.primary().expect("no fail-over yet");
    let next = 1 - before;
    let url = app.url("/");
    let get = async || {
        let status = reqwest::get(&url).await.expect("an answer").status();
        assert_eq!(status, 200, "whatever happens to the primary");
    };
    eventually("Redis decides", async || {
        get().await;
        app.metric(by_store).await >= 1.0
    })
    .await;

    watched.servers[before].kill();
    eventually("the sentinels agree on the replica", async || {
        get().await;
        watched.primary() == Some(next)
    })
    .await;
    let decided = app.metric(by_store).await;
    eventually("Redis decides again", async || {
        get().await;
        app.metric(by_store).await > decided
    })
    .await;
    assert!(counters(&watched.servers[next]) > 0);
}

#[tokio::test]
async fn a_primary_that_was_demoted_and_lives_on_is_left_for_the_new_one() {
    let watched = Watched::start().await;
    let store = store(&watched.addresses());
    decides(&store).await;
    let before = watched.primary().expect("no fail-over yet");
    let next = 1 - before;
    eventually("a sentinel takes the order", async || {
        let ordered: redis::RedisResult<redis::Value> = watched.sentinels[0].ask("FAILOVER");
        ordered.is_ok()
    })
    .await;
    eventually("the sentinels agree on the replica", async || {
        let _ = take_group(&store, &[demand("p", 2, "1000/366d")], At::Now).await;
        watched.primary() == Some(next)
    })
    .await;
    // The old one may decide until it has heard that it is a replica.
    eventually("the new primary decides", async || {
        let _ = take_group(&store, &[demand("p", 2, "1000/366d")], At::Now).await;
        let role: String = redis::cmd("INFO")
            .arg("replication")
            .query(&mut watched.servers[next].client())
            .expect("an answer");
        role.contains("role:master") && counters(&watched.servers[next]) > 0
    })
    .await;
    decides(&store).await;
}

#[tokio::test]
async fn readonly_is_followed_by_a_connection_to_the_primary_that_the_sentinels_tell() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let port = Arc::new(AtomicU16::new(first.port()));
    let sentinel = telling(&port);
    let store = store(&quoted(&[sentinel.address()]));
    decides(&store).await;
    assert_eq!((counters(&first), counters(&second)), (1, 0));

    port.store(second.port(), Ordering::Relaxed);
    let closed = RedisServer::absent();
    // No connection is closed by it.
    redis::cmd("REPLICAOF")
        .arg("127.0.0.1")
        .arg(closed.port())
        .exec(&mut first.client())
        .expect("OK");
    let reply = take_group(&store, &[demand("p", 1, "1000/366d")], At::Now).await;
    assert!(
        matches!(&reply, Err(StoreError::Refused(text)) if text.starts_with("READONLY")),
        "{reply:?}"
    );
    decides(&store).await;
    assert_eq!(counters(&second), 1);
}

#[tokio::test]
async fn a_sentinel_that_is_down_or_silent_is_skipped() {
    let server = RedisServer::start();
    let closed = RedisServer::absent();
    let silent = FakeRedis::start(|_| None);
    let right = telling(&Arc::new(AtomicU16::new(server.port())));
    let store = store(&quoted(&[
        format!("127.0.0.1:{}", closed.port()),
        silent.address(),
        right.address(),
    ]));
    decides(&store).await;
}

#[tokio::test]
async fn a_sentinel_that_is_behind_is_not_believed() {
    let server = RedisServer::start();
    let demoted = RedisServer::start_with(&["--replicaof", "127.0.0.1", "1"]);
    let gone = RedisServer::absent();
    let sentinels = [gone.port(), demoted.port(), server.port()]
        .map(|port| telling(&Arc::new(AtomicU16::new(port))));
    let addresses: Vec<_> = sentinels.iter().map(FakeRedis::address).collect();
    let store = store(&quoted(&addresses));
    decides(&store).await;
    assert_eq!(counters(&server), 1);
}

#[tokio::test]
async fn what_the_sentinels_say_is_told_once_and_heals() {
    let trace = Trace::start();
    let server = RedisServer::start();
    let knows = Arc::new(AtomicBool::new(false));
    let (answer, port) = (Arc::clone(&knows), server.port().to_string());
    let asked = Arc::new(AtomicU16::new(0));
    let count = Arc::clone(&asked);
    let sentinel = FakeRedis::start(move |command| {
        Some(if !command.starts_with("SENTINEL") {
            "+OK".to_owned()
        } else if answer.load(Ordering::Relaxed) {
            format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}", port.len())
        } else {
            count.fetch_add(1, Ordering::Relaxed);
            "*-1".to_owned()
        })
    });
    let store = store(&quoted(&[sentinel.address()]));
    eventually("it is asked again and again", async || {
        asked.load(Ordering::Relaxed) >= 3
    })
    .await;
    let reply = take_group(&store, &[demand("p", 1, "9/366d")], At::Now).await;
    assert_eq!(reply, Err(StoreError::Disconnected));
    let told = format!("sentinel {}: it watches no mymaster", sentinel.address());
    assert_eq!(trace.text().matches(&told).count(), 1, "{}", trace.text());
    knows.store(true, Ordering::Relaxed);
    decides(&store).await;
}
