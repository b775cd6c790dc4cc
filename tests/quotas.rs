//! How much each may take: costs, single identifiers, and no limit at all.

use crate::support::{app::App, redis::RedisServer};

const COSTLY: &str = "identity: {trusted_proxies: [127.0.0.0/8]}\n\
     policies: [{name: p, limits: [20/366d], cost: 2, cost_header: x-cost, max_cost: 10}]";

#[tokio::test]
async fn a_request_costs_what_a_trusted_proxy_says_and_else_what_the_policy_says() {
    let (app, _upstream) = App::with_upstream(COSTLY);
    assert_eq!(app.ask("/", &[("x-cost", "10")]).await, (200, Some(10)));
    assert_eq!(app.ask("/", &[]).await, (200, Some(8)));
    assert_eq!(app.ask("/", &[("x-cost", "9")]).await, (429, Some(8)));
    assert_eq!(app.ask("/", &[("x-cost", " 8 ")]).await, (200, Some(0)));
}

#[tokio::test]
async fn a_cost_that_anyone_else_says_is_not_looked_at() {
    let (app, _upstream) = App::with_upstream(&COSTLY.replace("127.0.0.0/8", "192.0.2.1"));
    for said in ["1", "10", "x"] {
        let (status, _) = app.ask("/", &[("x-cost", said)]).await;
        assert_eq!(status, 200, "{said}");
    }
    assert_eq!(app.ask("/", &[]).await, (200, Some(12)));
}

#[tokio::test]
async fn a_cost_that_is_none_or_above_the_most_is_refused_and_charged_to_nobody() {
    let (app, _upstream) = App::with_upstream(COSTLY);
    for said in ["0", "-1", "11", "1.5", "1e1", "01", "", "x", "4294967296"] {
        assert_eq!(
            app.ask("/", &[("x-cost", said)]).await,
            (400, None),
            "{said}"
        );
    }
    let twice = [("x-cost", "1"), ("x-cost", "1")];
    assert_eq!(app.ask("/", &twice).await, (400, None));
    assert_eq!(app.ask("/", &[]).await, (200, Some(18)));
}

#[tokio::test]
async fn what_is_charged_or_given_back_at_the_response_is_the_cost_of_its_request() {
    let (app, _upstream) = App::with_upstream(
        "identity: {trusted_proxies: [127.0.0.0/8]}\n\
         policies:\n\
         - {name: late, limits: [20/366d], cost_header: x-cost, max_cost: 10, charge_on: [404], match: {path: [/status/404]}}\n\
         - {name: back, limits: [20/366d], cost_header: x-cost, max_cost: 10, take_back_5xx: true, match: {path: [/status/503, /]}}",
    );
    let three = [("x-cost", "3")];
    assert_eq!(app.ask("/status/404", &three).await, (404, Some(17)));
    assert_eq!(app.ask("/status/404", &[]).await, (404, Some(16)));
    app.ask("/status/503", &three).await;
    assert_eq!(app.ask("/", &[("x-cost", "1")]).await, (200, Some(19)));
}

/// What was seen of a counter is kept, not that somebody was denied.
#[tokio::test]
async fn a_cheap_request_is_admitted_after_a_dear_one_was_denied_also_by_the_denial_cache() {
    let redis = RedisServer::start();
    let store = format!(
        "store: {{url: \"{}\", budget: 10s, denial_cache: 1m}}\n",
        redis.url()
    );
    let (app, _upstream) = App::with_upstream(&format!("{store}{COSTLY}"));
    app.store_decides().await;
    let cost = async |said| app.ask("/", &[("x-cost", said)]).await;
    assert_eq!(cost("10").await, (200, Some(10)));
    assert_eq!(cost("9").await, (200, Some(1)));
    for _ in 0..2 {
        assert_eq!(cost("5").await, (429, Some(1)));
    }
    assert_eq!(cost("1").await, (200, Some(0)));
}

const OVERRIDES: &str = "
identity: {trusted_proxies: [127.0.0.0/8]}
policies:
  - name: p
    limits: [2/366d]
    overrides:
      - {client_ip: [203.0.113.7, \"2001:db8::1\"], limits: [5/366d, 7/365d]}
      - {client_ip: [203.0.113.8], limits: unlimited}
      - {identifier: [203.0.113.9], limits: [0/366d]}
";

#[tokio::test]
async fn an_override_is_for_its_identifier_and_for_nobody_else() {
    let (app, _upstream) = App::with_upstream(OVERRIDES);
    let from = async |address| app.ask("/", &[("x-forwarded-for", address)]).await;
    assert_eq!(from("203.0.113.1").await, (200, Some(1)));
    assert_eq!(from("203.0.113.7").await, (200, Some(4)));
    assert_eq!(from("203.0.113.8").await, (200, None), "without a limit");
    assert_eq!(from("203.0.113.9").await, (429, Some(0)));
    assert_eq!(from("2001:db8::1").await, (200, Some(4)));
    let neighbour = from("2001:db8::2").await;
    assert_eq!(neighbour, (200, Some(3)), "its /64 is one client");
}

#[tokio::test]
async fn an_override_tells_its_own_limits() {
    let (app, _upstream) = App::with_upstream(OVERRIDES);
    let policies = async |address: &str| {
        let request = reqwest::Client::new().get(app.url("/"));
        let request = request.header("x-forwarded-for", address);
        let response = request.send().await.expect("answered");
        let told = response.headers()["ratelimit-policy"].to_str();
        told.expect("text").to_owned()
    };
    assert_eq!(policies("203.0.113.1").await, "\"p\";q=2;w=31622400");
    assert_eq!(
        policies("203.0.113.7").await,
        "\"p-366d\";q=5;w=31622400, \"p-365d\";q=7;w=31536000"
    );
}

#[tokio::test]
async fn an_unlimited_policy_takes_its_requests_from_those_after_it_under_apply_first() {
    let (app, _upstream) = App::with_upstream(
        "apply: first\n\
         policies:\n\
         - {name: free, match: {path: [/free]}, limits: unlimited}\n\
         - {name: rest, limits: [1/366d]}",
    );
    for _ in 0..3 {
        assert_eq!(app.ask("/free", &[]).await, (200, None));
    }
    assert_eq!(app.ask("/", &[]).await, (200, Some(0)));
}
