//! `sliding_log`: what it keeps in Redis, and what a client is told by it. What it decides is in `store_conformance`,
//! `differential` and `properties`.

use std::time::Duration;

use redis::Commands as _;
use slidegate::{
    clock::Clock,
    ratelimit::{Algorithm, Timestamp, Wait},
    store::{At, Demand, GiveBack, StoreError},
};

use crate::support::{
    app::App,
    demand::*,
    random::Random,
    redis::{PATIENT, RedisServer, open_store},
};

/// A moment in window 28,000,000 of 1 m, or after it.
fn at(elapsed_ms: u64) -> At {
    At::Stamp(Timestamp::from_millis(28_000_000 * 60_000 + elapsed_ms))
}

fn logged<'a>(policy: &'a str, who: u8, limit: &str) -> Demand<'a> {
    Demand {
        algorithm: Algorithm::SlidingLog,
        ..demand(policy, who, limit)
    }
}

fn keys(client: &mut redis::Connection) -> Vec<String> {
    let mut keys: Vec<String> = client.keys("*").expect("keys");
    keys.sort();
    keys
}

#[tokio::test]
async fn a_log_is_one_key_with_a_member_for_each_unit_that_ends_two_windows_after_the_last() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let log = "rl:{test:p:192.0.2.1}:3600:exact";
    let mut last = None;
    for _ in 0..3 {
        let decision = take(&store, costing(2, logged("p", 1, "9/1h")), At::Now).await;
        last = Some(decision.now.as_millis());
        let ends = redis::cmd("PEXPIRETIME").arg(log).query(&mut client);
        assert_eq!(ends, Ok(last.map(|now| now + 2 * 3_600_000)));
    }
    assert_eq!(keys(&mut client), [log]);
    assert_eq!(client.zcard(log), Ok(6));
    let scores: Vec<(String, u64)> = client.zrange_withscores(log, -2, -1).expect("units");
    let units = scores.iter().map(|(member, score)| {
        let serial = member.strip_prefix(&score.to_string()).expect(member);
        (serial.len(), Some(*score))
    });
    assert!(units.eq([(6, last), (6, last)]), "{scores:?}");
}

/// What has left is not dropped by a denial then, and must not count all the same.
#[tokio::test]
async fn at_the_servers_own_time_a_unit_counts_for_a_window_to_the_millisecond() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let (mut admitted, mut edges) = (Vec::<Timestamp>::new(), 0);
    // Mostly three seconds; more where the machine is busy.
    while admitted.len() < 8 || edges == 0 {
        assert!(
            admitted.len() < 60,
            "no call came in the millisecond of a leaving"
        );
        let decision = take(&store, logged("p", 1, "2/1s"), At::Now).await;
        let now = decision.now;
        let since = |at: &&Timestamp| now.since(**at);
        let second = Duration::from_secs(1);
        let counted: Vec<_> = admitted.iter().filter(|at| since(at) < second).collect();
        assert_eq!(
            decision.counts.current,
            counted.len() as u64,
            "{admitted:?} at {now:?}"
        );
        edges += u32::from(admitted.iter().any(|at| since(&at) == second));
        if decision.allowed {
            admitted.push(now);
        } else {
            let waits = counted.iter().map(|at| second - since(at)).min();
            assert_eq!(decision.retry_after(), waits.map(Wait::For));
        }
    }
    let units: u64 = client
        .zcard("rl:{test:p:192.0.2.1}:1:exact")
        .expect("a log");
    assert!(units <= 2, "what has left is dropped");
}

#[tokio::test]
async fn no_log_is_without_an_end_whatever_was_done_and_what_charges_nothing_leaves_none() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    for (who, at) in [(1, At::Now), (2, At::Stamp(Clock::system().now()))] {
        let hour = costing(3, logged("p", who, "9/1h"));
        let charged_at = take(&store, hour, at).await.now;
        let unit = |demand| GiveBack { demand, charged_at };
        take(
            &store,
            charge(costing(50, logged("charged", who, "2/1h"))),
            at,
        )
        .await;
        take(&store, charge(logged("ban", who, "0/1h")), at).await;
        take(&store, logged("denied", who, "0/1h"), at).await;
        take(&store, peek(logged("asked", who, "9/1h")), at).await;
        let units = [unit(costing(1, hour)), unit(logged("absent", who, "9/1h"))];
        store.give_back(&units).await.expect("an answer");
        take(&store, hour, at).await;
        let forgotten = logged("forgotten", who, "9/1h");
        take(&store, forgotten, at).await;
        store.forget(&[forgotten], at).await.expect("an answer");
    }
    let kept = keys(&mut client);
    let names = kept
        .iter()
        .map(|key| key.split(':').nth(2).expect("a policy"));
    assert!(names.eq(["charged", "charged", "p", "p"]), "{kept:?}");
    for key in kept {
        let ttl: i64 = client.pttl(&key).expect("a time to live");
        let given = if key.contains("192.0.2.2") {
            86_400_000
        } else {
            0
        };
        assert!(
            ttl > 3_600_000 && ttl <= 7_200_000 + given,
            "{key}: {ttl} ms"
        );
    }
}

/// Policies for exact counts are for small limits: a hundred units take about as much as two counters of another key.
#[tokio::test]
async fn a_log_takes_as_much_memory_as_the_document_says() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let mut bytes_of = async |units: u32| {
        let demand = logged("p", u8::try_from(units % 100).expect("small"), "1000/1h");
        for _ in 0..units {
            take(&store, demand, At::Now).await;
        }
        let log = keys(&mut client).into_iter().next_back().expect("a log");
        let mut usage = redis::cmd("MEMORY");
        let bytes: u32 = usage
            .arg("USAGE")
            .arg(&log)
            .arg("SAMPLES")
            .arg(0)
            .query(&mut client)
            .expect("bytes");
        store.forget(&[demand], At::Now).await.expect("an answer");
        bytes
    };
    let (short, long) = (bytes_of(100).await, bytes_of(1_000).await);
    println!("100 units: {short} bytes, 1000: {long}");
    assert!((1_500..2_600).contains(&short), "{short}");
    assert!(long < 1_000 * 120, "{long}");
}

#[tokio::test]
async fn a_key_that_is_no_log_fails_only_its_group_and_charges_nothing_of_it() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let _: () = client
        .set("rl:{test:bad:192.0.2.1}:60:exact", 7)
        .expect("OK");
    let groups = [
        group(&[logged("before", 1, "9/1m")]),
        group(&[
            demand("counter", 1, "9/1m"),
            logged("beside", 1, "9/1m"),
            logged("bad", 1, "9/1m"),
        ]),
        group(&[logged("after", 1, "9/1m"), demand("counted", 1, "9/1m")]),
    ];
    for before in [0, 1] {
        let replies = store.take(&groups, at(before)).await;
        let refused =
            matches!(&replies[1], Err(StoreError::Refused(text)) if text.starts_with("WRONGTYPE"));
        assert!(refused, "{:?}", replies[1]);
        for decided in [&replies[0], &replies[2]] {
            for decision in decided.as_ref().expect("a decision") {
                assert_eq!((decision.charged, decision.counts.current), (true, before));
            }
        }
    }
    for demand in &groups[1][..2] {
        assert_eq!(counts(&store, *demand, at(1)).await, (0, 0));
    }
}

#[tokio::test]
async fn where_memory_runs_out_logs_and_counters_are_charged_or_none() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let (mut refused, mut random) = (0, Random::new(7));
    let mut charged = [0_u64; 5];
    for turn in 0..200 {
        let who = random.below(5) as u8;
        let cost = 1 + random.below(100) as u32;
        let log = costing(cost, logged("log", who, "10000/366d"));
        let counter = costing(cost, demand("counter", who, "10000/366d"));
        let group = match random.below(2) {
            0 => [log, counter],
            _ => [counter, log],
        };
        maxmemory(&mut client, Some(random.below(60_000) as i64 - 30_000));
        let reply = take_group(&store, &group, At::Now).await;
        maxmemory(&mut client, None);
        match reply {
            Ok(_) => charged[usize::from(who)] += u64::from(cost),
            Err(_) => refused += 1,
        }
        for demand in group {
            let found = counts(&store, demand, At::Now).await.0;
            assert_eq!(found, charged[usize::from(who)], "turn {turn}: {demand:?}");
        }
    }
    assert!((20..180).contains(&refused), "{refused}");
    for key in keys(&mut client) {
        let ttl: i64 = client.pttl(&key).expect("a time to live");
        assert!(ttl > 0, "{key}");
    }
}

/// Bytes beyond those in use; `None` is no bound.
fn maxmemory(client: &mut redis::Connection, more: Option<i64>) {
    let info: String = redis::cmd("INFO")
        .arg("memory")
        .query(client)
        .expect("text");
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: i64 = used.and_then(|used| used.parse().ok()).expect("a number");
    let bytes = more.map_or(0, |more| more + used).to_string();
    let mut command = redis::cmd("CONFIG");
    command
        .arg(&["SET", "maxmemory", &bytes])
        .exec(client)
        .expect("OK");
}

#[tokio::test]
async fn a_log_needs_no_more_rights_than_the_readme_tells_and_all_of_them() {
    let server = RedisServer::start();
    let mut client = server.client();
    let readme = include_str!("../lua/README.md");
    let line = |start: &str| readme.lines().find_map(|line| line.split_once(start));
    let (_, user) = line("ACL SETUSER ").expect("the user");
    let (_, rights) = line("with `sliding_log` also `").expect("its further rights");
    let rights: Vec<_> = rights.trim_end_matches("`,").split_whitespace().collect();
    let mut grant = |words: &[&str]| {
        let mut command = redis::cmd("ACL");
        command
            .arg("SETUSER")
            .arg(user.split_whitespace().collect::<Vec<_>>());
        command.arg(words).exec(&mut client).expect("OK");
    };
    grant(&rights);
    let url = server.url().replace("//", "//slidegate:password@");
    let store = open_store(&url, PATIENT, Clock::system());
    let one = logged("p", 1, "2/366d");
    let uses = async |first: At, then: At| {
        let charged_at = take_group(&store, &[one], first).await?[0].now;
        for at in [first, then, then] {
            take_group(&store, &[charge(costing(2, one))], at).await?;
        }
        take_group(&store, &[costing(2, one)], then).await?;
        let unit = GiveBack {
            demand: one,
            charged_at,
        };
        store.give_back(&[unit]).await?;
        store.forget(&[one], then).await
    };
    let stamps = [(At::Now, At::Now), (at(0), at(1_000))];
    for (first, then) in stamps {
        uses(first, then).await.expect("every right");
    }
    for right in rights {
        grant(&[&right.replace('+', "-")]);
        let mut refused = false;
        for (first, then) in stamps {
            refused |= uses(first, then).await.is_err();
            assert_eq!(keys_without_an_end(&server), [""; 0], "{right}");
        }
        assert!(refused, "{right} is not needed");
        grant(&[right]);
    }
}

fn keys_without_an_end(server: &RedisServer) -> Vec<String> {
    let mut client = server.client();
    let mut kept = keys(&mut client);
    kept.retain(|key| client.pttl::<_, i64>(key).expect("a time to live") == -1);
    kept
}

#[tokio::test]
async fn the_largest_cost_of_the_largest_quota_fits_one_call() {
    let server = RedisServer::start();
    let store = server.store();
    let quota = Algorithm::SlidingLog.max_quota().expect("one");
    let limit = logged("p", 1, &format!("{quota}/1m"));
    let all = costing(u32::try_from(quota).expect("small"), limit);
    let first = take(&store, all, at(0)).await;
    assert!(first.charged);
    assert!(!take(&store, limit, at(1)).await.allowed);
    let unit = GiveBack {
        demand: all,
        charged_at: first.now,
    };
    store.give_back(&[unit]).await.expect("an answer");
    assert_eq!(counts(&store, limit, at(1)).await, (0, 0));
    let most = charge(costing(u32::MAX, limit));
    take(&store, most, at(2)).await;
    take(&store, most, at(3)).await;
    assert_eq!(counts(&store, limit, at(3)).await, (2 * quota, 0));
}

#[tokio::test]
async fn a_unit_taken_back_and_taken_again_at_one_moment_is_each_in_the_log() {
    let server = RedisServer::start();
    let store = server.store();
    let one = logged("p", 1, "4/1m");
    let charged_at = take(&store, one, at(0)).await.now;
    for _ in 0..20 {
        take(&store, costing(2, one), at(0)).await;
        let units = GiveBack {
            demand: costing(2, one),
            charged_at,
        };
        store.give_back(&[units]).await.expect("an answer");
        assert_eq!(counts(&store, one, at(0)).await, (1, 0));
    }
}

/// Alternating stamps: older units go, and those that come at their moment again are told from those that stayed.
#[tokio::test]
async fn units_charged_beyond_the_quota_at_moments_that_go_back_are_all_counted() {
    let server = RedisServer::start();
    let store = server.store();
    let two = charge(costing(2, logged("p", 1, "3/1m")));
    take(&store, costing(6, two), at(5)).await;
    for _ in 0..5 {
        take(&store, two, at(6)).await;
        take(&store, two, at(5)).await;
        assert_eq!(counts(&store, two, at(6)).await, (6, 0));
    }
}

const POLICIES: &str = "policies:
  - {name: p, algorithm: sliding_log, limits: [3/1h, 5/366d], match: {path: [/, /status/404]}}
  - {name: late, algorithm: sliding_log, limits: [9/1h], charge_on: [404], match: {path: [/status/404]}}
  - {name: back, algorithm: sliding_log, limits: [9/1h], take_back_5xx: true, match: {path: [/back, /status/503]}}
";

#[tokio::test]
async fn clients_are_told_of_a_log_what_it_counts_in_memory_and_in_redis() {
    let server = RedisServer::start();
    let redis = format!("store: {{url: \"{}\", budget: 10s}}\n", server.url());
    for store in ["", &redis] {
        let rest = format!("{store}responses: {{x_ratelimit_reset: seconds}}\n{POLICIES}");
        let (app, _upstream) = App::with_upstream(&rest);
        if !store.is_empty() {
            app.store_decides().await;
        }
        assert_eq!(app.ask("/", &[]).await, (200, Some(2)));
        assert_eq!(app.ask("/status/404", &[]).await, (404, Some(1)));
        let last = reqwest::get(app.url("/")).await.expect("a response");
        let seconds = |response: &reqwest::Response, name: &str| -> Option<u64> {
            response.headers().get(name)?.to_str().ok()?.parse().ok()
        };
        // When the oldest unit leaves, which came a moment ago.
        let reset = seconds(&last, "x-ratelimit-reset").expect("seconds");
        assert!((3_500..=3_600).contains(&reset), "{reset}");
        let denied = reqwest::get(app.url("/")).await.expect("a response");
        assert_eq!(denied.status(), 429);
        let wait = seconds(&denied, "retry-after").expect("seconds");
        assert!((3_500..=3_600).contains(&wait), "{wait}");
        assert_eq!(app.ask("/back", &[]).await, (200, Some(8)));
        app.ask("/status/503", &[]).await;
        assert_eq!(app.ask("/back", &[]).await, (200, Some(7)));
    }
}

#[tokio::test]
async fn a_flood_on_a_log_is_denied_without_calls_and_told_the_same_wait() {
    let server = RedisServer::start();
    let (app, _upstream) = App::with_upstream(&format!(
        "store: {{url: \"{}\", budget: 10s, denial_cache: 60s}}\n\
         policies: [{{name: p, algorithm: sliding_log, limits: [2/1h]}}]\n",
        server.url()
    ));
    app.store_decides().await;
    for expected in [200, 200, 429, 429, 429] {
        let response = reqwest::get(app.url("/")).await.expect("a response");
        assert_eq!(response.status(), expected);
        let wait = response.headers().get("retry-after");
        let wait = wait.map(|wait| wait.to_str().ok()?.parse::<u32>().ok());
        let is_right = match wait {
            Some(wait) => wait.is_some_and(|wait| (3_500..=3_600).contains(&wait)),
            None => expected == 200,
        };
        assert!(is_right, "{wait:?}");
    }
    for (by, denied) in [("store", 1.0), ("denial_cache", 2.0)] {
        let series = format!(
            "slidegate_decisions_total{{decided_by=\"{by}\",decision=\"deny\",mode=\"enforce\",plan=\"\",policy=\"p\"}}"
        );
        app.metric_becomes(&series, denied).await;
    }
}

#[tokio::test]
async fn an_audit_leaves_a_log_alone() {
    let server = RedisServer::start();
    let (app, _upstream) = App::with_upstream(&format!(
        "store: {{url: \"{}\", budget: 10s}}\naudit: {{sample: 1}}\n\
         policies: [{{name: p, algorithm: sliding_log, limits: [2/1h]}}, {{name: q, limits: [9/1h]}}]\n",
        server.url()
    ));
    app.store_decides().await;
    assert_eq!(app.ask("/", &[]).await.0, 200);
    let judged = |policy: &str| {
        format!("slidegate_audit_decisions_total{{outcome=\"correct\",policy=\"{policy}\"}}")
    };
    app.metric_becomes(&judged("q"), 1.0).await;
    assert_eq!(app.metric(&judged("p")).await, 0.0);
    let kept = keys(&mut server.client());
    let audits = kept.iter().filter(|key| key.ends_with(":log"));
    assert_eq!(audits.count(), 1, "{kept:?}");
}
