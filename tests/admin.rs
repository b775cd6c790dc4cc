//! What operators ask a running proxy: who is answered, and what with. `POST /explain` has a module of its own.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use slidegate::{clock::Clock, config::Config};

use crate::support::{
    app::App,
    binary::{Binary, file, output, text},
    redis::{RedisServer, eventually},
    upstream::Upstream,
    wire::Wire,
};

const TOKEN: &str = "hunter2hunter2hunter2";

/// A running slidegate, and who asks it.
struct Live {
    app: App,
    client: reqwest::Client,
    _upstream: Upstream,
}

impl Live {
    fn new(rest: &str) -> Self {
        let (app, upstream) = App::with_upstream(rest);
        Self {
            app,
            client: reqwest::Client::new(),
            _upstream: upstream,
        }
    }

    /// Sends a request through the proxy, and returns its status.
    async fn status(&self, headers: &[(&str, &str)]) -> u16 {
        let mut request = self.client.get(self.app.url("/"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sent(request).await.status().as_u16()
    }

    fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let url = format!("http://{}{path}", self.app.admin);
        self.client.request(method, url)
    }

    async fn ask(&self, method: &str, path: &str) -> (u16, Value) {
        told(self.request(method, path)).await
    }
}

async fn told(request: RequestBuilder) -> (u16, Value) {
    let response = sent(request).await;
    let status = response.status().as_u16();
    let body = response.text().await.expect("text");
    (status, serde_json::from_str(&body).expect("JSON"))
}

async fn sent(request: RequestBuilder) -> Response {
    request.send().await.expect("it answers")
}

const POLICIES: &str = "policies: [{name: p, limits: [3/366d]}]";

#[tokio::test]
async fn what_can_be_asked_is_listed_and_what_can_not_is_told() {
    let live = Live::new(POLICIES);
    let (status, listed) = live.ask("GET", "/").await;
    assert_eq!(status, 200);
    let listed = listed.as_array().expect("a list");
    assert!(listed.len() >= 6, "{listed:?}");
    for endpoint in listed {
        let path = endpoint["path"].as_str().expect("a path");
        let methods = endpoint["methods"].as_str().expect("methods");
        let response = sent(live.request("PATCH", path)).await;
        assert_eq!(response.status(), 405, "{path}");
        assert_eq!(response.headers()["allow"], methods, "{path}");
    }
    for path in ["/nothing", "/explain/", "//", "/metrics"] {
        assert_eq!(live.ask("GET", path).await.0, 404, "{path}");
    }
    let head = sent(live.request("HEAD", "/")).await;
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["content-type"], "application/json");
    assert!(head.headers()["content-length"] != "0");
}

#[tokio::test]
async fn a_token_is_wanted_of_every_request_where_there_is_one() {
    let live = Live::new(&format!("admin_token: {TOKEN}\n{POLICIES}"));
    let right = format!("Bearer {TOKEN}");
    for path in ["/", "/nothing"] {
        for wrong in [
            None,
            Some(""),
            Some("Bearer hunter2"),
            Some(TOKEN),
            Some("Basic aHVudGVyMg=="),
        ] {
            let request = live.request("GET", path);
            let request = match wrong {
                Some(wrong) => request.header("authorization", wrong),
                None => request,
            };
            let response = sent(request).await;
            assert_eq!(response.status(), 401, "{path}: {wrong:?}");
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            let body = response.text().await.expect("text");
            assert!(!body.contains("hunter2"), "{body}");
        }
    }
    // By whatever name: who is elsewhere has one for it.
    let named = live.request("GET", "/").header("host", "proxy-7.example");
    let (status, _) = told(named.header("authorization", right)).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_page_in_a_browser_gets_no_answer_and_changes_nothing() {
    let live = Live::new(POLICIES);
    for _ in 0..3 {
        assert_eq!(live.status(&[]).await, 200);
    }
    // The name of the page leads to this machine.
    let rebound = live.request("GET", "/").header("host", "evil.example:9465");
    assert_eq!(told(rebound).await.0, 403);
    for (header, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        // What a form can send, and a preflight.
        for (method, path) in [
            ("POST", "/explain"),
            ("GET", "/policies"),
            ("DELETE", "/identifiers/127.0.0.1"),
            ("OPTIONS", "/identifiers/127.0.0.1"),
        ] {
            let request = live.request(method, path).header(header, value);
            let request = request.header("content-type", "text/plain");
            let response = sent(request.body("{\"request\": \"GET /\"}")).await;
            assert_eq!(response.status(), 403, "{method}, {header}: {value}");
            let allows = response.headers().keys();
            let mut allows = allows.filter(|name| name.as_str().starts_with("access-control"));
            assert_eq!(allows.next(), None);
        }
    }
    assert_eq!(live.status(&[]).await, 429, "nothing was deleted");
}

/// A page decides what its form sends, but not its origin: the body must not become a request without one.
#[tokio::test]
async fn the_body_of_a_refused_request_is_not_taken_for_another_request() {
    let live = Live::new(POLICIES);
    let inner = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    for origin in ["Origin: http://evil.example\r\n", ""] {
        for path in ["/explain", "/nothing"] {
            let outer = format!(
                "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{origin}Content-Length: {}\r\n\r\n{inner}",
                inner.len()
            );
            let mut wire = Wire::open(live.app.admin);
            let closing = "GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
            let answers = wire.send(format!("{outer}{closing}").as_bytes()).rest();
            assert!(answers.starts_with("HTTP/1.1 4"), "{answers}");
            assert!(!answers.contains("HTTP/1.1 200"), "{answers}");
        }
    }
}

#[tokio::test]
async fn who_is_refused_is_told_in_the_log_ten_times_a_second_at_most() {
    let binary = Binary::start_with_admin(&format!(
        "upstream: {{address: \"127.0.0.1:9\"}}\nadmin_token: {TOKEN}\n{POLICIES}"
    ));
    let url = format!("http://{}/", binary.admin.expect("it listens"));
    let clock = Clock::system();
    let started = clock.now().as_seconds();
    for _ in 0..100 {
        let response = reqwest::get(&url).await.expect("it answers");
        assert_eq!(response.status(), 401);
    }
    let seconds = clock.now().as_seconds() - started + 1;
    let refused = || {
        let log = binary.log();
        let lines = log
            .lines()
            .filter(|line| line.contains("admin_listen was refused"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("a line is written", async || !refused().is_empty()).await;
    let lines = refused();
    assert!(
        lines.len() as u64 <= 10 * seconds,
        "{} in {seconds} s",
        lines.len()
    );
    assert!(lines[0].contains("127.0.0.1:"), "{}", lines[0]);
    assert!(!binary.log().contains("hunter2"));
}

/// A configuration with secrets in every setting that may hold one, in two halves, since not all go together.
fn with_secrets(store: &str, folder: &std::path::Path) -> Config {
    let path = folder.join("config.yaml");
    let secret = folder.join("secret");
    std::fs::write(&secret, "/hunter2\n").expect("written");
    let yaml = format!(
        "upstream: {{address: \"127.0.0.1:9\"}}
threads: 1
admin_token: \"${{TOKEN}}\"
identity: {{secret: \"${{SECRET}}\"}}
store: {store}
log: {{level: \"${{LEVEL:-warn}}\"}}
responses:
policies:
  - name: p
    match:
      path: [\"${{file:{}}}\", /open]
      header: [authorization=hunter2, x-debug]
    limits: [3/366d]
    take_back_5xx: true
    cost: \"2\"
",
        text(&secret)
    );
    std::fs::write(&path, yaml).expect("written");
    let env = |name: &str| match name {
        "TOKEN" => Some(TOKEN.to_owned()),
        "SECRET" | "PASSWORD" => Some("hunter2".to_owned()),
        _ => None,
    };
    Config::load(&path, &env).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn the_configuration_in_force_is_shown_and_no_secret_of_it() {
    for store in [
        "{url: \"redis://:hunter2@127.0.0.1:1\"}",
        "{url: \"redis://m\", password: \"${PASSWORD}\", sentinel: {addresses: [\"127.0.0.1:1\"], password: hunter2}}",
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let app = App::start_config(with_secrets(store, folder.path()));
        let client = reqwest::Client::new();
        for path in ["/config", "/policies"] {
            let request = client.get(format!("http://{}{path}", app.admin));
            let request = request.header("authorization", format!("Bearer {TOKEN}"));
            let (status, told) = told(request).await;
            assert_eq!(status, 200);
            assert!(!told.to_string().contains("hunter2"), "{told}");
            if path == "/policies" {
                let matches = &told["policies"][0]["match"];
                assert_eq!(matches["path"], json!(["***", "/open"]), "{told}");
                continue;
            }
            let settings = &told["settings"];
            let policy = json!({
                "name": "p",
                "match": {"path": ["***", "/open"], "header": ["authorization=***", "x-debug"]},
                "limits": ["3/366d"],
                "take_back_5xx": true,
                "cost": "2",
            });
            assert_eq!(settings["policies"], json!([policy]));
            assert_eq!(settings["threads"], 1);
            assert_eq!(settings["responses"], json!({}));
            assert_eq!(settings["log"]["level"], "warn");
            assert_eq!(settings["upstream"]["address"], "127.0.0.1:9");
            for secret in ["/admin_token", "/identity/secret", "/store/url"] {
                assert_eq!(settings.pointer(secret), Some(&json!("***")), "{secret}");
            }
            let fingerprint = told["fingerprint"].as_str().expect("text");
            let series = format!("slidegate_config_info{{fingerprint=\"{fingerprint}\"}}");
            assert_eq!(app.metric(&series).await, 1.0);
            assert_eq!(told["refused"], Value::Null);
            assert_eq!(told["waiting_for_restart"], json!({}));
        }
    }
}

#[tokio::test]
async fn a_reload_is_told_with_what_waits_for_a_restart_or_was_refused() {
    let upstream = "upstream: {address: \"127.0.0.1:9\"}";
    let start = format!("{upstream}\nthreads: 1\npolicies: [{{name: p, limits: [3/366d]}}]");
    let live = Live {
        app: App::start(&start),
        client: reqwest::Client::new(),
        _upstream: Upstream::start(),
    };
    let first = live.ask("GET", "/config").await.1;
    let other = "threads: 2\nlog: {level: warn}\npolicies: [{name: p, limits: [4/366d]}]";
    live.app.reload(&format!("{upstream}\n{other}")).await;
    let (_, told) = live.ask("GET", "/config").await;
    assert_eq!(told["settings"]["policies"][0]["limits"][0], "4/366d");
    let waiting = json!({"threads": "1", "log.level": null});
    assert_eq!(told["waiting_for_restart"], waiting);
    assert_ne!(told["fingerprint"], first["fingerprint"]);

    live.app.reload("policies: [{name: P, limits: []}]").await;
    let (_, refused) = live.ask("GET", "/config").await;
    assert_eq!(refused["settings"], told["settings"]);
    assert_eq!(refused["fingerprint"], told["fingerprint"]);
    assert_eq!(refused["refused"]["faults"], 3, "{refused}");
    let first = refused["refused"]["first"][0].as_str().expect("text");
    assert!(
        first.starts_with("test.yaml:1:1: upstream.address: missing"),
        "{first}"
    );

    live.app.reload(&start).await;
    let (_, told) = live.ask("GET", "/config").await;
    assert_eq!(told["refused"], Value::Null);
    assert_eq!(told["waiting_for_restart"], json!({}));
}

#[tokio::test]
async fn policies_are_told_with_their_limits_and_what_has_come_of_them() {
    let live = Live::new(
        "policies:
  - name: per-key
    match: {method: [GET], not: {path: [/health]}}
    identifier: [header:x-api-key, client_ip]
    limits: [5/366d, 9/365d]
    overrides: [{client_ip: [203.0.113.7, 203.0.113.8], limits: [1/1m]}]
    failure_mode: deny
  - {name: trial, limits: [2/366d], mode: shadow, charge_on: [200], missing_identifier: deny, identifier: [header:a]}",
    );
    for _ in 0..6 {
        live.status(&[("x-api-key", "hunter2"), ("a", "b")]).await;
    }
    live.status(&[]).await;
    let (status, told) = live.ask("GET", "/policies").await;
    assert_eq!(status, 200);
    assert!(!told.to_string().contains("hunter2"), "{told}");
    let store = json!({"kind": "memory", "away": false, "next_probe_ms": 0, "waiting": 0, "counters_here": 5});
    assert_eq!(told["store"], store);
    let limit = |name: &str, limit: &str, quota: u64, days: u64| json!({"name": name, "limit": limit, "quota": quota, "window_seconds": days * 86_400, "algorithm": "sliding_window_counter"});
    let minute = json!({"name": "per-key", "limit": "1/1m", "quota": 1, "window_seconds": 60, "algorithm": "sliding_window_counter"});
    let (none, one) = (
        json!({"allow": 0, "deny": 0}),
        json!({"allow": 1, "deny": 0}),
    );
    let expected = json!({
        "policy": "per-key",
        "match": {"method": ["GET"], "not": {"path": ["/health"]}},
        "identifier": ["header:x-api-key", "client_ip"],
        "missing_identifier": null,
        "limits": [limit("per-key-366d", "5/366d", 5, 366), limit("per-key-365d", "9/365d", 9, 365)],
        "plans": {},
        "overrides": [{"clients": 2, "limits": [minute]}],
        "cost": 1,
        "cost_header": null,
        "charge": {"at": "request", "take_back_5xx": false},
        "mode": "enforce",
        "failure_mode": "deny",
        "live": {
            "decisions": {"store": {"allow": 6, "deny": 1}, "denial_cache": none, "local": none, "failure_mode": none},
            "near_limit": {"0.90-0.95": none, "0.95-1.00": none, "1.00-1.05": {"allow": 0, "deny": 1}, "1.05-1.10": none},
            "identified": {"header:x-api-key": 6, "client_ip": 1},
        },
    });
    assert_eq!(told["policies"][0], expected, "{:#}", told["policies"][0]);
    let trial = &told["policies"][1];
    assert_eq!(trial["match"], Value::Null);
    assert_eq!(
        trial["charge"],
        json!({"at": "response", "statuses": [200]})
    );
    assert_eq!(trial["missing_identifier"], "deny");
    assert_eq!(trial["live"]["identified"], json!({"header:a": 6}));
    assert_ne!(trial["live"]["near_limit"]["1.00-1.05"], one);
}

/// What the command prints, and what the proxy answers, but for the moment.
fn without_moments(mut told: Value) -> Value {
    for list in ["policies", "deleted"] {
        let policies = told.get_mut(list).and_then(Value::as_array_mut);
        for policy in policies.into_iter().flatten() {
            for limit in policy["limits"].as_array_mut().expect("limits") {
                for moment in ["now_ms", "next_unit_ms"] {
                    assert!(limit[moment].is_u64() || limit[moment].is_null());
                    limit[moment] = Value::Null;
                }
            }
        }
    }
    told
}

#[tokio::test]
async fn one_client_is_looked_up_as_by_the_command_and_freed_at_once() {
    let redis = RedisServer::start();
    let rest = format!(
        "store: {{url: \"{}\", budget: 10s, denial_cache: 1m}}
policies:
  - {{name: per-key, identifier: [header:x-api-key], limits: [2/366d, 9/365d]}}
  - {{name: per-ip, limits: [100/366d], mode: shadow}}",
        redis.url()
    );
    let live = Live::new(&rest);
    live.app.store_decides().await;
    let key = [("x-api-key", "hunter2")];
    for expected in [200, 200, 429, 429] {
        assert_eq!(live.status(&key).await, expected);
    }
    let question = json!({"request": "GET /", "headers": ["X-API-Key: hunter2"]});
    let explained = live.request("POST", "/explain").body(question.to_string());
    let (_, explained) = told(explained).await;
    let identifier = &explained["policies"][0]["identifier"];
    let identifier = identifier.as_str().expect("text").to_owned();
    let path = format!("/identifiers/{identifier}");
    let (status, found) = live.ask("GET", &path).await;
    assert_eq!(status, 200, "{found}");
    let config = file(&format!("upstream: {{address: \"app:1\"}}\n{rest}"));
    let arguments = [
        "inspect",
        "--json",
        "--config",
        text(config.path()),
        "--identifier",
    ];
    let printed = output(&[&arguments[..], &[&identifier]].concat()).stdout;
    let printed: Value = serde_json::from_slice(&printed).expect("JSON");
    assert_eq!(without_moments(found.clone()), without_moments(printed));
    assert_eq!(found["policies"][0]["limits"][0]["current"], 2);

    let (status, deleted) = live.ask("DELETE", &path).await;
    assert_eq!(status, 200, "{deleted}");
    let held = without_moments(found)["policies"].clone();
    let expected = json!({"identifier": identifier, "deleted": held, "denial_cache_ms": 60_000});
    assert_eq!(without_moments(deleted), expected);
    // This proxy's denial cache would deny it for a minute.
    assert_eq!(live.status(&key).await, 200);
}

#[tokio::test]
async fn a_client_is_named_as_in_logs_and_by_an_address_of_its_group_and_under_one_policy() {
    let live = Live::new(
        "policies:
  - {name: per-key, identifier: [header:x-api-key], limits: [2/366d]}
  - {name: per-ip, limits: [100/366d]}
  - {name: again, limits: [50/366d]}",
    );
    assert_eq!(live.status(&[]).await, 200);
    let hash = "0jNS3U2sIFZAFWrfXgW2jA";
    for (path, identifier, policies) in [
        (format!("/identifiers/{hash}"), hash, &["per-key"][..]),
        (
            "/identifiers/127.0.0.1".into(),
            "127.0.0.1",
            &["per-key", "per-ip", "again"],
        ),
        (
            "/identifiers/127.0.0.1?policy=again".into(),
            "127.0.0.1",
            &["again"],
        ),
        (
            "/identifiers/2001:db8:1:2::5?policy=again".into(),
            "2001:db8:1:2::",
            &["again"],
        ),
        (
            "/identifiers/2001%3adb8%3A1%3A2%3A%3A?policy=again".into(),
            "2001:db8:1:2::",
            &["again"],
        ),
        ("/identifiers/unix?policy=again".into(), "unix", &["again"]),
    ] {
        let (status, told) = live.ask("GET", &path).await;
        assert_eq!(status, 200, "{path}: {told}");
        assert_eq!(told["identifier"], identifier);
        let found = told["policies"].as_array().expect("a list").iter();
        let found: Vec<_> = found.map(|policy| policy["policy"].as_str()).collect();
        let expected: Vec<_> = policies.iter().map(|policy| Some(*policy)).collect();
        assert_eq!(found, expected, "{path}");
    }
    for (path, expected) in [
        ("/identifiers/", 400),
        ("/identifiers/hunter2", 400),
        ("/identifiers/%ff", 400),
        ("/identifiers/127.0.0.1/", 400),
        ("/identifiers/127.0.0.1?policy=hunter2", 404),
        ("/identifiers/127.0.0.1?policy=again&policy=per-ip", 400),
        ("/identifiers/127.0.0.1?hunter2", 400),
        ("/identifiers/0jNS3U2sIFZAFWrfXgW2jA?policy=again", 404),
        ("/identifiers", 404),
    ] {
        for method in ["GET", "DELETE"] {
            let (status, told) = live.ask(method, path).await;
            assert_eq!(status, expected, "{method} {path}: {told}");
            assert!(!told.to_string().contains("hunter2"), "{told}");
        }
    }
    let (_, untouched) = live.ask("GET", "/identifiers/127.0.0.1?policy=again").await;
    assert_eq!(untouched["policies"][0]["limits"][0]["current"], 1);
    let deleted = live
        .ask("DELETE", "/identifiers/127.0.0.1?policy=again")
        .await;
    assert_eq!(deleted.1["deleted"][0]["limits"][0]["current"], 1);
    let (_, left) = live.ask("GET", "/identifiers/127.0.0.1").await;
    let current = |place: usize| left["policies"][place]["limits"][0]["current"].clone();
    assert_eq!((current(1), current(2)), (json!(1), json!(0)));
}

/// What this proxy counts by itself while Redis is away is nobody else's to forget.
#[tokio::test]
async fn while_redis_is_away_a_client_is_freed_in_the_memory_of_this_proxy_and_told_that_it_is_half_done()
 {
    let redis = RedisServer::absent();
    let live = Live::new(&format!(
        "store: {{url: \"{}\"}}\npolicies: [{{name: p, limits: [1/366d]}}]",
        redis.url()
    ));
    assert_eq!(live.status(&[]).await, 200);
    assert_eq!(live.status(&[]).await, 429);
    let (status, told) = live.ask("GET", "/identifiers/127.0.0.1").await;
    assert_eq!(status, 503, "{told}");
    let (status, told) = live.ask("DELETE", "/identifiers/127.0.0.1").await;
    assert_eq!(status, 503, "{told}");
    let why = told["error"].as_str().expect("text");
    assert!(why.contains("counted by itself is deleted"), "{why}");
    assert_eq!(live.status(&[]).await, 200);
}

#[tokio::test]
async fn the_last_decisions_near_a_limit_are_told_newest_first_and_those_alike_as_one() {
    let live = Live::new(
        "policies:
  - {name: per-key, identifier: [header:x-api-key], limits: [10/366d]}
  - {name: trial, identifier: [header:x-api-key], missing_identifier: allow, limits: [2/365d], mode: shadow}
  - {name: quiet, match: {path: [/quiet]}, limits: [1/364d]}",
    );
    assert_eq!(live.ask("GET", "/near-limit").await.1, json!([]));
    for _ in 0..12 {
        live.status(&[("x-api-key", "hunter2")]).await;
    }
    let (status, near) = live.ask("GET", "/near-limit").await;
    assert_eq!(status, 200);
    assert!(!near.to_string().contains("hunter2"), "{near}");
    let told = |entry: &Value| {
        let words = ["policy", "name", "mode", "decision", "decided_by", "limit"];
        let words = words
            .map(|word| entry[word].as_str().expect(word).to_owned())
            .join(" ");
        (words, entry["times"].as_u64().expect("a number"))
    };
    let found: Vec<_> = near.as_array().expect("a list").iter().map(told).collect();
    let expected = [
        ("trial trial shadow deny store 2/365d", 10),
        ("per-key per-key enforce deny store 10/366d", 2),
        ("per-key per-key enforce allow store 10/366d", 1),
    ];
    assert_eq!(
        found,
        expected.map(|(words, times)| (words.to_owned(), times))
    );
    let denied = &near[1];
    assert_eq!(
        (
            &denied["current"],
            &denied["estimate"],
            &denied["utilization"]
        ),
        (&json!(10), &json!(10.0), &json!(1.0))
    );
    assert_eq!(denied["identifier"].as_str().expect("text").len(), 22);
    let moment = denied["now_ms"].as_u64().expect("a number");
    let age = Clock::system().now().as_millis().abs_diff(moment);
    assert!(age < 3_600_000, "{age}");

    // Many clients: the last ones stay, and no more.
    for _ in 0..2 {
        let quiet = live.client.get(live.app.url("/quiet"));
        sent(quiet.header("x-api-key", "q")).await;
    }
    for number in 0..150 {
        for _ in 0..3 {
            live.status(&[("x-api-key", &format!("k{number}"))]).await;
        }
    }
    let (_, near) = live.ask("GET", "/near-limit").await;
    assert_eq!(near.as_array().expect("a list").len(), 128);

    // A policy with many clients leaves another its place.
    let of = |name: &str| {
        let near = near.as_array().expect("a list").iter();
        near.filter(|entry| entry["policy"] == name).count()
    };
    assert_eq!(
        (of("quiet"), of("per-key") > 0, of("trial") > 0),
        (1, true, true)
    );
}

#[tokio::test]
async fn a_body_that_can_not_be_a_question_is_refused_before_it_is_waited_for() {
    let live = Live::new(POLICIES);
    let (long, faulty) = ("Content-Length: 65537", "Transfer-Encoding: chunked");
    for (header, body, status) in [(long, "", 413), (faulty, "x\r\n", 400)] {
        let mut wire = Wire::open(live.app.admin);
        let head = format!("POST /explain HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n{body}");
        let answer = wire.send(head.as_bytes()).rest();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_question_that_the_store_does_not_answer_is_told_in_the_log_with_the_reason() {
    let redis = RedisServer::absent();
    let binary = Binary::start_with_admin(&format!(
        "upstream: {{address: \"127.0.0.1:9\"}}\nstore: {{url: \"{}\"}}\n{POLICIES}",
        redis.url()
    ));
    let admin = binary.admin.expect("it listens");
    let url = format!("http://{admin}/identifiers/127.0.0.1");
    let response = sent(reqwest::Client::new().delete(url)).await;
    assert_eq!(response.status(), 503);
    eventually("a line is written", async || {
        let log = binary.log();
        let mut lines = log.lines();
        lines.any(|line| {
            line.contains("did not answer a request to admin_listen")
                && line.contains("not connected")
        })
    })
    .await;
}
