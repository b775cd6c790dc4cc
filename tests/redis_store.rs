//! What the Redis store leaves on the server, and how it meets the server's answers.
//!
//! What happens when the server does not answer is `redis_outage`'s.

use std::collections::HashMap;

use redis::{Commands, Connection};
use slidegate::{
    clock::Clock,
    ratelimit::Decision,
    store::{At, Demand, GiveBack, Health, Store, StoreError},
};

use crate::support::{demand::*, redis::*};

/// How often a script ran, by name and by source.
fn calls(client: &mut Connection) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(client)
        .expect("stats");
    ["cmdstat_evalsha:calls=", "cmdstat_eval:calls="]
        .iter()
        .filter_map(|name| {
            stats
                .split(name)
                .nth(1)?
                .split(',')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum()
}

fn key(policy: &str, who: u8, window: u64, number: u64) -> String {
    format!("rl:{{test:{policy}:192.0.2.{who}}}:{window}:{number}")
}

fn refused(reply: &slidegate::store::GroupReply) -> &str {
    match reply {
        Err(StoreError::Refused(text)) => text,
        other => panic!("not refused: {other:?}"),
    }
}

/// Takes the same demand until two decisions fall in one window, so that a turn between them, as rare
/// as it is, is not what the test sees.
async fn twice_in_a_window(store: &Store, demand: Demand<'_>) -> (Decision, Decision) {
    loop {
        let (first, second) = (
            take(store, demand, At::Now).await,
            take(store, demand, At::Now).await,
        );
        if first.position().number == second.position().number {
            return (first, second);
        }
    }
}

#[tokio::test]
async fn an_identifiers_counters_have_the_names_that_the_readme_tells() {
    let server = RedisServer::start();
    let decision = take(&server.store(), demand("per-ip", 7, "5/1m"), At::Now).await;
    let mut client = server.client();
    let keys: Vec<String> = client.keys("*").expect("keys");
    assert_eq!(keys, [key("per-ip", 7, 60, decision.position().number)]);
    let count: u64 = client.get(&keys[0]).expect("a count");
    assert_eq!(count, 1);
}

#[tokio::test]
async fn every_counter_lives_exactly_two_windows_from_its_first_unit() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    for limit in ["5/1s", "5/1m", "5/1d", "5/30d", "5/366d"] {
        let (first, _) = twice_in_a_window(&store, demand("p", 1, limit)).await;
        let window = first.limit.window();
        let key = key("p", 1, window.seconds(), first.position().number);
        let ends: u64 = redis::cmd("PEXPIRETIME")
            .arg(&key)
            .query(&mut client)
            .expect("a time");
        let lives = ends.saturating_sub(first.now.as_millis());
        // A second later the shortest one is gone, and the answer is that there is no such key.
        let gone: bool = !client.exists::<_, bool>(&key).expect("an answer");
        assert!(
            lives == 2000 * window.seconds() || gone,
            "{limit} lives {lives} ms"
        );
    }
}

#[tokio::test]
async fn no_key_is_without_a_time_to_live_whatever_was_done() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    for (who, at) in [(1, At::Now), (2, At::Stamp(Clock::system().now()))] {
        let hour = costing(3, demand("p", who, "9/1h"));
        let taken = take(&store, hour, at).await;
        let charged = |demand| GiveBack {
            demand,
            charged_at: taken.now,
        };
        take(&store, charge(demand("charged", who, "0/1h")), at).await;
        take(&store, demand("denied", who, "0/1h"), at).await;
        take(&store, peek(demand("asked", who, "9/1h")), at).await;
        let absent = charged(demand("absent", who, "9/1h"));
        store
            .give_back(&[charged(hour), charged(hour), absent])
            .await
            .expect("an answer");
        take(&store, hour, at).await;
        store
            .forget(&[demand("charged", who, "0/1h")], at)
            .await
            .expect("an answer");
        take(&store, charge(demand("charged", who, "0/1h")), at).await;
    }

    let keys: Vec<String> = client.keys("*").expect("keys");
    let lives: HashMap<_, i64> = keys
        .into_iter()
        .map(|key| (client.pttl(&key).expect("a time to live"), key))
        .map(|(ttl, key)| (key, ttl))
        .collect();
    assert_eq!(
        lives.len(),
        4,
        "what was denied or asked left nothing: {lives:?}"
    );
    for (key, ttl) in lives {
        let given = key.contains("192.0.2.2");
        let most = 2 * 3_600_000 + if given { 86_400_000 } else { 0 };
        assert!(ttl > 3_600_000 && ttl <= most, "{key} lives {ttl} ms");
    }
}

#[tokio::test]
async fn a_counter_that_was_given_back_to_0_still_ends_when_it_would_have() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let one = demand("p", 1, "5/366d");
    let taken = take(&store, one, At::Now).await;
    let charged_at = taken.now;
    let key = key("p", 1, 366 * 86_400, taken.position().number);
    // Moved, so that setting it anew shows.
    let _: () = client.pexpire(&key, 1_000_000).expect("OK");
    let mut end = || -> u64 {
        let mut command = redis::cmd("PEXPIRETIME");
        command.arg(&key).query(&mut client).expect("a time")
    };
    let before = end();
    let unit = GiveBack {
        demand: one,
        charged_at,
    };
    store.give_back(&[unit]).await.expect("an answer");
    assert_eq!(end(), before);
    assert!(take(&store, one, At::Now).await.charged);
    assert_eq!(end(), before);
}

#[tokio::test]
async fn a_previous_window_is_readable_to_its_last_moment() {
    let server = RedisServer::start();
    let store = server.store();
    let one = demand("p", 1, "100/1s");
    let charged = take(&store, one, At::Now).await.position().number;
    let mut as_previous = 0;
    loop {
        let decision = take(&store, peek(one), At::Now).await;
        match decision.position().number - charged {
            0 => assert_eq!((decision.counts.current, decision.counts.previous), (1, 0)),
            1 => {
                let elapsed = decision.position().elapsed;
                assert_eq!(
                    decision.counts.previous, 1,
                    "{elapsed} ms into the next window"
                );
                as_previous += 1;
            }
            _ => break,
        }
    }
    assert!(as_previous > 0, "the next window was slept through");
}

#[tokio::test]
async fn a_flushed_script_cache_is_healed_in_the_same_request() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let one = demand("p", 1, "1000/1h");
    let mut last = take(&store, one, At::Now).await;
    for _ in 0..20 {
        redis::cmd("SCRIPT")
            .arg("FLUSH")
            .exec(&mut client)
            .expect("OK");
        let next = take(&store, one, At::Now).await;
        if next.position().number == last.position().number {
            assert_eq!(next.counts.current, last.counts.current + 1);
        }
        last = next;
        redis::cmd("SCRIPT")
            .arg("FLUSH")
            .exec(&mut client)
            .expect("OK");
        let unit = GiveBack {
            demand: one,
            charged_at: last.now,
        };
        store
            .give_back(&[unit])
            .await
            .expect("the other script is healed too");
        last.counts.current -= 1;
    }
}

#[tokio::test]
async fn what_is_wrong_with_one_groups_key_fails_only_that_group_and_charges_nothing_of_it() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let number = take(&store, demand("first", 1, "9/366d"), At::Now)
        .await
        .position()
        .number;
    let bad_key = key("bad", 1, 366 * 86_400, number);
    let groups = [
        group(&[demand("before", 1, "9/366d")]),
        group(&[demand("beside", 1, "9/366d"), demand("bad", 1, "9/366d")]),
        group(&[demand("after", 1, "9/366d")]),
    ];
    let bad_values = [
        "",
        "abc",
        "007",
        "1.5",
        "-3",
        "1e3",
        "0x10",
        " 1",
        "9007199254740992",
    ];
    for (round, value) in (1..).zip(std::iter::once(None).chain(bad_values.map(Some))) {
        let _: () = client.del(&bad_key).expect("OK");
        let _: () = match value {
            None => client.lpush(&bad_key, "a list").expect("OK"),
            Some(value) => client.set(&bad_key, value).expect("OK"),
        };
        let replies = store.take(&groups, At::Now).await;
        let text = refused(&replies[1]);
        assert_eq!(
            text.starts_with("WRONGTYPE"),
            value.is_none(),
            "{value:?}: {text}"
        );
        assert!(
            value.is_none() || text.contains("the counter"),
            "{value:?}: {text}"
        );
        for decided in [&replies[0], &replies[2]] {
            let decision = decided.as_ref().expect("a decision")[0];
            assert_eq!(
                (decision.charged, decision.counts.current),
                (round <= 9, (round - 1).min(9))
            );
        }
        assert_eq!(
            counts(&store, demand("beside", 1, "9/366d"), At::Now).await,
            (0, 0),
            "{value:?}"
        );
    }
    assert_eq!(
        store.health(),
        Health::default(),
        "the server is not to blame"
    );
}

#[tokio::test]
async fn a_charge_past_2_to_the_53_is_refused_before_anything_is_charged() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let full = charge(demand("full", 1, "9/366d"));
    let number = take(&store, peek(full), At::Now).await.position().number;
    let _: () = client
        .set(key("full", 1, 366 * 86_400, number), (1_u64 << 53) - 1)
        .expect("OK");
    let beside = demand("beside", 1, "9/366d");
    let reply = take_group(&store, &[beside, full], At::Now).await;
    assert!(refused(&reply).contains("2^53"), "{reply:?}");
    assert_eq!(counts(&store, beside, At::Now).await, (0, 0));
    let denied = take(&store, demand("full", 1, "9/366d"), At::Now).await;
    assert_eq!(
        (denied.allowed, denied.counts.current),
        (false, (1 << 53) - 1)
    );
}

#[tokio::test]
async fn a_server_out_of_memory_charges_nothing_and_heals() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let mut limit = |bytes| {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("maxmemory").arg(bytes);
        command.exec(&mut client).expect("OK");
    };
    let group = [demand("old", 1, "9/366d"), demand("new", 1, "9/366d")];
    take(&store, group[0], At::Now).await;
    limit("1");
    let reply = take_group(&store, &group, At::Now).await;
    assert!(refused(&reply).starts_with("OOM"), "{reply:?}");
    assert_eq!(
        counts(&store, group[0], At::Now).await,
        (1, 0),
        "reading works"
    );
    assert!(!store.health().tripped);
    limit("0");
    let decisions = take_group(&store, &group, At::Now)
        .await
        .expect("a decision");
    let counts: Vec<_> = decisions.iter().map(|one| one.counts.current).collect();
    assert_eq!(counts, [1, 0]);
}

#[tokio::test]
async fn a_wrong_guess_of_the_window_costs_one_more_call_once() {
    let server = RedisServer::start();
    let mut client = server.client();
    for offset in [90_000, -90_000, 400 * 86_400_000] {
        let store = server.store_with(PATIENT, Clock::skewed(offset));
        // Should the window turn meanwhile, a guess may rightly be wrong: then once more.
        loop {
            let before = calls(&mut client);
            let first = take_group(&store, &[demand("p", 1, "1000/1m")], At::Now).await;
            let first = first.expect("a decision")[0];
            let guessed_wrong = calls(&mut client) - before;
            let mut last = first;
            for _ in 0..10 {
                last = take(&store, demand("p", 1, "1000/1m"), At::Now).await;
            }
            let calls = calls(&mut client) - before;
            if last.position().number == first.position().number {
                assert!(
                    guessed_wrong <= 2 && calls == 10 + guessed_wrong,
                    "{calls} calls for 11"
                );
                assert_eq!(guessed_wrong, 2, "at first the clock is off by {offset} ms");
                break;
            }
        }
    }
}

#[tokio::test]
async fn two_proxies_with_clocks_apart_decide_like_one() {
    let server = RedisServer::start();
    let stores = [90_000, -90_000].map(|off| server.store_with(PATIENT, Clock::skewed(off)));
    // Who is counted changes until a run is over before the window turns.
    for who in 1.. {
        let mut decisions = Vec::new();
        for store in stores.iter().cycle().take(12) {
            decisions.push(take(store, demand("p", who, "5/1m"), At::Now).await);
        }
        let number = decisions[0].position().number;
        if decisions.iter().all(|one| one.position().number == number) {
            let counts: Vec<_> = decisions.iter().map(|one| one.counts.current).collect();
            assert_eq!(counts, [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5]);
            assert_eq!(decisions.iter().filter(|one| one.charged).count(), 5);
            return;
        }
    }
}

#[tokio::test]
async fn what_is_forgotten_is_forgotten_by_the_servers_clock() {
    let server = RedisServer::start();
    let ahead = server.store_with(PATIENT, Clock::skewed(400 * 86_400_000));
    let five = demand("p", 1, "5/1h");
    take(&server.store(), five, At::Now).await;
    ahead.forget(&[five], At::Now).await.expect("an answer");
    assert_eq!(counts(&ahead, five, At::Now).await, (0, 0));
}

#[tokio::test]
async fn a_unix_socket_serves_as_well() {
    let server = RedisServer::start();
    let store = open_store(&server.unix_url(), PATIENT, Clock::system());
    assert!(take(&store, demand("p", 1, "5/1m"), At::Now).await.charged);
}

#[tokio::test]
async fn a_user_needs_no_more_rights_than_the_readme_tells() {
    let server = RedisServer::start();
    let readme = include_str!("../lua/README.md");
    let line = readme
        .lines()
        .find(|line| line.contains("ACL SETUSER"))
        .expect("the line");
    let mut command = redis::cmd("ACL");
    for word in line.split_whitespace().skip(1) {
        command.arg(word);
    }
    command.exec(&mut server.client()).expect("OK");

    let url = server.url().replace("//", "//slidegate:password@");
    let store = open_store(&url, PATIENT, Clock::system());
    let one = demand("p", 1, "5/366d");
    let charged_at = take(&store, one, At::Now).await.now;
    assert_eq!(take(&store, one, At::Now).await.counts.current, 1);
    let unit = GiveBack {
        demand: one,
        charged_at,
    };
    store.give_back(&[unit]).await.expect("an answer");
    redis::cmd("SCRIPT")
        .arg("FLUSH")
        .exec(&mut server.client())
        .expect("OK");
    assert_eq!(take(&store, one, At::Now).await.counts.current, 1);
    store.forget(&[one], At::Now).await.expect("an answer");
}

#[test]
fn a_reply_is_no_longer_than_the_readme_tells() {
    let server = RedisServer::start();
    let mut client = server.client();
    let _: () = client.lpush("list", "not a counter").expect("OK");
    let script = concat!(
        include_str!("../lua/counter.lua"),
        include_str!("../lua/log.lua"),
        include_str!("../lua/sliding_window_counter.lua"),
        include_str!("../lua/take.lua"),
    );
    let call = |keys: [&str; 4], second_guess: &str| -> Vec<redis::Value> {
        let demand = ["sliding_window_counter", "take", "5", "60", "1"];
        let mut command = redis::cmd("EVAL");
        command
            .arg(script)
            .arg(4)
            .arg(&keys)
            .arg("120000")
            .arg("")
            .arg("2");
        command.arg(&demand).arg("2").arg(&demand).arg(second_guess);
        command.query(&mut server.client()).expect("a reply")
    };
    assert_eq!(call(["a:2", "a:1", "b:2", "b:1"], "2").len(), 2 + 2 * 3);
    assert_eq!(
        call(["a:2", "a:1", "b:2", "b:1"], "3").len(),
        2,
        "other window"
    );
    assert_eq!(
        call(["a:2", "a:1", "b:2", "list"], "2").len(),
        2,
        "an error"
    );
}
