//! What would become of a request: `slidegate explain`, and `POST /explain` of a running proxy.

use serde_json::{Value, json};

use slidegate::{clock::Clock, policy::IdentifierHasher, ratelimit::Timestamp};

use crate::support::{
    app::App,
    binary::{command, file, text},
    redis::RedisServer,
    upstream::Upstream,
    wire::Wire,
};

const POLICIES: &str = "
identity: {secret: s, trusted_proxies: [10.0.0.0/8]}
block: {client_ip: [198.51.100.0/24]}
exempt: {path: [/health]}
policies:
  - name: per-key
    identifier: [header:x-api-key, client_ip]
    limits: [3/366d]
  - name: login
    match: {path: [/login], method: [POST]}
    limits: [5/366d, 9/365d]
    cost: 2
  - name: next
    limits: [2/366d]
    mode: shadow
";

/// What the command prints, on standard output and standard error, and its exit code.
fn explained(yaml: &str, arguments: &[&str]) -> (String, String, Option<i32>) {
    let config = file(&format!("upstream: {{address: \"app:3000\"}}\n{yaml}"));
    let arguments = [&["explain", "--config", text(config.path())], arguments].concat();
    let output = command(&arguments).output().expect("it runs");
    let told = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (
        told(output.stdout),
        told(output.stderr),
        output.status.code(),
    )
}

#[test]
fn explain_tells_which_policies_ask_whom_they_count_and_what_would_happen() {
    // A Redis that is not there: nothing connects to it.
    let yaml = format!("store: {{url: \"redis://192.0.2.1:1\"}}\n{POLICIES}");
    let arguments = [
        "--request",
        "POST /login?x=1",
        "-H",
        "X-API-Key: hunter2",
        "--from",
        "192.0.2.7",
    ];
    let (out, err, code) = explained(&yaml, &arguments);
    assert_eq!((err.as_str(), code), ("", Some(0)));
    let reset = out.lines().find(|line| line.contains("x-ratelimit-reset"));
    let out = out.replace(reset.expect("it is told"), "    x-ratelimit-reset: …");
    let expected = "client 192.0.2.7
pass: answered by the upstream
    x-ratelimit-limit: 3
    x-ratelimit-remaining: 3
    x-ratelimit-reset: …
    ratelimit-policy: \"per-key\";q=3;w=31622400, \"login-366d\";q=5;w=31622400, \"login-365d\";q=9;w=31536000
    ratelimit: \"per-key\";r=3
policy per-key: asks
    identifier    nCtJBSD89mv8FfbPKtQvtw, by header:x-api-key
    cost          1
    limit         3/366d as per-key: admits, estimate 0.00, remaining 3
policy login: asks
    identifier    192.0.2.7, by client_ip
    cost          2
    limit         5/366d as login-366d: admits, estimate 0.00, remaining 5
    limit         9/365d as login-365d: admits, estimate 0.00, remaining 9
policy next, shadow: asks
    identifier    192.0.2.7, by client_ip
    cost          1
    limit         2/366d as next: admits, estimate 0.00, remaining 2
";
    assert_eq!(out, expected);
}

#[test]
fn explain_tells_why_a_policy_does_not_ask_and_who_is_let_through_or_turned_away() {
    let told = |arguments: &[&str]| explained(POLICIES, arguments).0;
    let login = told(&["--request", "/login", "--from", "192.0.2.7"]);
    assert!(login.contains("policy login: does not match\n"), "{login}");
    let behind = told(&[
        "--request",
        "/",
        "--from",
        "10.1.2.3",
        "--header",
        "X-Forwarded-For: 203.0.113.9, 198.51.100.7",
    ]);
    assert!(behind.starts_with("client 198.51.100.7, through a trusted proxy\nrefused: answered 403, this address is blocked\n"), "{behind}");
    let probe = told(&["--request", "GET /health", "--from", "192.0.2.7"]);
    assert!(
        probe.contains("pass: answered by the upstream, exempt\n"),
        "{probe}"
    );
    let first = "apply: first
policies:
  - {name: login, match: {path: [/login]}, limits: [5/366d]}
  - {name: rest, limits: [9/366d]}";
    let (first, ..) = explained(first, &["--request", "POST /login"]);
    assert!(
        first.contains("policy rest: matches, does not ask: apply: first"),
        "{first}"
    );
    assert!(first.starts_with("client unix\n"), "{first}");
    let twice = told(&["--request", "/", "-H", "x-api-key: a", "-H", "x-api-key: b"]);
    assert!(
        twice.contains("refused: answered 400, the header x-api-key was sent more than once"),
        "{twice}"
    );
    let zero = POLICIES.replace("3/366d", "0/366d");
    let (denied, ..) = explained(&zero, &["--request", "/", "--from", "192.0.2.7"]);
    assert!(denied.contains("denied: answered 429\n"), "{denied}");
}

#[test]
fn explain_tells_by_which_plan_and_why_a_policy_that_matches_asks_nobody() {
    let hasher = IdentifierHasher::new(Some("s"), 64);
    let entry = |name: &str, plan: &str, key: &str| {
        let hash = hasher
            .api_key(key.as_bytes())
            .expect("short")
            .expect("a key");
        format!("- {{name: {name}, plan: {plan}, keys: [\"{hash}\"]}}\n")
    };
    let list = [
        entry("acme", "gold", "hunter2"),
        entry("ours", "internal", "hunter3"),
    ];
    let list = file(&format!("consumers:\n{}", list.concat()));
    let yaml = format!(
        "identity: {{secret: s, consumers: {{file: {}}}}}
policies:
  - name: per-key
    identifier: [header:x-api-key]
    limits: [2/366d]
    plans: {{gold: [5/366d], internal: unlimited}}
  - {{name: session, identifier: [cookie:s], missing_identifier: allow, limits: [9/366d]}}
  - {{name: trial, mode: shadow, identifier: [header:x-user], missing_identifier: deny, limits: [9/366d]}}
",
        text(list.path())
    );
    let told = |headers: &[&str]| {
        let arguments = headers.iter().flat_map(|header| ["-H", header]);
        let request = ["--request", "/", "--from", "192.0.2.7"].into_iter();
        let (out, err, code) = explained(&yaml, &request.chain(arguments).collect::<Vec<_>>());
        assert_eq!(code, Some(0), "{err}");
        assert!(!out.contains("hunter"), "{out}");
        out
    };
    let (acme, ours) = (hasher.consumer("acme"), hasher.consumer("ours"));
    for (headers, expected) in [
        (
            &["X-Api-Key: hunter2"][..],
            format!(
                "policy per-key: asks\n    \
                 identifier    {acme}, by header:x-api-key, plan gold\n    \
                 cost          1\n    \
                 limit         5/366d as per-key: admits, estimate 0.00, remaining 5\n"
            ),
        ),
        (
            &["X-Api-Key: hunter3"],
            format!(
                "policy per-key: matches, does not ask: unlimited\n    \
                 identifier    {ours}, plan internal\n"
            ),
        ),
        (
            &["X-Api-Key: hunter4"],
            "policy per-key: asks\n    \
             identifier    192.0.2.7, by client_ip, for want of a source\n"
                .to_owned(),
        ),
        (
            &[],
            "policy session: matches, does not ask: none of its sources has a value \
             (missing_identifier: allow)\n"
                .to_owned(),
        ),
        (
            &["Cookie: s=hunter5"],
            "policy trial, shadow: matches, does not ask: an identifier is required: \
             the header x-user\n"
                .to_owned(),
        ),
    ] {
        let told = told(headers);
        assert!(told.contains(&expected), "{headers:?}: {told}");
    }
}

#[test]
fn a_target_with_a_host_is_for_that_host() {
    let yaml = "policies: [{name: p, match: {host: [api.example.com]}, limits: [9/366d]}]";
    for (target, headers, standing) in [
        ("http://api.example.com/x", &[][..], "policy p: asks\n"),
        ("http://API.example.com:80/x", &[], "policy p: asks\n"),
        (
            "http://www.example.com/x",
            &[],
            "policy p: does not match\n",
        ),
        ("/x", &["-H", "Host: api.example.com"], "policy p: asks\n"),
        ("/x", &[], "policy p: does not match\n"),
    ] {
        let (out, ..) = explained(yaml, &[&["--request", target], headers].concat());
        assert!(out.contains(standing), "{target} {headers:?}: {out}");
    }
}

#[test]
fn what_is_no_request_is_refused_without_being_repeated() {
    for (arguments, told) in [
        (
            &["--request", "GET hunter2"][..],
            "--request: expected a method and a target",
        ),
        (&["--request", ""], "--request: expected"),
        (
            &["--request", "/", "-H", "hunter2"],
            "--header 1: expected a name, a colon",
        ),
        (
            &["--request", "/", "-H", "a: b", "-H", "hunter2\n: x"],
            "--header 2: expected",
        ),
        (
            &["--request", "/", "-H", "Host: hunter2", "-H", "Host: b"],
            "--header: a request has one Host",
        ),
        (
            &["--request", "http://a/", "-H", "Host: hunter2"],
            "--header: a request has one Host",
        ),
    ] {
        let (out, err, code) = explained(POLICIES, arguments);
        assert_eq!((out.as_str(), code), ("", Some(2)), "{err}");
        assert!(err.contains(told) && !err.contains("hunter2"), "{err}");
    }
}

struct Live {
    app: App,
    upstream: Upstream,
}

impl Live {
    fn new(rest: &str) -> Self {
        let (app, upstream) = App::with_upstream(rest);
        Self { app, upstream }
    }

    async fn ask(&self, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let url = format!("http://{}/explain", self.app.admin);
        let response = reqwest::Client::new().post(url).body(body).send().await;
        let response = response.expect("it answers");
        let status = response.status().as_u16();
        let body = response.text().await.expect("text");
        (status, serde_json::from_str(&body).expect("JSON"))
    }

    async fn explain(&self, request: &str) -> Value {
        let question = json!({"request": request, "from": "127.0.0.1"});
        let (status, told) = self.ask(question.to_string()).await;
        assert_eq!(status, 200, "{told}");
        told
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        reqwest::get(self.app.url(path)).await.expect("answered")
    }
}

/// The longest question, in bytes.
const MAX_BODY: usize = 64 << 10;

/// What is counted so far. Whether the store is away changes by itself, as do how many wait for it, which a request that
/// was answered may still be among, and the connections, of which the metrics' may be one.
async fn counted(app: &App) -> Vec<String> {
    let exposition = app.metrics().await;
    let ours = exposition.lines().filter(|line| {
        let changes = [
            "slidegate_connections ",
            "slidegate_store_breaker",
            "slidegate_store_pending",
        ];
        line.starts_with("slidegate_") && !changes.iter().any(|gauge| line.starts_with(gauge))
    });
    ours.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_running_proxy_explains_by_its_counters_and_leaves_no_trace() {
    let redis = RedisServer::start();
    let store = |url: &str| format!("store: {{url: \"{url}\", budget: 10s}}\n");
    for store in [store("memory:"), store(&redis.url())] {
        let live = Live::new(&format!(
            "{store}policies: [{{name: p, limits: [3/366d]}}, {{name: t, mode: shadow, limits: [1/366d]}}]"
        ));
        live.app.store_decides().await;
        for _ in 0..2 {
            assert_eq!(live.get("/").await.status(), 200);
        }
        live.app
            .metric_becomes("slidegate_requests_total{status=\"2xx\"}", 2.0)
            .await;
        let before = counted(&live.app).await;
        for _ in 0..5 {
            let told = live.explain("GET /").await;
            assert_eq!(told["outcome"], "pass");
            let limit = &told["policies"][0]["limits"][0];
            let decision = &limit["decision"];
            assert_eq!(
                (&decision["current"], &decision["remaining"]),
                (&json!(2), &json!(1)),
                "{told}"
            );
            let shadow = &told["policies"][1]["limits"][0]["decision"];
            assert_eq!(shadow["allowed"], false, "{told}");
        }
        assert_eq!(counted(&live.app).await, before, "{store}");
        assert_eq!(live.get("/").await.status(), 200);
        let told = live.explain("GET /").await;
        assert_eq!(
            (&told["outcome"], &told["status"]),
            (&json!("denied"), &json!(429))
        );
        assert!(
            told["policies"][0]["limits"][0]["decision"]["retry_after_seconds"].is_u64(),
            "{told}"
        );
    }
}

/// A denial that was only looked at must not deny anybody.
#[tokio::test]
async fn what_was_explained_is_not_in_the_denial_cache() {
    let redis = RedisServer::start();
    let live = Live::new(&format!(
        "store: {{url: \"{}\", budget: 10s, denial_cache: 1m}}\npolicies: [{{name: p, limits: [1/366d]}}]",
        redis.url()
    ));
    live.app.store_decides().await;
    assert_eq!(live.get("/").await.status(), 200);
    assert_eq!(live.explain("GET /").await["outcome"], "denied");
    assert_eq!(live.get("/").await.status(), 429);
    let by = |who: &str| {
        format!(
            "slidegate_decisions_total{{decided_by=\"{who}\",decision=\"deny\",mode=\"enforce\",plan=\"\",policy=\"p\"}}"
        )
    };
    assert_eq!(live.app.metric(&by("store")).await, 1.0);
    assert_eq!(live.app.metric(&by("denial_cache")).await, 0.0);
}

#[tokio::test]
async fn an_explanation_while_redis_is_away_tells_who_decides_and_counts_no_error() {
    let redis = RedisServer::absent();
    let live = Live::new(&format!(
        "store: {{url: \"{}\", budget: 10s}}\npolicies: [{{name: p, limits: [3/366d]}}]",
        redis.url()
    ));
    let before = counted(&live.app).await;
    let told = live.explain("GET /").await;
    let decision = &told["policies"][0]["limits"][0]["decision"];
    assert_eq!(decision["decided_by"], "local", "{told}");
    assert_eq!(counted(&live.app).await, before);

    let live = Live::new(&format!(
        "store: {{url: \"{}\", budget: 10s}}\n\
         policies: [{{name: p, limits: [3/366d], failure_mode: deny}}]",
        redis.url()
    ));
    let told = live.explain("GET /").await;
    assert_eq!(
        (&told["outcome"], &told["status"]),
        (&json!("unavailable"), &json!(503))
    );
    assert_eq!(live.get("/").await.status(), 503);
    let limit = &told["policies"][0]["limits"][0];
    assert_eq!(
        (&limit["limit"], &limit["decision"]),
        (&json!("3/366d"), &Value::Null)
    );
}

/// By a clock at half a second, so that the wait is no whole number of them.
#[tokio::test]
async fn an_explained_denial_tells_the_wait_that_the_denial_tells() {
    let upstream = Upstream::start();
    let yaml = format!(
        "upstream: {{address: \"{}\"}}\npolicies: [{{name: p, limits: [1/10s]}}]",
        upstream.address
    );
    let clock = Clock::manual(Timestamp::from_millis(1_800_000_003_500));
    let app = App::start_at(&yaml, clock);
    let live = Live { app, upstream };
    assert_eq!(live.get("/").await.status(), 200);
    let told = live.explain("GET /").await;
    let denied = live.get("/").await;
    assert_eq!(denied.status(), 429);
    let wait = denied.headers()["retry-after"].to_str().expect("text");
    let decision = &told["policies"][0]["limits"][0]["decision"];
    assert_eq!(decision["retry_after_seconds"].to_string(), wait, "{told}");
}

#[tokio::test]
async fn a_running_proxy_explains_by_the_configuration_that_is_in_force() {
    let live = Live::new("policies: [{name: p, limits: [3/366d]}]");
    assert_eq!(live.explain("GET /").await["policies"][0]["policy"], "p");
    let address = live.upstream.address;
    let other = "identity: {trusted_proxies: [127.0.0.0/8]}\npolicies: [{name: q, limits: [0/1m]}]";
    live.app
        .reload(&format!("upstream: {{address: \"{address}\"}}\n{other}"))
        .await;
    let told = live.explain("GET /").await;
    assert_eq!(told["policies"][0]["policy"], "q", "{told}");
    assert_eq!(told["outcome"], "denied", "{told}");
    assert_eq!(told["peer_is_trusted"], true, "{told}");
}

#[tokio::test]
async fn what_is_explained_is_what_happens() {
    let live = Live::new(
        "identity: {trusted_proxies: [127.0.0.0/8]}
block: {client_ip: [198.51.100.0/24]}
exempt: {path: [/health]}
policies:
  - {name: banned, match: {path: [/banned/**]}, limits: [0/1m]}
  - {name: keyed, match: {path: [/keyed]}, identifier: [header:x-api-key], missing_identifier: deny, limits: [9/366d]}
  - {name: rest, match: {not: {path: [/free]}}, limits: [100/366d]}",
    );
    for (path, headers, expected) in [
        ("/", &[][..], 200),
        ("/free", &[], 200),
        ("/health", &[], 200),
        ("/banned/x", &[], 429),
        ("/banned%2Fx", &[], 429),
        ("/keyed", &[], 401),
        ("/keyed", &[("x-api-key", "k")], 200),
        ("/keyed", &[("x-api-key", "k"), ("x-api-key", "k")], 400),
        ("/", &[("x-forwarded-for", "198.51.100.9")], 403),
        ("/a;b/..%2F", &[], 400),
    ] {
        let lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let question =
            json!({"request": format!("GET {path}"), "headers": lines, "from": "127.0.0.1"});
        let (_, told) = live.ask(question.to_string()).await;
        let mut request = reqwest::Client::new().get(live.app.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.expect("answered");
        assert_eq!(response.status(), expected, "{path}");
        let status = told["status"].as_u64().unwrap_or(200);
        assert_eq!(status, u64::from(expected), "{path}: {told}");
        for header in told["headers"].as_array().expect("a list") {
            let name = header[0].as_str().expect("text");
            assert!(response.headers().contains_key(name), "{path}: {name}");
            assert_ne!(
                name, "content-length",
                "the body has an id, which this has not"
            );
        }
        let is_limited = response.headers().contains_key("x-ratelimit-limit");
        let told = told["headers"].to_string();
        assert_eq!(
            told.contains("x-ratelimit-limit"),
            is_limited,
            "{path}: {told}"
        );
    }
}

#[tokio::test]
async fn the_admin_listener_answers_questions_and_nothing_else_and_repeats_no_key() {
    let live = Live::new("policies: [{name: p, limits: [3/366d]}]");
    for (body, status) in [
        ("", 400),
        ("hunter2", 400),
        ("{\"request\": \"GET /\", \"key\": \"hunter2\"}", 400),
        ("{\"request\": \"GET /\", \"headers\": [\"hunter2\"]}", 400),
        ("{\"request\": \"GET /\", \"from\": \"hunter2\"}", 400),
        (
            "{\"request\": \"GET /\", \"headers\": [\"x-api-key: hunter2\"]}",
            200,
        ),
    ] {
        let (found, told) = live.ask(body).await;
        assert_eq!(found, status, "{body}: {told}");
        assert!(!told.to_string().contains("hunter2"), "{told}");
    }
    let long = "x".repeat(100_000);
    assert_eq!(live.ask(long).await.0, 413);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
    let body = format!("{}{hidden}", "x".repeat(MAX_BODY + 1));
    let length = body.len();
    let mut wire = Wire::open(live.app.admin);
    wire.send(
        format!(
            "POST /explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .as_bytes(),
    );
    let answer = wire.rest();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    let get = |path: &str| reqwest::get(format!("http://{}{path}", live.app.admin));
    assert_eq!(get("/explain").await.expect("answered").status(), 405);
    assert_eq!(get("/metrics").await.expect("answered").status(), 404);
    assert_eq!(
        live.get("/explain").await.headers()["x-ratelimit-remaining"],
        "2",
        "the proxy passes it on"
    );
}

#[tokio::test]
async fn what_the_proxy_refuses_for_its_host_is_no_question_either() {
    let live = Live::new("policies: [{name: p, limits: [3/366d]}]");
    for (target, hosts) in [
        ("/", &["a", "b"][..]),
        ("/", &["a", "a"]),
        ("http://a/", &["b"]),
    ] {
        let lines: String = hosts
            .iter()
            .map(|host| format!("Host: {host}\r\n"))
            .collect();
        let request = format!("GET {target} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n");
        let answer = Wire::open(live.app.proxy).send(request.as_bytes()).rest();
        assert!(
            answer.starts_with("HTTP/1.1 400 "),
            "{target} {hosts:?}: {answer}"
        );
        let headers: Vec<String> = hosts.iter().map(|host| format!("Host: {host}")).collect();
        let question = serde_json::json!({"request": format!("GET {target}"), "headers": headers});
        let (status, told) = live.ask(question.to_string()).await;
        assert_eq!(status, 400, "{target} {hosts:?}: {told}");
    }
}

/// A page whose name leads to 127.0.0.1 by then may read what it is answered, and could try addresses and keys.
#[tokio::test]
async fn a_page_in_a_browser_on_this_machine_is_told_nothing() {
    let live = Live::new("policies: [{name: p, limits: [3/366d]}]");
    for origin in ["http://example.com", "http://127.0.0.1:9465", "null"] {
        let url = format!("http://{}/explain", live.app.admin);
        let asked = reqwest::Client::new().post(url).header("origin", origin);
        let answer = asked.body("{\"request\": \"GET /\"}").send().await;
        let answer = answer.expect("it answers");
        assert_eq!(answer.status(), 403, "{origin}");
        let told = answer.text().await.expect("text");
        assert!(!told.contains("policies"), "{told}");
    }
}

#[test]
fn explain_tells_which_upstream_would_answer_or_why_none_would() {
    let config = file(
        "upstreams: {api: {address: \"api:3000\"}, web: {address: \"web:3000\"}}\n\
         routes: [{path: /v1/**, upstream: api}, {host: www.example.com, upstream: web}]\n\
         policies: [{name: p, limits: [1/366d]}]\n",
    );
    for (target, outcome) in [
        ("/v1/users", "pass: answered by the upstream api"),
        ("/x", "pass: answered by the upstream web"),
        (
            "http://example.org/x",
            "pass: answered 404, no route is for it",
        ),
        (
            "/v1/../x",
            "pass: answered 400, its path can be read in several ways, which lead to different upstreams",
        ),
    ] {
        let host = ["-H", "Host: www.example.com"];
        let host = if target.starts_with('/') {
            &host[..]
        } else {
            &[]
        };
        let arguments = [
            "explain",
            "--config",
            text(config.path()),
            "--request",
            target,
        ];
        let output = command(&[&arguments, host].concat())
            .output()
            .expect("it runs");
        let told = String::from_utf8(output.stdout).expect("text");
        assert_eq!(told.lines().nth(1), Some(outcome), "{told}");
    }
}
