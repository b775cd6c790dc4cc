//! Stopping: nothing that was accepted is lost, nothing waits longer than it must.

use std::net::TcpStream;

use redis::Commands;
use slidegate::{app::RunEnd, server::Stop};

use crate::support::{
    app::App,
    redis::{RedisServer, eventually},
    upstream::Upstream,
    wire::Wire,
};

fn app(upstream: &Upstream, shutdown: &str) -> App {
    App::start(&format!(
        "upstream: {{address: \"{}\"}}\nshutdown: {shutdown}\n\
         policies: [{{name: per-ip, identifier: [client_ip], limits: [100000/1h]}}]\n",
        upstream.address
    ))
}

/// Polls until the probe answers `status`, as an orchestrator would.
async fn wait_for_readiness(app: &App, status: u16) {
    let url = format!("http://{}/readyz", app.metrics);
    eventually(&format!("readiness becomes {status}"), async || {
        let response = reqwest::get(&url).await.expect("health is served");
        response.status() == status
    })
    .await;
}

/// Tells it to stop, and waits until it accepts nobody any more.
async fn close(app: &App) {
    app.tell(Stop::Graceful);
    eventually("it is closed", async || {
        TcpStream::connect(app.proxy).is_err()
    })
    .await;
}

#[tokio::test]
async fn an_idle_proxy_stops_at_once_after_the_drain_delay() {
    let upstream = Upstream::start();
    let app = app(&upstream, "{drain_delay: 0ms, grace: 1h}");
    // An idle connection that a client keeps is not waited for.
    let mut idle = Wire::open(app.proxy);
    let first = idle.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").response();
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
    app.tell(Stop::Graceful);
    assert_eq!(
        tokio::task::spawn_blocking(|| app.ended())
            .await
            .expect("it ends"),
        RunEnd::Drained
    );
    assert_eq!(idle.rest(), "");
}

#[tokio::test]
async fn requests_in_flight_finish_before_it_stops() {
    let upstream = Upstream::start();
    let app = app(&upstream, "{drain_delay: 0ms, grace: 1h}");
    let busy: Vec<_> = (0..32)
        .map(|_| {
            let url = app.url("/held");
            tokio::spawn(async move { reqwest::get(url).await?.text().await })
        })
        .collect();
    upstream.has_seen(busy.len()).await;
    close(&app).await;
    upstream.let_go();
    for request in busy {
        let text = request.await.expect("no panic").expect("a whole response");
        assert_eq!(text, "ok");
    }
    assert_eq!(
        tokio::task::spawn_blocking(|| app.ended())
            .await
            .expect("it ends"),
        RunEnd::Drained
    );
}

#[tokio::test]
async fn while_draining_readiness_is_off_and_new_requests_are_served_and_told_to_move_on() {
    let upstream = Upstream::start();
    let app = app(&upstream, "{drain_delay: 1h, grace: 1h}");
    wait_for_readiness(&app, 200).await;
    let mut kept = Wire::open(app.proxy);
    let before = kept.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").response();
    assert!(!before.contains("Connection: close"), "{before}");

    app.tell(Stop::Graceful);
    wait_for_readiness(&app, 503).await;
    let alive = reqwest::get(format!("http://{}/livez", app.metrics))
        .await
        .expect("served");
    assert_eq!(alive.status(), 200, "liveness stays on");
    assert!(
        app.metrics().await.contains("slidegate_requests_total"),
        "metrics stay on"
    );

    let last = kept.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").response();
    assert!(last.starts_with("HTTP/1.1 200 "), "{last}");
    assert!(last.contains("Connection: close"), "{last}");
    let fresh = Wire::open(app.proxy)
        .send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .response();
    assert!(fresh.starts_with("HTTP/1.1 200 "), "{fresh}");
}

#[tokio::test]
async fn a_second_word_stops_at_once() {
    let upstream = Upstream::start();
    let app = app(&upstream, "{drain_delay: 1h, grace: 1h}");
    app.tell(Stop::Graceful);
    wait_for_readiness(&app, 503).await;
    app.tell(Stop::Now);
    assert_eq!(
        tokio::task::spawn_blocking(|| app.ended())
            .await
            .expect("it ends"),
        RunEnd::Cut
    );
}

#[tokio::test]
async fn the_grace_bounds_how_long_a_request_is_waited_for() {
    let upstream = Upstream::start();
    let app = app(&upstream, "{drain_delay: 0ms, grace: 50ms}");
    let url = app.url("/held");
    let cut = tokio::spawn(reqwest::get(url));
    upstream.has_seen(1).await;
    app.tell(Stop::Graceful);
    assert_eq!(
        tokio::task::spawn_blocking(|| app.ended())
            .await
            .expect("it ends"),
        RunEnd::Cut
    );
    assert!(cut.await.expect("no panic").is_err(), "it was cut off");
}

/// The connection to Redis lives on one of the workers; the others need it to the end.
#[tokio::test]
async fn what_is_in_flight_while_stopping_is_still_charged_in_redis() {
    let (server, upstream) = (RedisServer::start(), Upstream::start());
    let app = App::start(&format!(
        "upstream: {{address: \"{}\"}}\nthreads: 4\nshutdown: {{drain_delay: 0ms, grace: 1h}}\n\
         store: {{url: \"{}\", budget: 10s}}\n\
         policies: [{{name: p, identifier: [client_ip], limits: [1000/366d], charge_on: [200]}}]\n",
        upstream.address,
        server.url()
    ));
    let busy: Vec<_> = (0..16)
        .map(|_| tokio::spawn(reqwest::get(app.url("/held"))))
        .collect();
    upstream.has_seen(busy.len()).await;
    close(&app).await;
    upstream.let_go();
    for request in busy {
        let response = request.await.expect("no panic").expect("a response");
        assert_eq!(response.status(), 200);
    }
    let ended = tokio::task::spawn_blocking(|| app.ended()).await;
    assert_eq!(ended.expect("it ends"), RunEnd::Drained);
    let mut client = server.client();
    let keys: Vec<String> = client.keys("rl:*").expect("Redis answers");
    let counts: Vec<u64> = keys
        .iter()
        .map(|key| client.get(key).expect("a count"))
        .collect();
    assert_eq!(counts, [16], "{keys:?}");
}
