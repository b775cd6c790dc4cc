//! Certificates and configurations that are replaced under load, again and again: no request fails, and no connection.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::support::{
    app::App,
    certificates::{Authority, Certified, tls_listener},
    redis::eventually,
    talk::{Answer, Http1, Http2, connect, connector},
    upstream::Upstream,
};

const RENEWALS: usize = 30;

/// Clients of each kind.
const CLIENTS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_and_no_connection_fails_while_certificates_and_limits_are_replaced() {
    let authority = Authority::new();
    let pairs = ["one", "other"].map(|name| authority.certify(name, "DNS:api.test"));
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key, file] =
        ["tls.crt", "tls.key", "config.yaml"].map(|name| folder.path().join(name));
    let shown = Certified { certificate, key };
    let upstream = Upstream::start();
    let put = |number: usize| {
        let Certified {
            certificate: from,
            key: key_from,
        } = &pairs[number % 2];
        fs::copy(from, &shown.certificate).expect("copied");
        fs::copy(key_from, &shown.key).expect("copied");
        let yaml = format!(
            "listen: [{}]\n\
             bounds: {{requests_per_connection: 100000000}}\n\
             upstream: {{address: \"{}\"}}\npolicies: [{{name: p, limits: [{}/366d]}}]\n",
            tls_listener(&[&shown], ""),
            upstream.address,
            100_000_000 + number
        );
        fs::write(&file, yaml).expect("written");
    };
    put(0);
    let app = App::start_file(&file);

    let load = Arc::new(Load {
        at: app.proxy,
        http1: connector(&authority, "http/1.1"),
        http2: connector(&authority, "h2"),
        stop: AtomicBool::new(false),
        answered: Default::default(),
        shown: Mutex::default(),
    });
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let [one, two, three, four] = [(); 4].map(|()| load.clone());
        clients.spawn(async move { one.keeps_one_of_http_1().await });
        clients.spawn(async move { two.keeps_one_of_http_2().await });
        clients.spawn(async move { three.opens_one_of_http_1_for_each().await });
        clients.spawn(async move { four.opens_one_of_http_2_for_each().await });
    }
    for number in 1..=RENEWALS {
        let before = load.answered();
        eventually("all kinds of clients are served", async || {
            let now = load.answered();
            before.iter().zip(now).all(|(before, now)| now > *before)
        })
        .await;
        put(number);
        app.reload_file(&file).await;
    }
    load.stop.store(true, Ordering::SeqCst);
    let failures: Vec<_> = clients.join_all().await;
    let failures: Vec<_> = failures.into_iter().filter_map(Result::err).collect();
    assert!(failures.is_empty(), "{failures:?}");
    let applied = "slidegate_config_reloads_total{result=\"applied\"}";
    assert_eq!(app.metric(applied).await, RENEWALS as f64);
    assert_eq!(load.shown.lock().len(), 2, "both were shown");
}

struct Load {
    at: SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
    stop: AtomicBool,
    /// How many requests of each kind of client were.
    answered: [AtomicUsize; 4],
    /// The certificates that there were.
    shown: Mutex<BTreeSet<Vec<u8>>>,
}

impl Load {
    fn answered(&self) -> [usize; 4] {
        [0, 1, 2, 3].map(|kind| self.answered[kind].load(Ordering::SeqCst))
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn count(&self, kind: usize, answer: &Answer) -> Result<(), String> {
        if answer.status != 200 || answer.body != b"ok" {
            return Err(format!("{answer:?}"));
        }
        self.answered[kind].fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn keeps_one_of_http_1(&self) -> Result<(), String> {
        let mut connection = Http1::new(connect(&self.http1, self.at, "api.test").await?);
        while self.goes_on() {
            self.count(0, &connection.ask("/").await?)?;
        }
        Ok(())
    }

    async fn keeps_one_of_http_2(&self) -> Result<(), String> {
        let stream = connect(&self.http2, self.at, "api.test").await?;
        let mut connection = Http2::open(stream, "https").await?;
        while self.goes_on() {
            let answer = connection.ask("/").await?;
            self.count(1, &answer.ok_or("it was closed")?)?;
        }
        Ok(())
    }

    async fn opens_one_of_http_1_for_each(&self) -> Result<(), String> {
        while self.goes_on() {
            let stream = connect(&self.http1, self.at, "api.test").await?;
            let shown = stream.get_ref().1.peer_certificates();
            let shown = shown.and_then(<[_]>::first).map(|shown| shown.to_vec());
            self.shown.lock().extend(shown);
            self.count(2, &Http1::new(stream).ask("/").await?)?;
        }
        Ok(())
    }

    async fn opens_one_of_http_2_for_each(&self) -> Result<(), String> {
        while self.goes_on() {
            let stream = connect(&self.http2, self.at, "api.test").await?;
            let mut connection = Http2::open(stream, "https").await?;
            let answer = connection.ask("/").await?;
            self.count(3, &answer.ok_or("it was closed")?)?;
        }
        Ok(())
    }
}
