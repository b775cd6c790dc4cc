//! A configuration that changes while requests are decided.

use std::{
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use slidegate::config::{Config, needs_restart};

use crate::support::{
    app::{App, metric},
    binary::Binary,
    redis::{RedisServer, eventually},
    upstream::Upstream,
};

/// One proxy before one upstream, whose policies change.
struct Setup {
    upstream: Upstream,
    store: String,
    app: App,
}

impl Setup {
    fn new(store: &str, rest: &str) -> Self {
        let upstream = Upstream::start();
        let app = App::start(&yaml(&upstream, store, rest));
        Self {
            upstream,
            store: store.to_owned(),
            app,
        }
    }

    async fn reload(&self, rest: &str) {
        self.app
            .reload(&yaml(&self.upstream, &self.store, rest))
            .await;
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        let response = reqwest::get(self.app.url(path)).await;
        response.expect("it is answered")
    }

    async fn status(&self) -> u16 {
        self.get("/").await.status().as_u16()
    }

    async fn ready(&self) -> String {
        let url = format!("http://{}/readyz", self.app.metrics);
        let response = reqwest::get(url).await.expect("it is served");
        assert_eq!(response.status(), 200);
        response.text().await.expect("it is text")
    }

    async fn reloads(&self, result: &str) -> f64 {
        let series = format!("slidegate_config_reloads_total{{result=\"{result}\"}}");
        self.app.metric(&series).await
    }
}

fn yaml(upstream: &Upstream, store: &str, rest: &str) -> String {
    let address = upstream.address;
    format!("upstream: {{address: \"{address}\"}}\nstore: {{{store}}}\n{rest}")
}

fn remaining(response: &reqwest::Response) -> &str {
    let value = response.headers().get("x-ratelimit-remaining");
    let value = value.expect("a limit is in force");
    value.to_str().expect("it is a number")
}

#[tokio::test]
async fn a_reload_changes_a_limit_and_keeps_its_counters() {
    let redis = RedisServer::start();
    for store in [
        "url: \"memory:\"".to_owned(),
        format!("url: \"{}\", budget: 10s", redis.url()),
    ] {
        let setup = Setup::new(&store, "policies: [{name: p, limits: [2/366d]}]");
        setup.app.store_decides().await;
        assert_eq!(remaining(&setup.get("/").await), "1");
        setup
            .reload("policies: [{name: p, limits: [5/366d]}]")
            .await;
        assert_eq!(remaining(&setup.get("/").await), "3", "{store}");
        setup
            .reload("policies: [{name: p, limits: [2/366d]}]")
            .await;
        assert_eq!(setup.status().await, 429, "{store}");
    }
}

#[tokio::test]
async fn a_reload_with_another_window_starts_new_counters() {
    let setup = Setup::new("", "policies: [{name: p, limits: [1/366d]}]");
    assert_eq!([setup.status().await, setup.status().await], [200, 429]);
    setup
        .reload("policies: [{name: p, limits: [1/365d]}]")
        .await;
    assert_eq!([setup.status().await, setup.status().await], [200, 429]);
}

#[tokio::test]
async fn a_raised_limit_admits_at_once_whom_the_denial_cache_would_deny() {
    let redis = RedisServer::start();
    let store = format!("url: \"{}\", budget: 10s, denial_cache: 1m", redis.url());
    let setup = Setup::new(&store, "policies: [{name: p, limits: [1/366d]}]");
    setup.app.store_decides().await;
    assert_eq!([setup.status().await, setup.status().await], [200, 429]);
    setup
        .reload("policies: [{name: p, limits: [9/366d]}]")
        .await;
    assert_eq!(setup.status().await, 200);
}

#[tokio::test]
async fn everything_about_requests_is_replaced_together() {
    let setup = Setup::new("", "policies: [{name: p, limits: [5/366d]}]");
    assert_eq!(remaining(&setup.get("/").await), "4");
    setup
        .reload(
            "policies: [{name: q, match: {path: [/limited]}, limits: [7/366d]}]\n\
             responses: {x_ratelimit_reset: seconds}\n\
             exempt: {path: [/limited/not]}\n\
             block: {client_ip: [198.51.100.7]}\n\
             identity: {trusted_proxies: [127.0.0.0/8]}",
        )
        .await;
    assert!(
        setup
            .get("/")
            .await
            .headers()
            .get("x-ratelimit-limit")
            .is_none()
    );
    let limited = setup.get("/limited").await;
    assert_eq!(remaining(&limited), "6");
    let reset = limited.headers()["x-ratelimit-reset"].to_str();
    let reset: u64 = reset
        .ok()
        .and_then(|reset| reset.parse().ok())
        .expect("a number");
    assert!(reset <= 366 * 86_400, "seconds from now, {reset}");
    let blocked = reqwest::Client::new()
        .get(setup.app.url("/"))
        .header("x-forwarded-for", "198.51.100.7");
    assert_eq!(blocked.send().await.expect("answered").status(), 403);
}

#[tokio::test]
async fn series_of_a_policy_that_is_gone_go_and_those_of_one_that_stays_go_on() {
    let setup = Setup::new(
        "",
        "policies: [{name: stays, limits: [9/366d]}, {name: goes, limits: [9/366d]}]",
    );
    setup.status().await;
    setup
        .reload("policies: [{name: stays, limits: [8/366d]}, {name: comes, limits: [9/366d]}]")
        .await;
    setup.status().await;
    let exposition = setup.app.metrics().await;
    let decided = |policy: &str| {
        let labels = "plan=\"\",policy=";
        let series = format!(
            "slidegate_decisions_total{{decided_by=\"store\",decision=\"allow\",mode=\"enforce\",{labels}\"{policy}\"}}"
        );
        metric(&exposition, &series)
    };
    assert_eq!((decided("stays"), decided("comes")), (2.0, 1.0));
    assert!(!exposition.contains("\"goes\""), "{exposition}");
    let infos = exposition.matches("\nslidegate_config_info{").count();
    assert_eq!(infos, 1, "the fingerprint of the last one only");
    let told = setup.ready().await;
    let (_, in_force) = told.split_once("configuration ").expect("it is told");
    let (in_force, _) = in_force.split_once(' ').expect("in force");
    let info = format!("slidegate_config_info{{fingerprint=\"{in_force}\"}}");
    assert_eq!(metric(&exposition, &info), 1.0);
}

#[tokio::test]
async fn an_audit_begins_and_ends_without_a_restart_and_its_series_with_it() {
    let redis = RedisServer::start();
    let policies = "policies: [{name: p, limits: [9/366d]}]";
    let store = format!("url: \"{}\", budget: 10s", redis.url());
    let setup = Setup::new(&store, policies);
    setup.app.store_decides().await;
    let audited = async || {
        setup.status().await;
        let exposition = setup.app.metrics().await;
        let outcomes = exposition.lines().filter_map(|line| {
            let (series, count) = line.rsplit_once(' ')?;
            let is_outcome = series.starts_with("slidegate_audit_decisions_total{");
            is_outcome.then(|| count.parse::<u64>().expect("a count"))
        });
        outcomes.collect::<Vec<_>>()
    };
    assert_eq!(audited().await, [0; 0]);
    setup
        .reload(&format!("audit: {{sample: 1}}\n{policies}"))
        .await;
    // One request was counted before the log began: nothing is compared for a year.
    assert_eq!(audited().await, [0, 0, 0]);
    setup
        .reload("audit: {sample: 1}\npolicies: [{name: q, limits: [9/366d]}]")
        .await;
    assert_eq!(audited().await, [1, 0, 0]);
    setup.reload(policies).await;
    assert_eq!(audited().await, [0; 0]);
}

#[test]
fn a_cluster_in_the_place_of_one_server_is_a_change_that_wants_a_restart() {
    let values = |rest: &str| {
        let yaml = format!(
            "upstream: {{address: app:1}}\npolicies: [{{name: p, limits: [1/1m]}}]\n\
             store: {{url: \"redis://redis\"{rest}}}"
        );
        let config = Config::parse(&yaml, "test.yaml", &|_| None).expect("accepted");
        config.values
    };
    let (single, cluster) = (values(""), values(", cluster: {}"));
    assert_eq!(single.changed(&cluster), ["store.cluster"]);
    assert!(needs_restart("store.cluster"));
    assert_ne!(single.fingerprint(), cluster.fingerprint());
}

#[tokio::test]
async fn a_faulty_configuration_changes_nothing_and_is_told_until_a_good_one_comes() {
    let setup = Setup::new("", "policies: [{name: p, limits: [1/366d]}]");
    assert_eq!([setup.status().await, setup.status().await], [200, 429]);
    let good = setup.ready().await;
    setup.reload("policies: [{name: p, limits: [x]}]").await;
    assert_eq!(setup.reloads("refused").await, 1.0);
    assert_eq!(setup.status().await, 429);
    let told = setup.ready().await;
    let told = told.strip_prefix(&good).expect("what is in force stays");
    assert_eq!(
        told,
        "the file was refused, faults: 1, the first at test.yaml:3:31; the log tells them\n"
    );
    setup
        .reload("policies: [{name: p, limits: [1/366d]}]")
        .await;
    assert_eq!(setup.reloads("unchanged").await, 1.0);
    assert_eq!(setup.ready().await, good);
}

#[tokio::test]
async fn what_needs_a_restart_says_so_and_the_rest_takes_effect() {
    let setup = Setup::new("", "policies: [{name: p, limits: [1/366d]}]");
    assert_eq!([setup.status().await, setup.status().await], [200, 429]);
    setup
        .reload("threads: 3\nlog: {level: warn}\npolicies: [{name: p, limits: [9/366d]}]")
        .await;
    assert_eq!(setup.status().await, 200);
    let told = setup.ready().await;
    assert!(
        told.ends_with("waiting for a restart: log.level, threads\n"),
        "{told}"
    );
    setup
        .reload("policies: [{name: p, limits: [9/366d]}]")
        .await;
    assert!(!setup.ready().await.contains("restart"));
}

#[tokio::test]
async fn a_request_in_flight_is_settled_by_the_policies_it_came_under() {
    let setup = Setup::new(
        "",
        "policies: [{name: other, limits: [9/366d]}, {name: p, limits: [1/366d], charge_on: [200]}]",
    );
    let slow = {
        let url = setup.app.url("/held");
        tokio::spawn(async move { reqwest::get(url).await.expect("answered") })
    };
    setup.upstream.has_seen(1).await;
    setup
        .reload("policies: [{name: late, limits: [9/366d], match: {path: [/late]}}]")
        .await;
    assert_eq!(setup.reloads("applied").await, 1.0);
    setup.upstream.let_go();
    let response = slow.await.expect("it does not panic");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-ratelimit-limit"], "1");
    assert_eq!(remaining(&response), "0", "it was charged");
}

#[tokio::test]
async fn no_request_fails_while_the_configuration_is_replaced_again_and_again() {
    let setup = Setup::new("", "policies: [{name: p, limits: [1000000/366d]}]");
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (url, stop) = (setup.app.url("/"), stop.clone());
            tokio::spawn(async move {
                let client = reqwest::Client::new();
                let mut answered = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let response = client.get(&url).send().await.expect("answered");
                    assert_eq!(response.status(), 200);
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    for round in 0..20 {
        let other = round % 2;
        setup
            .reload(&format!(
                "policies: [{{name: p, limits: [1000000/366d]}}, {{name: p{other}, limits: [900000/366d]}}]"
            ))
            .await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for client in clients {
        answered += client.await.expect("no request failed");
    }
    assert_eq!(setup.reloads("applied").await, 20.0);
    let left: u64 = remaining(&setup.get("/").await).parse().expect("a number");
    assert!(
        left < 900_000,
        "the counters of p0 and p1 lived through {answered} requests"
    );
    let counted = "slidegate_decisions_total{decided_by=\"store\",decision=\"allow\",mode=\"enforce\",plan=\"\",policy=\"p\"}";
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let all = (answered + 1) as f64;
    assert_eq!(setup.app.metric(counted).await, all, "each counted once");
}

fn policies(upstream: &Upstream, limit: &str) -> String {
    let address = upstream.address;
    format!("upstream: {{address: \"{address}\"}}\npolicies: [{{name: p, limits: [{limit}]}}]\n")
}

async fn limit_becomes(binary: &Binary, quota: &str) {
    let url = binary.url("/");
    eventually(&format!("the limit becomes {quota}"), async || {
        let response = reqwest::get(&url).await.expect("answered");
        response.headers()["x-ratelimit-limit"] == quota
    })
    .await;
}

#[tokio::test]
async fn a_changed_file_takes_effect_by_itself_and_at_once_on_sighup() {
    let upstream = Upstream::start();
    let binary = Binary::start(&policies(&upstream, "10/366d"));
    limit_becomes(&binary, "10").await;
    binary.rewrite(&policies(&upstream, "20/366d"));
    limit_becomes(&binary, "20").await;
    binary.signal("HUP");
    let unchanged = "slidegate_config_reloads_total{result=\"unchanged\"}";
    eventually("SIGHUP is heard", async || {
        metric(&binary.observed("/metrics").await, unchanged) == 1.0
    })
    .await;
    for told in ["The configuration was reloaded.", "policies[0].limits[0]"] {
        eventually(told, async || binary.log().contains(told)).await;
    }
}

#[tokio::test]
async fn a_faulty_file_is_told_in_the_log_with_every_fault_and_changes_nothing() {
    let upstream = Upstream::start();
    let binary = Binary::start(&policies(&upstream, "10/366d"));
    let faulty = policies(&upstream, "10/minute").replace("limits", "limts");
    binary.rewrite(&faulty);
    binary.signal("HUP");
    let refused = "slidegate_config_reloads_total{result=\"refused\"}";
    eventually("it is refused", async || {
        metric(&binary.observed("/metrics").await, refused) >= 1.0
    })
    .await;
    limit_becomes(&binary, "10").await;
    for told in [
        "config.yaml:5:",
        "policies[0].limts",
        "did you mean limits?",
    ] {
        eventually(told, async || binary.log().contains(told)).await;
    }
    binary.rewrite(&policies(&upstream, "30/366d"));
    limit_becomes(&binary, "30").await;
}

#[tokio::test]
async fn what_a_reload_warns_of_stands_in_the_log_and_of_many_faults_the_first_twenty() {
    let upstream = Upstream::start();
    let binary = Binary::start(&policies(&upstream, "10/366d"));
    limit_becomes(&binary, "10").await;
    let by_key = "identifier: [header:x-api-key], limits: [20/366d]";
    let inventive = policies(&upstream, "20/366d").replace("limits: [20/366d]", by_key);
    binary.rewrite(&format!("threads: 3\n{inventive}"));
    limit_becomes(&binary, "20").await;
    eventually("the warnings are in the log", async || {
        let log = binary.log();
        let waits =
            |line: &str| line.contains("take effect at a restart only") && line.contains("threads");
        log.contains("policy p: a client that invents values for header:x-api-key")
            && log.lines().any(waits)
    })
    .await;

    let known = binary.log().len();
    let faulty: String = (0..25).map(|number| format!("zz{number}: 1\n")).collect();
    binary.rewrite(&format!("{}{faulty}", policies(&upstream, "20/366d")));
    binary.signal("HUP");
    // It may be refused twice, for its change and by the signal: the first time is looked at.
    eventually("the faults are in the log", async || {
        binary.log()[known..].contains("config.yaml:25:")
    })
    .await;
    let log = binary.log();
    let refused = log[known..]
        .split("The configuration has faults")
        .nth(1)
        .expect("told");
    assert!(
        refused
            .lines()
            .next()
            .expect("a line")
            .contains("faults=25"),
        "{refused}"
    );
    assert_eq!(refused.matches("unknown key").count(), 20, "{refused}");
}

/// What the kubelet does: a new folder, and one link moved over another.
#[tokio::test]
async fn the_links_of_a_config_map_turned_around_are_a_change() {
    let upstream = Upstream::start();
    let binary = Binary::start(&policies(&upstream, "10/366d"));
    let path = |name: &str| binary.folder().join(name);
    let version = |name: &str, limit: &str| {
        binary.rewrite(&policies(&upstream, limit));
        std::fs::create_dir(path(name)).expect("made");
        let text = std::fs::read(path("config.yaml")).expect("read");
        std::fs::write(path(name).join("config.yaml"), text).expect("written");
    };
    version("v1", "20/366d");
    version("v2", "30/366d");
    symlink("v1", path("..data")).expect("linked");
    symlink("..data/config.yaml", path("link")).expect("linked");
    std::fs::rename(path("link"), path("config.yaml")).expect("in its place");
    limit_becomes(&binary, "20").await;
    symlink("v2", path("..data_tmp")).expect("linked");
    std::fs::rename(path("..data_tmp"), path("..data")).expect("turned around");
    limit_becomes(&binary, "30").await;
}
