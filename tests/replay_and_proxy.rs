//! `replay` decides as the proxy did: the same requests, at the same moments, through both.

use std::sync::Arc;

use http::StatusCode;
use slidegate::{
    app,
    clock::Clock,
    config::Config,
    policy::PolicySet,
    ratelimit::Algorithm,
    replay::{self, Reading, Record, Replay, Rule},
};

use crate::support::{app::App, upstream::Upstream};

/// Several limits that are charged together and taken back, one of other requests, one that is charged by what was
/// answered, and one that stops nothing; all by this algorithm.
fn yaml(upstream: &Upstream, algorithm: Algorithm) -> String {
    let (address, algorithm) = (upstream.address, algorithm.name());
    format!(
        "upstream: {{address: '{address}'}}\n\
         identity: {{trusted_proxies: [127.0.0.0/8]}}\n\
         policies:\n\
         - {{name: per-ip, algorithm: {algorithm}, take_back_5xx: true, limits: [4/5s, 12/1m]}}\n\
         - {{name: costly, algorithm: {algorithm}, limits: [9/1m], cost: 2, match: {{path: [/costly]}}}}\n\
         - {{name: failing, algorithm: {algorithm}, limits: [3/1m], charge_on: [404]}}\n\
         - {{name: tried, algorithm: {algorithm}, limits: [1/1m], mode: shadow}}\n"
    )
}

fn config(yaml: &str) -> Config {
    Config::parse(yaml, "test.yaml", &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

/// The requests of a recorded log, in the order of time, each for something else.
fn recorded() -> Vec<Record> {
    let log = include_bytes!("logs/shop_jan19.combined.log");
    let (mut reading, mut records) = (Reading::default(), Vec::new());
    let each = &mut |record: &Record| records.push(record.clone());
    replay::read("shop", &log[..], &mut reading, each).expect("in memory");
    records.sort_by_key(|record| record.at);
    for (place, record) in records.iter_mut().enumerate() {
        let path = ["/", "/costly", "/status/404", "/status/503"][place % 4];
        record.head.uri = http::Uri::from_static(path);
        record.head.method = http::Method::GET;
        record.head.headers.clear();
    }
    records
}

/// What a proxy answers, asked at each request's own time.
async fn answered(yaml: &str, records: &[Record]) -> Vec<StatusCode> {
    let clock = Clock::manual(records[0].at);
    let app = App::start_at(yaml, clock.clone());
    let client = reqwest::Client::new();
    let mut statuses = Vec::new();
    for record in records {
        clock.set(record.at);
        let request = client.get(app.url(record.head.uri.path()));
        let request = request.header("x-forwarded-for", record.client.to_string());
        statuses.push(request.send().await.expect("answered").status());
    }
    statuses
}

#[tokio::test]
async fn the_same_requests_are_denied_by_the_proxy_and_by_replay() {
    let upstream = Upstream::start();
    for algorithm in Algorithm::ALL {
        let yaml = yaml(&upstream, algorithm);
        let mut records = recorded();
        let statuses = answered(&yaml, &records).await;
        let many = statuses.iter().filter(|status| **status == 429).count();
        assert!((100..900).contains(&many), "{many} denials are no test");
        assert!(statuses.iter().any(|status| *status == 404));

        let mut config = config(&yaml);
        let clients = std::mem::take(&mut config.clients);
        let policies: Arc<PolicySet> = app::policies(&mut config);
        let mut replay = Replay::new(clients, vec![(Rule::By(algorithm), policies)]);
        for (place, (record, status)) in records.iter_mut().zip(statuses).enumerate() {
            record.status = Some(status);
            assert_eq!(
                replay.decide(record),
                status == 429,
                "{}, request {place}: {record:?}",
                algorithm.name()
            );
        }
    }
}
