//! WebSockets through the proxy, by a client and a server that people use: tungstenite's.

use std::{net::SocketAddr, process::Command};

use futures_util::{SinkExt as _, StreamExt as _};
use slidegate::{app::RunEnd, server::Stop};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    WebSocketStream, accept_async, client_async,
    tungstenite::{Error, Message, http::Response},
};

use crate::support::{
    app::App,
    certificates::{Authority, tls_listener},
    redis::eventually,
    talk::{connect, connector},
    upstream::Upstream,
    wire::Wire,
};

/// A server that sends every message back. A connection that begins no WebSocket is dropped.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(async move {
                let Ok(mut socket) = accept_async(stream).await else {
                    return;
                };
                while let Some(Ok(message)) = socket.next().await {
                    let is_sent = match message {
                        Message::Text(_) | Message::Binary(_) => socket.send(message).await.is_ok(),
                        _ => socket.flush().await.is_ok(),
                    };
                    if !is_sent {
                        break;
                    }
                }
            });
        }
    });
    address
}

fn proxy(upstream: SocketAddr, quota: u32, more: &str) -> App {
    App::start_with_files(&format!(
        "upstream: {{address: \"{upstream}\", read_timeout: 300ms}}\n{more}\
         policies: [{{name: per-ip, limits: [{quota}/366d]}}]\n"
    ))
}

type Opened<S> = Result<(WebSocketStream<S>, Response<Option<Vec<u8>>>), Error>;

async fn open(app: &App) -> Opened<TcpStream> {
    let stream = TcpStream::connect(app.proxy).await.expect("it listens");
    client_async(format!("ws://{}/chat", app.proxy), stream).await
}

/// Sends a message, and waits until it is back.
async fn echoes<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    message: Message,
) {
    socket.send(message.clone()).await.expect("sent");
    let echoed = socket.next().await.expect("not closed").expect("a message");
    assert!(echoed == message, "what came back is another message");
}

#[tokio::test]
async fn messages_go_both_ways_and_only_the_upgrade_is_counted() {
    let app = proxy(echo().await, 10, "");
    let (mut socket, response) = open(&app).await.expect("upgraded");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "9");
    for number in 0..100 {
        echoes(&mut socket, Message::text(format!("message {number}"))).await;
    }
    echoes(&mut socket, Message::binary(vec![7; 1 << 20])).await;
    socket.close(None).await.expect("asked to close");
    while let Some(message) = socket.next().await {
        let message = message.expect("closed in order");
        assert!(message.is_close(), "{message:?}");
    }
    app.metric_becomes("slidegate_requests_total{status=\"1xx\"}", 1.0)
        .await;
    // One that leaves without a word.
    let (socket, response) = open(&app).await.expect("upgraded");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "8");
    drop(socket);
    app.metric_becomes("slidegate_requests_total{status=\"1xx\"}", 2.0)
        .await;
    for class in ["5xx", "none"] {
        let series = format!("slidegate_requests_total{{status=\"{class}\"}}");
        assert_eq!(app.metric(&series).await, 0.0, "{class}");
    }
}

#[tokio::test]
async fn they_go_through_tls_as_well() {
    let authority = Authority::new();
    let certified = authority.certify("server", "DNS:api.test");
    let listen = format!("listen: [{}]\n", tls_listener(&[&certified], ""));
    let app = proxy(echo().await, 10, &listen);
    let stream = connect(&connector(&authority, "http/1.1"), app.proxy, "api.test").await;
    let opened = client_async("wss://api.test/chat", stream.expect("TLS")).await;
    let (mut socket, _) = opened.expect("upgraded");
    echoes(&mut socket, Message::text("by TLS")).await;
    echoes(&mut socket, Message::binary(vec![7; 1 << 20])).await;
}

/// The time is that of others of the same proxy, who begin later and are cut off for as long a silence.
#[tokio::test]
async fn a_long_silence_ends_none() {
    let plain = Upstream::start();
    let yaml = format!(
        "listen: [\"127.0.0.1:0\"]\nbounds: {{body_timeout: 300ms, idle_timeout: 1s}}\n\
         upstreams:\n  chat: {{address: \"{}\", read_timeout: 300ms}}\n\
         \x20 plain: {{address: \"{}\", read_timeout: 600ms}}\n\
         routes:\n  - {{path: /chat, upstream: chat}}\n  - {{upstream: plain}}\n\
         policies: [{{name: per-ip, limits: [1000/366d]}}]\n",
        echo().await,
        plain.address
    );
    let app = App::start(&yaml);
    let (mut socket, _) = open(&app).await.expect("upgraded");
    echoes(&mut socket, Message::text("before")).await;
    let proxy = app.proxy;
    let others = tokio::task::spawn_blocking(move || {
        let request = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut wire = Wire::open(proxy);
        let late = wire.send(request("/slow/60000").as_bytes()).response();
        assert!(late.starts_with("HTTP/1.1 504 "), "`read_timeout`: {late}");
        let part = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\npart";
        let silent = Wire::open(proxy).send(part).response();
        assert!(
            silent.starts_with("HTTP/1.1 408 "),
            "`body_timeout`: {silent}"
        );
        let mut wire = Wire::open(proxy);
        let idle = wire.send(request("/").as_bytes()).response();
        assert!(idle.starts_with("HTTP/1.1 200 "), "{idle}");
        assert_eq!(wire.rest(), "", "`idle_timeout`");
    });
    others.await.expect("all are cut off");
    echoes(&mut socket, Message::text("after")).await;
}

#[tokio::test]
async fn an_upgrade_that_is_denied_reads_429() {
    let app = proxy(echo().await, 1, "");
    let (mut socket, _) = open(&app).await.expect("upgraded");
    let Err(Error::Http(denied)) = open(&app).await else {
        panic!("it is denied");
    };
    assert_eq!(denied.status(), 429);
    assert!(denied.headers().contains_key("retry-after"));
    let body = denied.body().as_ref().expect("a body");
    assert!(String::from_utf8_lossy(body).contains("quota-exceeded"));
    echoes(&mut socket, Message::text("one that is open goes on")).await;
}

#[tokio::test]
async fn an_open_one_is_cut_off_when_the_grace_is_over() {
    let app = proxy(
        echo().await,
        10,
        "shutdown: {drain_delay: 0ms, grace: 500ms}\n",
    );
    let (mut socket, _) = open(&app).await.expect("upgraded");
    echoes(&mut socket, Message::text("before")).await;
    app.tell(Stop::Graceful);
    echoes(&mut socket, Message::text("within the grace")).await;
    let ended = tokio::task::spawn_blocking(|| app.ended()).await;
    assert_eq!(ended.expect("it ends"), RunEnd::Cut);
    let last = socket.next().await;
    assert!(!matches!(last, Some(Ok(_))), "{last:?}");
}

#[tokio::test]
async fn one_that_ends_within_the_grace_lets_the_proxy_stop_in_order() {
    let app = proxy(
        echo().await,
        10,
        "shutdown: {drain_delay: 0ms, grace: 1h}\n",
    );
    let (mut socket, _) = open(&app).await.expect("upgraded");
    echoes(&mut socket, Message::text("before")).await;
    app.tell(Stop::Graceful);
    echoes(&mut socket, Message::text("within the grace")).await;
    socket.close(None).await.expect("asked to close");
    while let Some(Ok(_)) = socket.next().await {}
    let ended = tokio::task::spawn_blocking(|| app.ended()).await;
    assert_eq!(ended.expect("it ends"), RunEnd::Drained);
}

/// That it has no end otherwise is for the silent, and not for machines that lost their power.
#[tokio::test]
async fn the_system_asks_now_and_then_whether_a_silent_client_is_still_there() {
    let app = proxy(echo().await, 10, "");
    let (mut socket, _) = open(&app).await.expect("upgraded");
    echoes(&mut socket, Message::text("before")).await;
    let ours = format!("sport = :{}", app.proxy.port());
    eventually("a timer of the kernel is set for it", async || {
        let told = Command::new("ss").args(["-Htno", &ours]).output();
        let told = told.expect("ss runs: `make test` installs it").stdout;
        String::from_utf8_lossy(&told).contains("timer:(keepalive,")
    })
    .await;
}
