//! What waits at the same moment travels in one call; each is decided on its own.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use slidegate::{
    clock::Clock,
    ratelimit::Algorithm,
    store::{At, Store, StoreError},
};
use tokio::{sync::Notify, task::JoinSet};

use crate::support::{demand::*, fake_redis::FakeRedis, redis::*};

/// How often the script was called.
fn calls(server: &RedisServer) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.client())
        .expect("Redis answers");
    info.lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
        .and_then(|line| line.split(',').next()?.parse().ok())
        .unwrap_or(0)
}

#[tokio::test]
async fn requests_of_one_moment_travel_in_few_calls_and_each_is_decided_on_its_own() {
    let server = RedisServer::start();
    let store = Arc::new(server.store());
    take(&store, demand("warm", 1, "5/1h"), At::Now).await;
    let before = calls(&server);

    let mut requests = JoinSet::new();
    for number in 0..100u8 {
        let store = Arc::clone(&store);
        requests.spawn(async move {
            // Ten identifiers, ten requests each, of which five fit.
            let decision = take(&store, demand("p", number % 10, "5/366d"), At::Now).await;
            (number % 10, decision.charged)
        });
    }
    let mut charged = [0; 10];
    for (who, is_charged) in requests.join_all().await {
        charged[usize::from(who)] += usize::from(is_charged);
    }
    assert_eq!(charged, [5; 10]);
    // 64 travel in a call at most; a first one may have left before the others came.
    let made = calls(&server) - before;
    assert!((2..=10).contains(&made), "{made} calls for 100 requests");
}

#[tokio::test]
async fn what_has_a_log_travels_with_what_has_none() {
    let server = RedisServer::start();
    let store = Arc::new(server.store());
    take(&store, demand("warm", 1, "5/1h"), At::Now).await;
    let before = calls(&server);

    let mut requests = JoinSet::new();
    for number in 0..60u8 {
        let store = Arc::clone(&store);
        let mut demand = demand("p", number % 6, "5/366d");
        match number % 3 {
            0 => demand.audited = true,
            1 => demand.algorithm = Algorithm::SlidingLog,
            _ => {}
        }
        requests.spawn(async move {
            let decision = take(&store, demand, At::Now).await;
            (number % 6, decision)
        });
    }
    let (mut charged, mut compared) = ([0; 6], [0; 6]);
    for (who, decision) in requests.join_all().await {
        let who = usize::from(who);
        charged[who] += usize::from(decision.charged);
        compared[who] += usize::from(decision.exact.is_some());
    }
    assert_eq!(charged, [5; 6]);
    assert_eq!(compared, [10, 0, 0, 10, 0, 0]);
    let made = calls(&server) - before;
    assert!((1..=10).contains(&made), "{made} calls for 60 requests");
}

#[tokio::test]
async fn a_lone_request_is_a_call_of_its_own() {
    let server = RedisServer::start();
    let store = server.store();
    take(&store, demand("p", 1, "100/366d"), At::Now).await;
    let before = calls(&server);
    for _ in 0..10 {
        take(&store, demand("p", 1, "100/366d"), At::Now).await;
    }
    assert_eq!(calls(&server) - before, 10);
}

#[tokio::test]
async fn a_group_that_fails_leaves_its_fellow_travellers_alone() {
    let server = RedisServer::start();
    let store = Arc::new(server.store());
    take(&store, demand("p", 1, "5/366d"), At::Now).await;
    let _: () = redis::cmd("EVAL")
        .arg("for _, key in ipairs(redis.call('KEYS', '*p:192.0.2.1}*')) do redis.call('SET', key, 'no number', 'KEEPTTL') end")
        .arg(0)
        .query(&mut server.client())
        .expect("Redis answers");
    let mut requests = JoinSet::new();
    for who in 1..=20u8 {
        let store = Arc::clone(&store);
        requests.spawn(async move {
            (
                who,
                take_group(&store, &[demand("p", who, "5/366d")], At::Now).await,
            )
        });
    }
    for (who, reply) in requests.join_all().await {
        match reply {
            Err(StoreError::Refused(_)) => assert_eq!(who, 1),
            reply => assert!(reply.expect("a decision")[0].charged, "{who}"),
        }
    }
}

#[tokio::test]
async fn stamps_that_differ_do_not_travel_together() {
    let server = RedisServer::start();
    let store = Arc::new(server.store());
    let mut requests = JoinSet::new();
    for minute in 0..20u64 {
        let store = Arc::clone(&store);
        requests.spawn(async move {
            let at = slidegate::ratelimit::Timestamp::from_seconds(1_700_000_000 + 600 * minute);
            let decision = take(&store, demand("p", 1, "1/1m"), At::Stamp(at)).await;
            decision.charged && decision.now == at
        });
    }
    assert!(
        requests
            .join_all()
            .await
            .into_iter()
            .all(|own_time| own_time)
    );
}

/// A Redis that takes calls and does not answer them until it is told to.
#[tokio::test]
async fn more_than_may_wait_are_refused_at_once_and_the_bound_is_free_again_afterwards() {
    let (held, release) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
    let answering = Arc::clone(&held);
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let fake = FakeRedis::start(move |command| {
        if !command.starts_with("EVAL") {
            return Some("+OK".to_owned());
        }
        counter.fetch_add(1, Ordering::Relaxed);
        (!answering.load(Ordering::Relaxed)).then(|| "*1\r\n:1700000000000".to_owned())
    });
    let store: Arc<Store> = Arc::new(open_store(&fake.url(), PATIENT, Clock::system()));
    eventually("it is connected", async || {
        let at = At::Stamp(slidegate::ratelimit::Timestamp::from_millis(0));
        store.forget(&[demand("p", 1, "5/1m")], at).await.is_ok()
    })
    .await;

    let mut waiting = JoinSet::new();
    for _ in 0..5_000 {
        let (store, release) = (Arc::clone(&store), Arc::clone(&release));
        waiting.spawn(async move {
            let asked = [demand("p", 1, "5/1m")];
            tokio::select! {
                reply = take_group(&store, &asked, At::Now) => Some(reply),
                () = release.notified() => None,
            }
        });
    }
    let mut refused = 0;
    while refused < 5_000 - 4_096 {
        let reply = waiting
            .join_next()
            .await
            .expect("more wait")
            .expect("no panic");
        assert_eq!(reply, Some(Err(StoreError::Overloaded)));
        refused += 1;
    }
    assert_eq!(store.health().pending, 4_096);
    assert!(asked.load(Ordering::Relaxed) <= 4_096);

    // They leave, as clients do: what they held is free once their calls are over.
    held.store(false, Ordering::Relaxed);
    release.notify_waiters();
    while waiting.join_next().await.is_some() {}
}
