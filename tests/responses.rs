//! What a client sees: one test per promise about statuses, headers and bodies.

use reqwest::{Client, Method, Response, StatusCode};
use slidegate::{clock::Clock, ratelimit::Timestamp};

use crate::support::{app::App, upstream::Upstream, wire::Wire};

/// 20 s into a minute.
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_020);

struct Setup {
    app: App,
    upstream: Upstream,
    client: Client,
    clock: Clock,
}

impl Setup {
    fn new(policies: &str) -> Self {
        Self::with("", policies)
    }

    fn with(settings: &str, policies: &str) -> Self {
        let upstream = Upstream::start();
        let clock = Clock::manual(NOW);
        let yaml = format!(
            "upstream: {{address: \"{}\"}}\n{settings}\npolicies:\n{policies}\n",
            upstream.address
        );
        let app = App::start_at(&yaml, clock.clone());
        Self {
            app,
            upstream,
            client: Client::new(),
            clock,
        }
    }

    async fn get(&self, path: &str) -> Response {
        self.get_as(path, "a-key").await
    }

    async fn get_as(&self, path: &str, key: &str) -> Response {
        self.request(Method::GET, path, &[("x-api-key", key)]).await
    }

    async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = self.client.request(method, self.app.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("a response")
    }
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next()?.to_str().expect("text");
    assert_eq!(values.next(), None, "{name} is sent once");
    Some(value)
}

fn all(response: &Response, name: &str) -> Vec<String> {
    let values = response.headers().get_all(name).iter();
    values
        .map(|value| value.to_str().expect("text").to_owned())
        .collect()
}

const PER_KEY: &str = "  - {name: per-key, identifier: [header:x-api-key], limits: [3/1m]}";

#[tokio::test]
async fn an_allowed_request_is_the_upstream_s_answer_with_the_client_s_limits() {
    let setup = Setup::new(PER_KEY);
    let response = setup.get("/").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, "X-RateLimit-Limit"), Some("3"));
    assert_eq!(header(&response, "X-RateLimit-Remaining"), Some("2"));
    assert_eq!(header(&response, "X-RateLimit-Reset"), Some("1800000060"));
    assert_eq!(
        header(&response, "RateLimit-Policy"),
        Some("\"per-key\";q=3;w=60")
    );
    // The unit comes back when the next window has made it fade below one: 1 ms after its start.
    assert_eq!(header(&response, "RateLimit"), Some("\"per-key\";r=2;t=41"));
    assert_eq!(header(&response, "Retry-After"), None);
    assert_eq!(response.text().await.expect("a body"), "ok");
}

#[tokio::test]
async fn the_request_past_the_limit_is_denied_with_an_exact_wait_and_never_reaches_the_upstream() {
    let setup = Setup::new(PER_KEY);
    for expected in ["2", "1", "0"] {
        let response = setup.get("/").await;
        assert_eq!(header(&response, "X-RateLimit-Remaining"), Some(expected));
    }
    let response = setup.get("/").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&response, "X-RateLimit-Limit"), Some("3"));
    assert_eq!(header(&response, "X-RateLimit-Remaining"), Some("0"));
    assert_eq!(header(&response, "Retry-After"), Some("41"));
    assert_eq!(header(&response, "RateLimit"), Some("\"per-key\";r=0;t=41"));
    assert_eq!(
        header(&response, "Content-Type"),
        Some("application/problem+json")
    );
    assert_eq!(header(&response, "Cache-Control"), Some("no-store"));
    let problem: serde_json::Value =
        serde_json::from_str(&response.text().await.expect("a body")).expect("JSON");
    assert_eq!(
        problem["type"],
        "https://iana.org/assignments/http-problem-types#quota-exceeded"
    );
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], serde_json::json!(["per-key"]));
    assert_eq!(setup.upstream.seen().len(), 3);

    setup
        .clock
        .set(Timestamp::from_seconds(NOW.as_seconds() + 40));
    assert_eq!(
        setup.get("/").await.status(),
        StatusCode::TOO_MANY_REQUESTS,
        "a second too early"
    );
    setup
        .clock
        .set(Timestamp::from_seconds(NOW.as_seconds() + 41));
    assert_eq!(setup.get("/").await.status(), StatusCode::OK, "as told");
}

#[tokio::test]
async fn each_key_has_a_quota_of_its_own_and_without_one_the_address_is_counted() {
    let setup = Setup::new("  - {name: per-key, identifier: [header:x-api-key], limits: [1/1m]}");
    for key in ["one", "two", "тест"] {
        assert_eq!(
            setup.get_as("/", key).await.status(),
            StatusCode::OK,
            "{key}"
        );
        assert_eq!(
            setup.get_as("/", key).await.status(),
            StatusCode::TOO_MANY_REQUESTS,
            "{key}"
        );
    }
    let keyless = setup.request(Method::GET, "/", &[]).await;
    assert_eq!(keyless.status(), StatusCode::OK);
    let keyless = setup.request(Method::GET, "/", &[("x-api-key", "")]).await;
    assert_eq!(
        keyless.status(),
        StatusCode::TOO_MANY_REQUESTS,
        "empty counts as absent"
    );
}

#[tokio::test]
async fn invented_keys_mint_no_quota_where_an_address_ceiling_stands_beside() {
    let setup = Setup::new(
        "  - {name: per-key, identifier: [header:x-api-key], limits: [3/1m]}\n  \
           - {name: per-ip, identifier: [client_ip], limits: [5/1m]}",
    );
    let mut admitted = 0;
    for number in 0..30 {
        let response = setup.get_as("/", &format!("rot-{number}")).await;
        admitted += usize::from(response.status() == StatusCode::OK);
    }
    assert_eq!(admitted, 5);
}

#[tokio::test]
async fn a_request_denied_by_one_limit_is_charged_to_none() {
    let setup = Setup::new("  - {name: two, identifier: [header:x-api-key], limits: [5/1m, 2/1h]}");
    for _ in 0..2 {
        assert_eq!(setup.get("/").await.status(), StatusCode::OK);
    }
    for _ in 0..10 {
        let response = setup.get("/").await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            header(&response, "RateLimit-Policy"),
            Some("\"two-1m\";q=5;w=60, \"two-1h\";q=2;w=3600")
        );
        assert_eq!(
            header(&response, "X-RateLimit-Limit"),
            Some("2"),
            "the one that waits longest"
        );
        let problem = response.text().await.expect("a body");
        assert!(problem.contains("[\"two-1h\"]"), "{problem}");
    }
    // The minute's limit was charged twice, not twelve times: in the next hours it has room.
    setup
        .clock
        .set(Timestamp::from_seconds(NOW.as_seconds() + 3 * 3600));
    let response = setup.get("/").await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn of_several_limits_the_one_with_the_least_remaining_is_told() {
    let setup = Setup::new("  - {name: two, identifier: [header:x-api-key], limits: [2/1m, 2/1h]}");
    let response = setup.get("/").await;
    assert_eq!(header(&response, "X-RateLimit-Remaining"), Some("1"));
    assert!(
        header(&response, "RateLimit")
            .expect("sent")
            .starts_with("\"two-1m\""),
        "ties: the first"
    );
}

#[tokio::test]
async fn a_shadow_policy_stops_nothing_and_shows_in_no_header_but_is_counted() {
    let setup = Setup::new(
        "  - {name: tight, identifier: [header:x-api-key], limits: [1/1m], mode: shadow}\n  \
           - {name: loose, identifier: [header:x-api-key], limits: [10/1m]}",
    );
    for _ in 0..3 {
        let response = setup.get("/").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(
            header(&response, "RateLimit-Policy"),
            Some("\"loose\";q=10;w=60")
        );
    }
    let shadow = |decision| {
        format!(
            "slidegate_decisions_total{{decided_by=\"store\",decision=\"{decision}\",mode=\"shadow\",plan=\"\",policy=\"tight\"}}"
        )
    };
    assert_eq!(setup.app.metric(&shadow("allow")).await, 1.0);
    assert_eq!(setup.app.metric(&shadow("deny")).await, 2.0);
}

#[tokio::test]
async fn every_response_of_a_limited_request_carries_the_limits_whatever_its_status() {
    let setup = Setup::new("  - {name: per-key, identifier: [header:x-api-key], limits: [100/1m]}");
    for status in [200, 204, 304, 404, 500, 503] {
        let response = setup.get(&format!("/status/{status}")).await;
        assert_eq!(response.status().as_u16(), status);
        assert!(
            header(&response, "X-RateLimit-Remaining").is_some(),
            "{status}"
        );
        assert_eq!(header(&response, "Retry-After"), None, "{status}");
    }
}

#[tokio::test]
async fn the_upstream_s_x_ratelimit_is_replaced_its_ratelimit_members_kept_and_its_retry_after_too()
{
    let setup = Setup::new(PER_KEY);
    let response = setup.get("/limits").await;
    assert_eq!(header(&response, "X-RateLimit-Limit"), Some("3"));
    assert_eq!(header(&response, "X-RateLimit-Remaining"), Some("2"));
    assert_eq!(
        all(&response, "RateLimit"),
        ["\"app\";r=5;t=1", "\"per-key\";r=2;t=41"]
    );
    assert_eq!(
        all(&response, "RateLimit-Policy"),
        ["\"app\";q=999;w=60", "\"per-key\";q=3;w=60"]
    );
    assert_eq!(header(&response, "Retry-After"), Some("7"));
}

#[tokio::test]
async fn headers_are_sent_as_configured() {
    let setup = Setup::with(
        "responses: {x_ratelimit: false, error_body: text}",
        "  - {name: per-key, identifier: [header:x-api-key], limits: [1/1m]}",
    );
    let response = setup.get("/").await;
    assert_eq!(header(&response, "X-RateLimit-Limit"), None);
    assert!(header(&response, "RateLimit").is_some());
    let denied = setup.get("/").await;
    assert_eq!(
        header(&denied, "Content-Type"),
        Some("text/plain; charset=utf-8")
    );
    let body = denied.text().await.expect("a body");
    assert!(body.starts_with("Quota exceeded (request "), "{body}");

    let setup = Setup::with(
        "responses: {ratelimit: false, x_ratelimit_reset: seconds}",
        PER_KEY,
    );
    let response = setup.get("/").await;
    assert_eq!(header(&response, "RateLimit"), None);
    assert_eq!(header(&response, "RateLimit-Policy"), None);
    assert_eq!(header(&response, "X-RateLimit-Reset"), Some("40"));
}

#[tokio::test]
async fn a_ban_denies_without_retry_after() {
    let setup = Setup::new("  - {name: closed, identifier: [client_ip], limits: [0/1m]}");
    let response = setup.get("/").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&response, "Retry-After"), None);
    assert_eq!(header(&response, "RateLimit"), Some("\"closed\";r=0"));
}

#[tokio::test]
async fn a_request_that_costs_more_takes_more() {
    let setup = Setup::new("  - {name: heavy, identifier: [client_ip], limits: [10/1m], cost: 4}");
    let remaining =
        |response: &Response| header(response, "X-RateLimit-Remaining").map(str::to_owned);
    assert_eq!(remaining(&setup.get("/").await).as_deref(), Some("6"));
    assert_eq!(remaining(&setup.get("/").await).as_deref(), Some("2"));
    let denied = setup.get("/").await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        remaining(&denied).as_deref(),
        Some("2"),
        "two of cost 1 would still fit"
    );
}

#[tokio::test]
async fn two_lines_of_the_key_header_are_a_bad_request_and_charge_nothing() {
    let setup = Setup::new(PER_KEY);
    let mut wire = Wire::open(setup.app.proxy);
    let refused = wire
        .send(b"GET / HTTP/1.1\r\nHost: x\r\nX-API-Key: A\r\nX-API-Key: B\r\n\r\n")
        .response();
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    assert!(refused.contains("more than once"), "{refused}");
    assert!(!refused.to_lowercase().contains("ratelimit"), "{refused}");
    let after = wire
        .send(b"GET / HTTP/1.1\r\nHost: x\r\nX-API-Key: A\r\n\r\n")
        .response();
    assert!(
        after.starts_with("HTTP/1.1 200 "),
        "the connection is kept: {after}"
    );
    assert!(after.contains("X-RateLimit-Remaining: 2"), "{after}");
}

#[tokio::test]
async fn a_required_key_that_is_missing_is_401_and_an_overlong_one_400() {
    let setup = Setup::new(
        "  - {name: keys, identifier: [header:x-api-key], missing_identifier: deny, limits: [3/1m]}",
    );
    let missing = setup.request(Method::GET, "/", &[]).await;
    assert_eq!(missing.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        header(&missing, "WWW-Authenticate"),
        Some("ApiKey header=\"x-api-key\"")
    );
    let overlong = setup.get_as("/", &"k".repeat(8 * 1024 + 1)).await;
    assert_eq!(overlong.status(), StatusCode::BAD_REQUEST);
    assert!(setup.upstream.seen().is_empty());
}

#[tokio::test]
async fn a_policy_that_lets_the_missing_go_asks_nothing_and_tells_nothing() {
    let setup = Setup::new(
        "  - {name: keys, identifier: [header:x-api-key], missing_identifier: allow, limits: [1/1m]}",
    );
    for _ in 0..3 {
        let response = setup.request(Method::GET, "/", &[]).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header(&response, "X-RateLimit-Limit"), None);
        assert_eq!(header(&response, "RateLimit-Policy"), None);
    }
}

#[tokio::test]
async fn a_denial_keeps_the_connection_also_after_a_small_unread_body() {
    let setup = Setup::new("  - {name: closed, identifier: [client_ip], limits: [0/1m]}");
    let mut wire = Wire::open(setup.app.proxy);
    for _ in 0..3 {
        let denied = wire
            .send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
            .response();
        assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
        assert!(
            !denied.to_lowercase().contains("connection: close"),
            "{denied}"
        );
    }
}

#[tokio::test]
async fn a_denied_expectation_gets_its_429_without_a_100_and_closes() {
    let setup = Setup::new("  - {name: closed, identifier: [client_ip], limits: [0/1m]}");
    let mut wire = Wire::open(setup.app.proxy);
    let denied = wire
        .send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        .rest();
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    assert!(!denied.contains(" 100 "), "{denied}");
}

#[tokio::test]
async fn a_large_upload_that_is_denied_reads_its_429() {
    let setup = Setup::new("  - {name: closed, identifier: [client_ip], limits: [0/1m]}");
    let body = vec![b'x'; 12 << 20];
    let response = setup
        .client
        .post(setup.app.url("/"))
        .body(body)
        .send()
        .await;
    let status = response.map(|response| response.status());
    assert_eq!(
        status.expect("the answer is not lost"),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn head_is_answered_without_a_body_allowed_or_denied() {
    let setup = Setup::new("  - {name: one, identifier: [client_ip], limits: [1/1m]}");
    let mut wire = Wire::open(setup.app.proxy);
    let head = b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n";
    let allowed = wire.send(head).response_to("HEAD");
    assert!(allowed.starts_with("HTTP/1.1 200 "), "{allowed}");
    assert!(
        allowed.to_lowercase().contains("content-length: 2\r\n"),
        "{allowed}"
    );
    let denied = wire.send(head).response_to("HEAD");
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    assert!(denied.contains("retry-after: "), "{denied}");
    let again = wire.send(head).response_to("HEAD");
    assert!(
        again.starts_with("HTTP/1.1 429 "),
        "no stray body on the wire: {again}"
    );
}

#[tokio::test]
async fn a_denied_websocket_upgrade_is_an_ordinary_429() {
    let setup = Setup::new("  - {name: closed, identifier: [client_ip], limits: [0/1m]}");
    let denied = Wire::open(setup.app.proxy)
        .send(b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        .response();
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    assert!(denied.contains("quota-exceeded"), "{denied}");
}

#[tokio::test]
async fn a_denied_grpc_call_is_told_resource_exhausted() {
    let setup = Setup::new("  - {name: closed, identifier: [client_ip], limits: [0/1m]}");
    let headers = [("content-type", "application/grpc+proto")];
    let response = setup.request(Method::POST, "/svc/Method", &headers).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, "content-type"), Some("application/grpc"));
    assert_eq!(header(&response, "grpc-status"), Some("8"));
    assert_eq!(header(&response, "grpc-message"), Some("quota exceeded"));
    assert!(header(&response, "X-RateLimit-Limit").is_some());
}

#[tokio::test]
async fn failed_logins_are_charged_by_the_response_and_deny_once_there_were_too_many() {
    let setup = Setup::new(
        "  - {name: logins, identifier: [client_ip], limits: [2/15m], charge_on: [401, 403]}",
    );
    for _ in 0..5 {
        assert_eq!(
            setup.get("/status/200").await.status(),
            StatusCode::OK,
            "successes are free"
        );
    }
    for (status, remaining) in [(401, "1"), (403, "0")] {
        let response = setup.get(&format!("/status/{status}")).await;
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(
            header(&response, "X-RateLimit-Remaining"),
            Some(remaining),
            "after the charge"
        );
    }
    assert_eq!(
        setup.get("/status/200").await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn what_an_upstream_failure_was_charged_is_taken_back_where_the_policy_says_so() {
    let setup = Setup::new(
        "  - {name: kind, identifier: [client_ip], limits: [2/1m], take_back_5xx: true}",
    );
    for _ in 0..5 {
        let response = setup.get("/status/503").await;
        assert_eq!(response.status().as_u16(), 503);
        assert_eq!(
            header(&response, "X-RateLimit-Remaining"),
            Some("2"),
            "nothing was used"
        );
    }
    for _ in 0..2 {
        assert_eq!(setup.get("/").await.status(), StatusCode::OK);
    }
    assert_eq!(setup.get("/").await.status(), StatusCode::TOO_MANY_REQUESTS);
    let series = "slidegate_give_backs_total{result=\"done\"}";
    assert_eq!(setup.app.metric(series).await, 5.0);
}

#[tokio::test]
async fn the_upstream_learns_the_client_s_address_and_nothing_that_the_client_made_up() {
    let setup = Setup::new(PER_KEY);
    let spoofed = [
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.example"),
        ("Forwarded", "for=203.0.113.9"),
        ("X-Real-IP", "203.0.113.9"),
        ("x-api-key", "k"),
    ];
    setup.request(Method::GET, "/path?query=1", &spoofed).await;
    let seen = setup.upstream.last();
    assert_eq!(seen.target, "/path?query=1");
    let values = |name: &str| -> Vec<String> {
        let values = seen.headers.get_all(name).iter();
        values
            .map(|value| value.to_str().expect("text").to_owned())
            .collect()
    };
    assert_eq!(values("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(values("x-forwarded-proto"), ["http"]);
    assert_eq!(values("x-forwarded-host"), [setup.app.proxy.to_string()]);
    assert!(values("forwarded").is_empty() && values("x-real-ip").is_empty());
    assert_eq!(
        values("x-api-key"),
        ["k"],
        "the key is the upstream's business too"
    );
}

#[tokio::test]
async fn what_a_client_may_not_say_of_itself_is_dropped_however_it_is_spelt() {
    let setup = Setup::new(PER_KEY);
    let spoofed = [
        ("X_Forwarded_For", "203.0.113.9"),
        ("X-Forwarded_Host", "evil.example"),
        ("X-Forwarded-Port", "1"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X_Real_IP", "203.0.113.9"),
        ("X-Forwarding", "kept"),
        ("X-Request-Id", "kept"),
    ];
    setup.request(Method::GET, "/", &spoofed).await;
    let seen = setup.upstream.last();
    let mut told: Vec<&str> = seen.headers.keys().map(http::HeaderName::as_str).collect();
    told.retain(|name| name.starts_with('x'));
    told.sort_unstable();
    let expected = [
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarding",
        "x-request-id",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_in_order() {
    let setup = Setup::new(PER_KEY);
    let mut wire = Wire::open(setup.app.proxy);
    let request = b"GET / HTTP/1.1\r\nHost: x\r\nx-api-key: k\r\n\r\n".repeat(5);
    wire.send(&request);
    for (status, remaining) in [
        ("200", "2"),
        ("200", "1"),
        ("200", "0"),
        ("429", "0"),
        ("429", "0"),
    ] {
        let response = wire.response();
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{response}"
        );
        assert!(
            response
                .to_lowercase()
                .contains(&format!("x-ratelimit-remaining: {remaining}\r\n")),
            "{response}"
        );
    }
}

#[tokio::test]
async fn a_request_without_a_host_is_400() {
    let setup = Setup::new(PER_KEY);
    let response = Wire::open(setup.app.proxy)
        .send(b"GET / HTTP/1.1\r\n\r\n")
        .response();
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    let old = Wire::open(setup.app.proxy)
        .send(b"GET / HTTP/1.0\r\n\r\n")
        .response();
    assert!(
        old.starts_with("HTTP/1.1 200 ") || old.starts_with("HTTP/1.0 200 "),
        "{old}"
    );
    assert_eq!(setup.upstream.seen().len(), 1);
}
