//! Bodies are passed on, and not kept: where a reader stands still, so does its sender, whichever versions of HTTP they
//! speak, and when it goes on all of it arrives.

use std::{future::poll_fn, net::SocketAddr, time::Duration};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::timeout,
};

use crate::support::app::App;

/// The length of a body.
const ALL: usize = 32 << 20;

/// What may be on the way: most of it in the system's buffers, on both sides of the proxy.
const ON_THE_WAY: usize = 16 << 20;

/// A sender that could send nothing for so long stands still. One that is only slow is let go on too early, and what it
/// had sent by then is all the less.
const STILL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}
use Version::{One, Two};

#[tokio::test]
async fn a_client_sends_no_more_than_the_upstream_takes() {
    for (client, upstream) in [(One, One), (One, Two), (Two, One), (Two, Two)] {
        let (go, on) = oneshot::channel();
        let (app, listener) = start(upstream).await;
        let reads = async {
            match upstream {
                One => takes_in_http_1(&listener, on).await,
                Two => takes_in_http_2(&listener, on).await,
            }
        };
        let sends = async {
            match client {
                One => sends_in_http_1(app.proxy, go).await,
                Two => sends_in_http_2(app.proxy, go).await,
            }
        };
        let (read, held) = tokio::join!(reads, sends);
        assert_eq!(read, ALL, "{client:?} {upstream:?}");
        assert!(held < ON_THE_WAY, "{client:?} {upstream:?}: {held} bytes");
    }
}

#[tokio::test]
async fn an_upstream_sends_no_more_than_the_client_takes() {
    for (client, upstream) in [(One, One), (One, Two), (Two, One), (Two, Two)] {
        let (go, on) = oneshot::channel();
        let (app, listener) = start(upstream).await;
        let sends = async {
            match upstream {
                One => answers_in_http_1(&listener, go).await,
                Two => answers_in_http_2(&listener, go).await,
            }
        };
        let reads = async {
            match client {
                One => gets_in_http_1(app.proxy, on).await,
                Two => gets_in_http_2(app.proxy, on).await,
            }
        };
        let (held, read) = tokio::join!(sends, reads);
        assert_eq!(read, ALL, "{client:?} {upstream:?}");
        assert!(held < ON_THE_WAY, "{client:?} {upstream:?}: {held} bytes");
    }
}

/// The first connection by which something is said: others only look whether anybody is there.
async fn with_a_request(listener: &TcpListener) -> TcpStream {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        if stream.peek(&mut [0]).await.is_ok_and(|length| length > 0) {
            return stream;
        }
    }
}

/// slidegate, and where its upstream is to be.
async fn start(upstream: Version) -> (App, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    let http = if upstream == One { 1 } else { 2 };
    let app = App::start(&format!(
        "listen: [{{address: \"127.0.0.1:0\", h2c: true}}]\n\
         upstream: {{address: \"{address}\", http: {http}}}\npolicies: [{{name: per-ip, limits: [1000/366d]}}]\n"
    ));
    (app, listener)
}

/// Sends all, a write at a time, and says when nothing more is taken. Gives how much was by then.
async fn send_all(
    mut write: impl AsyncFnMut(usize) -> usize,
    stands: oneshot::Sender<()>,
) -> usize {
    let (mut stands, mut sent, mut held) = (Some(stands), 0, ALL);
    while sent < ALL {
        match timeout(STILL, write(PART.min(ALL - sent))).await {
            Ok(length) => sent += length,
            Err(_) => {
                if let Some(stands) = stands.take() {
                    held = sent;
                    stands.send(()).expect("the reader waits");
                }
            }
        }
    }
    if let Some(stands) = stands {
        stands.send(()).expect("the reader waits");
    }
    held
}

const PART: usize = 64 << 10;
static ZEROS: [u8; PART] = [0; PART];

async fn send_by_stream(stream: &mut TcpStream, stands: oneshot::Sender<()>) -> usize {
    let write = async |length: usize| stream.write(&ZEROS[..length]).await.expect("sent");
    send_all(write, stands).await
}

async fn send_by_frames(stream: &mut SendStream<Bytes>, stands: oneshot::Sender<()>) -> usize {
    let write = async |length: usize| {
        stream.reserve_capacity(length);
        let granted = poll_fn(|context| stream.poll_capacity(context)).await;
        let granted = granted
            .expect("it is open")
            .expect("it is open")
            .min(length);
        stream
            .send_data(Bytes::from_static(&ZEROS[..granted]), false)
            .expect("sent");
        granted
    };
    let held = send_all(write, stands).await;
    stream.send_data(Bytes::new(), true).expect("sent");
    held
}

/// Reads all from now on, and gives how much there was.
async fn read_frames(mut body: RecvStream) -> usize {
    let mut read = 0;
    while let Some(part) = body.data().await {
        let length = part.expect("whole").len();
        read += length;
        body.flow_control()
            .release_capacity(length)
            .expect("it was taken");
    }
    read
}

/// Reads all that is left of a body of which this much has come.
async fn read_rest(stream: &mut TcpStream, come: usize) -> usize {
    let (mut part, mut read) = (vec![0; PART], come);
    while read < ALL {
        match stream.read(&mut part).await.expect("more") {
            0 => break,
            length => read += length,
        }
    }
    read
}

/// Reads a head, and gives how much came behind it.
async fn read_head(stream: &mut TcpStream) -> usize {
    let mut read = Vec::new();
    loop {
        stream.read_buf(&mut read).await.expect("a head");
        let end = read.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            return read.len() - end - 4;
        }
    }
}

async fn sends_in_http_1(at: SocketAddr, stands: oneshot::Sender<()>) -> usize {
    let mut stream = TcpStream::connect(at).await.expect("a connection");
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {ALL}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    let held = send_by_stream(&mut stream, stands).await;
    read_head(&mut stream).await;
    held
}

async fn sends_in_http_2(at: SocketAddr, stands: oneshot::Sender<()>) -> usize {
    let request = Request::post("http://x/").header("content-length", ALL);
    let (response, mut stream) = asks(at, request).await;
    let held = send_by_frames(&mut stream, stands).await;
    assert_eq!(response.await.expect("an answer").status(), 200);
    held
}

async fn gets_in_http_1(at: SocketAddr, go_on: oneshot::Receiver<()>) -> usize {
    let mut stream = TcpStream::connect(at).await.expect("a connection");
    let head = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(head).await.expect("sent");
    let come = read_head(&mut stream).await;
    go_on.await.expect("the sender stands");
    read_rest(&mut stream, come).await
}

async fn gets_in_http_2(at: SocketAddr, go_on: oneshot::Receiver<()>) -> usize {
    let (response, mut stream) = asks(at, Request::get("http://x/")).await;
    stream.send_data(Bytes::new(), true).expect("sent");
    let body = response.await.expect("an answer").into_body();
    go_on.await.expect("the sender stands");
    read_frames(body).await
}

async fn asks(
    at: SocketAddr,
    request: http::request::Builder,
) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
    let stream = TcpStream::connect(at).await.expect("a connection");
    // A window is small, and a frame of what is left of it is not to wait for an acknowledgement.
    stream.set_nodelay(true).expect("an option");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request = request.body(()).expect("a request");
    client.send_request(request, false).expect("sent")
}

async fn takes_in_http_1(listener: &TcpListener, go_on: oneshot::Receiver<()>) -> usize {
    let mut stream = with_a_request(listener).await;
    let come = read_head(&mut stream).await;
    go_on.await.expect("the sender stands");
    let read = read_rest(&mut stream, come).await;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(answer).await.expect("sent");
    read
}

async fn takes_in_http_2(listener: &TcpListener, go_on: oneshot::Receiver<()>) -> usize {
    let (request, mut respond) = serves(listener).await;
    go_on.await.expect("the sender stands");
    let read = read_frames(request.into_body()).await;
    respond
        .send_response(Response::new(()), true)
        .expect("sent");
    read
}

async fn answers_in_http_1(listener: &TcpListener, stands: oneshot::Sender<()>) -> usize {
    let mut stream = with_a_request(listener).await;
    read_head(&mut stream).await;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {ALL}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    let held = send_by_stream(&mut stream, stands).await;
    // Closed with something unread it would be reset, and what is on the way lost.
    tokio::spawn(async move { drop(stream.read_to_end(&mut Vec::new()).await) });
    held
}

async fn answers_in_http_2(listener: &TcpListener, stands: oneshot::Sender<()>) -> usize {
    let (_, mut respond) = serves(listener).await;
    let head = Response::builder().header("content-length", ALL).body(());
    let stream = respond.send_response(head.expect("a response"), false);
    send_by_frames(&mut stream.expect("sent"), stands).await
}

/// The first request by any connection, which is served on.
async fn serves(listener: &TcpListener) -> (Request<RecvStream>, h2::server::SendResponse<Bytes>) {
    loop {
        let stream = with_a_request(listener).await;
        stream.set_nodelay(true).expect("an option");
        let Ok(mut connection) = h2::server::handshake(stream).await else {
            continue;
        };
        if let Some(Ok(asked)) = connection.accept().await {
            tokio::spawn(async move { while connection.accept().await.is_some() {} });
            return asked;
        }
    }
}
