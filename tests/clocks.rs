//! One clock: the store's, whatever the proxies believe.

use slidegate::clock::Clock;

use crate::support::{app::App, redis::RedisServer, upstream::Upstream};

#[tokio::test]
async fn two_proxies_with_clocks_90_s_apart_decide_like_one() {
    let (redis, upstream) = (RedisServer::start(), Upstream::start());
    // A window that nobody will see turn, so that the test tells the same at any time of day.
    let yaml = format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 10s}}\n\
         policies: [{{name: p, identifier: [client_ip], limits: [10/366d, 10/365d]}}]\n",
        upstream.address,
        redis.url()
    );
    let proxies = [0, 90_000].map(|skew| App::start_at(&yaml, Clock::skewed(skew)));
    let mut told = Vec::new();
    for turn in 0..14 {
        let response = reqwest::get(proxies[turn % 2].url("/"))
            .await
            .expect("a response");
        let header = |name: &str| response.headers()[name].to_str().expect("text").to_owned();
        assert_eq!(response.status(), if turn < 10 { 200 } else { 429 });
        told.push(header("x-ratelimit-reset"));
        assert_eq!(
            header("x-ratelimit-remaining"),
            9usize.saturating_sub(turn).to_string()
        );
    }
    told.dedup();
    assert_eq!(told.len(), 1, "one window, told alike by both: {told:?}");
}

#[tokio::test]
async fn a_proxy_whose_clock_is_wrong_learns_it_with_one_call_and_needs_no_second() {
    let (redis, upstream) = (RedisServer::start(), Upstream::start());
    let yaml = format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 10s}}\n\
         policies: [{{name: p, identifier: [client_ip], limits: [1000/1m]}}]\n",
        upstream.address,
        redis.url()
    );
    let proxy = App::start_at(&yaml, Clock::skewed(-3_600_000));
    for _ in 0..20 {
        let response = reqwest::get(proxy.url("/")).await.expect("a response");
        assert_eq!(response.status(), 200);
    }
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut redis.client())
        .expect("Redis answers");
    let calls: u64 = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
        .and_then(|line| line.split(',').next()?.parse().ok())
        .expect("the script was called");
    // One for the wrong guess; one more should the minute turn meanwhile.
    assert!((21..=22).contains(&calls), "{calls}");
}
