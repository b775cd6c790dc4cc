//! Upstreams that are spoken to in HTTP/2: streams both ways with their trailers, as gRPC has them, and a connection
//! that breaks.

use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, client::SendRequest, server};
use http::{HeaderMap, Method, Request, Response};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::support::{app::App, wire::Wire};

const POLICIES: &str =
    "policies: [{name: per-key, identifier: [header:x-api-key], limits: [1000/1h]}]\n";

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    (listener, address)
}

/// A server that sends each message back as it comes, and then `grpc-status: 0`, with how many there were.
async fn echo() -> SocketAddr {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(async move {
                let mut connection = server::handshake(stream).await.expect("HTTP/2");
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(echo_one(request, respond));
                }
            });
        }
    });
    address
}

async fn echo_one(request: Request<RecvStream>, mut respond: server::SendResponse<Bytes>) {
    let head = Response::builder()
        .header("content-type", "application/grpc")
        .header(
            "x-te",
            request
                .headers()
                .get("te")
                .map_or("", |te| te.to_str().unwrap_or("")),
        )
        .body(())
        .expect("a response");
    let mut send = respond.send_response(head, false).expect("sent");
    let mut body = request.into_body();
    let mut messages = 0_u64;
    while let Some(data) = body.data().await {
        let data = data.expect("a message");
        drop(body.flow_control().release_capacity(data.len()));
        if !data.is_empty() {
            messages += 1;
            send.send_data(data, false).expect("sent");
        }
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", 0.into());
    trailers.insert("x-messages", messages.into());
    send.send_trailers(trailers).expect("sent");
}

/// slidegate between clients that speak HTTP/2 from the first byte, and an upstream that does.
fn proxy_to(upstream: SocketAddr) -> App {
    App::start(&format!(
        "listen: [{{address: \"127.0.0.1:0\", h2c: true}}]\n\
         upstream: {{address: \"{upstream}\", http: 2}}\n{POLICIES}"
    ))
}

async fn client(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    client.ready().await.expect("it takes a request")
}

fn call(address: SocketAddr) -> Request<()> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://{address}/echo.Echo/Stream"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a request")
}

async fn message(body: &mut RecvStream) -> Bytes {
    let data = body.data().await.expect("a message").expect("whole");
    drop(body.flow_control().release_capacity(data.len()));
    data
}

fn send(stream: &mut SendStream<Bytes>, text: &'static str, last: bool) {
    stream
        .send_data(Bytes::from_static(text.as_bytes()), last)
        .expect("sent");
}

#[tokio::test]
async fn messages_go_both_ways_as_they_come_and_trailers_arrive() {
    let app = proxy_to(echo().await);
    let address = app.proxy;
    let mut client = client(address).await;
    let (response, mut stream) = client.send_request(call(address), false).expect("sent");
    send(&mut stream, "one", false);
    let response = response.await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-ratelimit-remaining"], "999");
    assert_eq!(
        response.headers()["x-te"],
        "trailers",
        "else many servers refuse the call"
    );
    let mut body = response.into_body();
    assert_eq!(
        message(&mut body).await,
        "one",
        "before the second was sent"
    );
    send(&mut stream, "two", false);
    assert_eq!(message(&mut body).await, "two");
    send(&mut stream, "three", true);
    assert_eq!(message(&mut body).await, "three");
    while let Some(data) = body.data().await {
        assert!(data.expect("the end").is_empty());
    }
    let trailers = body.trailers().await.expect("an end").expect("trailers");
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["x-messages"], "3");
}

#[tokio::test]
async fn many_calls_at_once_share_a_connection() {
    let app = proxy_to(echo().await);
    let address = app.proxy;
    let client = client(address).await;
    let calls = (0..50).map(|_| {
        let mut client = client.clone();
        async move {
            let (response, mut stream) = client.send_request(call(address), false).expect("sent");
            send(&mut stream, "one", true);
            let mut body = response.await.expect("a response").into_body();
            while body.data().await.is_some() {}
            let trailers = body.trailers().await.expect("an end").expect("trailers");
            assert_eq!(trailers["grpc-status"], "0");
        }
    });
    futures_util::future::join_all(calls).await;
}

/// Clients that are still sending take a stream that is reset behind its answer for one that failed.
#[tokio::test]
async fn who_is_answered_while_sending_may_send_the_rest() {
    let app = proxy_to(echo().await);
    let mut client = client(app.proxy).await;
    let mut request = call(app.proxy);
    request
        .headers_mut()
        .append("x-api-key", "one".parse().expect("a value"));
    request
        .headers_mut()
        .append("x-api-key", "two".parse().expect("a value"));
    let (response, mut stream) = client.send_request(request, false).expect("sent");
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), 400);
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        drop(
            body.flow_control()
                .release_capacity(data.expect("whole").len()),
        );
    }
    // Whatever followed the answer is here when a second one is.
    let (other, _) = client.send_request(call(app.proxy), true).expect("sent");
    assert_eq!(other.await.expect("a response").status(), 200);
    let reset = poll_fn(|context| Poll::Ready(stream.poll_reset(context).is_ready())).await;
    assert!(!reset, "the stream goes on");
    send(&mut stream, "the rest", true);
}

/// Case j149: the answer is garbage, and the call was read. It is not sent again, nor in HTTP/1.1.
#[tokio::test]
async fn a_post_that_is_answered_by_garbage_was_sent_once() {
    let (listener, upstream) = listener().await;
    let posts = Arc::new(AtomicUsize::new(0));
    let counted = posts.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut read = Vec::new();
            let has_body = |read: &[u8]| read.windows(4).any(|four| four == b"once");
            // Who only looks whether anybody is there sends none.
            while !has_body(&read) {
                if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            counted.fetch_add(usize::from(has_body(&read)), Ordering::SeqCst);
            // Settings, then a frame that none is.
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
            drop(stream.write_all(&settings).await);
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
        }
    });
    let yaml = format!("upstream: {{address: \"{upstream}\", http: 2}}\n{POLICIES}");
    let app = App::start(&yaml);
    let answer = tokio::task::spawn_blocking(move || {
        let answer = Wire::open(app.proxy)
            .send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nonce")
            .response();
        drop(app);
        answer
    });
    let answer = answer.await.expect("no panic");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(posts.load(Ordering::SeqCst), 1);
}

/// There is no way to hand it on; an upstream that knows none answers it as any other request.
#[tokio::test]
async fn a_websocket_is_not_asked_for_in_http_2() {
    let upstream = echo().await;
    let yaml =
        format!("upstream: {{address: \"{upstream}\", http: 2, read_timeout: 5s}}\n{POLICIES}");
    let app = App::start(&yaml);
    let answer = tokio::task::spawn_blocking(move || {
        let answer = Wire::open(app.proxy)
            .send(
                b"GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            )
            .response();
        drop(app);
        answer
    });
    let answer = answer.await.expect("no panic");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
