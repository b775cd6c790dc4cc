//! A Redis that is absent, slow, stopped, killed, demoted or guarded: what requests meet, and that all of it
//! heals without a restart.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use slidegate::{
    clock::{self, Clock},
    ratelimit::{Decision, Timestamp},
    store::{At, Demand, RedisSettings, RedisStore, RedisUrl, Store, StoreError},
};

use crate::support::{demand::*, fake_redis::FakeRedis, redis::*, trace::Trace};

/// As little as is still likely to be met by a server that answers.
const BUDGET: Duration = Duration::from_millis(300);

/// What a request that does not wait is given, to show that it does not.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Longer than one budget and whatever a busy machine adds, shorter than two waits for a slow server.
const AT_MOST: Duration = Duration::from_secs(20);

const FIVE: &str = "5/366d";

async fn ask(store: &Store, demand: Demand<'_>) -> Result<Decision, StoreError> {
    let asked = clock::instant();
    let reply = take_group(store, &[demand], At::Now).await;
    assert!(clock::elapsed(asked) < AT_MOST, "it waited");
    reply.map(|decisions| decisions[0])
}

async fn until_connected(store: &Store) -> Decision {
    let mut found = None;
    eventually("a decision", async || {
        found = ask(store, peek(demand("p", 1, FIVE))).await.ok();
        found.is_some()
    })
    .await;
    assert!(!store.health().tripped);
    found.expect("it was found")
}

async fn until_tripped(store: &Store) {
    eventually("the breaker trips", async || {
        let _ = ask(store, peek(demand("p", 1, FIVE))).await;
        store.health().tripped
    })
    .await;
}

/// How many connections the server has seen.
fn connections(client: &mut redis::Connection) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("stats")
        .query(client)
        .expect("stats");
    let count = stats.split("total_connections_received:").nth(1);
    let digits = count.and_then(|count| count.split('\r').next());
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("a count")
}

fn replica_of(client: &mut redis::Connection, host: &str, port: &str) {
    let mut command = redis::cmd("REPLICAOF");
    command.arg(host).arg(port).exec(client).expect("OK");
}

fn set_password(client: &mut redis::Connection, password: &str) {
    let mut command = redis::cmd("CONFIG");
    command.arg("SET").arg("requirepass").arg(password);
    command.exec(client).expect("OK");
}

/// Ends all connections but this one.
fn end_connections(client: &mut redis::Connection) {
    let mut command = redis::cmd("CLIENT");
    command
        .arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes");
    command.exec(client).expect("OK");
}

#[tokio::test]
async fn a_server_that_is_absent_at_start_is_found_once_it_appears() {
    let mut server = RedisServer::absent();
    let store = server.store_with(FOR_EVER, Clock::system());
    for _ in 0..3 {
        let reply = ask(&store, demand("p", 1, FIVE)).await;
        assert_eq!(
            reply,
            Err(StoreError::Disconnected),
            "and it did not wait for ever"
        );
    }
    let health = store.health();
    assert!(
        health.tripped && health.next_probe <= Duration::from_millis(500),
        "{health:?}"
    );
    server.restart();
    assert_eq!(until_connected(&store).await.counts.current, 0);
}

#[tokio::test]
async fn a_server_that_does_not_answer_at_start_costs_the_budget_and_then_nothing() {
    let server = RedisServer::start();
    server.pause();
    let store = server.store_with(Duration::from_millis(20), Clock::system());
    assert_eq!(
        ask(&store, demand("p", 1, FIVE)).await,
        Err(StoreError::Timeout)
    );
    until_tripped(&store).await;
    assert_eq!(
        ask(&store, demand("p", 1, FIVE)).await,
        Err(StoreError::Disconnected)
    );
    server.resume();
    assert_eq!(
        until_connected(&store).await.counts.current,
        0,
        "none of it was counted"
    );
}

#[tokio::test]
async fn a_server_that_stops_answering_trips_the_breaker_after_three_timeouts_and_heals() {
    let server = RedisServer::start();
    let store = server.store_with(BUDGET, Clock::system());
    until_connected(&store).await;
    for round in 0..2 {
        server.pause();
        for _ in 0..3 {
            assert!(!store.health().tripped);
            let reply = ask(&store, peek(demand("p", 1, FIVE))).await;
            assert_eq!(reply, Err(StoreError::Timeout), "round {round}");
        }
        // The third call is given up a moment after its request was.
        eventually("the breaker trips", async || store.health().tripped).await;
        let reply = ask(&store, demand("p", 1, FIVE)).await;
        assert_eq!(reply, Err(StoreError::Disconnected), "round {round}");
        server.resume();
        until_connected(&store).await;
    }
}

#[tokio::test]
async fn a_call_that_timed_out_is_not_sent_again() {
    let server = RedisServer::start();
    let store = server.store_with(BUDGET, Clock::system());
    until_connected(&store).await;
    server.pause();
    for _ in 0..2 {
        let reply = ask(&store, demand("p", 1, FIVE)).await;
        assert_eq!(reply, Err(StoreError::Timeout));
    }
    server.resume();
    // The connection is the same, so what was sent before has run before.
    let found = until_connected(&store).await;
    assert_eq!(found.counts.current, 2, "each ran once");
}

#[tokio::test]
async fn an_answer_between_timeouts_keeps_the_breaker_from_tripping() {
    let server = RedisServer::start();
    let store = server.store_with(BUDGET, Clock::system());
    until_connected(&store).await;
    for _ in 0..3 {
        server.pause();
        for _ in 0..2 {
            let reply = ask(&store, peek(demand("p", 1, FIVE))).await;
            assert_eq!(reply, Err(StoreError::Timeout));
        }
        server.resume();
        until_connected(&store).await;
    }
}

#[tokio::test]
async fn a_killed_server_is_noticed_and_found_again() {
    let mut server = RedisServer::start();
    let store = server.store_with(FOR_EVER, Clock::system());
    for _ in 0..2 {
        until_connected(&store).await;
        assert!(take(&store, demand("p", 1, FIVE), At::Now).await.charged);
        server.kill();
        eventually("the loss is noticed without a request", async || {
            store.health().tripped
        })
        .await;
        assert_eq!(
            ask(&store, demand("p", 1, FIVE)).await,
            Err(StoreError::Disconnected)
        );
        server.restart();
        assert_eq!(
            until_connected(&store).await.counts.current,
            0,
            "it came back empty"
        );
    }
}

#[tokio::test]
async fn a_demoted_server_is_dropped_and_asked_again_when_it_takes_writes() {
    let server = RedisServer::start();
    let (store, mut client) = (
        server.store_with(FOR_EVER, Clock::system()),
        server.client(),
    );
    until_connected(&store).await;
    let closed = RedisServer::absent();
    replica_of(&mut client, "127.0.0.1", &closed.port().to_string());
    let reply = ask(&store, demand("p", 1, FIVE)).await;
    assert!(
        matches!(&reply, Err(StoreError::Refused(text)) if text.starts_with("READONLY")),
        "{reply:?}"
    );
    // No probe takes it for sound, though it answers.
    let attempts = connections(&mut client) + 4;
    eventually("it is probed", async || {
        assert_eq!(
            ask(&store, demand("p", 1, FIVE)).await,
            Err(StoreError::Disconnected)
        );
        connections(&mut client) >= attempts
    })
    .await;
    replica_of(&mut client, "NO", "ONE");
    until_connected(&store).await;
    assert!(take(&store, demand("p", 1, FIVE), At::Now).await.charged);
}

#[tokio::test]
async fn tasks_of_several_runtimes_share_the_connection_and_each_has_its_own_answer() {
    let server = RedisServer::start();
    let store = Arc::new(server.store_with(FOR_EVER, Clock::system()));
    let (told, counts) = mpsc::channel();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (store, told) = (Arc::clone(&store), told.clone());
            let tasks = async move {
                let tasks: Vec<_> = (0..32)
                    .map(|_| {
                        let (store, told) = (Arc::clone(&store), told.clone());
                        tokio::spawn(async move {
                            let decision = take(&store, demand("p", 1, "1000/366d"), At::Now).await;
                            told.send(decision.counts.current)
                                .expect("the test listens");
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.expect("a decision");
                }
            };
            tokio::task::spawn_blocking(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                runtime.expect("a runtime").block_on(tasks);
            })
        })
        .collect();
    for thread in threads {
        thread.await.expect("no panic");
    }
    drop(told);
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_unstable();
    assert!(counts.into_iter().eq(0..96), "each unit was counted once");
}

#[tokio::test]
async fn a_changed_password_is_healed_by_the_right_one() {
    let server = RedisServer::start();
    let mut client = server.client();
    // A server without a password accepts any.
    let url = server.url().replace("//", "//:ours@");
    let store = open_store(&url, FOR_EVER, Clock::system());
    until_connected(&store).await;
    set_password(&mut client, "theirs");
    end_connections(&mut client);
    eventually("the loss is noticed", async || store.health().tripped).await;
    let reply = ask(&store, demand("p", 1, FIVE)).await;
    assert_eq!(reply, Err(StoreError::Disconnected));
    set_password(&mut client, "ours");
    until_connected(&store).await;
}

#[tokio::test]
async fn an_outage_is_logged_once_each_way_and_once_more_for_each_reason() {
    let trace = Trace::start();
    let server = RedisServer::start();
    let mut client = server.client();
    let store = open_store(
        &server.url().replace("//", "//:ours@"),
        FOR_EVER,
        Clock::system(),
    );
    until_connected(&store).await;
    for outage in 1..=2 {
        set_password(&mut client, "theirs");
        end_connections(&mut client);
        let attempts = connections(&mut client) + 4;
        eventually("it tries several times", async || {
            let _ = ask(&store, demand("p", 1, FIVE)).await;
            connections(&mut client) >= attempts
        })
        .await;
        set_password(&mut client, "ours");
        until_connected(&store).await;
        let text = trace.text();
        let told = |line: &str| text.matches(line).count();
        assert_eq!(told("Connected to the store"), 1 + outage, "{text}");
        assert_eq!(told("it closed the connection"), outage, "{text}");
        assert_eq!(told("is not connected"), 2 * outage, "{text}");
    }
}

#[tokio::test]
async fn a_password_is_never_shown() {
    const PASSWORD: &str = "hunter2";
    let trace = Trace::start();
    let server = RedisServer::start_with(&["--requirepass", "something else"]);
    let quoting = FakeRedis::start(|command| Some(format!("-ERR I was sent {command}")));
    let mut shown = Vec::new();
    for address in [format!("127.0.0.1:{}", server.port()), quoting.address()] {
        let url = format!("redis://user:{PASSWORD}@{address}/3");
        let settings = RedisSettings {
            budget: FOR_EVER,
            namespace: "test".to_owned(),
            ..RedisSettings::new(url.parse().expect("a Redis URL"))
        };
        shown.push(format!("{settings:?} {}", settings.url));
        let runtime = tokio::runtime::Handle::current();
        let store = Store::Redis(RedisStore::open(settings, Clock::system(), &runtime));
        let error = ask(&store, demand("p", 1, FIVE))
            .await
            .expect_err("no way in");
        shown.push(format!("{error} {error:?} {store:?} {store:#?}"));
    }
    for faulty in [
        format!("redis://user:{PASSWORD}@h:x/3"),
        format!("rediss://:{PASSWORD}@h#insecure"),
        format!("memcached://:{PASSWORD}@h"),
    ] {
        let error = faulty.parse::<RedisUrl>().expect_err("no URL of ours");
        shown.push(format!("{error} {error:?}"));
    }
    shown.push(trace.text());
    let shown = shown.join("\n");
    assert!(shown.contains("127.0.0.1"), "the address is told: {shown}");
    assert!(shown.contains("WRONGPASS"), "and what is wrong: {shown}");
    assert!(!shown.contains(PASSWORD), "{shown}");
}

fn is_script(command: &str) -> bool {
    command.starts_with("EVAL")
}

#[tokio::test]
async fn a_window_that_is_never_the_one_expected_is_asked_about_four_times_and_then_told() {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let fake = FakeRedis::start(move |command| {
        Some(if is_script(command) {
            count.fetch_add(1, Ordering::Relaxed);
            "*2\r\n:1700000000000\r\n:2".to_owned()
        } else {
            "+OK".to_owned()
        })
    });
    let store = open_store(&fake.url(), FOR_EVER, Clock::system());
    let reply = ask(&store, demand("p", 1, FIVE)).await;
    assert_eq!(reply, Err(StoreError::WindowTurned));
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn what_was_answered_before_the_budget_ran_out_stays_answered() {
    let first = AtomicBool::new(true);
    let fake = FakeRedis::start(move |command| {
        if !is_script(command) {
            return Some("+OK".to_owned());
        }
        // One group is admitted, the other in another window; the second call is never answered.
        first
            .swap(false, Ordering::Relaxed)
            .then(|| "*6\r\n:1700000000000\r\n:1\r\n:1\r\n:4\r\n:0\r\n:2".to_owned())
    });
    let store = open_store(&fake.url(), BUDGET, Clock::system());
    until_up(&store).await;
    let groups = [
        group(&[demand("p", 1, FIVE)]),
        group(&[demand("q", 1, FIVE)]),
    ];
    let replies = store.take(&groups, At::Now).await;
    let admitted = replies[0].as_ref().expect("a decision")[0];
    assert!(admitted.charged && admitted.counts.current == 4);
    assert_eq!(replies[1], Err(StoreError::Timeout));
}

#[tokio::test]
async fn an_answer_that_is_not_understood_is_an_error_of_its_own() {
    let fake = FakeRedis::start(|command| {
        Some(
            if is_script(command) {
                "*1\r\n$3\r\nwat"
            } else {
                "+OK"
            }
            .to_owned(),
        )
    });
    let store = open_store(&fake.url(), FOR_EVER, Clock::system());
    let reply = ask(&store, demand("p", 1, FIVE)).await;
    assert!(matches!(reply, Err(StoreError::Reply(_))), "{reply:?}");
}

/// Connected, without a call.
async fn until_up(store: &Store) {
    eventually("it is connected", async || {
        store
            .forget(
                &[demand("p", 1, FIVE)],
                At::Stamp(Timestamp::from_millis(0)),
            )
            .await
            .is_ok()
    })
    .await;
}
