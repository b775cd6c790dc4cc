//! `Expect: 100-continue`: a body is sent when somebody wants it, and only then.

use std::net::SocketAddr;

use crate::support::{app::App, curl::curl_for, recorder::Recorder, wire::Wire};

const H2C: &str = "listen: [{address: \"127.0.0.1:0\", h2c: true}]\n";

fn proxy(upstream: SocketAddr, quota: u32) -> App {
    App::start(&format!(
        "{H2C}upstream: {{address: \"{upstream}\"}}\npolicies: [{{name: per-ip, limits: [{quota}/366d]}}]\n"
    ))
}

/// What curl tells of a POST of 2 MiB that waits for a 100 for as long as the test may take: the status, and how many
/// bytes of the body it sent.
fn post(app: &App, path: &str, options: &[&str]) -> String {
    let body = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(body.path(), vec![b'x'; LARGE]).expect("written");
    let output = curl_for("20", "%{http_code} %{size_upload}")
        .args([
            "--header",
            "Expect: 100-continue",
            "--expect100-timeout",
            "60",
        ])
        .args(options)
        .arg("--data-binary")
        .arg(format!("@{}", body.path().display()))
        .arg(format!("http://{}{path}", app.proxy))
        .output()
        .expect("curl runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const LARGE: usize = 2 << 20;

fn head(path: &str, version: &str) -> String {
    format!(
        "POST {path} HTTP/{version}\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    )
}

#[test]
fn a_body_that_the_upstream_asks_for_is_sent() {
    let recorder = Recorder::start();
    let app = proxy(recorder.address, 10);
    assert_eq!(post(&app, "/continue", &[]), format!("200 {LARGE}"));
    let mut wire = Wire::open(app.proxy);
    wire.send(head("/continue", "1.1").as_bytes());
    let asked = wire.until("\r\n\r\n");
    assert_eq!(
        asked, "HTTP/1.1 100 Continue\r\n\r\n",
        "before the body is sent"
    );
    let answer = wire.send(b"body").response();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let bodies: Vec<_> = recorder.seen().iter().map(|seen| seen.body.len()).collect();
    assert_eq!(bodies, [LARGE, 4]);
}

/// Nobody but the upstream knows whether it wants it: no 100 comes of ourselves.
#[test]
fn where_the_upstream_is_silent_so_are_we_and_a_client_that_sends_on_is_answered() {
    let recorder = Recorder::start();
    let app = proxy(recorder.address, 10);
    let patient = ["--expect100-timeout", "0.1"];
    assert_eq!(post(&app, "/", &patient), format!("200 {LARGE}"));
    let both = [&patient[..], &["--http2-prior-knowledge"]].concat();
    assert_eq!(post(&app, "/", &both), format!("200 {LARGE}"));
    let mut wire = Wire::open(app.proxy);
    let answer = wire
        .send(head("/", "1.1").as_bytes())
        .send(b"body")
        .response();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn a_denial_comes_without_the_body_being_sent() {
    let recorder = Recorder::start();
    let app = proxy(recorder.address, 0);
    assert_eq!(post(&app, "/continue", &[]), "429 0");
    assert_eq!(
        post(&app, "/continue", &["--http2-prior-knowledge"]),
        "429 0"
    );
    assert!(recorder.seen().is_empty());
}

#[test]
fn an_upstream_that_answers_at_once_is_heard_without_the_body_being_sent() {
    let recorder = Recorder::start();
    let app = proxy(recorder.address, 10);
    assert_eq!(post(&app, "/at-once", &[]), "403 0");
    assert_eq!(
        post(&app, "/at-once", &["--http2-prior-knowledge"]),
        "403 0"
    );
    // What comes next is no body of the one that was not sent.
    let answer = Wire::open(app.proxy)
        .send(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
        .response();
    assert!(answer.ends_with("/next"), "{answer}");
    let seen = recorder.seen();
    assert!(
        seen.iter().all(|request| request.body.is_empty()),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 3);
}

/// A client of HTTP/1.0 knows no answer that another one follows (RFC 9110, 15.2).
#[test]
fn a_client_of_http_1_0_is_sent_no_100() {
    let recorder = Recorder::start();
    let app = proxy(recorder.address, 10);
    let answer = Wire::open(app.proxy)
        .send(head("/continue", "1.0").as_bytes())
        .send(b"body")
        .response();
    assert!(answer.contains(" 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("/continue"), "{answer}");
    assert_eq!(recorder.seen()[0].body, b"body");
}

#[test]
fn an_expectation_of_a_request_without_a_body_changes_nothing() {
    let recorder = Recorder::start();
    let app = proxy(recorder.address, 10);
    let mut wire = Wire::open(app.proxy);
    for _ in 0..2 {
        let answer = wire
            .send(b"GET /get HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n")
            .response();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.ends_with("/get"), "{answer}");
    }
}
