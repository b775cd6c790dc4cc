//! What clients may take: connections, time for a head, sizes. Whoever takes more is stopped and counted, and nobody
//! else notices.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use socket2::{Domain, Socket, Type};

use crate::support::{
    app::App,
    curl::curl_for,
    frames::{END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, WINDOW_UPDATE, frame},
    upstream::Upstream,
    wire::Wire,
};

fn start(bounds: &str) -> (App, Upstream) {
    start_at("\"127.0.0.1:0\"", bounds)
}

fn start_at(listen: &str, bounds: &str) -> (App, Upstream) {
    let upstream = Upstream::start();
    (start_before(upstream.address, listen, bounds), upstream)
}

fn start_before(upstream: SocketAddr, listen: &str, bounds: &str) -> App {
    App::start(&format!(
        "listen: [{listen}]\nbounds: {{{bounds}}}\nupstream: {{address: \"{upstream}\"}}\n\
         shutdown: {{drain_delay: 0ms}}\npolicies: [{{name: per-ip, limits: [1000/366d]}}]\n",
    ))
}

async fn ended(app: &App, reason: &str, times: f64) {
    let series = format!("slidegate_connections_ended_total{{reason=\"{reason}\"}}");
    app.metric_becomes(&series, times).await;
}

fn is_served(at: SocketAddr) -> bool {
    Wire::open(at)
        .send(REQUEST)
        .response()
        .starts_with("HTTP/1.1 200")
}

#[tokio::test]
async fn the_head_of_a_request_has_so_much_time_in_all() {
    let (app, upstream) = start("header_timeout: 300ms");
    let mut waiting = Wire::open(app.proxy);
    assert!(waiting.send(REQUEST).response().starts_with("HTTP/1.1 200"));
    let mut unopened = Wire::open(app.proxy);
    // Said in one piece, and byte by byte: it is the whole that counts.
    let mut half = Wire::open(app.proxy);
    half.send(b"GET / HTTP/1.1\r\nHo");
    let mut slow = TcpStream::connect(app.proxy).expect("it listens");
    let trickle = tokio::task::spawn_blocking(move || {
        slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nx: ")
            .expect("sent");
        let pause = Some(Duration::from_millis(20));
        slow.set_read_timeout(pause).expect("an option");
        loop {
            let sent = slow.write_all(b"a");
            // Its answer is waited for between two bytes: its end is the end of the connection.
            match (sent, slow.read(&mut [0; 1024])) {
                (Err(_), _) | (_, Ok(_)) => break,
                (_, Err(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                _ => {}
            }
        }
    });
    assert_eq!(
        tokio::task::spawn_blocking(move || half.rest())
            .await
            .expect("ends"),
        ""
    );
    trickle.await.expect("it is stopped");
    ended(&app, "slow_head", 2.0).await;
    // Who has sent nothing yet, or nothing more, is not late with a head.
    assert!(waiting.send(REQUEST).response().starts_with("HTTP/1.1 200"));
    assert!(
        unopened
            .send(REQUEST)
            .response()
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(upstream.seen().len(), 3);
}

/// As many as a test opens; `make soak` has thousands.
#[tokio::test]
async fn half_requests_hold_nobody_up_and_are_cut_off_in_time() {
    let listen = "{address: \"127.0.0.1:0\", h2c: true}";
    let (app, upstream) = start_at(listen, "header_timeout: 1s, idle_timeout: 1s");
    // A connection that is kept, and never longer idle than a request takes.
    let mut kept = Wire::open(app.proxy);
    let begun = [
        b"GET / HTTP/1.1\r\nHost: x\r\nx: ".to_vec(),
        // In HTTP/2: half a block of headers.
        [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".as_slice(),
            b"\0\0\x03\x01\0\0\0\0\x01\x82\x86\x84",
        ]
        .concat(),
    ];
    let halves = (0..50).map(|number| {
        let mut wire = Wire::open(app.proxy);
        wire.send(&begun[number % 2]);
        wire
    });
    let halves: Vec<_> = halves.collect();
    app.metric_becomes("slidegate_connections ", 51.0).await;
    let ends = tokio::task::spawn_blocking(move || {
        for mut half in halves {
            // Those of HTTP/2 are told of it in frames.
            let told = half.rest();
            assert!(!told.contains("HTTP/1.1 "), "{told}");
        }
    });
    let mut served = 0;
    // Within the quota.
    while !ends.is_finished() && served < 400 {
        assert!(kept.send(REQUEST).response().starts_with("HTTP/1.1 200"));
        assert!(is_served(app.proxy), "by a new connection");
        served += 2;
        tokio::task::yield_now().await;
    }
    ends.await.expect("all are cut off");
    assert_eq!(upstream.seen().len(), served);
    ended(&app, "slow_head", 25.0).await;
    drop(kept);
    app.metric_becomes("slidegate_connections ", 0.0).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_answered_431_and_one_without_an_end_cut_off() {
    let (app, upstream) = start("max_header_size: 2KiB, max_headers: 10");
    let with = |lines: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n");
        Wire::open(app.proxy).send(request.as_bytes()).response()
    };
    assert!(with(&format!("x: {}\r\n", "a".repeat(2000))).starts_with("HTTP/1.1 200"));
    assert!(with(&format!("x: {}\r\n", "a".repeat(2048))).starts_with("HTTP/1.1 431"));
    assert!(with(&"x: a\r\n".repeat(9)).starts_with("HTTP/1.1 200"));
    assert!(with(&"x: a\r\n".repeat(10)).starts_with("HTTP/1.1 431"));
    let target = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(2048));
    let answer = Wire::open(app.proxy).send(target.as_bytes()).response();
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(upstream.seen().len(), 2);
    let remaining = Wire::open(app.proxy).send(REQUEST).response();
    assert!(
        remaining.contains("X-RateLimit-Remaining: 997"),
        "nobody else is charged: {remaining}"
    );

    let mut endless = TcpStream::connect(app.proxy).expect("it listens");
    endless.write_all(b"GET / HTTP/1.1\r\nx: ").expect("sent");
    // More than is read; the rest may meet a closed connection.
    let sent = (0..64).map(|_| endless.write_all(&[b'a'; 4096]));
    let _ = sent.take_while(Result::is_ok).count();
    ended(&app, "large_head", 1.0).await;
    assert!(is_served(app.proxy));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_answered_413_told_or_not() {
    let (app, upstream) = start("max_body_size: 1KiB");
    let told = |length: usize| {
        let body = "a".repeat(length);
        let request =
            format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
        Wire::open(app.proxy).send(request.as_bytes()).response()
    };
    assert!(told(1024).starts_with("HTTP/1.1 200"));
    let refused = told(1025);
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    assert_eq!(upstream.seen().len(), 1, "the upstream hears nothing of it");
    assert!(
        told(1024).contains("X-RateLimit-Remaining: 998"),
        "nor is it charged"
    );

    let chunked = |length: usize| {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{}\r\n0\r\n\r\n",
            "a".repeat(length)
        );
        Wire::open(app.proxy).send(request.as_bytes()).response()
    };
    assert!(chunked(1024).starts_with("HTTP/1.1 200"));
    assert!(chunked(1025).starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn there_are_so_many_connections_and_no_more() {
    let (app, _upstream) = start("connections: 2, connections_per_address: 2");
    let mut first = Wire::open(app.proxy);
    assert!(first.send(REQUEST).response().starts_with("HTTP/1.1 200"));
    let mut second = Wire::open(app.proxy);
    assert!(second.send(REQUEST).response().starts_with("HTTP/1.1 200"));
    app.metric_becomes("slidegate_connections ", 2.0).await;
    assert_eq!(Wire::open(app.proxy).rest(), "");
    ended(&app, "too_many", 1.0).await;
    drop(first);
    app.metric_becomes("slidegate_connections ", 1.0).await;
    assert!(is_served(app.proxy), "there is room again");
    assert!(second.send(REQUEST).response().starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_address_has_so_many_connections_and_leaves_room_to_others() {
    let listen = "{address: \"127.0.0.1:0\", proxy_protocol: {from: [127.0.0.1]}}";
    let (app, _upstream) = start_at(listen, "connections_per_address: 1");
    let open = |client: &str, family: &str| {
        let mut wire = Wire::open(app.proxy);
        wire.send(format!("PROXY {family} {client} {client} 1 2\r\n").as_bytes());
        wire.send(REQUEST);
        wire
    };
    let mut kept = open("203.0.113.1", "TCP4");
    assert!(kept.response().starts_with("HTTP/1.1 200"));
    assert_eq!(open("203.0.113.1", "TCP4").rest(), "");
    assert_eq!(
        open("::ffff:203.0.113.1", "TCP6").rest(),
        "",
        "the same written otherwise"
    );
    assert!(
        open("203.0.113.2", "TCP4")
            .response()
            .starts_with("HTTP/1.1 200")
    );
    let mut six = open("2001:db8::1", "TCP6");
    assert!(six.response().starts_with("HTTP/1.1 200"));
    assert_eq!(
        open("2001:db8::2", "TCP6").rest(),
        "",
        "of the same network"
    );
    assert!(
        open("2001:db8:0:1::2", "TCP6")
            .response()
            .starts_with("HTTP/1.1 200")
    );
    ended(&app, "too_many_of_address", 3.0).await;
    drop((kept, six));
    app.metric_becomes("slidegate_connections ", 0.0).await;
    assert!(
        open("203.0.113.1", "TCP4")
            .response()
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test]
async fn trusted_proxies_have_as_many_connections_as_they_like() {
    let upstream = Upstream::start();
    let app = App::start(&format!(
        "bounds: {{connections_per_address: 1}}\nidentity: {{trusted_proxies: [127.0.0.1]}}\n\
         upstream: {{address: \"{}\"}}\npolicies: [{{name: per-ip, limits: [1000/366d]}}]\n",
        upstream.address
    ));
    let mut kept: Vec<_> = (0..5).map(|_| Wire::open(app.proxy)).collect();
    for wire in &mut kept {
        assert!(wire.send(REQUEST).response().starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn a_connection_ends_after_so_many_requests_and_when_it_is_idle_for_so_long() {
    let (app, _upstream) = start("requests_per_connection: 2, idle_timeout: 1s");
    let mut wire = Wire::open(app.proxy);
    let first = wire.send(REQUEST).response();
    assert!(
        !first.to_ascii_lowercase().contains("connection: close"),
        "{first}"
    );
    let second = wire.send(REQUEST).response();
    assert!(
        second.to_ascii_lowercase().contains("connection: close"),
        "{second}"
    );
    assert_eq!(wire.rest(), "");

    let mut idle = Wire::open(app.proxy);
    assert!(idle.send(REQUEST).response().starts_with("HTTP/1.1 200"));
    assert_eq!(idle.rest(), "", "it is closed, and not kept for ever");
}

/// Its time begins anew with each answer; it has one, too, before it has asked at all.
#[tokio::test]
async fn a_connection_is_kept_however_long_while_it_is_never_idle_for_so_long() {
    let (app, _upstream) = start("idle_timeout: 1s");
    let mut kept = Wire::open(app.proxy);
    // The first ends when a timer that began with the connection would have gone off, the second when one would that
    // was set anew.
    for asks in [false, true] {
        let mut idle = Wire::open(app.proxy);
        if asks {
            assert!(idle.send(REQUEST).response().starts_with("HTTP/1.1 200"));
        }
        let end = tokio::task::spawn_blocking(move || idle.rest());
        while !end.is_finished() {
            assert!(kept.send(REQUEST).response().starts_with("HTTP/1.1 200"));
            // Within the quota.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(end.await.expect("it is closed"), "");
    }
    assert!(kept.send(REQUEST).response().starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn what_does_not_get_as_far_as_http_is_counted() {
    let listen = "{address: \"127.0.0.1:0\", proxy_protocol: {from: [127.0.0.1]}}";
    let (app, _upstream) = start_at(listen, "");
    assert_eq!(Wire::open(app.proxy).send(REQUEST).rest(), "");
    ended(&app, "bad_start", 1.0).await;
    app.metric_becomes("slidegate_connections ", 0.0).await;
}

#[test]
fn clients_of_http_2_meet_the_same_bounds() {
    let bounds = "max_header_size: 2KiB, max_body_size: 1KiB";
    let (app, upstream) = start_at("{address: \"127.0.0.1:0\", h2c: true}", bounds);
    let ask = |options: &[&str]| {
        let output = curl_for("10", "%{http_code}")
            .arg("--http2-prior-knowledge")
            .args(options)
            .arg(format!("http://{}/", app.proxy))
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let body = |length: usize| "a".repeat(length);
    assert_eq!(ask(&["--data", &body(1024)]), "200");
    assert_eq!(ask(&["--data", &body(1025)]), "413");
    let chunked = ["--header", "content-length:", "--data", &body(1025)];
    assert_eq!(ask(&chunked), "413");
    assert_eq!(ask(&["--header", &format!("x: {}", body(1500))]), "200");
    assert_ne!(ask(&["--header", &format!("x: {}", body(2048))]), "200");
    assert_eq!(ask(&[]), "200", "others are served on");
    assert!(upstream.seen().len() <= 4);
}

/// An upstream whose answers go on for longer than anybody reads.
fn endless() -> SocketAddr {
    answering(10_000_000_000)
}

/// An upstream with answers of so many bytes.
fn answering(length: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let answer = move |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
        );
        let mut left = length;
        while left > 0 && stream.write_all(&[0; 65_536][..left.min(65_536)]).is_ok() {
            left = left.saturating_sub(65_536);
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("accepted");
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

/// A client whose system takes little before the client reads it.
fn with_a_small_buffer(proxy: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(65_536).expect("a small buffer");
    // As on a network: a packet of loopback is larger than this buffer, and is waited for long.
    socket.set_tcp_mss(1_460).expect("small packets");
    socket.connect(&proxy.into()).expect("it listens");
    socket.into()
}

/// A request by HTTP/2, whose answer may be as large as it likes.
fn by_http_2() -> Vec<u8> {
    let most = 0x7fff_0000_u32.to_be_bytes();
    [
        PREFACE.to_vec(),
        frame(SETTINGS, 0, 0, &[&[0, 4][..], &most].concat()),
        frame(WINDOW_UPDATE, 0, 0, &most),
        // GET, http, /, and the authority x.
        frame(
            HEADERS,
            END_STREAM | END_HEADERS,
            1,
            &[0x82, 0x86, 0x84, 0x41, 1, b'x'],
        ),
    ]
    .concat()
}

#[tokio::test]
async fn a_client_of_http_1_that_reads_nothing_is_cut_off() {
    let app = start_before(endless(), "\"127.0.0.1:0\"", "body_timeout: 300ms");
    let mut client = TcpStream::connect(app.proxy).expect("it listens");
    client.write_all(REQUEST).expect("sent");
    ended(&app, "slow_read", 1.0).await;
    app.metric_becomes("slidegate_connections ", 0.0).await;
}

/// Its time is for each part of an answer, not for the whole.
#[tokio::test]
async fn a_client_that_reads_slowly_and_steadily_is_not_cut_off() {
    let listen = "{address: \"127.0.0.1:0\", h2c: true}";
    let app = start_before(endless(), listen, "body_timeout: 3s");
    let mut clients = [REQUEST.to_vec(), by_http_2()].map(|asked| {
        let mut client = with_a_small_buffer(app.proxy);
        client.write_all(&asked).expect("sent");
        client
    });
    for _ in 0..130 {
        // At most 200 KB a second: the whole would take it hours.
        tokio::time::sleep(Duration::from_millis(40)).await;
        for client in &mut clients {
            client.read_exact(&mut [0; 8_192]).expect("there is more");
        }
    }
    app.metric_becomes("slidegate_connections ", 2.0).await;
}

/// That its request was served, and nothing is asked for, is no reason to keep its end back.
#[tokio::test]
async fn an_answer_by_http_2_that_is_read_late_is_whole_however_short_the_idle_timeout() {
    const LENGTH: usize = 500_000;
    let listen = "{address: \"127.0.0.1:0\", h2c: true}";
    let app = start_before(answering(LENGTH), listen, "idle_timeout: 1s");
    let mut client = with_a_small_buffer(app.proxy);
    client.write_all(&by_http_2()).expect("sent");
    // They end by idle_timeout, one after the other.
    for _ in 0..3 {
        let mut idle = Wire::open(app.proxy);
        let ended = tokio::task::spawn_blocking(move || idle.rest());
        assert_eq!(ended.await.expect("it is closed"), "");
    }
    let read = tokio::task::spawn_blocking(move || {
        let mut told = Vec::new();
        client.read_to_end(&mut told).map(|_| told)
    });
    let told = read.await.expect("it is closed").expect("and not reset");
    assert!(told.len() > LENGTH, "{} bytes", told.len());
}

/// In HTTP/2 Pingora waits without an end for a client that does not read.
#[tokio::test]
async fn a_client_of_http_2_that_reads_nothing_is_cut_off() {
    let app = start_before(
        endless(),
        "{address: \"127.0.0.1:0\", h2c: true}",
        "body_timeout: 300ms",
    );
    let mut client = TcpStream::connect(app.proxy).expect("it listens");
    client.write_all(&by_http_2()).expect("sent");
    ended(&app, "slow_read", 1.0).await;
    app.metric_becomes("slidegate_connections ", 0.0).await;
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// Prometheus keeps its connection from scrape to scrape.
#[tokio::test]
async fn what_an_operator_sends_on_one_connection_is_no_endless_head() {
    let (app, _upstream) = start("");
    let request = format!(
        "GET /livez HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "a".repeat(30_000)
    );
    let mut wire = Wire::open(app.metrics);
    for _ in 0..10 {
        let answer = wire.send(request.as_bytes()).response();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
