//! An upstream that is down, slow, moved or rude: told apart, and never the limiter's fault.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use crate::support::{app::App, binary::Binary, redis::eventually, upstream::Upstream, wire::Wire};

fn app(upstream: &str, more: &str) -> App {
    App::start(&format!(
        "upstream: {{address: \"{upstream}\"{more}}}\n\
         policies: [{{name: per-key, identifier: [header:x-api-key], limits: [100/1h]}}]\n"
    ))
}

/// An upstream of raw bytes: `serve` is handed each connection.
fn raw(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.expect("a connection"));
        }
    });
    address
}

/// An upstream that answers with the first part at once, and with each further one when it is told to.
fn on_cue(parts: &'static [&'static str]) -> (SocketAddr, mpsc::Sender<()>) {
    let (more, wait) = mpsc::channel::<()>();
    let address = raw(move |mut stream| {
        if !read_head(&mut stream) {
            return;
        }
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                wait.recv().expect("the test goes on");
            }
            stream.write_all(part.as_bytes()).expect("bytes are sent");
        }
    });
    (address, more)
}

/// Reads until the end of a request's head, and says whether there was one.
fn read_head(stream: &mut TcpStream) -> bool {
    head(stream).is_some()
}

/// The same, as text.
fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}

#[tokio::test]
async fn an_upstream_that_refuses_is_502_with_the_limits_and_stays_charged() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = gone.local_addr().expect("a bound listener").to_string();
    drop(gone);
    let app = app(&address, "");
    for remaining in ["99", "98"] {
        let response = reqwest::get(app.url("/")).await.expect("a response");
        assert_eq!(response.status(), 502);
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
    }
    app.metric_becomes("slidegate_requests_total{status=\"5xx\"}", 2.0)
        .await;
}

#[tokio::test]
async fn an_upstream_that_is_slow_to_answer_is_504() {
    let upstream = Upstream::start();
    let app = app(&upstream.address.to_string(), ", read_timeout: 50ms");
    let response = reqwest::get(app.url("/slow/60000"))
        .await
        .expect("a response");
    assert_eq!(response.status(), 504);
    assert_eq!(response.headers()["x-ratelimit-remaining"], "99");
}

#[tokio::test]
async fn an_upstream_that_answers_no_http_is_502() {
    let address = raw(|mut stream| {
        read_head(&mut stream);
        stream
            .write_all(b"220 mail.example ESMTP\r\n")
            .expect("bytes are sent");
    });
    let app = app(&address.to_string(), "");
    let response = reqwest::get(app.url("/")).await.expect("a response");
    assert_eq!(response.status(), 502);
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_502() {
    let app = app("upstream.invalid:80", "");
    let response = reqwest::get(app.url("/")).await.expect("a response");
    assert_eq!(response.status(), 502);
}

#[tokio::test]
async fn a_host_name_is_resolved_in_the_background() {
    let upstream = Upstream::start();
    let app = app(&format!("localhost:{}", upstream.address.port()), "");
    eventually("the name is resolved", async || {
        let response = reqwest::get(app.url("/")).await.expect("a response");
        response.status() == 200
    })
    .await;
}

#[tokio::test]
async fn a_post_that_the_upstream_read_and_dropped_is_not_sent_again() {
    let posts = Arc::new(AtomicUsize::new(0));
    let counted = posts.clone();
    let address = raw(move |mut stream| {
        // The first request of a connection is answered and the connection kept; the second is dropped.
        read_head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .expect("bytes are sent");
        if read_head(&mut stream) {
            let mut body = [0; 4];
            stream.read_exact(&mut body).expect("the body");
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let app = app(&address.to_string(), "");
    let mut wire = Wire::open(app.proxy);
    let first = wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").response();
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
    let second = wire
        .send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nonce")
        .response();
    assert!(second.starts_with("HTTP/1.1 502 "), "{second}");
    assert_eq!(posts.load(Ordering::SeqCst), 1);
    assert!(
        second.contains("x-ratelimit-remaining: 98"),
        "charged once: {second}"
    );
}

#[tokio::test]
async fn a_get_that_a_kept_connection_did_not_take_is_sent_by_a_new_one() {
    let gets = Arc::new(AtomicUsize::new(0));
    let counted = gets.clone();
    let address = raw(move |mut stream| {
        // As above; each connection answers but one.
        for answers in [true, false] {
            if !read_head(&mut stream) {
                return;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            if answers {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .expect("bytes are sent");
            }
        }
    });
    let app = app(&address.to_string(), "");
    let mut wire = Wire::open(app.proxy);
    for remaining in ["99", "98"] {
        let response = wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").response();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        let told = format!("X-RateLimit-Remaining: {remaining}");
        assert!(response.contains(&told), "charged once each: {response}");
    }
    assert_eq!(gets.load(Ordering::SeqCst), 3);
}

/// Others that were kept with it may be as dead.
#[tokio::test]
async fn what_a_kept_connection_did_not_take_is_repeated_by_a_new_one() {
    let both = Arc::new(std::sync::Barrier::new(2));
    let address = raw(move |mut stream| {
        let both = both.clone();
        // Each connection answers its first request, and ends at its second.
        std::thread::spawn(move || {
            let waits = head(&mut stream).is_some_and(|head| head.starts_with("GET /kept "));
            if waits {
                both.wait();
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer).expect("bytes are sent");
            read_head(&mut stream);
        });
    });
    let app = app(&address.to_string(), "");
    let mut wires = [(); 2].map(|()| Wire::open(app.proxy));
    for wire in &mut wires {
        wire.send(b"GET /kept HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for wire in &mut wires {
        assert!(wire.response().starts_with("HTTP/1.1 200 "));
    }
    let response = wires[0]
        .send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .response();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

/// Whatever its connections were, and however many addresses there are.
#[tokio::test]
async fn what_was_sent_is_repeated_once_at_most() {
    let gets = Arc::new(AtomicUsize::new(0));
    let addresses = [(); 2].map(|()| {
        let counted = gets.clone();
        raw(move |mut stream| {
            let counted = counted.clone();
            std::thread::spawn(move || {
                while let Some(head) = head(&mut stream) {
                    if head.starts_with("GET /dropped ") {
                        counted.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                        .expect("bytes are sent");
                }
            });
        })
    });
    let [one, other] = addresses.map(|address| address.to_string());
    let app = App::start(&format!(
        "upstream: {{addresses: [\"{one}\", \"{other}\"]}}\npolicies: [{{name: p, limits: [100/1m]}}]\n"
    ));
    // A kept connection to each.
    let mut wire = Wire::open(app.proxy);
    for _ in 0..2 {
        let kept = wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").response();
        assert!(kept.starts_with("HTTP/1.1 200 "), "{kept}");
    }
    let dropped = wire
        .send(b"GET /dropped HTTP/1.1\r\nHost: x\r\n\r\n")
        .response();
    assert!(dropped.starts_with("HTTP/1.1 502 "), "{dropped}");
    assert_eq!(gets.load(Ordering::SeqCst), 2);
}

/// What its head holds is its client's.
#[tokio::test]
async fn the_log_holds_nothing_of_a_head_that_is_none_and_tells_a_cut_answer_as_one() {
    let answers = [
        (
            "HTTP/1.1 200 OK\r\nSet-Cookie: sid=HUNTER2\r\nbad header\r\n\r\n",
            "the upstream did not answer it",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHUNTER2",
            "the upstream began it and did not end it",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nHUNTER2\r\n",
            "the upstream began it and did not end it",
        ),
    ];
    for (answer, expected) in answers {
        let address = raw(move |mut stream| {
            read_head(&mut stream);
            stream.write_all(answer.as_bytes()).expect("bytes are sent");
        });
        let binary = Binary::start(&format!(
            "upstream: {{address: \"{address}\"}}\npolicies: [{{name: p, limits: [9/1m]}}]\n"
        ));
        let mut wire = Wire::open(binary.proxy);
        wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").rest();
        eventually("it is told", async || binary.log().contains(expected)).await;
        assert!(!binary.log().contains("HUNTER2"), "{}", binary.log());
    }
}

/// It would be a tunnel that nobody asked for (RFC 9110, 7.8).
#[tokio::test]
async fn an_upstream_that_changes_the_protocol_unasked_is_502() {
    let address = raw(|mut stream| {
        read_head(&mut stream);
        stream
            .write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nxyz",
            )
            .expect("bytes are sent");
    });
    let app = app(&address.to_string(), "");
    let mut wire = Wire::open(app.proxy);
    let response = wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").response();
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
}

/// A client of HTTP/1.0 would take the sizes of chunks for a part of the body (RFC 9112, 6.1).
#[tokio::test]
async fn a_client_of_http_1_0_gets_no_chunks() {
    let answers = [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc",
    ];
    for answer in answers {
        let address = raw(move |mut stream| {
            read_head(&mut stream);
            stream.write_all(answer.as_bytes()).expect("bytes are sent");
        });
        let app = app(&address.to_string(), "");
        for line in ["", "Connection: keep-alive\r\n"] {
            let mut wire = Wire::open(app.proxy);
            wire.send(format!("GET / HTTP/1.0\r\nHost: x\r\n{line}\r\n").as_bytes());
            let told = wire.rest();
            let (head, body) = told.split_once("\r\n\r\n").expect("a head");
            assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
            assert!(head.to_lowercase().contains("connection: close"), "{head}");
            assert_eq!(body, "abc");
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_no_server_error() {
    let upstream = Upstream::start();
    let app = app(&upstream.address.to_string(), "");
    let mut wire = Wire::open(app.proxy);
    wire.send(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
    upstream.has_seen(1).await;
    drop(wire);
    app.metric_becomes("slidegate_requests_total{status=\"none\"}", 1.0)
        .await;
    assert_eq!(
        app.metric("slidegate_requests_total{status=\"5xx\"}").await,
        0.0
    );
}

#[tokio::test]
async fn a_response_is_not_kept_back_from_a_client_that_has_sent_more_already() {
    let (address, more) = on_cue(&[
        "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n",
        "part",
        "rest",
    ]);
    let app = app(&address.to_string(), "");
    let mut wire = Wire::open(app.proxy);
    wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\r\n");
    more.send(()).expect("the upstream waits");
    let first = wire.until("part");
    assert!(
        first.starts_with("HTTP/1.1 200 "),
        "before the rest was sent: {first}"
    );
    more.send(()).expect("the upstream waits");
    assert_eq!(wire.until("rest"), "rest");
}

#[tokio::test]
async fn the_head_of_a_response_is_not_kept_back_until_its_body_comes() {
    let (address, more) = on_cue(&["HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npart", "rest"]);
    let app = app(&address.to_string(), "");
    let mut response = reqwest::get(app.url("/")).await.expect("a head");
    let first = response.chunk().await.expect("no error").expect("a chunk");
    assert_eq!(&first[..], b"part", "before the upstream sent more");
    more.send(()).expect("the upstream waits");
    let second = response.chunk().await.expect("no error").expect("a chunk");
    assert_eq!(&second[..], b"rest");
}

/// The read timeout bounds answers; a connection that was upgraded has none to wait for.
#[tokio::test]
async fn a_websocket_may_be_silent_for_longer_than_an_answer_may_take() {
    let (more, wait) = mpsc::channel::<()>();
    let address = raw(move |mut stream| {
        if !read_head(&mut stream) {
            return;
        }
        let upgraded =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream
            .write_all(upgraded.as_bytes())
            .expect("bytes are sent");
        wait.recv().expect("the test goes on");
        stream.write_all(b"at last").expect("bytes are sent");
    });
    let app = app(&address.to_string(), ", read_timeout: 50ms");
    let slow = Upstream::start();
    let timed = self::app(&slow.address.to_string(), ", read_timeout: 500ms");
    let mut wire = Wire::open(app.proxy);
    wire.send(
        b"GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let head = wire.until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // An answer that comes too late, by ten times what this upstream may take for one.
    let late = reqwest::get(timed.url("/slow/60000")).await;
    assert_eq!(late.expect("a response").status(), 504);
    more.send(()).expect("the upstream waits");
    assert_eq!(wire.until("at last"), "at last");
}
