//! The denial horizon, through the whole proxy with a real Redis: a client that is denied costs Redis
//! next to nothing, and nobody can tell but by the metrics.
//!
//! That no such denial is false is proven where it is decided, in `src/limiter/denial_cache/proof.rs`.

use std::{sync::Arc, time::Duration};

use reqwest::{Response, StatusCode, header::HeaderMap};
use slidegate::{
    clock::{self, Clock},
    config::Config,
    limiter::{Intent, Limiter, Outcome, Verdict},
    metrics::Metrics,
    policy::{Client, PolicySet, RequestView},
    store::{DecidedBy, Health, MemoryStore, RedisStore, Store},
};

use crate::support::{
    app::{App, metric},
    redis::{RedisServer, eventually},
    upstream::Upstream,
};

/// Windows of a year, which no test sees turn. A year counts in seconds: its first denial proves others at
/// least until the year is over.
const PER_KEY: &str = "{name: per-key, identifier: [header:x-api-key], limits: [3/366d]}";

const TRIAL: &str = "{name: trial, identifier: [client_ip], limits: [20/366d], mode: shadow}";

fn yaml(server: &RedisServer, upstream: &str, denial_cache: &str, policies: &[&str]) -> String {
    format!(
        "upstream: {{address: \"{upstream}\"}}\n\
         store: {{url: \"{}\", budget: 10s, denial_cache: {denial_cache}}}\n\
         policies: [{}]\n",
        server.url(),
        policies.join(", ")
    )
}

fn app(server: &RedisServer, upstream: &Upstream, denial_cache: &str, policies: &[&str]) -> App {
    App::start(&yaml(
        server,
        &upstream.address.to_string(),
        denial_cache,
        policies,
    ))
}

async fn get(app: &App, key: &str) -> Response {
    let request = reqwest::Client::new().get(app.url("/"));
    let response = request.header("x-api-key", key).send().await;
    response.expect("a response")
}

/// Three requests that are admitted and one that Redis denies, which is returned.
async fn use_up(app: &App, key: &str) -> Response {
    for _ in 0..3 {
        assert_eq!(get(app, key).await.status(), StatusCode::OK);
    }
    let denied = get(app, key).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    denied
}

/// How often the script ran.
fn calls(server: &RedisServer) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.client())
        .expect("Redis answers");
    let calls = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls = calls.and_then(|line| line.split(',').next()?.parse().ok());
    calls.expect("the script ran")
}

/// The headers that tell of limits, without what passes with time.
fn limits_told(headers: &HeaderMap) -> Vec<(&str, String)> {
    let names = [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "ratelimit-policy",
        "content-type",
    ];
    let text = |name| headers[name].to_str().expect("text").to_owned();
    names.map(|name| (name, text(name))).into()
}

fn seconds(headers: &HeaderMap) -> i64 {
    let text = headers["retry-after"].to_str().expect("text");
    text.parse().expect("seconds")
}

fn decisions(policy: &str, decision: &str, by: &str, mode: &str) -> String {
    format!(
        "slidegate_decisions_total{{decided_by=\"{by}\",decision=\"{decision}\",mode=\"{mode}\",plan=\"\",policy=\"{policy}\"}}"
    )
}

#[tokio::test]
async fn a_flood_after_a_denial_makes_calls_by_time_and_not_by_requests() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let app = app(&server, &upstream, "250ms", &[PER_KEY]);
    use_up(&app, "flood").await;
    let (before, started) = (calls(&server), clock::instant());
    for _ in 0..300 {
        let response = get(&app, "flood").await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    let periods = clock::elapsed(started).as_millis() / 250;
    let calls = u128::from(calls(&server) - before);
    assert!(calls <= periods + 1, "{calls} calls in {periods} periods");
    assert_eq!(upstream.seen().len(), 3);
}

#[tokio::test]
async fn a_denial_without_a_call_tells_what_redis_told_and_the_metrics_who_decided() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let app = app(&server, &upstream, "1m", &[PER_KEY]);
    let by_redis = use_up(&app, "flood").await;
    let started = clock::instant();
    for _ in 0..20 {
        let response = get(&app, "flood").await;
        let late = i64::try_from(clock::elapsed(started).as_secs()).expect("small") + 1;
        let sooner = seconds(by_redis.headers()) - seconds(response.headers());
        assert!(
            (0..=late).contains(&sooner),
            "{sooner} s sooner, {late} s later"
        );
        assert_eq!(
            limits_told(response.headers()),
            limits_told(by_redis.headers())
        );
        let body = response.text().await.expect("a body");
        assert!(
            body.contains("\"violated-policies\":[\"per-key\"]"),
            "{body}"
        );
    }
    let told = app.metrics().await;
    let count = |decision, by| metric(&told, &decisions("per-key", decision, by, "enforce"));
    assert_eq!(
        (count("allow", "store"), count("deny", "store")),
        (3.0, 1.0)
    );
    assert_eq!(count("deny", "denial_cache"), 20.0);
    assert_eq!(count("allow", "denial_cache"), 0.0);
    let utilization = "slidegate_utilization_ratio_count{policy=\"per-key\"}";
    assert_eq!(metric(&told, utilization), 24.0);
    let near = "slidegate_near_limit_decisions_total{band=\"1.00-1.05\",decision=\"deny\",policy=\"per-key\"}";
    assert_eq!(metric(&told, near), 21.0);
    assert_eq!(
        metric(&told, "slidegate_store_duration_seconds_count"),
        4.0,
        "calls"
    );
}

#[tokio::test]
async fn without_a_denial_cache_each_request_asks() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let app = app(&server, &upstream, "0s", &[PER_KEY]);
    use_up(&app, "flood").await;
    let before = calls(&server);
    for _ in 0..20 {
        get(&app, "flood").await;
    }
    assert_eq!(calls(&server) - before, 20);
    let by_redis = decisions("per-key", "deny", "store", "enforce");
    assert_eq!(app.metric(&by_redis).await, 21.0);
}

#[tokio::test]
async fn another_key_of_the_same_policy_is_not_concerned() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let app = app(&server, &upstream, "1m", &[PER_KEY]);
    use_up(&app, "flood").await;
    use_up(&app, "other").await;
}

#[tokio::test]
async fn policies_whose_charge_depends_on_the_response_ask_each_time() {
    for charge in ["charge_on: [200]", "take_back_5xx: true"] {
        let (server, upstream) = (RedisServer::start(), Upstream::start());
        let policy =
            format!("{{name: p, identifier: [header:x-api-key], limits: [3/366d], {charge}}}");
        let app = app(&server, &upstream, "1m", &[&policy]);
        use_up(&app, "flood").await;
        let before = calls(&server);
        for _ in 0..10 {
            let response = get(&app, "flood").await;
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!(calls(&server) - before, 10, "{charge}");
    }
}

#[tokio::test]
async fn a_policy_that_is_spared_stays_in_force_and_is_not_counted() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let wide = "{name: wide, identifier: [client_ip], limits: [100/365d, 1000/366d]}";
    let absent =
        "{name: absent, identifier: [header:x-b], missing_identifier: allow, limits: [5/1h]}";
    let app = app(&server, &upstream, "1m", &[wide, absent, PER_KEY]);
    use_up(&app, "flood").await;
    let denied = get(&app, "flood").await;
    let headers = denied.headers();
    assert_eq!(
        headers["ratelimit-policy"],
        "\"wide-365d\";q=100;w=31536000, \"wide-366d\";q=1000;w=31622400, \
         \"per-key\";q=3;w=31622400"
    );
    assert_eq!(headers["x-ratelimit-limit"], "3");
    let told = headers["ratelimit"].to_str().expect("text");
    assert!(told.starts_with("\"per-key\";r=0;t="), "{told}");

    let metrics = app.metrics().await;
    let count = |policy, by| metric(&metrics, &decisions(policy, "deny", by, "enforce"));
    assert_eq!(count("per-key", "denial_cache"), 1.0);
    assert_eq!(count("wide", "denial_cache"), 0.0);
    let allowed = decisions("wide", "allow", "store", "enforce");
    assert_eq!(metric(&metrics, &allowed), 4.0);
}

#[tokio::test]
async fn shadow_policies_are_asked_and_charged_all_the_same() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let app = app(&server, &upstream, "1m", &[PER_KEY, TRIAL]);
    use_up(&app, "flood").await;
    for _ in 0..21 {
        get(&app, "flood").await;
    }
    let allowed = decisions("trial", "allow", "store", "shadow");
    app.metric_becomes(&allowed, 20.0).await;
    let denied = decisions("trial", "deny", "store", "shadow");
    app.metric_becomes(&denied, 5.0).await;
    let by_cache = decisions("per-key", "deny", "denial_cache", "enforce");
    assert_eq!(app.metric(&by_cache).await, 21.0);
    let none = decisions("trial", "deny", "denial_cache", "shadow");
    assert_eq!(app.metric(&none).await, 0.0);
}

#[tokio::test]
async fn a_denial_without_a_call_waits_for_no_shadow_policy() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let app = app(&server, &upstream, "1m", &[PER_KEY, TRIAL]);
    use_up(&app, "flood").await;
    server.pause();
    // The budget is 10 s: who waits for Redis waits for all of it.
    let answered = tokio::time::timeout(Duration::from_secs(5), get(&app, "flood"));
    let response = answered.await.expect("an answer while Redis is frozen");
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    server.resume();
    let allowed = decisions("trial", "allow", "store", "shadow");
    app.metric_becomes(&allowed, 5.0).await;
}

/// A limiter without a proxy around it.
struct Direct {
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
}

impl Direct {
    fn start(server: &RedisServer, policies: &[&str]) -> Self {
        let yaml = yaml(server, "127.0.0.1:9", "1m", policies);
        let config =
            Config::parse(&yaml, "test.yaml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let clock = Clock::system();
        let policies = Arc::new(PolicySet::new(config.policies, config.hasher));
        let metrics = Arc::new(Metrics::new());
        let runtime = tokio::runtime::Handle::current();
        let redis = config.redis.expect("a Redis");
        let limiter = Limiter::new(
            policies,
            Store::Redis(RedisStore::open(redis, clock.clone(), &runtime)),
            MemoryStore::new(config.memory, clock.clone()),
            &config.limiter,
            metrics.clone(),
            clock,
        );
        Self {
            limiter: Arc::new(limiter),
            metrics,
        }
    }

    async fn check(&self, intent: Intent) -> Verdict {
        let request = http::Request::builder().header("x-api-key", "flood");
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let view = RequestView {
            head: &head,
            client: Client::Unix,
            peer_is_trusted: false,
        };
        self.limiter.check(&view, intent).await
    }

    /// Three requests that are admitted, one that Redis denies, and one that needs no call.
    async fn use_up(&self) -> Verdict {
        for expected in [true, true, true, false] {
            let passes = self.check(Intent::Take).await.outcome == Outcome::Pass;
            assert_eq!(passes, expected);
        }
        let denied = self.check(Intent::Take).await;
        assert_eq!(decided_by(&denied), DecidedBy::DenialCache);
        denied
    }

    fn metric(&self, series: &str) -> f64 {
        let (text, _) = self.metrics.expose(Health::default());
        metric(&String::from_utf8(text).expect("text"), series)
    }
}

fn decided_by(verdict: &Verdict) -> DecidedBy {
    verdict.limits()[0].decided_by
}

#[tokio::test]
async fn a_request_that_costs_more_than_is_left_is_denied_without_a_call_while_units_remain() {
    let server = RedisServer::start();
    let dear = "{name: dear, identifier: [header:x-api-key], limits: [3/366d], cost: 2}";
    let direct = Direct::start(&server, &[dear]);
    for passes in [true, false] {
        let outcome = direct.check(Intent::Take).await.outcome;
        assert_eq!(outcome == Outcome::Pass, passes);
    }
    let denied = direct.check(Intent::Take).await;
    assert_eq!(decided_by(&denied), DecidedBy::DenialCache);
    assert_eq!(denied.limits()[0].decision.remaining(), 1);
}

#[tokio::test]
async fn who_is_forgotten_gets_in_at_once() {
    let server = RedisServer::start();
    let direct = Direct::start(&server, &[PER_KEY]);
    let denied = direct.use_up().await;
    let identifier = denied.limits()[0].identifier;
    let forgotten = direct.limiter.forget(0, identifier).await;
    forgotten.expect("Redis answers");
    let admitted = direct.check(Intent::Take).await;
    assert_eq!(admitted.outcome, Outcome::Pass);
    assert_eq!(decided_by(&admitted), DecidedBy::Store);
}

#[tokio::test]
async fn who_only_asks_is_told_what_the_store_says() {
    let server = RedisServer::start();
    let direct = Direct::start(&server, &[PER_KEY]);
    direct.use_up().await;
    let before = calls(&server);
    let asked = direct.check(Intent::Peek).await;
    assert_eq!(asked.outcome, Outcome::Denied);
    assert_eq!(decided_by(&asked), DecidedBy::Store);
    assert_eq!(calls(&server) - before, 1);
}

#[tokio::test]
async fn calls_that_nobody_waits_for_are_bounded_and_what_is_left_out_is_counted() {
    let server = RedisServer::start();
    let direct = Direct::start(&server, &[PER_KEY, TRIAL]);
    direct.use_up().await;
    // Nothing here lets those calls proceed: 1,024 of them may be under way.
    for _ in 0..1_100 {
        direct.check(Intent::Take).await;
    }
    let overloaded = "slidegate_store_errors_total{kind=\"overloaded\"}";
    let left_out = direct.metric(overloaded);
    assert!((76.0..=77.0).contains(&left_out), "{left_out}");
    eventually("the others are decided", async || {
        let decided = ["allow", "deny"]
            .map(|decision| direct.metric(&decisions("trial", decision, "store", "shadow")));
        decided.iter().sum::<f64>() == 1_105.0 - left_out
    })
    .await;
    direct.check(Intent::Take).await;
    assert_eq!(direct.metric(overloaded), left_out, "there is room again");
}
