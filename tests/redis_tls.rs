//! Redis behind TLS: who is trusted, who is not, and what is shown.

use std::{fs, path::Path};

use slidegate::store::{At, Store, StoreError};

use crate::support::{
    certificates::{Authority, Certified},
    cluster,
    demand::*,
    redis::*,
    sentinel::Sentinel,
    trace::Trace,
};

const HERE: &str = "IP:127.0.0.1, DNS:localhost";

/// A server that shows this certificate, trusts this authority, and asks clients for theirs or does not.
fn start(shown: &Certified, trusts: &Authority, asks: &str) -> RedisServer {
    RedisServer::start_with(&options(shown, trusts, asks).each_ref().map(String::as_str))
}

fn options(shown: &Certified, trusts: &Authority, asks: &str) -> [String; 8] {
    let path = |path: &Path| path.display().to_string();
    [
        "--tls-cert-file".to_owned(),
        path(&shown.certificate),
        "--tls-key-file".to_owned(),
        path(&shown.key),
        "--tls-ca-cert-file".to_owned(),
        path(&trusts.certificate()),
        "--tls-auth-clients".to_owned(),
        asks.to_owned(),
    ]
}

/// A store that reaches `host` at the port of `server`, with a section `tls`.
fn store(host: &str, server: &RedisServer, tls: &str) -> Store {
    configured_store(&format!(
        "{{url: 'rediss://{host}:{}'{tls}}}",
        server.port()
    ))
}

fn trusting(authority: &Authority) -> String {
    format!(", tls: {{ca: {}}}", authority.certificate().display())
}

fn as_client(authority: &Authority, client: &Certified) -> String {
    let (ca, certificate, key) = (authority.certificate(), &client.certificate, &client.key);
    format!(
        ", tls: {{ca: {}, certificate: {}, key: {}}}",
        ca.display(),
        certificate.display(),
        key.display()
    )
}

/// It decides.
async fn decides(store: &Store) {
    let mut last = None;
    eventually("a decision by a server behind TLS", async || {
        let reply = take_group(
            store,
            &[demand("p", 1, "9/366d")],
            slidegate::store::At::Now,
        )
        .await;
        let decided = reply.is_ok();
        last = Some(reply);
        decided
    })
    .await;
}

/// It never connects, and the log tells this.
async fn is_refused(store: &Store, trace: &Trace, told: &str) {
    eventually("why it does not connect is told", async || {
        trace.text().contains("is not connected")
    })
    .await;
    assert!(trace.text().contains(told), "not {told}: {}", trace.text());
    let reply = take_group(
        store,
        &[demand("p", 1, "9/366d")],
        slidegate::store::At::Now,
    )
    .await;
    assert_eq!(reply, Err(StoreError::Disconnected));
    assert!(!trace.text().contains("connected to the store"));
}

#[tokio::test]
async fn a_server_is_trusted_by_an_own_authority_under_its_name_and_its_address() {
    let authority = Authority::new();
    let server = start(&authority.certify("server", HERE), &authority, "no");
    for host in ["localhost", "127.0.0.1"] {
        decides(&store(host, &server, &trusting(&authority))).await;
    }
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = start(&authority.certify("server", HERE), &authority, "no");
    for tls in [trusting(&other), String::new()] {
        let trace = Trace::start();
        let store = store("localhost", &server, &tls);
        is_refused(&store, &trace, "invalid peer certificate").await;
    }
}

#[tokio::test]
async fn a_server_with_the_certificate_of_another_name_is_refused() {
    let authority = Authority::new();
    let shown = authority.certify("server", "DNS:other.test");
    let server = start(&shown, &authority, "no");
    let trace = Trace::start();
    let store = store("localhost", &server, &trusting(&authority));
    is_refused(
        &store,
        &trace,
        "certificate not valid for name \"localhost\"",
    )
    .await;
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_ours() {
    let authority = Authority::new();
    let server = start(&authority.certify("server", HERE), &authority, "yes");
    let client = authority.certify("client", "DNS:slidegate.test");
    decides(&store(
        "localhost",
        &server,
        &as_client(&authority, &client),
    ))
    .await;

    let trace = Trace::start();
    let without = store("localhost", &server, &trusting(&authority));
    is_refused(&without, &trace, "CertificateRequired").await;
}

#[tokio::test]
async fn certificates_that_were_rotated_are_found_without_a_restart() {
    let (first, second) = (Authority::new(), Authority::new());
    let files = tempfile::tempdir().expect("a folder");
    let file = |name: &str| files.path().join(name);
    let copy = |from: &Path, name: &str| {
        fs::copy(from, file(name)).expect("copied");
    };
    let install = |authority: &Authority| {
        copy(&authority.certificate(), "ca.crt");
        let certified = authority.certify("both", HERE);
        copy(&certified.certificate, "both.crt");
        copy(&certified.key, "both.key");
    };
    install(&first);
    let [ca, certificate, key] =
        ["ca.crt", "both.crt", "both.key"].map(|name| file(name).display().to_string());
    let mut server = RedisServer::start_with(&[
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
    ]);
    let tls = format!(", tls: {{ca: {ca}, certificate: {certificate}, key: {key}}}");
    let store = store("localhost", &server, &tls);
    decides(&store).await;
    server.kill();
    install(&second);
    server.restart();
    decides(&store).await;
}

#[tokio::test]
async fn a_file_that_is_gone_is_told_by_its_path_and_found_once_it_is_back() {
    let authority = Authority::new();
    let server = start(&authority.certify("server", HERE), &authority, "no");
    let files = tempfile::tempdir().expect("a folder");
    let ca = files.path().join("ca.crt");
    let trace = Trace::start();
    let store = store(
        "localhost",
        &server,
        &format!(", tls: {{ca: {}}}", ca.display()),
    );
    let told = format!("{}: this file cannot be read: No such file", ca.display());
    is_refused(&store, &trace, &told).await;
    fs::copy(authority.certificate(), &ca).expect("copied");
    decides(&store).await;
}

#[tokio::test]
async fn sentinels_and_the_primary_they_tell_are_spoken_to_in_tls() {
    let authority = Authority::new();
    let shown = authority.certify("server", HERE);
    let server = start(&shown, &authority, "no");
    let lines = options(&shown, &authority, "no");
    let lines: Vec<_> = lines
        .chunks(2)
        .map(|option| format!("{} {}\n", option[0].trim_start_matches('-'), option[1]))
        .collect();
    let lines = format!(
        "port 0\ntls-port PORT\ntls-replication yes\n{}",
        lines.concat()
    );
    let sentinel = Sentinel::start(server.port(), 1, &lines);
    let store = configured_store(&format!(
        "{{url: 'rediss://mymaster', sentinel: {{addresses: ['{}']}}{}}}",
        sentinel.address(),
        trusting(&authority)
    ));
    decides(&store).await;
}

#[tokio::test]
async fn the_servers_of_a_cluster_are_spoken_to_in_tls_like_any_other() {
    let authority = Authority::new();
    let shown = authority.certify("redis", HERE);
    let options = options(&shown, &authority, "no");
    let mut options = options.each_ref().map(String::as_str).to_vec();
    // It tells the others' ports as well as its own by it.
    options.extend(["--tls-cluster", "yes"]);
    let server = RedisServer::start_for_cluster(&options);
    cluster::ask::<String>(&server, &["ADDSLOTSRANGE", "0", "16383"]).expect("OK");
    let tls = format!("{}, cluster: {{}}", trusting(&authority));
    decides(&store("localhost", &server, &tls)).await;
    let stranger = Authority::new();
    let tls = format!("{}, cluster: {{}}", trusting(&stranger));
    let reply = take_group(
        &store("localhost", &server, &tls),
        &[demand("p", 1, "9/366d")],
        At::Now,
    )
    .await;
    assert_eq!(reply, Err(StoreError::Disconnected));
}
