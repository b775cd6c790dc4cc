//! The dashboard and the alert rules, against a real Prometheus that scrapes three proxies while everything happens
//! to them that can.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
};

use reqwest::{Client, StatusCode};
use serde_json::Value;
use slidegate::clock::Clock;

use crate::support::{
    app::{App, metric},
    certificates::{Authority, tls_listener},
    prometheus::{Prometheus, now, promtool},
    redis::{RedisServer, eventually},
    snapshot::agrees,
    upstream::{Nobody, Upstream},
    wire::Wire,
};

/// A window that no test sees turn.
const POLICIES: &str = "
identity: {trusted_proxies: [127.0.0.0/8]}
policies:
  - {name: per-key, match: {path: [/]}, identifier: [header:x-api-key], limits: [LIMIT/366d]}
  - {name: trial, identifier: [constant], limits: [5/366d], mode: shadow}
  - {name: costly, match: {path: [/costly]}, identifier: [constant], limits: [2000/366d], cost_header: x-cost, max_cost: 1800}
  - {name: logins, match: {path: [/status/401]}, identifier: [constant], limits: [10/366d], charge_on: [401]}
  - {name: sound, match: {path: [/status/503]}, identifier: [constant], limits: [1000/366d], take_back_5xx: true}
  - {name: open, match: {path: [/open]}, identifier: [constant], limits: [1000/366d], failure_mode: allow}
  - {name: shut, match: {path: [/shut]}, identifier: [constant], limits: [1000/366d], failure_mode: deny}
";

/// A window that turns while the test looks.
const AUDITED: &str = "
audit: {sample: 1}
policies: [{name: bursts, identifier: [header:x-api-key], cost: 20, limits: [20/1s]}]
";

/// What Prometheus remembers of these proxies: nobody was denied, nor near a limit.
const PAST: [&str; 4] = [
    "slidegate_build_info{job=\"slidegate\",instance=\"before\"} 1",
    "slidegate_decisions_total{job=\"slidegate\",instance=\"before\",policy=\"per-key\",mode=\"enforce\",decision=\"allow\",decided_by=\"store\"} 7",
    "slidegate_decisions_total{job=\"slidegate\",instance=\"before\",policy=\"per-key\",mode=\"enforce\",decision=\"deny\",decided_by=\"store\"} 0",
    "slidegate_near_limit_decisions_total{job=\"slidegate\",instance=\"before\",policy=\"per-key\",decision=\"allow\",band=\"0.90-0.95\"} 0",
];

#[tokio::test]
async fn every_panel_and_every_alert_tells_something_when_everything_happens_that_can() {
    let (mut redis, upstream) = (RedisServer::start(), Upstream::start());
    // Every request finds its way past it.
    let gone = Nobody::new();
    let servers = |budget: &str| {
        format!(
            "upstreams: {{app: {{addresses: [\"{0}\", \"{1}\"]}}, dead: {{address: \"{1}\"}}}}\n\
             routes: [{{path: /dead, upstream: dead}}, {{upstream: app}}]\n\
             store: {{url: \"{2}\", budget: {budget}, denial_cache: 1m}}\n",
            upstream.address,
            gone.address,
            redis.url()
        )
    };
    let yaml = |budget: &str, limit: &str| servers(budget) + &POLICIES.replace("LIMIT", limit);
    // One waits for Redis as long as anyone may, the other gives it up soon.
    let (patient, hasty) = (yaml("10s", "20"), yaml("100ms", "20"));
    let (lowered, faulty) = (yaml("10s", "19"), yaml("10s", "none"));
    let (patient, hasty) = (App::start(&patient), App::start(&hasty));
    let authority = Authority::new();
    let old = authority.certify_for("old", "DNS:localhost", 5);
    let behind_tls = format!("listen: [\"127.0.0.1:0\", {}]\n", tls_listener(&[&old], ""));
    let audited = App::start_with_files(&(behind_tls + &servers("10s") + AUDITED));
    let proxies = [&patient, &hasty, &audited];
    let rules = dashboards().join("alerts.yaml");
    let targets = proxies.map(|proxy| proxy.metrics);
    let started = now();
    let prometheus = Prometheus::start(&targets, &rules, &PAST).await;
    eventually("all are scraped before anything happens", async || {
        prometheus.now("count(slidegate_build_info)").await == Some(3.0)
    })
    .await;

    for proxy in proxies {
        proxy.store_decides().await;
    }
    bursts_are_misjudged(&audited).await;
    a_connection_is_ended(&audited).await;
    near_and_past_limits(&patient).await;
    patient.reload(&lowered).await;
    until(
        &patient,
        "/",
        "slidegate_near_limit_decisions_total{band=\"1.05-1.10\",decision=\"deny\",policy=\"per-key\"}",
    )
    .await;
    patient.reload(&faulty).await;
    responses_that_matter(&patient).await;
    redis_is_slow(&redis, &patient, &hasty, &prometheus).await;
    redis_goes_amid_a_request(&mut redis, &patient, &upstream).await;
    for proxy in [&patient, &hasty] {
        redis_is_away(proxy).await;
    }

    eventually("the last of it is scraped", async || {
        let mut told = 0.0;
        for proxy in proxies {
            told += requests(proxy).await;
        }
        prometheus.now("sum(slidegate_requests_total)").await == Some(told)
    })
    .await;
    let mut silent = Vec::new();
    for panel in panels() {
        for query in &panel.queries {
            let values = prometheus.since(started, &filled_in(query)).await;
            if !values.iter().any(|value| value.is_finite() && *value > 0.0) {
                silent.push(format!("{}: {query}", panel.title));
            }
        }
    }
    for query in dashboard_queries() {
        let values = prometheus.since(started, &filled_in(&query)).await;
        if values.is_empty() {
            silent.push(query);
        }
    }
    assert_eq!(silent, Vec::<String>::new());
    every_alert_is_on_its_way(&prometheus).await;
}

/// A request takes all of a window. What is a window old still weighs in the estimate until the next window ends: how long
/// that is depends on when in its window a key was first sent, so that there is a new one every quarter of it.
async fn bursts_are_misjudged(proxy: &App) {
    let wrong = "slidegate_audit_decisions_total{outcome=\"false_deny\",policy=\"bursts\"}";
    eventually(
        "more misjudged than what the alert takes for chance",
        async || {
            let quarter = Clock::system().now().as_millis() / 250;
            for age in 0..8 {
                get(proxy, "/", &format!("burst-{}", quarter - age), 1).await;
            }
            proxy.metric(wrong).await >= 15.0
        },
    )
    .await;
}

/// What is no handshake comes where one is due. The proxy says so and closes.
async fn a_connection_is_ended(proxy: &App) {
    let tls = *proxy.listeners.last().expect("a listener");
    let shut =
        tokio::task::spawn_blocking(move || Wire::open(tls).send(b"GET / HTTP/1.1\r\n\r\n").rest());
    drop(shut.await.expect("no panic"));
    let series = "slidegate_connections_ended_total{reason=\"bad_start\"}";
    proxy.metric_becomes(series, 1.0).await;
}

/// Denied by Redis and by what it told, in shadow, near the limit in each band that there is without a lowered limit.
async fn near_and_past_limits(proxy: &App) {
    for (decision, band) in [
        ("allow", "0.90-0.95"),
        ("allow", "0.95-1.00"),
        ("deny", "1.00-1.05"),
    ] {
        let series = format!(
            "slidegate_near_limit_decisions_total{{band=\"{band}\",decision=\"{decision}\",policy=\"per-key\"}}"
        );
        until(proxy, "/", &series).await;
    }
    until(proxy, "/", &decisions("per-key", "deny", "denial_cache")).await;
    // More than what the alerts take for chance.
    for _ in 0..120 {
        let denied = get(proxy, "/", "known", 1).await;
        assert_eq!(denied, StatusCode::TOO_MANY_REQUESTS);
    }
    for _ in 0..120 {
        let failed = get(proxy, "/dead", "a", 1).await;
        assert_eq!(failed, StatusCode::BAD_GATEWAY);
    }
    let near_its_end = get(proxy, "/costly", "a", 1800).await;
    assert_eq!(near_its_end, StatusCode::OK);
    for number in 0..120 {
        let key = format!("key-{number}");
        assert_eq!(get(proxy, "/costly", &key, 1).await, StatusCode::OK);
    }
    for path in ["/status/401", "/status/503"] {
        get(proxy, path, "b", 1).await;
    }
}

/// What is charged, and what is taken back, by how the upstream answers.
async fn responses_that_matter(proxy: &App) {
    until(proxy, "/status/401", &decisions("logins", "deny", "store")).await;
    until(
        proxy,
        "/status/503",
        "slidegate_give_backs_total{result=\"done\"}",
    )
    .await;
    let client = Client::new().get(proxy.url("/"));
    let nobody = client.send().await.expect("a response");
    drop(nobody);
    let two = Client::new().get(proxy.url("/"));
    let two = two.header("x-api-key", "a").header("x-api-key", "b");
    let refused = two.send().await.expect("a response");
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let series = "slidegate_identified_total{policy=\"per-key\",source=\"fallback\"}";
    assert!(proxy.metric(series).await >= 1.0);
}

/// Requests wait for it, and where nobody waits for long, the budget runs out.
async fn redis_is_slow(redis: &RedisServer, patient: &App, hasty: &App, prometheus: &Prometheus) {
    eventually("it is seen that requests wait", async || {
        redis.pause();
        let waiting: Vec<_> = (0..30)
            .map(|number| {
                let request = Client::new().get(patient.url("/"));
                let request = request.header("x-api-key", format!("waits-{number}"));
                tokio::spawn(request.send())
            })
            .collect();
        let mut seen = false;
        while !seen && !waiting.iter().all(tokio::task::JoinHandle::is_finished) {
            seen = prometheus.now("slidegate_store_pending").await > Some(0.0);
        }
        until(hasty, "/", "slidegate_store_errors_total{kind=\"timeout\"}").await;
        redis.resume();
        for request in waiting {
            let response = request.await.expect("no panic");
            response.expect("a response");
        }
        seen
    })
    .await;
}

/// What was charged can not be taken back.
async fn redis_goes_amid_a_request(redis: &mut RedisServer, proxy: &App, upstream: &Upstream) {
    let lost = "slidegate_give_backs_total{result=\"lost\"}";
    proxy.store_decides().await;
    let seen = upstream.seen().len();
    let mut wire = Wire::open(proxy.proxy);
    wire.send(b"POST /status/503 HTTP/1.1\r\nHost: x\r\nX-API-Key: c\r\nContent-Length: 1\r\n\r\n");
    eventually("the upstream has it", async || upstream.seen().len() > seen).await;
    redis.kill();
    let response = wire.send(b"x").response();
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    eventually("it is lost", async || proxy.metric(lost).await >= 1.0).await;
}

/// Failure modes decide.
async fn redis_is_away(proxy: &App) {
    proxy
        .metric_becomes("slidegate_store_breaker_tripped", 1.0)
        .await;
    for _ in 0..20 {
        get(proxy, "/", "new", 1).await;
    }
    for (policy, decision, path) in [("open", "allow", "/open"), ("shut", "deny", "/shut")] {
        until(proxy, path, &decisions(policy, decision, "failure_mode")).await;
    }
    assert!(proxy.metric(&decisions("per-key", "allow", "local")).await >= 1.0);
}

/// Each waits for how long it is to last, or fires, and its words are filled in.
async fn every_alert_is_on_its_way(prometheus: &Prometheus) {
    let mut rules = Vec::new();
    eventually("each rule is evaluated and tells", async || {
        rules = prometheus.rules().await;
        rules.iter().all(|rule| {
            assert_ne!(rule["health"], "err", "{rule}");
            rule["alerts"]
                .as_array()
                .is_some_and(|alerts| !alerts.is_empty())
        })
    })
    .await;
    assert!(rules.len() >= 7, "{} rules", rules.len());
    for rule in rules {
        for alert in rule["alerts"].as_array().expect("it tells") {
            let words = alert["annotations"].as_object().expect("words");
            for kind in ["summary", "description", "runbook"] {
                let words = words[kind].as_str().expect(kind);
                assert_eq!(words, words.trim());
                // The last is what a label that is not there leaves.
                for mark in ["<error", "<no value>", "{{", "  "] {
                    assert!(!words.contains(mark), "{words}");
                }
            }
        }
    }
}

/// Sends requests until the series is more than 0.
async fn until(proxy: &App, path: &str, series: &str) {
    eventually(series, async || {
        get(proxy, path, "known", 1).await;
        proxy.metric(series).await > 0.0
    })
    .await;
}

async fn get(proxy: &App, path: &str, key: &str, cost: u32) -> StatusCode {
    let request = Client::new().get(proxy.url(path));
    let request = request.header("x-api-key", key).header("x-cost", cost);
    request.send().await.expect("a response").status()
}

fn decisions(policy: &str, decision: &str, by: &str) -> String {
    format!(
        "slidegate_decisions_total{{decided_by=\"{by}\",decision=\"{decision}\",mode=\"enforce\",plan=\"\",policy=\"{policy}\"}}"
    )
}

async fn requests(proxy: &App) -> f64 {
    let told = proxy.metrics().await;
    let classes = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];
    let classes = classes.map(|class| format!("slidegate_requests_total{{status=\"{class}\"}}"));
    classes.iter().map(|series| metric(&told, series)).sum()
}

#[tokio::test]
async fn what_a_busy_proxy_exposes_is_to_promtool_s_liking() {
    let upstream = Upstream::start();
    let app = App::start(&format!(
        "upstream: {{address: \"{}\"}}\npolicies: [{{name: p, limits: [2/366d]}}]\n",
        upstream.address
    ));
    until(&app, "/", &decisions("p", "deny", "store")).await;
    let scraped = tempfile::NamedTempFile::new().expect("a file");
    fs::write(scraped.path(), app.metrics().await).expect("written");
    let input = File::open(scraped.path()).expect("a file");
    let checked = promtool(&["check", "metrics"], input.into());
    let complaints = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(
        checked.status.success() && complaints.is_empty(),
        "{complaints}"
    );
}

#[test]
fn the_rules_are_valid_and_each_fires_when_it_should_and_not_when_it_should_not() {
    for arguments in [
        ["check", "rules", "dashboards/alerts.yaml"],
        ["test", "rules", "dashboards/alerts_test.yaml"],
    ] {
        let checked = promtool(&arguments, Stdio::null());
        let told = [checked.stdout, checked.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(checked.status.success(), "{arguments:?}: {told}");
    }
    // Each by name: a rule that no test knows fires whenever it likes.
    let tests = fs::read_to_string(dashboards().join("alerts_test.yaml")).expect("tests");
    for rule in rules() {
        let name = rule["alert"].as_str().expect("a name");
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name}");
        for kind in ["summary", "description", "runbook"] {
            assert!(rule["annotations"][kind].is_string(), "{name}: {kind}");
        }
    }
}

#[test]
fn every_panel_says_what_it_shows_in_which_unit_and_covers_no_other() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64() >= Some(39));
    let (mut ids, mut titles, mut taken) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}");
        assert!(titles.insert(title), "{title}");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect(key);
        assert!(at("x") + at("w") <= 24, "{title}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{title} covers another");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        let unit = match panel["type"] == "heatmap" {
            true => &panel["options"]["yAxis"]["unit"],
            false => &panel["fieldConfig"]["defaults"]["unit"],
        };
        assert!(unit.is_string(), "{title} has no unit");
        let says = panel["description"].as_str().expect(title);
        assert!(says.ends_with('.'), "{title} says {says:?}");
        let targets = panel["targets"].as_array().expect("targets").iter();
        for source in targets.chain([panel]).map(|of| &of["datasource"]) {
            assert_eq!(source["uid"], "${datasource}", "{title}");
        }
    }
}

/// So none changes with a pod that comes or goes, and none is of a metric that is not there, or told nowhere.
#[test]
fn queries_are_rates_of_metrics_that_there_are_over_all_replicas() {
    // The table of all metrics, in which a test of its own finds what is exposed.
    let table = fs::read_to_string(root().join("docs/metrics.md")).expect("a table");
    let exposed: BTreeSet<String> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `slidegate_")?.split_once('`'))
        .map(|(name, _)| format!("slidegate_{name}"))
        .collect();
    assert!(exposed.len() >= 15);
    let mut told = BTreeSet::new();
    let rules = rules();
    let rules = rules.iter().map(|rule| {
        let name = rule["alert"].as_str().expect("a name").to_owned();
        (
            name,
            rule["expr"].as_str().expect("an expression").to_owned(),
        )
    });
    let panels = panels().into_iter().flat_map(|panel| {
        let title = panel.title;
        panel
            .queries
            .into_iter()
            .map(move |query| (title.clone(), query))
    });
    for (who, query) in panels.chain(rules) {
        let by_proxy = ["instance", "pod"]
            .iter()
            .any(|label| query.contains(label));
        assert_eq!(by_proxy, who.starts_with("Replicas: "), "{who}: {query}");
        for (at, _) in query.match_indices("slidegate_") {
            let name = query[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = name.into_iter().next().expect("a name");
            let family = ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|part| {
                    name.strip_suffix(part)
                        .filter(|name| exposed.contains(*name))
                })
                .unwrap_or(name);
            assert!(exposed.contains(family), "{who}: there is no {name}");
            if family != name || name.ends_with("_total") {
                let over_time = ["rate(", "increase("]
                    .iter()
                    .any(|by| query[..at].ends_with(by));
                assert!(over_time, "{who}: {name} as it is, in {query}");
            }
            told.insert(family.to_owned());
        }
    }
    let silent: Vec<_> = exposed.difference(&told).collect();
    assert!(silent.is_empty(), "no panel tells {silent:?}");
}

#[test]
fn the_operator_s_rules_are_the_same() {
    let rules = fs::read_to_string(dashboards().join("alerts.yaml")).expect("rules");
    let mut text = String::from(
        "# Written by `BLESS=1 cargo test operator_s_rules` from dashboards/alerts.yaml: do not edit.\n\
         apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: slidegate\n  \
         labels:\n    app.kubernetes.io/name: slidegate\nspec:\n",
    );
    for line in rules.lines() {
        let line = format!("  {line}");
        text += line.trim_end();
        text.push('\n');
    }
    agrees("k8s/monitoring/prometheus-rule.yaml", &text);
    let made: serde_yaml::Value = serde_yaml::from_str(&text).expect("YAML");
    let rules: serde_yaml::Value = serde_yaml::from_str(&rules).expect("YAML");
    assert_eq!(made["spec"], rules);
}

/// A panel that asks something.
struct Panel {
    title: String,
    queries: Vec<String>,
}

fn panels() -> Vec<Panel> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let panels: Vec<_> = panels
        .filter(|panel| panel["type"] != "row")
        .map(|panel| Panel {
            title: panel["title"].as_str().expect("a title").to_owned(),
            queries: panel["targets"]
                .as_array()
                .expect("targets")
                .iter()
                .map(|target| target["expr"].as_str().expect("a query").to_owned())
                .collect(),
        })
        .collect();
    assert!(panels.len() >= 20 && panels.iter().all(|panel| !panel.queries.is_empty()));
    panels
}

/// Of the annotations, and of the variables as Grafana asks for them.
fn dashboard_queries() -> Vec<String> {
    let dashboard = dashboard();
    let annotations = dashboard["annotations"]["list"].as_array().expect("a list");
    let annotations = annotations.iter().filter_map(|of| of["expr"].as_str());
    let mut queries: Vec<_> = annotations.map(str::to_owned).collect();
    let variables = dashboard["templating"]["list"].as_array().expect("a list");
    for variable in variables.iter().filter(|of| of["type"] == "query") {
        let query = variable["query"]["query"].as_str().expect("a query");
        let query = query
            .strip_prefix("label_values(")
            .and_then(|query| query.strip_suffix(')'));
        let (series, label) = query
            .and_then(|query| query.rsplit_once(", "))
            .expect("a label");
        queries.push(format!("group by ({label}) ({series})"));
    }
    assert_eq!(queries.len(), 3, "{queries:?}");
    queries
}

/// As Grafana does, with all jobs and all policies.
fn filled_in(query: &str) -> String {
    let all = query.replace("$job", ".*").replace("$policy", ".*");
    let filled_in = all.replace("$__rate_interval", "10m");
    assert!(!filled_in.contains('$'), "{filled_in}");
    filled_in
}

fn dashboard() -> Value {
    let text = fs::read_to_string(dashboards().join("slidegate.json")).expect("a dashboard");
    serde_json::from_str(&text).expect("JSON")
}

fn rules() -> Vec<serde_yaml::Value> {
    let text = fs::read_to_string(dashboards().join("alerts.yaml")).expect("rules");
    let rules: serde_yaml::Value = serde_yaml::from_str(&text).expect("YAML");
    let groups = rules["groups"].as_sequence().expect("groups").iter();
    groups
        .flat_map(|group| group["rules"].as_sequence().expect("rules").clone())
        .collect()
}

fn dashboards() -> PathBuf {
    root().join("dashboards")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
