//! The audit: decisions on some identifiers are compared with an exact log of what was admitted, kept in Redis
//! beside their counters.

use std::collections::HashMap;

use redis::Commands as _;
use serde_json::Value;
use slidegate::{
    clock::Clock,
    policy::{Client, IdentifierHasher},
    ratelimit::{Decision, Judgement, Timestamp},
    store::{At, Demand, GiveBack, MAX_AUDITED_QUOTA, Store},
};

use crate::support::{
    access_log,
    app::App,
    binary::Binary,
    demand::*,
    random::Random,
    redis::{PATIENT, RedisServer, eventually, open_store},
    upstream::Upstream,
};

/// A moment in window 28,000,000 of 1 m, or after it.
fn at(elapsed_ms: u64) -> At {
    At::Stamp(Timestamp::from_millis(28_000_000 * 60_000 + elapsed_ms))
}

fn audited(demand: Demand<'_>) -> Demand<'_> {
    Demand {
        audited: true,
        ..demand
    }
}

/// So many of these requests at one moment, judged.
async fn judge(store: &Store, demand: Demand<'_>, at: At, requests: usize) -> [usize; 3] {
    let mut outcomes = [0; 3];
    for _ in 0..requests {
        let decision = take(store, demand, at).await;
        outcomes[decision.judgement().expect("it is compared") as usize] += 1;
    }
    outcomes
}

#[tokio::test]
async fn a_burst_at_the_end_of_a_window_is_misjudged_in_the_next_and_reported_exactly() {
    let server = RedisServer::start();
    let store = server.store();
    let limit = audited(demand("p", 1, "100/1m"));
    // Correct, false allow, false deny.
    assert_eq!(judge(&store, limit, at(59_999), 101).await, [101, 0, 0]);
    // The estimate is 50; the log has all of the hundred.
    assert_eq!(judge(&store, limit, at(90_000), 60).await, [10, 50, 0]);
    // 59,999 has just left the trailing window: what is in it are those 50.
    let decision = take(&store, limit, at(119_999)).await;
    assert_eq!((decision.exact, decision.allowed), (Some(50), true));
}

#[tokio::test]
async fn a_burst_at_the_start_of_a_window_is_denied_too_long_and_reported_exactly() {
    let server = RedisServer::start();
    let store = server.store();
    let limit = audited(demand("p", 1, "100/1m"));
    assert_eq!(judge(&store, limit, at(0), 100).await, [100, 0, 0]);
    // The hundred have left the trailing window, and still weigh almost all in the estimate: one fits.
    assert_eq!(judge(&store, limit, at(60_001), 31).await, [1, 0, 30]);
}

#[tokio::test]
async fn every_decision_on_real_traffic_is_judged_as_by_an_exact_computation_offline() {
    let server = RedisServer::start();
    let store = server.store();
    let hasher = IdentifierHasher::new(None, 128);
    let (mut compared, mut wrong) = (0, [0; 3]);
    for (file, quota) in [
        ("blog_may15.combined.log", 10),
        ("nasa_aug95.common.log", 5),
        ("shop_jan19.combined.log", 5),
        ("noise.combined.log", 10),
    ] {
        let mut requests = access_log::read(file);
        requests.sort_by_key(|request| request.at);
        let limit = format!("{quota}/1m");
        let mut admitted = HashMap::<_, Vec<Timestamp>>::new();
        for request in requests {
            let identifier = hasher.client(Client::Address(request.client));
            let demand = Demand {
                identifier,
                ..audited(demand(&file[..4], 0, &limit))
            };
            let decision = take(&store, demand, At::Stamp(request.at)).await;

            let log = admitted.entry(request.client).or_default();
            let minute = Timestamp::from_millis(request.at.as_millis() - 60_000);
            let exact = log.iter().filter(|moment| **moment > minute).count() as u64;
            let expected = match (decision.allowed, exact < quota) {
                (true, false) => Judgement::FalseAllow,
                (false, true) => Judgement::FalseDeny,
                _ => Judgement::Correct,
            };
            assert_eq!(decision.exact, Some(exact), "{file} at {:?}", request.at);
            assert_eq!(decision.judgement(), Some(expected));
            if decision.allowed {
                log.push(request.at);
            }
            compared += 1;
            wrong[expected as usize] += 1;
        }
    }
    assert_eq!(compared, 21_999);
    assert!(wrong.iter().all(|count| *count > 100), "{wrong:?}");
}

#[tokio::test]
async fn a_log_that_begins_beside_counted_units_cannot_tell_until_it_is_a_window_old() {
    let server = RedisServer::start();
    let store = server.store();
    let plain = demand("p", 1, "10/1m");
    take(&store, plain, at(0)).await;
    let exact = async |elapsed_ms| take(&store, audited(plain), at(elapsed_ms)).await.exact;
    assert_eq!(exact(10_000).await, None, "one is counted, none logged");
    assert_eq!(exact(69_999).await, None);
    assert_eq!(exact(70_000).await, Some(1), "that of 69,999");
}

#[tokio::test]
async fn audited_and_other_proxies_decide_alike() {
    let server = RedisServer::start();
    let store = server.store();
    let (one, other) = (demand("p", 1, "7/1m"), audited(demand("p", 2, "7/1m")));
    for step in 0..200 {
        let at = at(step * 977);
        let bare = |decision: Decision| (decision.allowed, decision.counts, decision.charged);
        let (one, other) = (take(&store, one, at).await, take(&store, other, at).await);
        assert_eq!(bare(one), bare(other), "step {step}");
    }
}

#[tokio::test]
async fn a_log_holds_no_more_than_twice_the_quota_and_ends_with_its_counters() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let limit = audited(demand("p", 1, "5/1h"));
    for _ in 0..30 {
        take(&store, charge(costing(7, limit)), At::Now).await;
    }
    let log = "rl:{test:p:192.0.2.1}:3600:log";
    // Three members say of which time it is whole.
    let members: usize = client.zcard(log).expect("a log");
    assert_eq!(members, 2 * 5 + 3);
    let ttl: u64 = client.pttl(log).expect("a time to live");
    assert!((3_600_000..=7_200_000).contains(&ttl), "{ttl} ms");
    let told = take(&store, peek(limit), At::Now).await;
    assert_eq!(told.exact, None, "it had no room for all units");

    store.forget(&[limit], At::Now).await.expect("an answer");
    let left: Vec<String> = client.keys("*").expect("keys");
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn a_peek_adds_nothing_to_a_log_and_a_denied_group_neither() {
    let server = RedisServer::start();
    let store = server.store();
    let (wide, narrow) = (demand("p", 1, "10/1m"), demand("p", 1, "1/1h"));
    let group = [audited(wide), audited(narrow)];
    take(&store, peek(audited(wide)), at(0)).await;
    for expected in [0, 1, 1] {
        let decisions = take_group(&store, &group, at(0)).await.expect("decisions");
        assert_eq!(decisions[0].exact, Some(expected));
        assert_eq!(decisions[1].exact, Some(expected));
    }
}

#[tokio::test]
async fn units_given_back_leave_the_log_too() {
    let server = RedisServer::start();
    let store = server.store();
    let three = audited(costing(3, demand("p", 1, "9/1m")));
    let early = take(&store, three, at(0)).await;
    take(&store, three, at(1)).await;
    let unit = GiveBack {
        demand: three,
        charged_at: early.now,
    };
    store.give_back(&[unit]).await.expect("an answer");
    // It is the early ones that are gone.
    assert_eq!(take(&store, peek(three), at(60_000)).await.exact, Some(3));
    assert_eq!(take(&store, peek(three), at(60_001)).await.exact, Some(0));
}

#[tokio::test]
async fn units_given_back_and_taken_again_at_one_moment_are_each_in_the_log() {
    let server = RedisServer::start();
    let store = server.store();
    let three = audited(costing(3, demand("p", 1, "20/1m")));
    let first = take(&store, three, at(0)).await;
    take(&store, three, at(0)).await;
    let unit = GiveBack {
        demand: three,
        charged_at: first.now,
    };
    for _ in 0..3 {
        store.give_back(&[unit]).await.expect("an answer");
        assert_eq!(take(&store, three, at(0)).await.exact, Some(3));
    }
    assert_eq!(take(&store, peek(three), at(0)).await.exact, Some(6));
}

#[tokio::test]
async fn the_largest_cost_of_the_largest_quota_fits_one_call() {
    let server = RedisServer::start();
    let store = server.store();
    let quota = u32::try_from(MAX_AUDITED_QUOTA).expect("small");
    let limit = audited(costing(quota, demand("p", 1, &format!("{quota}/1m"))));
    let first = take(&store, limit, at(0)).await;
    assert!(first.charged);
    assert_eq!(
        take(&store, limit, at(0)).await.exact,
        Some(MAX_AUDITED_QUOTA)
    );
    let unit = GiveBack {
        demand: limit,
        charged_at: first.now,
    };
    store.give_back(&[unit]).await.expect("an answer");
    assert_eq!(take(&store, limit, at(0)).await.exact, Some(0));
}

#[tokio::test]
async fn units_charged_past_a_log_pause_the_comparison_until_it_is_whole_again() {
    let server = RedisServer::start();
    let store = server.store();
    let plain = demand("p", 1, "10/1m");
    let exact = async |elapsed_ms| take(&store, audited(plain), at(elapsed_ms)).await.exact;
    assert_eq!(exact(0).await, Some(0));
    // By a proxy without an audit, or with another sample.
    take(&store, plain, at(1_000)).await;
    assert_eq!(exact(2_000).await, None, "two are counted, one is logged");
    assert_eq!(exact(61_999).await, None);
    assert_eq!(exact(62_000).await, Some(1), "that of 61,999");
}

#[tokio::test]
async fn a_log_tells_the_truth_or_nothing_whatever_happens_to_it_and_its_counters() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let mut random = Random::new(7);
    let (mut told, mut silent) = (0, 0);
    for who in 0..40 {
        let plain = demand("p", who, "20/1m");
        let twin = Demand {
            policy: "twin",
            ..plain
        };
        let mut now = 0;
        // What was admitted and not given back, when, and whether its counter was lost.
        let mut admitted = Vec::<(Timestamp, bool)>::new();
        for step in 0..150 {
            // Mostly forth; a store's clock may also be set back.
            now += random.below(4_000);
            if random.below(40) == 0 {
                now = now.saturating_sub(random.below(90_000));
            }
            let demand = match random.below(12) {
                0 => plain,
                _ => audited(costing(1 + random.below(3) as u32, plain)),
            };
            let bare = Demand {
                audited: false,
                policy: twin.policy,
                ..demand
            };
            let decision = take(&store, demand, at(now)).await;
            let other = take(&store, bare, at(now)).await;
            assert_eq!(
                (decision.allowed, decision.counts),
                (other.allowed, other.counts),
                "{who} {step}"
            );
            if demand.audited {
                let minute = decision.now.as_millis().saturating_sub(60_000);
                let window = Timestamp::from_millis(minute + 1)..=decision.now;
                let within = admitted
                    .iter()
                    .filter(|(moment, _)| window.contains(moment));
                let (lost, kept): (Vec<_>, Vec<_>) =
                    within.copied().partition(|(_, is_lost)| *is_lost);
                // What log and counter have both lost makes no difference between them.
                let truths = [lost.len() + kept.len(), kept.len()].map(|units| Some(units as u64));
                assert!(
                    decision.exact.is_none() || truths.contains(&decision.exact),
                    "{who} {step}: {:?}, not one of {truths:?}",
                    decision.exact
                );
                told += u32::from(decision.exact.is_some());
                silent += u32::from(decision.exact.is_none());
            }
            if decision.charged {
                let units = demand.cost.units();
                if random.below(8) == 0 {
                    let charged_at = decision.now;
                    let back = [demand, bare].map(|demand| GiveBack { demand, charged_at });
                    for unit in back {
                        store.give_back(&[unit]).await.expect("an answer");
                    }
                } else {
                    admitted.extend((0..units).map(|_| (decision.now, false)));
                }
            }
            match random.below(60) {
                0 => {
                    for demand in [demand, bare] {
                        store.forget(&[demand], at(now)).await.expect("an answer");
                    }
                    admitted.clear();
                }
                1..3 => {
                    let mut keys: Vec<String> = client
                        .keys(format!("rl:{{test:p:192.0.2.{who}}}:*"))
                        .expect("keys");
                    keys.sort();
                    let lost = random.below(keys.len().max(1) as u64) as usize;
                    if let Some(lost) = keys.get(lost) {
                        let twin = lost.replace(":p:", ":twin:");
                        let _: () = client.del(&[lost, &twin]).expect("OK");
                        for (moment, is_lost) in &mut admitted {
                            *is_lost |= lost.ends_with(&(moment.as_millis() / 60_000).to_string());
                        }
                    }
                }
                _ => {}
            }
        }
    }
    assert!(told > 1_000 && silent > 1_000, "{told} {silent}");
}

/// Within one window the estimate is exact: a decision that was wrong would be one that is none.
#[tokio::test]
async fn what_redis_evicts_makes_no_misjudgement() {
    for policy in ["allkeys-random", "allkeys-lru", "volatile-ttl"] {
        let server = RedisServer::start_with(&["--maxmemory-policy", policy]);
        let (store, mut client) = (server.store(), server.client());
        maxmemory(&mut client, Some(600_000));
        let (mut told, mut random) = (0, Random::new(11));
        for _ in 0..1_000 {
            let who = random.below(40) as u8;
            let cost = 1 + random.below(200) as u32;
            let limit = audited(costing(cost, demand("p", who, "500/366d")));
            // What can not be evicted at once is refused.
            let Ok(decisions) = take_group(&store, &[limit], At::Now).await else {
                continue;
            };
            let decision = decisions[0];
            let judgement = decision.judgement();
            assert!(
                judgement.is_none_or(|judgement| judgement == Judgement::Correct),
                "{policy}: {decision:?}"
            );
            told += u32::from(judgement.is_some());
        }
        assert!(told > 50, "{policy}: {told}");
        let evicted = stat(&mut client, "stats", "evicted_keys:");
        assert!(evicted > 10, "{policy}: {evicted}");
    }
}

#[tokio::test]
async fn where_memory_runs_out_counter_and_log_are_charged_or_neither() {
    let server = RedisServer::start();
    let (store, mut client) = (server.store(), server.client());
    let (mut refused, mut random) = (0, Random::new(13));
    for turn in 0..200 {
        // Some calls begin below it and end beyond.
        maxmemory(&mut client, Some(random.below(60_000) as i64 - 30_000));
        let (who, cost) = (random.below(5) as u8, 1 + random.below(400) as u32);
        let limit = audited(costing(cost, demand("p", who, "10000/366d")));
        let reply = take_group(&store, &[limit], At::Now).await;
        refused += u32::from(reply.is_err());
        maxmemory(&mut client, None);
        let found = take(&store, peek(limit), At::Now).await;
        assert_eq!(found.exact, Some(found.counts.current), "turn {turn}");
    }
    assert!((20..180).contains(&refused), "{refused}");
}

/// Bytes beyond those in use; `None` is no bound.
fn maxmemory(client: &mut redis::Connection, more: Option<i64>) {
    let bytes = more.map_or(0, |more| more + stat(client, "memory", "used_memory:"));
    redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", &bytes.to_string()])
        .exec(client)
        .expect("OK");
}

fn stat(client: &mut redis::Connection, section: &str, name: &str) -> i64 {
    let info: String = redis::cmd("INFO").arg(section).query(client).expect("text");
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|number| number.parse().ok()).expect(name)
}

#[tokio::test]
async fn an_audit_needs_no_more_rights_than_the_readme_tells() {
    let server = RedisServer::start();
    let readme = include_str!("../lua/README.md");
    let line = |start: &str| readme.lines().find_map(|line| line.split_once(start));
    let (_, user) = line("ACL SETUSER ").expect("the user");
    let (_, rights) = line("with `audit` also `").expect("its further rights");
    let rights = rights.trim_end_matches("`,");
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER");
    for word in user.split_whitespace().chain(rights.split_whitespace()) {
        command.arg(word);
    }
    command.exec(&mut server.client()).expect("OK");

    let url = server.url().replace("//", "//slidegate:password@");
    let store = open_store(&url, PATIENT, Clock::system());
    let limit = audited(demand("p", 1, "5/366d"));
    for at in [At::Now, at(0)] {
        let taken = take(&store, limit, at).await;
        assert_eq!(taken.exact, Some(0));
        assert_eq!(take(&store, limit, at).await.exact, Some(1));
        let unit = GiveBack {
            demand: limit,
            charged_at: taken.now,
        };
        store.give_back(&[unit]).await.expect("an answer");
        store.forget(&[limit], at).await.expect("an answer");
    }
}

const POLICY: &str = "policies: [{name: p, identifier: [client_ip], limits: [5/366d]}]\n";

#[tokio::test]
async fn audited_clients_always_go_to_the_store_and_each_decision_is_counted() {
    let server = RedisServer::start();
    let (app, _upstream) = App::with_upstream(&format!(
        "store: {{url: \"{}\", budget: 10s, denial_cache: 60s}}\naudit: {{sample: 1}}\n{POLICY}",
        server.url()
    ));
    app.store_decides().await;
    for _ in 0..8 {
        reqwest::get(app.url("/")).await.expect("a response");
    }
    let exposition = app.metrics().await;
    let count = |series: &str| crate::support::app::metric(&exposition, series);
    let outcome = |outcome: &str| {
        count(&format!(
            "slidegate_audit_decisions_total{{outcome=\"{outcome}\",policy=\"p\"}}"
        ))
    };
    assert_eq!(
        ["correct", "false_allow", "false_deny"].map(outcome),
        [8.0, 0.0, 0.0]
    );
    assert_eq!(
        count("slidegate_audit_estimate_error_ratio_bucket{policy=\"p\",le=\"0\"}"),
        8.0
    );
    let denied = "slidegate_decisions_total{decided_by=\"store\",decision=\"deny\",mode=\"enforce\",plan=\"\",policy=\"p\"}";
    assert_eq!(count(denied), 3.0, "none of them by the denial cache");
}

#[tokio::test]
async fn where_no_limit_can_be_audited_the_denial_cache_goes_on_to_deny() {
    let server = RedisServer::start();
    let (app, _upstream) = App::with_upstream(&format!(
        "store: {{url: \"{}\", budget: 10s, denial_cache: 60s}}\naudit: {{sample: 1}}\n\
         policies: [{{name: p, identifier: [client_ip], cost: 10001, limits: [10001/366d]}}]\n",
        server.url()
    ));
    app.store_decides().await;
    for expected in [200, 429, 429, 429] {
        assert_eq!(app.ask("/", &[]).await.0, expected);
    }
    let denied = |by: &str| {
        format!(
            "slidegate_decisions_total{{decided_by=\"{by}\",decision=\"deny\",mode=\"enforce\",plan=\"\",policy=\"p\"}}"
        )
    };
    app.metric_becomes(&denied("store"), 1.0).await;
    app.metric_becomes(&denied("denial_cache"), 2.0).await;
}

/// Within one window the estimate is exact: a decision that was wrong would be one that is none.
#[tokio::test]
async fn reloads_that_change_limits_and_the_audit_make_no_misjudgement() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let yaml = |sample: u32, limits: &str| {
        format!(
            "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 10s}}\naudit: {{sample: {sample}}}\n\
             policies: [{{name: p, identifier: [client_ip], limits: [{limits}]}}]\n",
            upstream.address,
            server.url()
        )
    };
    let app = App::start(&yaml(1, "20/366d"));
    app.store_decides().await;
    for (sample, limits, statuses, compared) in [
        (1, "20/366d", &[200, 200, 200][..], 3.0),
        // The log has more than twice of that.
        (1, "1/366d", &[429, 429], 2.0),
        (1, "30/366d", &[200, 200], 2.0),
        (0, "30/366d", &[200, 200], 0.0),
        // Two are missing in the log.
        (1, "7/366d", &[429, 429], 0.0),
        (1, "30/366d", &[200, 200], 0.0),
        // The other window has a log that is whole.
        (1, "30/366d, 12/365d", &[200, 200], 2.0),
        (1, "30/366d, 2/365d", &[429], 1.0),
    ] {
        app.reload(&yaml(sample, limits)).await;
        let told = async |outcome: &str| {
            let series =
                format!("slidegate_audit_decisions_total{{outcome=\"{outcome}\",policy=\"p\"}}");
            app.metric(&series).await
        };
        let before = if sample == 1 {
            told("correct").await
        } else {
            0.0
        };
        for status in statuses {
            assert_eq!(app.ask("/", &[]).await.0, *status, "{limits}");
        }
        if sample == 1 {
            assert_eq!(told("correct").await - before, compared, "{limits}");
            assert_eq!(
                told("false_allow").await + told("false_deny").await,
                0.0,
                "{limits}"
            );
        }
    }
}

#[tokio::test]
async fn who_is_forgotten_has_no_log_either() {
    let server = RedisServer::start();
    let (app, _upstream) = App::with_upstream(&format!(
        "store: {{url: \"{}\", budget: 10s}}\naudit: {{sample: 1}}\n\
         policies: [{{name: p, identifier: [client_ip], limits: [5/366d, 9/365d]}}]\n",
        server.url()
    ));
    app.store_decides().await;
    app.ask("/", &[]).await;
    let keys = || -> usize {
        let keys: Vec<String> = server.client().keys("rl:*").expect("keys");
        keys.len()
    };
    assert_eq!(keys(), 4);
    let url = format!("http://{}/identifiers/127.0.0.1", app.admin);
    let deleted = reqwest::Client::new().delete(url).send().await;
    assert_eq!(deleted.expect("it answers").status(), 200);
    assert_eq!(keys(), 0);
}

#[tokio::test]
async fn without_an_audit_there_is_no_log_and_no_series_that_says_that_all_is_well() {
    let server = RedisServer::start();
    let (app, _upstream) = App::with_upstream(&format!(
        "store: {{url: \"{}\", budget: 10s}}\n{POLICY}",
        server.url()
    ));
    app.store_decides().await;
    reqwest::get(app.url("/")).await.expect("a response");
    assert!(!app.metrics().await.contains("slidegate_audit_"));
    let keys: Vec<String> = server.client().keys("*:log").expect("keys");
    assert_eq!(keys, [""; 0]);
}

#[tokio::test]
async fn an_audit_that_redis_forbids_is_told_and_fails_no_decision() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let mut command = redis::cmd("ACL");
    for word in "SETUSER plain on >password ~rl:* +@all -zadd".split(' ') {
        command.arg(word);
    }
    command.exec(&mut server.client()).expect("OK");
    let binary = Binary::start(&format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 10s}}\naudit: {{sample: 1}}\n{POLICY}",
        upstream.address,
        server.url().replace("//", "//plain:password@"),
    ));
    let mut statuses = Vec::new();
    for _ in 0..7 {
        let response = reqwest::get(binary.url("/")).await.expect("a response");
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5);
    eventually("the log tells why", async || {
        binary
            .log()
            .contains("An audited decision could not be compared")
            && binary.log().contains("can't run this command")
    })
    .await;
    let keys: Vec<String> = server.client().keys("*:log").expect("keys");
    assert_eq!(keys, [""; 0]);
}

#[tokio::test]
async fn a_decision_near_its_limit_is_told_with_what_its_log_says() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let binary = Binary::start(&format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 10s}}\naudit: {{sample: 1}}\n\
         log: {{format: json}}\n{POLICY}",
        upstream.address,
        server.url()
    ));
    for _ in 0..6 {
        reqwest::get(binary.url("/")).await.expect("a response");
    }
    let mut exact = Value::Null;
    eventually("the line", async || {
        let lines = binary.log();
        let mut lines = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line =
            lines.find(|line| line["fields"]["message"] == "A decision fell near its limit.");
        line.inspect(|line| exact = line["fields"]["exact"].clone())
            .is_some()
    })
    .await;
    assert_eq!(exact, 5);
}
