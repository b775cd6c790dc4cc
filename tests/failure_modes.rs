//! Redis away, at start or later: what each failure mode does, and who is said to have decided.

use redis::Commands;
use reqwest::{Response, StatusCode};

use crate::support::{
    app::App,
    redis::{RedisServer, eventually},
    upstream::Upstream,
};

fn app(server: &RedisServer, upstream: &Upstream, settings: &str, policies: &str) -> App {
    App::start(&format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 1s{settings}}}\npolicies:\n{policies}\n",
        upstream.address,
        server.url()
    ))
}

async fn get(app: &App) -> Response {
    reqwest::get(app.url("/")).await.expect("a response")
}

fn decisions(policy: &str, decision: &str, by: &str) -> String {
    format!(
        "slidegate_decisions_total{{decided_by=\"{by}\",decision=\"{decision}\",mode=\"enforce\",plan=\"\",policy=\"{policy}\"}}"
    )
}

#[tokio::test]
async fn without_redis_at_start_local_decides_at_this_proxy_s_share_and_tells_the_configured_limit()
{
    let (server, upstream) = (RedisServer::absent(), Upstream::start());
    let policy = "  - {name: p, identifier: [client_ip], limits: [6/1h]}";
    let app = app(&server, &upstream, ", expected_replicas: 3", policy);
    for remaining in ["1", "0"] {
        let response = get(&app).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["x-ratelimit-limit"], "6");
        assert_eq!(
            response.headers()["x-ratelimit-remaining"],
            remaining,
            "of a share of 2"
        );
    }
    let denied = get(&app).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(denied.headers().contains_key("retry-after"));
    assert_eq!(app.metric(&decisions("p", "allow", "local")).await, 2.0);
    assert_eq!(app.metric(&decisions("p", "deny", "local")).await, 1.0);
    assert_eq!(app.metric("slidegate_store_breaker_tripped").await, 1.0);
    assert_eq!(
        app.metric("slidegate_store_errors_total{kind=\"disconnected\"}")
            .await,
        3.0
    );
}

#[tokio::test]
async fn without_redis_allow_lets_pass_and_tells_no_limits() {
    let (server, upstream) = (RedisServer::absent(), Upstream::start());
    let policy = "  - {name: p, identifier: [client_ip], limits: [1/1h], failure_mode: allow}";
    let app = app(&server, &upstream, "", policy);
    for _ in 0..3 {
        let response = get(&app).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!response.headers().contains_key("x-ratelimit-limit"));
        assert!(!response.headers().contains_key("ratelimit-policy"));
    }
    assert_eq!(
        app.metric(&decisions("p", "allow", "failure_mode")).await,
        3.0
    );
}

#[tokio::test]
async fn without_redis_deny_wins_answers_503_and_charges_nothing() {
    let (server, upstream) = (RedisServer::absent(), Upstream::start());
    let policies = "  - {name: strict, identifier: [client_ip], limits: [9/1h], failure_mode: deny}\n  \
                      - {name: lenient, identifier: [client_ip], limits: [1/1m], failure_mode: local}";
    let app = app(&server, &upstream, "", policies);
    for _ in 0..3 {
        let response = get(&app).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["retry-after"], "1");
        assert!(!response.headers().contains_key("x-ratelimit-limit"));
        let problem = response.text().await.expect("a body");
        assert!(problem.contains("temporary-reduced-capacity"), "{problem}");
    }
    assert!(upstream.seen().is_empty());
    assert_eq!(
        app.metric(&decisions("strict", "deny", "failure_mode"))
            .await,
        3.0
    );
    assert_eq!(
        app.metric(&decisions("lenient", "allow", "local")).await,
        0.0,
        "spared"
    );
}

#[tokio::test]
async fn a_shadow_policy_has_no_failure_mode() {
    let (server, upstream) = (RedisServer::absent(), Upstream::start());
    let policy =
        "  - {name: p, identifier: [client_ip], limits: [1/1h], failure_mode: deny, mode: shadow}";
    let app = app(&server, &upstream, "", policy);
    assert_eq!(get(&app).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn redis_decides_from_the_moment_it_is_there_and_again_after_each_outage() {
    let (mut server, upstream) = (RedisServer::absent(), Upstream::start());
    let policy = "  - {name: p, identifier: [client_ip], limits: [100000/1h]}";
    let app = app(&server, &upstream, "", policy);
    let decided_by_now = async |by: &str| {
        let series = decisions("p", "allow", by);
        let before = app.metric(&series).await;
        assert_eq!(
            get(&app).await.status(),
            StatusCode::OK,
            "no outage shows to a client"
        );
        app.metric(&series).await > before
    };
    eventually("local decides", async || decided_by_now("local").await).await;
    for _ in 0..2 {
        server.restart();
        eventually("Redis decides", async || decided_by_now("store").await).await;
        assert_eq!(app.metric("slidegate_store_breaker_tripped").await, 0.0);
        server.kill();
        eventually("local decides", async || decided_by_now("local").await).await;
    }
}

#[tokio::test]
async fn a_frozen_redis_is_given_up_after_a_few_budgets_and_then_asked_no_more() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let app = App::start(&format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 20ms}}\n\
         policies: [{{name: p, identifier: [client_ip], limits: [100000/1h]}}]\n",
        upstream.address,
        server.url()
    ));
    eventually("Redis decides", async || {
        get(&app).await;
        app.metric(&decisions("p", "allow", "store")).await >= 1.0
    })
    .await;
    server.pause();
    eventually("the breaker trips", async || {
        assert_eq!(get(&app).await.status(), StatusCode::OK);
        app.metric("slidegate_store_breaker_tripped").await == 1.0
    })
    .await;
    let calls = "slidegate_store_duration_seconds_count";
    let (asked, by_local) = (app.metric(calls).await, decisions("p", "allow", "local"));
    let before = app.metric(&by_local).await;
    for _ in 0..20 {
        assert_eq!(get(&app).await.status(), StatusCode::OK);
    }
    assert_eq!(
        app.metric(calls).await,
        asked,
        "no request waits for it any more"
    );
    assert_eq!(app.metric(&by_local).await, before + 20.0);
    server.resume();
    eventually("Redis decides", async || {
        let before = app.metric(&decisions("p", "allow", "store")).await;
        get(&app).await;
        app.metric(&decisions("p", "allow", "store")).await > before
    })
    .await;
}

#[tokio::test]
async fn a_response_is_charged_to_all_its_limits_in_one_call() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let policy = "  - {name: p, identifier: [client_ip], limits: [5/1m, 5/1h, 5/1d, 5/2d], charge_on: [401]}";
    let app = app(&server, &upstream, "", policy);
    let calls = "slidegate_store_duration_seconds_count";
    eventually("Redis decides", async || {
        get(&app).await;
        app.metric(&decisions("p", "allow", "store")).await >= 1.0
    })
    .await;
    let before = app.metric(calls).await;
    let response = reqwest::get(app.url("/status/401"))
        .await
        .expect("a response");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "4");
    assert_eq!(
        app.metric(calls).await,
        before + 2.0,
        "asked once, charged once"
    );
}

/// One policy's counter is broken and this proxy decides for it; the other is decided by Redis.
#[tokio::test]
async fn what_is_taken_back_goes_to_whoever_decided_policy_by_policy() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let policies = "  - {name: broken, identifier: [client_ip], limits: [100/366d], take_back_5xx: true}\n  \
                      - {name: sound, identifier: [client_ip], limits: [100/366d], take_back_5xx: true, mode: shadow}";
    let app = app(&server, &upstream, "", policies);
    eventually("Redis decides", async || {
        get(&app).await;
        app.metric(&decisions("broken", "allow", "store")).await >= 1.0
    })
    .await;
    let mut client = server.client();
    let key = |client: &mut redis::Connection, policy: &str| -> String {
        let keys: Vec<String> = client
            .keys(format!("rl:*:{policy}:*"))
            .expect("Redis answers");
        keys.into_iter().next().expect("a counter")
    };
    let (broken, sound) = (key(&mut client, "broken"), key(&mut client, "sound"));
    let before: u64 = client.get(&sound).expect("a count");
    let _: () = client.set(&broken, "no number").expect("Redis answers");
    for _ in 0..5 {
        let response = reqwest::get(app.url("/status/503"))
            .await
            .expect("a response");
        assert_eq!(response.status(), 503);
    }
    eventually("all ten are taken back", async || {
        app.metric("slidegate_give_backs_total{result=\"done\"}")
            .await
            == 10.0
    })
    .await;
    let after: u64 = client.get(&sound).expect("a count");
    assert_eq!(after, before);
    assert_eq!(
        app.metric("slidegate_give_backs_total{result=\"lost\"}")
            .await,
        0.0
    );
}
