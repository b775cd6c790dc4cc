//! What operators see: metrics that are there from the start, bounded whatever clients send, and log lines
//! that tell what happened without telling secrets.

use std::{fmt::Write as _, net::Ipv4Addr, sync::Arc};

use http::HeaderValue;
use serde_json::{Value, json};
use slidegate::{
    clock::Clock,
    config::Config,
    limiter::{Intent, Limiter, Outcome},
    metrics::{Metrics, OPEN_LABELS},
    policy::{Client, PolicySet, RequestView},
    store::{Health, MemoryStore, Store},
};

use crate::support::{
    app::{App, metric},
    binary::Binary,
    certificates::{Authority, tls_listener},
    exposition::{self, Family},
    redis::{RedisServer, eventually},
    snapshot::agrees,
    upstream::Upstream,
    wire::Wire,
};

const POLICIES: &str = "policies:\n  \
    - {name: per-key, identifier: [header:x-api-key], limits: [10/366d]}\n  \
    - {name: trial, identifier: [client_ip], limits: [5/366d], mode: shadow}\n";

fn yaml(upstream: &Upstream, settings: &str) -> String {
    format!(
        "upstream: {{address: \"{}\"}}\n{settings}{POLICIES}",
        upstream.address
    )
}

/// Names, types and labels of the exposition, without values and without what the process itself tells.
fn shape(exposition: &str) -> String {
    let lines = exposition
        .lines()
        .filter(|line| line.contains("slidegate_"));
    lines
        .map(|line| match line.starts_with('#') {
            true => line.to_owned(),
            false => line.rsplit_once(' ').expect("a value").0.to_owned(),
        })
        .map(|line| line.replace(env!("CARGO_PKG_VERSION"), "VERSION"))
        .map(|line| match line.split_once("{fingerprint=\"") {
            Some((name, _)) => format!("{name}{{fingerprint=\"FINGERPRINT\"}}\n"),
            None => line + "\n",
        })
        .collect()
}

#[tokio::test]
async fn every_series_is_there_at_zero_before_the_first_event_and_named_as_documented() {
    let (redis, upstream) = (RedisServer::start(), Upstream::start());
    let audited = format!(
        "store: {{url: \"{}\"}}\naudit: {{sample: 0.01}}\n",
        redis.url()
    );
    let app = App::start(&yaml(&upstream, &audited));
    app.store_decides().await;
    let exposition = app.metrics().await;
    agrees("tests/snapshots/exposition.txt", &shape(&exposition));
    for line in exposition
        .lines()
        .filter(|line| line.starts_with("slidegate_"))
    {
        let one = [
            "slidegate_build_info",
            "slidegate_config_info",
            "slidegate_upstream_addresses{state=\"in_rotation\"",
        ];
        let one = one.iter().any(|info| line.starts_with(info));
        assert!(line.ends_with(if one { " 1" } else { " 0" }), "{line}");
    }
}

#[tokio::test]
async fn the_table_of_metrics_is_what_is_exposed() {
    let upstream = Upstream::start();
    // Nothing of it needs the Redis.
    let audited = "store: {url: \"redis://127.0.0.1:9\"}\naudit: {sample: 0.01}\n";
    let authority = Authority::new();
    let certified = authority.certify("shown", "DNS:api.test");
    let listen = format!("listen: [{}]\n", tls_listener(&[&certified], ""));
    let app = App::start_with_files(&yaml(&upstream, &(listen + audited)));
    let exposed = exposition::parse(&app.metrics().await);
    let ours = exposed
        .iter()
        .filter(|family| family.name.starts_with("slidegate_"));
    assert!(ours.count() >= 10 && exposed.len() < 100);
    agrees("docs/metrics.md", &table(&exposed));
}

/// `docs/metrics.md`.
fn table(families: &[Family]) -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         What `http://<host>:9464/metrics` tells. Each series is there at 0 from the start, or from the reload that brings\n\
         its policy; those of the audit where `audit` is on, of certificates where a listener shows some. Written by `BLESS=1 cargo test table_of_metrics` from what a proxy exposes: do not edit.\n\n\
         | metric | type | labels | what |\n| --- | --- | --- | --- |\n",
    );
    let mut open = Vec::new();
    for family in families {
        let mut labels: Vec<&str> = Vec::new();
        for (name, _) in family.series.iter().flat_map(|series| &series.labels) {
            if name != "le" && !labels.contains(&name.as_str()) {
                labels.push(name);
            }
        }
        let labels = labels.into_iter().map(|label| {
            match OPEN_LABELS.iter().find(|(name, _)| *name == label) {
                Some(label) => {
                    open.push(label);
                    format!("`{}`", label.0)
                }
                None => {
                    let values: Vec<_> = family.values(label).into_iter().collect();
                    format!("`{label}`: `{}`", values.join("`, `"))
                }
            }
        });
        let labels = labels.collect::<Vec<_>>().join("; ");
        let (name, kind, help) = (&family.name, &family.kind, &family.help);
        writeln!(text, "| `{name}` | {kind} | {labels} | {help} |").expect("written");
    }
    text += "\nLabels that are not among a few words known beforehand; none comes from a client:\n\n\
             | label | where its values come from |\n| --- | --- |\n";
    for label in &OPEN_LABELS {
        assert!(open.contains(&label), "no metric has {}", label.0);
        writeln!(text, "| `{}` | {} |", label.0, label.1).expect("written");
    }
    text += "\nHistograms, whose unit is in their names, and the upper edges of their buckets:\n\n\
             | metric | `le` |\n| --- | --- |\n";
    for family in families.iter().filter(|family| family.kind == "histogram") {
        let mut edges: Vec<&str> = family.values("le").into_iter().collect();
        edges.sort_by(|one, other| edge(one).total_cmp(&edge(other)));
        writeln!(text, "| `{}` | {} |", family.name, edges.join(", ")).expect("written");
    }
    text
}

fn edge(le: &str) -> f64 {
    le.parse().expect("a number")
}

#[tokio::test]
async fn nothing_a_client_sends_grows_or_breaks_the_exposition() {
    let upstream = Upstream::start();
    let app = App::start(&yaml(&upstream, ""));
    let before = shape(&app.metrics().await);
    let mut served = 0;
    for number in 0..200 {
        // Every other target has bytes that no target may have: refused or not, nothing may come of it.
        let odd = if number % 2 == 0 { "" } else { "\"\u{ff}" };
        let request = format!(
            "GET /path-{number}%22%0a{odd} HTTP/1.1\r\nHost: h{number}.example\r\nConnection: close\r\n\
             X-API-Key: k\"{number}\\\u{ff}\r\nX-Client-Name: \u{442}{number}\r\n\r\n"
        );
        let response = Wire::open(app.proxy).send(request.as_bytes()).rest();
        served += usize::from(response.starts_with("HTTP/1.1 200 "));
    }
    assert!(served >= 100, "{served} of 200 were served");
    let after = app.metrics().await;
    assert_eq!(shape(&after), before);
    for line in after.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit_once(' ').expect("a value").1;
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(line.is_ascii(), "{line}");
    }
}

/// What decides, without a proxy around it: a hundred thousand connections would take minutes.
#[tokio::test]
async fn a_hundred_thousand_identities_add_no_series_where_they_are_decided() {
    let policies = "
identity: {trusted_proxies: [127.0.0.0/8]}
policies:
  - {name: key, identifier: [header:x-api-key], limits: [10/366d]}
  - {name: address, limits: [10/366d]}
  - {name: path, identifier: [[path, method]], limits: [10/366d], mode: shadow}
  - {name: host, identifier: [[host, cookie:c, query:q]], limits: [10/366d], mode: shadow}
";
    let yaml = format!("upstream: {{address: \"127.0.0.1:9\"}}\n{policies}");
    let config =
        Config::parse(&yaml, "test.yaml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let clock = Clock::system();
    let metrics = Arc::new(Metrics::new());
    let store = MemoryStore::new(config.memory, clock.clone());
    let limiter = Arc::new(Limiter::new(
        Arc::new(PolicySet::new(config.policies, config.hasher)),
        Store::Memory(store),
        MemoryStore::new(config.memory, clock.clone()),
        &config.limiter,
        metrics.clone(),
        clock,
    ));
    let exposed = || {
        let (text, _) = metrics.expose(Health::default());
        String::from_utf8(text).expect("text")
    };
    let before = shape(&exposed());
    for number in 0..100_000_u32 {
        let odd = [b"c=\"\\\xff{}=,#".as_slice(), number.to_string().as_bytes()].concat();
        let odd = HeaderValue::from_bytes(&odd).expect("a value");
        let (head, ()) = http::Request::builder()
            .method(format!("M{number}").as_str())
            .uri(format!("/%22%0a%ff/{number}?q=%22%0a{number}"))
            .header("host", format!("h{number}.example"))
            .header("x-api-key", odd.clone())
            .header("cookie", odd)
            .body(())
            .expect("a request")
            .into_parts();
        let view = RequestView {
            head: &head,
            client: Client::Address(Ipv4Addr::from_bits(number).into()),
            peer_is_trusted: true,
        };
        let verdict = limiter.check(&view, Intent::Take).await;
        assert!(matches!(verdict.outcome, Outcome::Pass), "{verdict:?}");
    }
    let after = exposed();
    assert_eq!(shape(&after), before);
    for policy in ["key", "address", "path", "host"] {
        let series = format!("slidegate_utilization_ratio_count{{policy=\"{policy}\"}}");
        assert_eq!(metric(&after, &series), 100_000.0, "{policy}");
    }
}

#[tokio::test]
async fn durations_are_told_in_seconds() {
    let (redis, upstream) = (RedisServer::start(), Upstream::start());
    let store = format!("store: {{url: \"{}\", budget: 200ms}}\n", redis.url());
    let app = App::start(&yaml(&upstream, &store));
    app.store_decides().await;
    redis.pause();
    let slow = reqwest::get(app.url("/slow/300")).await;
    assert_eq!(slow.expect("a response").status(), 200);
    redis.resume();
    for (metric, at_least) in [
        ("store_duration", 0.2),
        ("request_added", 0.2),
        ("upstream_duration", 0.3),
    ] {
        // In milliseconds it would be no less than 200.
        let series = format!("slidegate_{metric}_seconds_sum");
        eventually(metric, async || app.metric(&series).await >= at_least).await;
        assert!(app.metric(&series).await < 200.0, "{metric}");
    }
}

#[tokio::test]
async fn near_the_limit_each_band_counts_and_utilization_is_observed_once_per_request_and_policy() {
    let upstream = Upstream::start();
    let app = App::start(&yaml(&upstream, ""));
    for _ in 0..12 {
        let request = reqwest::Client::new()
            .get(app.url("/"))
            .header("x-api-key", "k");
        request.send().await.expect("a response");
    }
    let near = async |decision: &str, band: &str| {
        let series = format!(
            "slidegate_near_limit_decisions_total{{band=\"{band}\",decision=\"{decision}\",policy=\"per-key\"}}"
        );
        app.metric(&series).await
    };
    // Estimates before the charge: 0, 0.1, … 0.9 are allowed, 1.0 twice is denied.
    assert_eq!(near("allow", "0.90-0.95").await, 1.0);
    assert_eq!(near("deny", "1.00-1.05").await, 2.0);
    assert_eq!(near("allow", "0.95-1.00").await, 0.0);
    for policy in ["per-key", "trial"] {
        let series = format!("slidegate_utilization_ratio_count{{policy=\"{policy}\"}}");
        assert_eq!(app.metric(&series).await, 12.0, "{policy}");
    }
}

#[tokio::test]
async fn metrics_and_health_answer_get_and_head_and_nothing_else() {
    let upstream = Upstream::start();
    let app = App::start(&yaml(&upstream, ""));
    let old = Wire::open(app.metrics)
        .send(b"GET /readyz HTTP/1.0\r\n\r\n")
        .rest();
    assert!(old.contains("\r\n\r\nready\n"), "it ends: {old}");
    for (request, expected) in [
        ("GET /livez", "200"),
        ("HEAD /metrics", "200"),
        ("GET /readyz", "200"),
        ("POST /metrics", "405"),
        ("GET /", "404"),
    ] {
        let response = Wire::open(app.metrics)
            .send(format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
            .rest();
        assert!(
            response.starts_with(&format!("HTTP/1.1 {expected} ")),
            "{request}: {response}"
        );
    }
}

#[tokio::test]
async fn a_decision_near_its_limit_is_a_structured_line_without_the_key() {
    let upstream = Upstream::start();
    let binary = Binary::start(&yaml(&upstream, "log: {format: json}\n"));
    for _ in 0..11 {
        let request = reqwest::Client::new()
            .get(binary.url("/"))
            .header("x-api-key", "do-not-log-me");
        request.send().await.expect("a response");
    }
    let mut lines = Vec::new();
    eventually("both decisions near the limit are logged", async || {
        let log = binary.log();
        lines = log
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
            .filter(|line| line["fields"]["message"] == "A decision fell near its limit.")
            .filter(|line| line["fields"]["policy"] == "per-key")
            .collect();
        lines.len() == 2
    })
    .await;
    let fields = &lines[1]["fields"];
    assert_eq!(fields["limit"], "per-key");
    assert_eq!(fields["decision"], "deny");
    assert_eq!(fields["decided_by"], "store");
    assert_eq!(fields["utilization"], 1.0);
    assert_eq!(
        (&fields["current"], &fields["previous"]),
        (&10.into(), &0.into())
    );
    assert_eq!(fields["identifier"].as_str().expect("text").len(), 22);
    assert!(!binary.log().contains("do-not-log-me"));
}

#[tokio::test]
async fn broken_clients_and_failing_upstreams_write_no_more_than_ten_lines_a_second() {
    let binary = Binary::start(
        "upstream: {address: \"127.0.0.1:9\"}\n\
         policies: [{name: open, identifier: [client_ip], limits: [1000000/366d]}]\n",
    );
    let clock = Clock::system();
    let started = clock.now().as_seconds();
    let client = reqwest::Client::new();
    for _ in 0..500 {
        let mut wire = Wire::open(binary.proxy);
        wire.send(b"GET / HT");
        let response = client
            .get(binary.url("/"))
            .send()
            .await
            .expect("a response");
        assert_eq!(response.status(), 502);
    }
    let seconds = clock.now().as_seconds() - started + 1;
    let log = binary.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("A request failed"))
        .count();
    assert!(
        lines >= 1 && lines as u64 <= 10 * seconds,
        "{lines} in {seconds} s"
    );
    // The lines of a start besides.
    assert!(log.lines().count() <= lines + 5, "{log}");
}

/// The fields of the lines with this message.
/// Who holds connections there takes descriptors that clients need.
#[tokio::test]
async fn what_operators_read_has_a_bound_of_connections_of_its_own() {
    let upstream = Upstream::start();
    let yaml = format!(
        "upstream: {{address: \"{}\"}}\npolicies: [{{name: p, limits: [9/1m]}}]\n",
        upstream.address
    );
    let app = App::start(&yaml);
    for address in [app.metrics, app.admin] {
        let held: Vec<_> = (0..64)
            .map(|_| {
                let mut wire = Wire::open(address);
                wire.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n");
                wire
            })
            .collect();
        eventually("one more is closed", async || {
            let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            Wire::open(address).send(request).rest().is_empty()
        })
        .await;
        drop(held);
    }
    assert_eq!(
        reqwest::get(app.url("/")).await.expect("served").status(),
        200
    );
}

fn lines_of(log: &str, message: &str) -> Vec<Value> {
    let lines = log.lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let fields = lines.map(|line| line["fields"].clone());
    fields
        .filter(|fields| {
            let found = fields["message"].as_str();
            found.is_some_and(|found| found.starts_with(message))
        })
        .collect()
}

/// How many events lines stand for: each for itself, or for as many like it.
fn events(lines: &[Value]) -> u64 {
    let number = |line: &Value, field: &str| line[field].as_u64().expect("a number");
    let one = |line| number(line, "more").max(1) + number(line, "suppressed");
    lines.iter().map(one).sum()
}

/// Stops it, and returns all that it has logged.
fn stopped(binary: Binary) -> String {
    binary.signal("TERM");
    let log = binary.log_file();
    binary.exit_code();
    std::io::read_to_string(log).expect("the log is text")
}

const STOPS_AT_ONCE: &str = "shutdown: {drain_delay: 0s, grace: 0s}\n";

#[tokio::test]
async fn failures_of_one_kind_are_one_line_and_then_a_number() {
    let redis = RedisServer::absent();
    let binary = Binary::start(&format!(
        "upstream: {{address: \"127.0.0.1:9\"}}\nstore: {{url: \"{}\"}}\nlog: {{format: json}}\n{STOPS_AT_ONCE}\
         policies: [{{name: open, identifier: [client_ip], limits: [1000000/366d]}}]\n",
        redis.url()
    ));
    let client = reqwest::Client::new();
    for _ in 0..200 {
        let response = client.get(binary.url("/")).send().await;
        assert_eq!(response.expect("a response").status(), 502);
    }
    let log = stopped(binary);
    for message in ["A request failed", "The store did not decide."] {
        let lines = lines_of(&log, message);
        assert_eq!(events(&lines), 200, "{lines:?}");
        // A kind or two, and what is folded every ten seconds.
        assert!(lines.len() <= 20, "{lines:?}");
    }
}

#[tokio::test]
async fn denials_are_logged_if_asked_for_and_those_of_one_client_as_a_number() {
    let upstream = Upstream::start();
    for (settings, told) in [("", 0), (", denied_lines: 1000", 85)] {
        let settings = format!("{STOPS_AT_ONCE}log: {{format: json{settings}}}\n");
        let binary = Binary::start(&yaml(&upstream, &settings));
        let client = reqwest::Client::new();
        for _ in 0..50 {
            let request = client.get(binary.url("/")).header("x-api-key", "hunter2");
            request.send().await.expect("a response");
        }
        let log = stopped(binary);
        assert!(!log.contains("hunter2"));
        let lines = lines_of(&log, "A limit denied a request.");
        let of = |policy: &str| {
            let mut lines = lines.clone();
            lines.retain(|line| line["policy"] == policy);
            lines
        };
        // 40 of one policy and 45 of the other.
        assert_eq!(events(&lines), told, "{lines:?}");
        assert!(lines.len() <= 20, "{lines:?}");
        let (enforced, shadow) = (of("per-key"), of("trial"));
        assert_eq!(enforced.is_empty(), told == 0);
        assert_eq!(shadow.is_empty(), told == 0);
        for line in enforced {
            assert_eq!(line["limit"], "per-key");
            assert_eq!(
                (&line["mode"], &line["decided_by"]),
                (&json!("enforce"), &json!("store"))
            );
            assert_eq!(
                (&line["current"], &line["previous"]),
                (&json!(10), &json!(0))
            );
            assert!(line["retry_after_ms"].is_u64(), "{line}");
            assert_eq!(line["identifier"].as_str().expect("text").len(), 22);
        }
    }
}

#[tokio::test]
async fn many_clients_write_no_more_lines_a_second_than_are_asked_for() {
    let upstream = Upstream::start();
    let binary = Binary::start(&format!(
        "upstream: {{address: \"{}\"}}\n{STOPS_AT_ONCE}log: {{format: json, denied_lines: 2, near_limit_lines: 0}}\n\
         policies: [{{name: none, identifier: [header:x-api-key], limits: [0/1m]}}]\n",
        upstream.address
    ));
    let clock = Clock::system();
    let started = clock.now().as_seconds();
    let client = reqwest::Client::new();
    for number in 0..200 {
        let request = client.get(binary.url("/")).header("x-api-key", number);
        assert_eq!(request.send().await.expect("a response").status(), 429);
    }
    let log = stopped(binary);
    let seconds = clock.now().as_seconds() - started + 1;
    let lines = lines_of(&log, "A limit denied a request.");
    assert!(
        !lines.is_empty() && lines.len() as u64 <= 2 * seconds,
        "{lines:?} in {seconds} s"
    );
    assert_eq!(lines_of(&log, "A decision fell near").len(), 0);
}

#[tokio::test]
async fn each_module_has_a_level_of_its_own() {
    let upstream = Upstream::start();
    for (level, near, start) in [
        ("info", true, true),
        ("slidegate::limiter=off,info", false, true),
        ("slidegate::limiter=info,off", true, false),
    ] {
        let settings = format!("{STOPS_AT_ONCE}log: {{format: json, level: \"{level}\"}}\n");
        let binary = Binary::start(&yaml(&upstream, &settings));
        for _ in 0..11 {
            reqwest::get(binary.url("/")).await.expect("a response");
        }
        let log = stopped(binary);
        let found = |message: &str| !lines_of(&log, message).is_empty();
        assert_eq!(
            (found("A decision fell near"), found("Serving.")),
            (near, start),
            "{level}"
        );
    }
}
