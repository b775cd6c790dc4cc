//! No unit too many, however many ask at once.
//!
//! Many tasks of two stores, and many connections to two proxies, take from one identifier over several
//! real windows of a second. Every charge of a window found a different count, so the replies can be put in
//! the order in which Redis ran them, and decided again one after another: that is the oracle. That it can fail is shown by a limiter that reads and then writes.

use std::sync::Arc;

use redis::AsyncCommands;
use slidegate::{
    clock::Clock,
    ratelimit::{Algorithm, Cost, Counts, Decision, Limit, Timestamp, decide},
    store::At,
};
use tokio::task::JoinSet;

use crate::support::{app::App, demand::*, oracle::*, redis::*, relay::Relay, upstream::Upstream};

const LIMIT: &str = "50/1s";
const TASKS: usize = 64;
const WINDOWS: u64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_with_many_tasks_admit_not_one_unit_too_many() {
    let server = RedisServer::start();
    let mut tasks = JoinSet::new();
    for offset in [0, 90_000] {
        let store = server.store_with(PATIENT, Clock::skewed(offset));
        let store = Arc::new(store);
        for _ in 0..TASKS {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                let mut replies = Vec::new();
                while !is_over(&replies) {
                    replies.push(take(&store, demand("p", 1, LIMIT), At::Now).await);
                }
                replies
            });
        }
    }
    let replies: Vec<_> = tasks.join_all().await.concat();
    let admitted = replies.iter().filter(|reply| reply.charged).count();
    assert!(admitted > 50, "{admitted} of {} admitted", replies.len());
    assert_eq!(faults(replies), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_proxies_with_64_connections_each_admit_not_one_unit_too_many() {
    let server = RedisServer::start();
    let relay = Relay::to(([127, 0, 0, 1], server.port()).into());
    let upstream = Upstream::start();
    let yaml = format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 10s}}\n\
         policies: [{{name: p, identifier: [header:x-api-key], limits: [{LIMIT}]}}]\n",
        upstream.address,
        relay.url()
    );
    // Their clocks disagree by a minute and a half: Redis's decides.
    let proxies = [0, 90_000].map(|skew| App::start_at(&yaml, Clock::skewed(skew)));
    let started = Clock::system();
    let last = started.now().as_seconds() + WINDOWS;
    let mut tasks = JoinSet::new();
    for proxy in &proxies {
        for _ in 0..TASKS {
            let (url, clock) = (proxy.url("/"), started.clone());
            tasks.spawn(async move {
                let client = reqwest::Client::new();
                let mut statuses = Vec::new();
                while clock.now().as_seconds() <= last {
                    let request = client.get(&url).header("x-api-key", "the same");
                    statuses.push(request.send().await.expect("a response").status());
                }
                statuses
            });
        }
    }
    let statuses = tasks.join_all().await.concat();
    let answered = |status: u16| statuses.iter().filter(|found| **found == status).count();

    let replies: Vec<Decision> = {
        let limit = LIMIT.parse().expect("a limit");
        let answers = relay.answers();
        answers
            .iter()
            .flat_map(|reply| take_replies(reply, limit))
            .collect()
    };
    let charged = replies.iter().filter(|reply| reply.charged).count();
    assert!(charged > 50, "{charged} of {} admitted", replies.len());
    assert_eq!(answered(200), charged, "every charge is an answer");
    assert_eq!(
        answered(200) + answered(429),
        statuses.len(),
        "and there are no others"
    );
    assert_eq!(faults(replies), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_finds_out_a_limiter_that_reads_and_then_writes() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).expect("a Redis URL");
    let connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("it answers");
    let clock = Clock::system();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (mut connection, clock) = (connection.clone(), clock.clone());
        tasks.spawn(async move {
            let mut replies = Vec::new();
            while !is_over(&replies) {
                replies.push(naive(&mut connection, clock.now()).await);
            }
            replies
        });
    }
    let replies = tasks.join_all().await.concat();
    assert!(!faults(replies).is_empty());
}

/// GET, GET, then INCR: what two tasks do at the same time, both do with the same counts.
async fn naive(connection: &mut impl AsyncCommands, now: Timestamp) -> Decision {
    let limit: Limit = LIMIT.parse().expect("a limit");
    let number = limit.window().position(now).number;
    let key = format!("naive:{number}");
    let current: Option<u64> = connection.get(&key).await.expect("a count");
    let previous = format!("naive:{}", number - 1);
    let previous: Option<u64> = connection.get(previous).await.expect("a count");
    let counts = Counts {
        current: current.unwrap_or(0),
        previous: previous.unwrap_or(0),
    };
    let mut decision = decide(Algorithm::default(), limit, counts, Cost::ONE, now);
    if decision.allowed {
        let _: u64 = connection.incr(&key, 1).await.expect("a count");
        decision.charged = true;
    }
    decision
}

/// Whether these replies, of one task, span enough windows.
fn is_over(replies: &[Decision]) -> bool {
    match (replies.first(), replies.last()) {
        (Some(first), Some(last)) => last.position().number - first.position().number >= WINDOWS,
        _ => false,
    }
}
