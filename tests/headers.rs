//! What goes on beside what limits need: who the client is, what the request is called, and what pages of other
//! origins may read.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use http::{HeaderMap, Method};
use reqwest::{Client, Response};

use crate::support::{app::App, upstream::Nobody, wire::Wire};

const POLICY: &str = "policies: [{name: p, limits: [1/1h], match: {path: [/once]}}]\n";

async fn send(app: &App, path: &str, headers: &[(&str, &str)]) -> Response {
    request(app, Method::GET, path, headers).await
}

async fn request(app: &App, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = Client::new().request(method, app.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.expect("a response")
}

/// The values of a header, as one text.
fn told(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter();
    let values: Vec<_> = values.map(|value| value.to_str().expect("text")).collect();
    values.join(" | ")
}

#[tokio::test]
async fn the_upstream_is_told_of_the_client_in_the_headers_that_are_chosen() {
    let spoofed = [
        ("forwarded", "for=192.0.2.66"),
        ("x-forwarded-for", "192.0.2.66"),
        ("x_forwarded_for", "192.0.2.66"),
        ("x-forwarded-host", "evil.test"),
        ("x-real-ip", "192.0.2.66"),
        ("host", "api.test"),
    ];
    let by_x = ["127.0.0.1", "http", "api.test"];
    let forwarded = "for=127.0.0.1;proto=http;host=\"api.test\"";
    for (choice, by_x, by_forwarded) in [
        ("x_forwarded", by_x, ""),
        ("forwarded", ["", "", ""], forwarded),
        ("both", by_x, forwarded),
    ] {
        let (app, upstream) =
            App::with_upstream(&format!("forwarding: {{client: {choice}}}\n{POLICY}"));
        assert_eq!(send(&app, "/", &spoofed).await.status(), 200);
        let headers = upstream.last().headers;
        let for_x = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
        assert_eq!(for_x.map(|name| told(&headers, name)), by_x, "{choice}");
        assert_eq!(told(&headers, "forwarded"), by_forwarded, "{choice}");
        assert_eq!(
            told(&headers, "x_forwarded_for") + &told(&headers, "x-real-ip"),
            ""
        );
    }
}

#[tokio::test]
async fn forwarded_of_an_ipv6_client_is_in_quotes_and_of_a_trusted_proxy_s_is_the_one_that_counts()
{
    let (app, upstream) = App::with_upstream(&format!(
        "identity: {{trusted_proxies: [127.0.0.0/8]}}\nforwarding: {{client: forwarded}}\n{POLICY}"
    ));
    for (x_forwarded_for, host, expected) in [
        (
            "2001:db8::1",
            "api.test:8000",
            "for=\"[2001:db8::1]\";proto=http;host=\"api.test:8000\"",
        ),
        (
            "192.0.2.1, 192.0.2.2",
            "[::1]:80",
            "for=192.0.2.2;proto=http;host=\"[::1]:80\"",
        ),
    ] {
        let headers = [("x-forwarded-for", x_forwarded_for), ("host", host)];
        assert_eq!(send(&app, "/", &headers).await.status(), 200);
        assert_eq!(told(&upstream.last().headers, "forwarded"), expected);
    }
}

#[tokio::test]
async fn via_tells_both_sides_of_the_proxy_if_it_has_a_name() {
    let (app, upstream) = App::with_upstream(&format!("forwarding: {{via: edge}}\n{POLICY}"));
    let response = send(&app, "/via", &[("via", "1.0 before")]).await;
    assert_eq!(
        told(&upstream.last().headers, "via"),
        "1.0 before | 1.1 edge"
    );
    assert_eq!(told(response.headers(), "via"), "1.1 edge");
    let (app, upstream) = App::with_upstream(POLICY);
    let response = send(&app, "/", &[("via", "1.0 before")]).await;
    assert_eq!(told(&upstream.last().headers, "via"), "1.0 before");
    assert_eq!(told(response.headers(), "via"), "");
}

#[tokio::test]
async fn a_request_has_the_id_of_its_sender_or_one_of_its_own_wherever_it_is_told_of() {
    let (app, upstream) = App::with_upstream(POLICY);
    for (sent, kept) in [
        ("Root=1-5f84c7a1:x/y", true),
        ("two words", false),
        ("", false),
    ] {
        let response = send(&app, "/", &[("x-request-id", sent)]).await;
        let id = told(&upstream.last().headers, "x-request-id");
        assert_eq!(id == sent, kept, "{id}");
        assert!(!id.is_empty());
        assert_eq!(told(response.headers(), "x-request-id"), id);
    }
    let two = [("x-request-id", "a"), ("x-request-id", "b")];
    let response = send(&app, "/", &two).await;
    let id = told(response.headers(), "x-request-id");
    assert_eq!(id.len(), 36, "{id}");
    assert_eq!(told(&upstream.last().headers, "x-request-id"), id);
}

#[tokio::test]
async fn every_answer_of_our_own_names_the_request() {
    let gone = Nobody::new();
    for body in ["problem_json", "text"] {
        let app = App::start(&format!(
            "upstreams: {{gone: {{address: \"{}\"}}}}\n\
             routes: [{{path: /gone, upstream: gone}}]\n\
             responses: {{error_body: {body}}}\n\
             block: {{client_ip: [192.0.2.0/24]}}\n\
             identity: {{trusted_proxies: [127.0.0.0/8]}}\n\
             bounds: {{max_body_size: 1B, max_headers: 20}}\n\
             policies:\n\
             - {{name: p, limits: [0/1h], match: {{path: [/denied]}}}}\n\
             - {{name: q, identifier: [header:x-api-key], missing_identifier: deny, limits: [1/1h], match: {{path: [/known]}}}}\n",
            gone.address
        ));
        let many: Vec<_> = (0..30).map(|number| (format!("x-{number}"), "1")).collect();
        let many: Vec<_> = many.iter().map(|(name, value)| (&**name, *value)).collect();
        for (path, headers, status) in [
            ("/denied", &[][..], 429),
            ("/gone", &[], 502),
            ("/nowhere", &[], 404),
            ("/known", &[], 401),
            ("/", &[("x-forwarded-for", "192.0.2.1")], 403),
            ("/", &many, 431),
        ] {
            let response = send(&app, path, headers).await;
            assert_eq!(response.status(), status, "{path}");
            let id = told(response.headers(), "x-request-id");
            assert_eq!(id.len(), 36, "{path}: {id}");
            let text = response.text().await.expect("a body");
            match body {
                "text" => assert!(text.ends_with(&format!(" (request {id})\n")), "{text}"),
                _ => {
                    let problem: serde_json::Value = serde_json::from_str(&text).expect("JSON");
                    assert_eq!(problem["request-id"], *id, "{text}");
                }
            }
        }
        let large = Client::new().post(app.url("/gone")).body("12");
        let large = large.send().await.expect("a response");
        assert_eq!(large.status(), 413);
        assert_eq!(told(large.headers(), "x-request-id").len(), 36);
        for (status, refused) in [
            (401, 1.0),
            (403, 1.0),
            (404, 1.0),
            (413, 1.0),
            (431, 1.0),
            (400, 0.0),
        ] {
            let series = format!("slidegate_refusals_total{{status=\"{status}\"}}");
            assert_eq!(app.metric(&series).await, refused, "{status}");
        }
    }
}

#[tokio::test]
async fn without_request_ids_nothing_is_made_or_replaced() {
    let (app, upstream) =
        App::with_upstream(&format!("forwarding: {{request_id: false}}\n{POLICY}"));
    for sent in ["two words", "one"] {
        let response = send(&app, "/", &[("x-request-id", sent)]).await;
        assert_eq!(told(&upstream.last().headers, "x-request-id"), sent);
        assert_eq!(told(response.headers(), "x-request-id"), "");
    }
}

#[tokio::test]
async fn a_trace_goes_on_as_it_came() {
    let (app, upstream) = App::with_upstream(POLICY);
    let trace = [
        (
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
        ("tracestate", "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"),
        ("baggage", "user=1;secret"),
    ];
    send(&app, "/", &trace).await;
    let headers = upstream.last().headers;
    for (name, value) in trace {
        assert_eq!(told(&headers, name), value);
    }
}

/// Case j151, and what the upstream says to its connection alone.
#[test]
fn what_is_for_one_connection_stays_on_it() {
    let (listener, address) = listener();
    let app = App::start(&format!("upstream: {{address: \"{address}\"}}\n{POLICY}"));
    let upstream = thread::spawn(move || {
        let (mut stream, head) = request_of(&listener);
        let answer = b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Up, Content-Length\r\nKeep-Alive: timeout=5\r\n\
            X-Up: 1\r\nProxy-Authenticate: Basic\r\nProxy-Connection: close\r\nUpgrade: h2c\r\nX-Kept: 1\r\n\
            Content-Length: 2\r\n\r\nok";
        stream.write_all(answer).expect("sent");
        head
    });
    let response = Wire::open(app.proxy)
        .send(
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, X-Hop, X-Request-Id\r\nX-Hop: 1\r\n\
              X-Request-Id: mine\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\n\
              Proxy-Authorization: Basic eA==\r\nX-End: 1\r\n\r\n",
        )
        .rest();
    let asked = upstream.join().expect("no panic");
    for name in ["x-hop", "keep-alive", "te", "proxy-authorization"] {
        assert!(!has(&asked, name), "{name} in {asked}");
    }
    assert!(has(&asked, "x-end"), "{asked}");
    assert!(
        has(&asked, "x-request-id"),
        "nobody takes out what we add: {asked}"
    );
    for name in [
        "keep-alive",
        "x-up",
        "proxy-authenticate",
        "proxy-connection",
        "upgrade",
    ] {
        assert!(!has(&response, name), "{name} in {response}");
    }
    assert!(has(&response, "x-kept"), "{response}");
    assert!(
        has(&response, "content-length"),
        "framing is no one's to name: {response}"
    );
}

/// There `Upgrade` is the answer.
#[test]
fn an_upgrade_that_is_required_is_told() {
    let (listener, address) = listener();
    let app = App::start(&format!("upstream: {{address: \"{address}\"}}\n{POLICY}"));
    thread::spawn(move || {
        let (mut stream, _) = request_of(&listener);
        let answer = b"HTTP/1.1 426 Upgrade Required\r\nConnection: Upgrade\r\nUpgrade: TLS/1.3\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer).expect("sent");
    });
    let answer = Wire::open(app.proxy)
        .send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .rest();
    assert!(has(&answer, "upgrade"), "{answer}");
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    (listener, address)
}

/// A request's head, as it comes over the wire. Connections without one are somebody who looks whether anybody is there.
fn request_of(listener: &TcpListener) -> (TcpStream, String) {
    loop {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut read, mut byte) = (Vec::new(), [0]);
        while stream.read(&mut byte).expect("a head") == 1 {
            read.push(byte[0]);
            if read.ends_with(b"\r\n\r\n") {
                return (stream, String::from_utf8(read).expect("text"));
            }
        }
    }
}

fn has(message: &str, name: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains(&format!("\n{name}:"))
}

const ORIGIN: (&str, &str) = ("origin", "https://app.test");

fn cors(settings: &str) -> String {
    format!("responses: {{cors: {{{settings}}}}}\n{POLICY}")
}

#[tokio::test]
async fn a_page_of_another_origin_reads_a_denial_if_it_may() {
    for (settings, origin, allowed, credentials) in [
        (
            "origins: [\"https://app.test\"]",
            "https://app.test",
            "https://app.test",
            "",
        ),
        (
            "origins: [\"https://app.test\"], credentials: true",
            "https://app.test",
            "https://app.test",
            "true",
        ),
        (
            "origins: [\"https://app.test\"], credentials: true",
            "https://app.test.evil.test",
            "",
            "",
        ),
        ("origins: [\"https://app.test\"]", "null", "", ""),
        ("origins: \"*\"", "null", "*", ""),
    ] {
        let (app, _upstream) = App::with_upstream(&cors(settings));
        send(&app, "/once", &[]).await;
        let denied = send(&app, "/once", &[("origin", origin)]).await;
        assert_eq!(denied.status(), 429);
        let headers = denied.headers();
        assert_eq!(
            told(headers, "access-control-allow-origin"),
            allowed,
            "{origin}"
        );
        assert_eq!(
            told(headers, "access-control-allow-credentials"),
            credentials
        );
        let exposed = told(headers, "access-control-expose-headers");
        assert_eq!(exposed.is_empty(), allowed.is_empty());
        if !allowed.is_empty() {
            // A page may read those alone: each that tells of a limit is among them.
            let exposed: Vec<_> = exposed.split(", ").collect();
            for name in [
                "Retry-After",
                "RateLimit",
                "RateLimit-Policy",
                "X-RateLimit-Remaining",
                "X-Request-Id",
            ] {
                assert!(
                    exposed.contains(&name) && headers.contains_key(name),
                    "{name}"
                );
            }
        }
        let varies = if settings.contains('*') { "" } else { "Origin" };
        assert_eq!(told(headers, "vary"), varies, "{settings}");
    }
}

#[tokio::test]
async fn a_page_reads_our_headers_on_what_the_upstream_lets_it_read_and_only_there() {
    let (app, _upstream) = App::with_upstream(&cors("origins: [\"https://app.test\"]"));
    let exposed = |response: &Response| told(response.headers(), "access-control-expose-headers");
    assert!(exposed(&send(&app, "/cors", &[ORIGIN]).await).starts_with("X-App | Retry-After, "));
    // A cache is not to show it to the first, nor the other way round.
    let other = send(&app, "/cors", &[("origin", "https://other.test")]).await;
    assert_eq!(exposed(&other), "X-App");
    assert_eq!(told(other.headers(), "vary"), "Origin");
    let two = [ORIGIN, ("origin", "https://other.test")];
    assert_eq!(exposed(&send(&app, "/cors", &two).await), "X-App");
    let unshared = send(&app, "/", &[ORIGIN]).await;
    assert_eq!(exposed(&unshared), "");
    assert_eq!(told(unshared.headers(), "access-control-allow-origin"), "");
}

#[tokio::test]
async fn what_a_browser_asks_before_is_exempt_if_that_is_set_and_nothing_like_it_is() {
    let preflight = [ORIGIN, ("access-control-request-method", "POST")];
    for (exempt, statuses) in [
        ("exempt: {cors_preflight: true}\n", [200, 200]),
        ("", [200, 429]),
    ] {
        let (app, _upstream) = App::with_upstream(&format!("{exempt}{POLICY}"));
        for status in statuses {
            let answer = request(&app, Method::OPTIONS, "/once", &preflight).await;
            assert_eq!(answer.status(), status, "{exempt}");
        }
    }
    let (app, _upstream) =
        App::with_upstream(&format!("exempt: {{cors_preflight: true}}\n{POLICY}"));
    assert_eq!(send(&app, "/once", &[]).await.status(), 200);
    for (method, headers) in [
        (Method::GET, &preflight[..]),
        (Method::OPTIONS, &preflight[..1]),
        (Method::OPTIONS, &preflight[1..]),
        (Method::POST, &preflight[..]),
    ] {
        let answer = request(&app, method.clone(), "/once", headers).await;
        assert_eq!(answer.status(), 429, "{method} {headers:?}");
    }
}
