//! The whole thing for real: the binary, nginx behind it, Redis beside it, connections in front of it.

use std::collections::BTreeMap;

use redis::Commands;
use reqwest::StatusCode;
use slidegate::{clock::Clock, ratelimit::Timestamp};
use tokio::task::JoinSet;

use crate::support::{
    app::metric,
    binary::Binary,
    nginx::Nginx,
    redis::{RedisServer, eventually},
};

const KEYS: usize = 8;
const CONNECTIONS: usize = 24;
const QUOTA: u64 = 40;
const WINDOW: u64 = 5;

/// A load of real connections over more than two windows of five seconds. Every request is charged to a
/// five-second limit and, in the same call, to an hour's limit that nobody reaches: its counter is the sum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_count_what_metrics_tell_and_what_redis_holds_agree() {
    let (nginx, redis) = (Nginx::start(), RedisServer::start());
    let binary = Binary::start(&format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"{}\", budget: 10s}}\n\
         policies: [{{name: per-key, identifier: [header:x-api-key], limits: [{QUOTA}/{WINDOW}s, 1000000/1h]}}]\n",
        nginx.address,
        redis.url()
    ));

    let clock = Clock::system();
    let end = Timestamp::from_seconds((clock.now().as_seconds() / WINDOW + 3) * WINDOW + 1);
    let mut load = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let (url, clock) = (binary.url("/"), clock.clone());
        load.spawn(async move {
            let client = reqwest::Client::new();
            let key = format!("key-{}", connection % KEYS);
            let mut counted = BTreeMap::<u16, u64>::new();
            while clock.now() < end {
                let request = client.get(&url).header("x-api-key", &key);
                let response = request.send().await.expect("a response");
                let status = response.status();
                let told = response.headers().contains_key("x-ratelimit-remaining");
                assert!(told, "every answer tells the limits");
                assert_eq!(
                    response.headers().contains_key("retry-after"),
                    status == 429
                );
                if status == StatusCode::OK {
                    assert_eq!(response.text().await.expect("a body"), "hello from nginx");
                }
                *counted.entry(status.as_u16()).or_default() += 1;
                // Spread over the window, as clients are.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            counted
        });
    }
    let mut counted = BTreeMap::<u16, u64>::new();
    for (status, count) in load.join_all().await.into_iter().flatten() {
        *counted.entry(status).or_default() += count;
    }
    let (allowed, denied) = (counted[&200], counted[&429]);
    assert_eq!(
        allowed + denied,
        counted.values().sum::<u64>(),
        "{counted:?}"
    );

    let url = format!("http://{}/metrics", binary.metrics);
    let mut exposition = String::new();
    // A request is counted when it has ended, which its client may see a moment earlier.
    eventually("every request has ended", async || {
        let response = reqwest::get(&url).await.expect("metrics are served");
        exposition = response.text().await.expect("metrics are text");
        let ended = |class| {
            metric(
                &exposition,
                &format!("slidegate_requests_total{{status=\"{class}\"}}"),
            )
        };
        ended("2xx") + ended("4xx") == (allowed + denied) as f64
    })
    .await;
    let decided = |decision: &str, by: &str| {
        metric(
            &exposition,
            &format!(
                "slidegate_decisions_total{{decided_by=\"{by}\",decision=\"{decision}\",mode=\"enforce\",plan=\"\",policy=\"per-key\"}}"
            ),
        )
    };
    assert_eq!(decided("allow", "store"), allowed as f64);
    assert_eq!(
        decided("deny", "store") + decided("deny", "denial_cache"),
        denied as f64
    );
    assert_eq!(
        metric(&exposition, "slidegate_requests_total{status=\"2xx\"}"),
        allowed as f64
    );
    assert_eq!(
        metric(&exposition, "slidegate_requests_total{status=\"4xx\"}"),
        denied as f64
    );
    assert_eq!(
        metric(&exposition, "slidegate_utilization_ratio_count"),
        (allowed + denied) as f64
    );
    assert_eq!(
        metric(&exposition, "slidegate_upstream_duration_seconds_count"),
        allowed as f64
    );

    let mut client = redis.client();
    let keys: Vec<String> = client.keys("*").expect("Redis answers");
    let mut by_hour = 0;
    for key in &keys {
        let ttl: i64 = client.ttl(key).expect("Redis answers");
        let count: u64 = client.get(key).expect("a count");
        assert!(
            key.starts_with("rl:{default:per-key:") && key.len() <= 60,
            "{key}"
        );
        assert!(
            !key.contains("key-"),
            "a client's key is nowhere in Redis: {key}"
        );
        if key.contains("}:3600:") {
            by_hour += count;
            assert!((1..=7200).contains(&ttl), "{key} lives {ttl} s");
        } else {
            assert!(count <= QUOTA, "{key} holds {count}");
            assert!(ttl <= 2 * WINDOW as i64 && ttl >= 0, "{key} lives {ttl} s");
        }
    }
    assert_eq!(by_hour, allowed, "Redis holds what clients were granted");

    // Two full windows and two partial ones: no key can have had more, and the load asked for more.
    let most = 4 * QUOTA * KEYS as u64;
    assert!(denied > 0 && allowed <= most, "{allowed} of at most {most}");
}
