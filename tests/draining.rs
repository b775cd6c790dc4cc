//! Stopping under load: whoever is connected is answered to the end, and told that there is no more, in every version of
//! HTTP.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{net::TcpStream, task::JoinSet};

use crate::support::{
    binary::Binary,
    redis::eventually,
    talk::{Answer, Http1, Http2, told},
    upstream::Upstream,
};

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
    let mut connection = Http1::new(TcpStream::connect(at).await.map_err(told)?);
    for number in first.. {
        let answer = connection.ask(target(number)).await?;
        is_served(&answer, &answered)?;
        if answer.is_last {
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
    let mut connection = Http2::open(stream, "http").await?;
    for number in first.. {
        match connection.ask(target(number)).await? {
            Some(answer) => is_served(&answer, &answered)?,
            None => break,
        }
    }
    connection.end().await
}

fn is_served(answer: &Answer, answered: &AtomicUsize) -> Result<(), String> {
    if answer.status != 200 || answer.body != b"ok" {
        return Err(format!("{answer:?}"));
    }
    answered.fetch_add(1, Ordering::SeqCst);
    Ok(())
}
