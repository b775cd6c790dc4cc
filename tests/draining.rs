//! Stopping under load: whoever is connected is answered to the end, and told that there is no more, in every version of
//! HTTP.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::Request;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream},
    net::TcpStream,
    task::JoinSet,
};

use crate::support::{binary::Binary, redis::eventually, upstream::Upstream};

/// Connections of each version.
const CONNECTIONS: usize = 64;

/// Some answers take longer than new requests are served for.
fn target(number: usize) -> &'static str {
    ["/", "/slow/20", "/slow/900"][number % 3]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_nothing_that_was_asked_is_lost_and_it_ends_in_order() {
    let upstream = Upstream::start();
    let mut binary = Binary::start_h2c(&format!(
        "upstream: {{address: \"{}\"}}\nshutdown: {{drain_delay: 300ms, grace: 1m}}\n\
         policies: [{{name: per-ip, limits: [100000000/366d]}}]\n",
        upstream.address
    ));
    let answered = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for number in 0..CONNECTIONS {
        clients.spawn(ask_in_http_1(binary.proxy, number, answered.clone()));
        clients.spawn(ask_in_http_2(binary.proxy, number, answered.clone()));
    }
    eventually("all of them are served", async || {
        answered.load(Ordering::SeqCst) > 4 * CONNECTIONS
    })
    .await;
    binary.signal("TERM");
    let ended = clients.join_all().await;
    let failures: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    assert!(
        failures.is_empty(),
        "{} of {} connections: {:?}",
        failures.len(),
        2 * CONNECTIONS,
        &failures[..failures.len().min(5)]
    );
    // Long before the grace is over: each of its waits is bounded by less.
    eventually("it ends", async || binary.has_ended()).await;
    assert_eq!(binary.exit_code(), Some(0), "in order");
}

/// Asks until an answer says that it is the last one. What fails before that is told.
async fn ask_in_http_1(
    at: SocketAddr,
    first: usize,
    answered: Arc<AtomicUsize>,
) -> Result<(), String> {
    let stream = TcpStream::connect(at).await.map_err(told)?;
    let mut stream = BufStream::new(stream);
    for number in first.. {
        let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", target(number));
        stream.write_all(request.as_bytes()).await.map_err(told)?;
        stream.flush().await.map_err(told)?;
        let (mut status, mut length, mut is_last) = (String::new(), 0, false);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.map_err(told)?;
            match line.trim_end().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().map_err(told)?,
                Some(("connection", value)) => is_last |= value == "close",
                None if line == "\r\n" => break,
                None if line.is_empty() => return Err(format!("{}: closed", target(number))),
                None => status = line,
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.map_err(told)?;
        if !status.contains(" 200 ") || body != b"ok" {
            return Err(status);
        }
        answered.fetch_add(1, Ordering::SeqCst);
        if is_last {
            break;
        }
    }
    Ok(())
}

/// Asks until the connection takes no more requests. One that it took and did not answer is told.
async fn ask_in_http_2(
    at: SocketAddr,
    first: usize,
    answered: Arc<AtomicUsize>,
) -> Result<(), String> {
    let stream = TcpStream::connect(at).await.map_err(told)?;
    let (client, connection) = h2::client::handshake(stream).await.map_err(told)?;
    let connection = tokio::spawn(connection);
    for number in first.. {
        // An error says that the connection takes no more.
        let Ok(mut ready) = client.clone().ready().await else {
            break;
        };
        let request = Request::get(format!("http://{at}{}", target(number)));
        let request = request.body(()).map_err(told)?;
        let (response, _) = match ready.send_request(request, true) {
            Ok(sent) => sent,
            Err(error) if error.is_go_away() => break,
            Err(error) => return Err(told(error)),
        };
        let response = response.await.map_err(told)?;
        let (head, mut body) = response.into_parts();
        let mut whole = Vec::new();
        while let Some(part) = body.data().await {
            let part: Bytes = part.map_err(told)?;
            drop(body.flow_control().release_capacity(part.len()));
            whole.extend(part);
        }
        if head.status != 200 || whole != b"ok" {
            return Err(format!("{}: {whole:?}", head.status));
        }
        answered.fetch_add(1, Ordering::SeqCst);
    }
    drop(client);
    // It was told in HTTP's words, and not by a connection that breaks.
    connection.await.map_err(told)?.map_err(told)
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
