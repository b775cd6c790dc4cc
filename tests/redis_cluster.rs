//! A Redis Cluster: each identifier under each policy is asked where its slot is, whatever moves or fails.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use slidegate::{
    policy::Identifier,
    store::{At, Demand, GiveBack, Store, StoreError},
};

use crate::support::{
    app::App, cluster::*, demand::*, fake_redis::FakeRedis, redis::*, trace::Trace,
    upstream::Upstream,
};

const LONG: &str = "1000000/366d";

/// The identifier number `who`, of very many, under the policy `p`.
fn nth(who: u32) -> Demand<'static> {
    let address = Ipv4Addr::from_bits(0x0a00_0000 + who);
    Demand {
        identifier: Identifier::Address(IpAddr::V4(address)),
        ..demand("p", 1, LONG)
    }
}

/// The client of this machine under a policy, as the proxy counts it.
fn local(policy: &str) -> Demand<'_> {
    Demand {
        identifier: Identifier::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ..demand(policy, 1, LONG)
    }
}

/// An identifier whose slot a server has.
fn on(cluster: &Cluster, server: usize) -> Demand<'static> {
    let found = (0..)
        .map(nth)
        .find(|demand| cluster.owner(cluster.slot(demand)) == server);
    found.expect("one of very many")
}

/// A policy's name under which the client of this machine is counted by a server.
fn policy_on(cluster: &Cluster, server: usize) -> String {
    let mut names = (0..).map(|number| format!("p{number}"));
    let found = names.find(|name| cluster.owner(cluster.slot(&local(name))) == server);
    found.expect("one of very many")
}

/// How many counters a server holds.
fn counters(server: &RedisServer) -> u64 {
    redis::cmd("DBSIZE")
        .query(&mut server.client())
        .expect("an answer")
}

/// The number of units in all counters of a policy on a server.
fn units(server: &RedisServer, policy: &str) -> u64 {
    let mut client = server.client();
    let keys: Vec<String> =
        redis::Commands::keys(&mut client, format!("rl:*:{policy}:*")).expect("keys");
    let count = |key| redis::Commands::get::<_, u64>(&mut client, key).expect("a count");
    keys.into_iter().map(count).sum()
}

async fn decides(store: &Store, demand: Demand<'_>) {
    eventually("a decision", async || {
        take_group(store, &[demand], At::Now).await.is_ok()
    })
    .await;
}

const DONE: &str = "slidegate_give_backs_total{result=\"done\"}";

/// A budget for a server that is not going to answer.
const SHORT: Duration = Duration::from_millis(500);

/// A patient one.
fn app(cluster: &Cluster, upstream: &Upstream, policies: &str) -> App {
    app_within("10s", cluster, upstream, policies)
}

fn app_within(budget: &str, cluster: &Cluster, upstream: &Upstream, policies: &str) -> App {
    App::start(&format!(
        "upstream: {{address: '{}'}}\nthreads: 1\n\
         store: {{{}, namespace: test, budget: {budget}, denial_cache: 0s}}\npolicies:\n{policies}",
        upstream.address,
        cluster.section(),
    ))
}

fn decided(policy: &str, decision: &str, by: &str) -> String {
    format!(
        "slidegate_decisions_total{{decided_by=\"{by}\",decision=\"{decision}\",mode=\"enforce\",plan=\"\",policy=\"{policy}\"}}"
    )
}

async fn get(app: &App) -> u16 {
    reqwest::get(app.url("/"))
        .await
        .expect("an answer")
        .status()
        .as_u16()
}

/// Makes a counter of the previous window too, so that no key is missing while the slot moves.
async fn with_both_windows(cluster: &Cluster, server: usize, store: &Store, demand: Demand<'_>) {
    let position = take(store, peek(demand), At::Now).await.position();
    let window = demand.limit.window().seconds();
    let number = position.number - 1;
    let key = format!("rl:{{test:p:{}}}:{window}:{number}", demand.identifier);
    let mut client = cluster.servers[server].client();
    let _: () = redis::Commands::set(&mut client, key, 0).expect("OK");
}

/// Requests without end until told to stop; how many the store admitted and charged.
fn requests(
    store: Arc<Store>,
    demand: Demand<'static>,
) -> (Arc<AtomicBool>, Arc<AtomicU64>, tokio::task::JoinHandle<()>) {
    let (stop, admitted) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (stopped, count) = (Arc::clone(&stop), Arc::clone(&admitted));
    let task = tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            if let Ok(decisions) = take_group(&store, &[demand], At::Now).await {
                assert!(decisions[0].charged);
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    (stop, admitted, task)
}

#[tokio::test]
async fn every_identifier_is_counted_where_its_slot_is_and_nowhere_else() {
    let cluster = Cluster::start(3, 0).await;
    let store = cluster.store();
    for turn in 0..2 {
        for who in 0..300 {
            let decision = take(&store, nth(who), At::Now).await;
            assert_eq!(decision.counts.current, turn, "{who}");
        }
    }
    let held: Vec<_> = cluster.servers.iter().map(counters).collect();
    assert_eq!(held.iter().sum::<u64>(), 300);
    assert!(held.iter().all(|held| *held > 50), "{held:?}");
}

#[tokio::test]
async fn requests_of_one_moment_are_decided_each_on_its_own_over_all_servers() {
    let cluster = Cluster::start(3, 0).await;
    let store = Arc::new(cluster.store());
    let tasks: Vec<_> = (0..600)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { take(&store, nth(number % 200), At::Now).await.charged })
        })
        .collect();
    for task in tasks {
        assert!(task.await.expect("no panic"));
    }
    for who in 0..200 {
        assert_eq!(counts(&store, nth(who), At::Now).await, (3, 0), "{who}");
    }
}

#[tokio::test]
async fn a_policy_that_denies_has_what_others_charged_elsewhere_given_back() {
    let (cluster, upstream) = (Cluster::start(3, 0).await, Upstream::start());
    let (narrow, wide) = (policy_on(&cluster, 1), policy_on(&cluster, 2));
    let app = app(
        &cluster,
        &upstream,
        &format!("- {{name: {narrow}, limits: [3/366d]}}\n- {{name: {wide}, limits: [100/366d]}}"),
    );
    let mut statuses = Vec::new();
    for _ in 0..8 {
        statuses.push(get(&app).await);
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429, 429, 429]);
    app.metric_becomes(DONE, 5.0).await;
    assert_eq!(units(&cluster.servers[1], &narrow), 3);
    assert_eq!(
        units(&cluster.servers[2], &wide),
        3,
        "as many as were admitted"
    );
}

#[tokio::test]
async fn what_is_charged_by_the_response_is_charged_in_every_slot() {
    let (cluster, upstream) = (Cluster::start(3, 0).await, Upstream::start());
    let names = [policy_on(&cluster, 0), policy_on(&cluster, 2)];
    let policies = names
        .each_ref()
        .map(|name| format!("- {{name: {name}, limits: [100/366d], charge_on: [401]}}\n"));
    let app = app(&cluster, &upstream, &policies.concat());
    for status in [401, 200, 401] {
        let url = app.url(&format!("/status/{status}"));
        assert_eq!(reqwest::get(url).await.expect("an answer").status(), status);
    }
    assert_eq!(units(&cluster.servers[0], &names[0]), 2);
    assert_eq!(units(&cluster.servers[2], &names[1]), 2);
}

#[tokio::test]
async fn a_reply_past_the_budget_that_tells_of_a_charge_is_given_back_if_the_request_was_denied() {
    let (cluster, upstream) = (Cluster::start(3, 0).await, Upstream::start());
    let (denies, frozen) = (policy_on(&cluster, 1), policy_on(&cluster, 2));
    let app = app_within(
        "500ms",
        &cluster,
        &upstream,
        &format!(
            "- {{name: {denies}, limits: [1/366d]}}\n- {{name: {frozen}, limits: [100/366d]}}"
        ),
    );
    eventually("Redis decided all of a request that passed", async || {
        assert!([200, 429].contains(&get(&app).await));
        let charged = units(&cluster.servers[1], &denies) == 1;
        charged && units(&cluster.servers[2], &frozen) == 1
    })
    .await;
    let before = app.metric(DONE).await;
    cluster.servers[2].pause();
    assert_eq!(get(&app).await, 429, "any denial counts");
    cluster.servers[2].resume();
    app.metric_becomes(DONE, before + 1.0).await;
    assert_eq!(
        units(&cluster.servers[2], &frozen),
        1,
        "the first request's"
    );
}

#[tokio::test]
async fn a_slot_that_fails_goes_by_its_policy_s_failure_mode_and_the_others_by_redis() {
    let (mut cluster, upstream) = (Cluster::start(3, 0).await, Upstream::start());
    let (sound, gone) = (policy_on(&cluster, 1), policy_on(&cluster, 2));
    let app = app(
        &cluster,
        &upstream,
        &format!(
            "- {{name: {sound}, limits: [100/366d]}}\n\
             - {{name: {gone}, limits: [100/366d], failure_mode: deny}}"
        ),
    );
    assert_eq!(get(&app).await, 200);
    cluster.bear_gaps();
    cluster.servers[2].kill();
    assert_eq!(get(&app).await, 503);
    app.metric_becomes(DONE, 1.0).await;
    assert_eq!(
        units(&cluster.servers[1], &sound),
        1,
        "a request that did not pass is not charged"
    );
    assert_eq!(app.metric("slidegate_store_breaker_tripped").await, 1.0);
    assert_eq!(
        app.metric(&decided(&gone, "deny", "failure_mode")).await,
        1.0
    );

    cluster.servers[2].restart();
    eventually("Redis decides all again", async || get(&app).await == 200).await;
    assert_eq!(units(&cluster.servers[2], &gone), 1);
    app.metric_becomes("slidegate_store_breaker_tripped", 0.0)
        .await;
}

#[tokio::test]
async fn a_frozen_server_costs_only_its_own_slots() {
    let cluster = Cluster::start(3, 0).await;
    let store = cluster.store_within(SHORT);
    let (frozen, sound) = (on(&cluster, 2), on(&cluster, 1));
    for demand in [frozen, sound] {
        decides(&store, demand).await;
    }
    cluster.bear_gaps();
    cluster.servers[2].pause();
    eventually("it is given up", async || {
        let reply = take_group(&store, &[frozen], At::Now).await;
        assert!(take_group(&store, &[sound], At::Now).await.is_ok());
        reply == Err(StoreError::Disconnected)
    })
    .await;
    cluster.servers[2].resume();
    decides(&store, frozen).await;
}

#[tokio::test]
async fn a_slot_that_moves_under_load_loses_and_doubles_no_unit() {
    let cluster = Cluster::start(3, 0).await;
    let store = Arc::new(cluster.store());
    let demand = on(&cluster, 0);
    let slot = cluster.slot(&demand);
    take(&store, demand, At::Now).await;
    let (stop, admitted, task) = requests(Arc::clone(&store), demand);
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2)] {
        cluster.begin_move(slot, from, to);
        let so_far = admitted.load(Ordering::Relaxed);
        cluster.end_move(slot, from, to);
        eventually("the new one decides", async || {
            tokio::task::yield_now().await;
            admitted.load(Ordering::Relaxed) > so_far + 10
        })
        .await;
        cluster.until_agreed().await;
    }
    stop.store(true, Ordering::Relaxed);
    task.await.expect("no panic");
    let counted = counts(&store, demand, At::Now).await.0;
    assert_eq!(counted, 1 + admitted.load(Ordering::Relaxed));
    assert_eq!(cluster.owner(slot), 2);
}

#[tokio::test]
async fn a_server_that_gets_its_first_slot_is_asked_as_soon_as_it_has_the_counters() {
    let mut cluster = Cluster::start(3, 0).await;
    let store = cluster.store();
    let demand = on(&cluster, 0);
    let slot = cluster.slot(&demand);
    take(&store, demand, At::Now).await;
    with_both_windows(&cluster, 0, &store, demand).await;

    let new = cluster.add().await;
    cluster.begin_move(slot, 0, new);
    cluster.move_counters(slot, 0, new);
    let decision = take(&store, demand, At::Now).await;
    assert_eq!(
        decision.counts.current, 1,
        "the slot is still on its way, and its counters are there"
    );
    assert_eq!(counters(&cluster.servers[new]), 2);
    cluster.end_move(slot, 0, new);
    assert_eq!(take(&store, demand, At::Now).await.counts.current, 2);
}

#[tokio::test]
async fn counters_that_are_split_while_their_slot_moves_are_refused_and_heal_by_themselves() {
    let cluster = Cluster::start(3, 0).await;
    let store = cluster.store();
    let demand = on(&cluster, 0);
    let slot = cluster.slot(&demand);
    decides(&store, on(&cluster, 1)).await;
    cluster.begin_move(slot, 0, 1);
    // It has no counter on either side, so neither can know.
    let reply = take_group(&store, &[demand], At::Now).await;
    assert!(
        matches!(&reply, Err(StoreError::Refused(text)) if text.starts_with("TRYAGAIN")),
        "{reply:?}"
    );
    cluster.end_move(slot, 0, 1);
    assert!(take(&store, demand, At::Now).await.charged);
}

#[tokio::test]
async fn units_are_given_back_and_identifiers_forgotten_where_their_slot_has_moved() {
    let cluster = Cluster::start(3, 0).await;
    let store = cluster.store();
    let demand = on(&cluster, 0);
    let slot = cluster.slot(&demand);
    let charged = take(&store, demand, At::Now).await;
    take(&store, demand, At::Now).await;
    cluster.begin_move(slot, 0, 1);
    cluster.end_move(slot, 0, 1);
    cluster.until_agreed().await;
    let back = GiveBack {
        demand,
        charged_at: charged.now,
    };
    store.give_back(&[back]).await.expect("followed");
    assert_eq!(counts(&store, demand, At::Now).await, (1, 0));

    cluster.begin_move(slot, 1, 2);
    cluster.end_move(slot, 1, 2);
    store.forget(&[demand], At::Now).await.expect("followed");
    assert_eq!(counts(&store, demand, At::Now).await, (0, 0));
}

#[tokio::test]
async fn a_killed_primary_costs_no_request_and_its_replica_decides() {
    let (mut cluster, upstream) = (Cluster::start(3, 3).await, Upstream::start());
    let name = policy_on(&cluster, 1);
    let app = app(
        &cluster,
        &upstream,
        &format!("- {{name: {name}, limits: [1000000/366d]}}"),
    );
    let by_store = decided(&name, "allow", "store");
    assert_eq!(get(&app).await, 200);
    app.metric_becomes(&by_store, 1.0).await;
    let slot = cluster.slot(&local(&name));
    cluster.servers[1].kill();
    eventually("the replica has the slot", async || {
        assert_eq!(get(&app).await, 200, "whatever happens to the primary");
        cluster.owner(slot) == 4
    })
    .await;
    let before = app.metric(&by_store).await;
    eventually("Redis decides again", async || {
        assert_eq!(get(&app).await, 200);
        app.metric(&by_store).await > before
    })
    .await;
    assert!(
        units(&cluster.servers[4], &name) > 1,
        "what the primary had told it, and more"
    );

    // The old one comes back as a replica of the new one, which goes on deciding.
    cluster.servers[1].restart();
    cluster.until_whole().await;
    let before = app.metric(&by_store).await;
    eventually("Redis decides on", async || {
        assert_eq!(get(&app).await, 200);
        app.metric(&by_store).await > before + 10.0
    })
    .await;
}

#[tokio::test]
async fn a_cluster_that_is_absent_at_start_or_restarted_whole_is_found() {
    let trace = Trace::start();
    let mut cluster = Cluster::start(3, 0).await;
    for server in &mut cluster.servers {
        server.kill();
    }
    let store = cluster.store_within(SHORT);
    for _ in 0..2 {
        eventually("it is known to be away", async || {
            take_group(&store, &[nth(1)], At::Now).await == Err(StoreError::Disconnected)
        })
        .await;
        for server in &mut cluster.servers {
            server.restart();
        }
        for who in 0..9 {
            decides(&store, nth(who)).await;
        }
        for server in &mut cluster.servers {
            server.kill();
        }
    }
    let text = trace.text();
    let told = text
        .lines()
        .filter_map(|line| Some(line.split_once("No server tells the slots")?.1));
    let told: Vec<&str> = told.collect();
    assert!(!told.is_empty(), "{text}");
    assert!(told.windows(2).all(|two| two[0] != two[1]), "{text}");
}

#[tokio::test]
async fn one_address_of_many_is_enough_to_find_all() {
    let cluster = Cluster::start(3, 0).await;
    let gone = RedisServer::absent();
    let store = configured_store(&format!(
        "{{url: '{}', namespace: test, cluster: {{addresses: ['127.0.0.1:{}']}}}}",
        gone.url(),
        cluster.servers[1].port()
    ));
    for who in 0..30 {
        take(&store, nth(who), At::Now).await;
    }
    assert!(cluster.servers.iter().all(|server| counters(server) > 0));
}

#[tokio::test]
async fn a_user_of_a_cluster_needs_no_more_rights_than_the_readme_tells() {
    let cluster = Cluster::start(3, 0).await;
    let readme = include_str!("../lua/README.md");
    assert!(readme.contains("in a cluster `+cluster|slots +asking` too"));
    let mut lines = readme.lines();
    let rights = lines
        .find(|line| line.contains("ACL SETUSER"))
        .expect("the line");
    let mut command = redis::cmd("ACL");
    command.arg(rights.split_whitespace().skip(1).collect::<Vec<_>>());
    command.arg(["+cluster|slots", "+asking"].as_slice());
    for server in &cluster.servers {
        command.exec(&mut server.client()).expect("OK");
    }
    let section = cluster
        .section()
        .replace("redis://", "redis://slidegate:password@");
    let store = configured_store(&format!("{{{section}, namespace: test}}"));
    let demand = on(&cluster, 0);
    take(&store, demand, At::Now).await;
    with_both_windows(&cluster, 0, &store, demand).await;

    let slot = cluster.slot(&demand);
    cluster.begin_move(slot, 0, 1);
    cluster.move_counters(slot, 0, 1);
    assert!(take(&store, demand, At::Now).await.charged, "by ASK");
    cluster.end_move(slot, 0, 1);
    assert!(take(&store, demand, At::Now).await.charged, "by MOVED");
    store.forget(&[demand], At::Now).await.expect("allowed");
}

#[tokio::test]
async fn a_server_that_is_no_part_of_a_cluster_is_told_apart() {
    let (trace, server) = (Trace::start(), RedisServer::start());
    let store = configured_store(&format!("{{url: '{}', cluster: {{}}}}", server.url()));
    let reply = take_group(&store, &[nth(1)], At::Now).await;
    assert_eq!(reply, Err(StoreError::Disconnected));
    assert!(
        trace
            .text()
            .contains("This instance has cluster support disabled"),
        "{}",
        trace.text()
    );
}

#[tokio::test]
async fn with_several_policies_no_denial_is_remembered_that_may_be_taken_back() {
    let (cluster, upstream) = (Cluster::start(3, 0).await, Upstream::start());
    let names = [policy_on(&cluster, 0), policy_on(&cluster, 1)];
    for (count, remembered) in [(1, true), (2, false)] {
        let policies: String = names[..count]
            .iter()
            .map(|name| format!("- {{name: {name}, limits: [1/366d]}}\n"))
            .collect();
        let yaml = format!(
            "upstream: {{address: '{}'}}\nthreads: 1\n\
             store: {{{}, namespace: n{count}, budget: 10s, denial_cache: 1m}}\npolicies:\n{policies}",
            upstream.address,
            cluster.section(),
        );
        let app = App::start(&yaml);
        let mut statuses = Vec::new();
        for _ in 0..6 {
            statuses.push(get(&app).await);
        }
        assert_eq!(statuses, [200, 429, 429, 429, 429, 429]);
        let by_cache = app
            .metric(&decided(&names[0], "deny", "denial_cache"))
            .await;
        assert_eq!(by_cache > 0.0, remembered, "{count} policies");
    }
}

#[tokio::test]
async fn a_charge_by_the_response_is_made_though_another_slot_took_the_whole_budget() {
    let (cluster, upstream) = (Cluster::start(3, 0).await, Upstream::start());
    let (logins, frozen) = (policy_on(&cluster, 1), policy_on(&cluster, 2));
    let app = app_within(
        "500ms",
        &cluster,
        &upstream,
        &format!(
            "- {{name: {logins}, limits: [100/366d], charge_on: [401]}}\n\
             - {{name: {frozen}, limits: [100/366d], failure_mode: allow}}"
        ),
    );
    let fail = async || {
        let url = app.url("/status/401");
        assert_eq!(reqwest::get(url).await.expect("an answer").status(), 401);
    };
    eventually("both servers decide", async || {
        fail().await;
        units(&cluster.servers[2], &frozen) > 0
    })
    .await;
    let before = units(&cluster.servers[1], &logins);
    cluster.servers[2].pause();
    fail().await;
    eventually("it is charged", async || {
        units(&cluster.servers[1], &logins) == before + 1
    })
    .await;
    cluster.servers[2].resume();
}

#[tokio::test]
async fn a_server_that_says_that_the_cluster_is_down_has_its_slots_looked_for_elsewhere() {
    let cluster = Cluster::start(3, 0).await;
    cluster.bear_gaps();
    let store = cluster.store();
    let demand = on(&cluster, 1);
    decides(&store, demand).await;
    let id: String = ask(&cluster.servers[1], &["MYID"]).expect("an id");
    let flush = redis::cmd("FLUSHALL").exec(&mut cluster.servers[1].client());
    flush.expect("OK");
    ask::<String>(&cluster.servers[1], &["RESET", "HARD"]).expect("OK");
    for place in [0, 2] {
        ask::<String>(&cluster.servers[place], &["FORGET", &id]).expect("OK");
    }
    ask::<String>(&cluster.servers[0], &["ADDSLOTSRANGE", "5461", "10921"]).expect("OK");
    let mut tripped = false;
    eventually("the other one decides", async || {
        let reply = take_group(&store, &[demand], At::Now).await;
        tripped |= store.health().tripped;
        reply.is_ok()
    })
    .await;
    assert!(tripped, "it was shown");
    assert_eq!(units(&cluster.servers[0], "p"), 1);
}

#[tokio::test]
async fn a_server_that_knows_of_a_part_of_the_slots_only_is_not_the_last_to_be_asked() {
    let cluster = Cluster::start(3, 0).await;
    let demand = on(&cluster, 1);
    for place in [1, 2] {
        let id: String = ask(&cluster.servers[place], &["MYID"]).expect("an id");
        ask::<String>(&cluster.servers[0], &["FORGET", &id]).expect("OK");
    }
    decides(&cluster.store(), demand).await;
}

/// A server that has all slots and answers calls of scripts as it is told to; and how often it was taken
/// into use.
fn all_slots(answer: impl Fn() -> String + Send + Sync + 'static) -> (FakeRedis, Arc<AtomicU64>) {
    let (own, probed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (port, count) = (Arc::clone(&own), Arc::clone(&probed));
    let fake = FakeRedis::start(move |command| {
        Some(match command.split(' ').next().unwrap_or_default() {
            "CLUSTER" => {
                let port = port.load(Ordering::Relaxed);
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}")
            }
            "EVALSHA" | "EVAL" => answer(),
            "SCRIPT" => {
                // Two of them are a probe.
                count.fetch_add(1, Ordering::Relaxed);
                "+OK".to_owned()
            }
            _ => "+OK".to_owned(),
        })
    });
    let address = fake.address();
    let (_, port) = address.rsplit_once(':').expect("a port");
    own.store(port.parse().expect("a port"), Ordering::Relaxed);
    (fake, probed)
}

fn app_on(fake: &FakeRedis, upstream: &Upstream) -> App {
    App::start(&format!(
        "upstream: {{address: '{}'}}\nthreads: 1\n\
         store: {{url: '{}', cluster: {{}}, namespace: test, budget: 100ms, denial_cache: 0s}}\n\
         policies: [{{name: a, limits: [100/366d]}}, {{name: b, limits: [100/366d]}}]",
        upstream.address,
        fake.url(),
    ))
}

#[tokio::test]
async fn a_redirect_that_comes_too_late_is_not_followed() {
    let (cluster, upstream) = (Cluster::of_one().await, Upstream::start());
    let asked = Arc::new(AtomicU64::new(0));
    let (count, to) = (Arc::clone(&asked), cluster.servers[0].port());
    let (fake, _) = all_slots(move || {
        count.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(400));
        format!("-MOVED 1 127.0.0.1:{to}")
    });
    let app = app_on(&fake, &upstream);
    eventually("it is asked", async || {
        assert_eq!(get(&app).await, 200);
        asked.load(Ordering::Relaxed) > 0
    })
    .await;
    app.metric_becomes("slidegate_store_pending", 0.0).await;
    assert_eq!(counters(&cluster.servers[0]), 0, "this proxy has decided");
}

#[tokio::test]
async fn a_server_that_answers_too_late_each_time_trips_the_breaker() {
    let upstream = Upstream::start();
    let (fake, probed) = all_slots(|| {
        std::thread::sleep(Duration::from_millis(200));
        "-ERR late".to_owned()
    });
    let app = app_on(&fake, &upstream);
    eventually("it is given up and tried anew", async || {
        assert_eq!(get(&app).await, 200);
        // Each answer comes, before the next request.
        app.metric_becomes("slidegate_store_pending", 0.0).await;
        probed.load(Ordering::Relaxed) > 2
    })
    .await;
}
