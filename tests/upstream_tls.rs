//! Upstreams behind TLS and by HTTP/2: who is trusted, who is not, and that nothing is fallen back to.

use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::NamedTempFile;

use crate::support::{
    app::App,
    certificates::{Authority, Certified},
    nginx::Nginx,
    redis::eventually,
};

const POLICIES: &str =
    "policies: [{name: per-key, identifier: [header:x-api-key], limits: [100000/1h]}]\n";

/// One that shows this certificate, listens with these words, and answers what it was spoken to in.
fn serving(shown: &Certified, listen: &str, more: &str) -> Nginx {
    Nginx::start_with(
        listen,
        &format!(
            "ssl_certificate {}; ssl_certificate_key {}; {more} \
             location / {{ return 200 '$server_protocol $ssl_server_name'; }}",
            shown.certificate.display(),
            shown.key.display()
        ),
    )
}

/// Files are looked into where the configuration is one.
fn app(upstreams: &str) -> App {
    App::start_file(file(upstreams).path())
}

fn file(upstreams: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    write!(file, "{upstreams}\n{POLICIES}").expect("written");
    file
}

fn upstream(address: impl std::fmt::Display, tls: &str) -> String {
    format!("upstream: {{address: \"{address}\", tls: {{{tls}}}}}")
}

fn ca(authority: &Authority) -> String {
    format!("ca: {}", authority.certificate().display())
}

async fn get(app: &App) -> (u16, String) {
    let response = reqwest::get(app.url("/")).await.expect("a response");
    let status = response.status().as_u16();
    (status, response.text().await.expect("a body"))
}

/// An address that a certificate for `127.0.0.1` is not for, and one that is.
fn names(nginx_host: &str) -> String {
    format!("IP:{nginx_host}, DNS:app.test")
}

/// A certificate for wherever an nginx will listen is not to be had before: it is for a name.
fn for_a_name(authority: &Authority) -> Certified {
    authority.certify("server", "DNS:app.test")
}

#[tokio::test]
async fn an_upstream_is_verified_by_its_name_and_the_authority_that_is_configured() {
    let authority = Authority::new();
    let nginx = serving(&for_a_name(&authority), "ssl", "");
    let tls = format!("{}, server_name: app.test", ca(&authority));
    let app = app(&upstream(nginx.address, &tls));
    assert_eq!(get(&app).await, (200, "HTTP/1.1 app.test".to_owned()));
}

/// Pingora takes an empty name for a wish not to verify.
#[tokio::test]
async fn an_address_without_a_server_name_is_verified_as_that_address() {
    let authority = Authority::new();
    let wrong = serving(&for_a_name(&authority), "ssl", "");
    let app_of_wrong = app(&upstream(wrong.address, &ca(&authority)));
    assert_eq!(get(&app_of_wrong).await.0, 502, "it is for app.test");

    let loopback = authority.certify("loopback", &names("127.0.0.1"));
    let server = Server::start(&loopback, &[]);
    let app_of_right = app(&upstream(server.address, &ca(&authority)));
    assert_eq!(get(&app_of_right).await.0, 200);
}

#[tokio::test]
async fn who_is_certified_by_somebody_else_or_for_another_name_is_not_spoken_to() {
    let (authority, other) = (Authority::new(), Authority::new());
    let nginx = serving(&for_a_name(&authority), "ssl", "");
    for tls in [
        format!("{}, server_name: other.test", ca(&authority)),
        format!("{}, server_name: app.test", ca(&other)),
        "server_name: app.test".to_owned(),
    ] {
        let app = app(&upstream(nginx.address, &tls));
        assert_eq!(get(&app).await.0, 502, "{tls}");
    }
}

#[tokio::test]
async fn a_connection_that_one_upstream_verified_is_not_anothers() {
    let (authority, other) = (Authority::new(), Authority::new());
    let nginx = serving(&for_a_name(&authority), "ssl", "");
    let named = |ca: String| {
        format!(
            "{{address: \"{}\", tls: {{{ca}, server_name: app.test}}}}",
            nginx.address
        )
    };
    let app = app(&format!(
        "threads: 1\nupstreams: {{trusts: {}, does-not: {}}}\n\
         routes: [{{path: /trusted, upstream: trusts}}, {{upstream: does-not}}]",
        named(ca(&authority)),
        named(ca(&other))
    ));
    for _ in 0..3 {
        let trusted = reqwest::get(app.url("/trusted")).await.expect("a response");
        assert_eq!(trusted.status(), 200);
        assert_eq!(get(&app).await.0, 502);
    }
}

#[tokio::test]
async fn an_upstream_that_asks_who_we_are_is_told() {
    let authority = Authority::new();
    let ask = format!(
        "ssl_verify_client on; ssl_client_certificate {};",
        authority.certificate().display()
    );
    let nginx = serving(&for_a_name(&authority), "ssl", &ask);
    let anonymous = format!("{}, server_name: app.test", ca(&authority));
    let client = authority.certify("client", "DNS:slidegate.test");
    let known = format!(
        "{anonymous}, certificate: {}, key: {}",
        client.certificate.display(),
        client.key.display()
    );
    assert_eq!(get(&app(&upstream(nginx.address, &anonymous))).await.0, 400);
    assert_eq!(get(&app(&upstream(nginx.address, &known))).await.0, 200);
}

#[tokio::test]
async fn tls_goes_through_a_unix_socket_too() {
    let authority = Authority::new();
    let nginx = serving(&for_a_name(&authority), "", "listen unix:FOLDER/tls ssl;");
    let tls = format!("{}, server_name: app.test", ca(&authority));
    let socket = format!("unix:{}", nginx.folder().join("tls").display());
    assert_eq!(get(&app(&upstream(socket, &tls))).await.0, 200);
}

#[tokio::test]
async fn an_authority_that_is_replaced_takes_effect_with_a_reload() {
    let (before, after) = (Authority::new(), Authority::new());
    let nginx = serving(&for_a_name(&after), "ssl", "");
    let trusted = NamedTempFile::new().expect("a file");
    let trust = |authority: &Authority| {
        fs::copy(authority.certificate(), trusted.path()).expect("copied");
    };
    trust(&before);
    let tls = format!("ca: {}, server_name: app.test", trusted.path().display());
    let file = file(&upstream(nginx.address, &tls));
    let app = App::start_file(file.path());
    assert_eq!(get(&app).await.0, 502);
    trust(&after);
    app.reload_file(file.path()).await;
    assert_eq!(get(&app).await.0, 200);
    trust(&before);
    app.reload_file(file.path()).await;
    assert_eq!(get(&app).await.0, 502, "nor by a connection that was kept");
}

#[tokio::test]
async fn http_2_is_chosen_in_tls_and_known_beforehand_without() {
    let authority = Authority::new();
    let shown = for_a_name(&authority);
    let tls = format!("tls: {{{}, server_name: app.test}}, ", ca(&authority));
    for (listen, tls) in [("ssl http2", &*tls), ("http2", "")] {
        let nginx = serving(&shown, listen, "");
        let app = app(&format!(
            "upstream: {{address: \"{}\", {tls}http: 2, health_check: {{path: /, interval: 100ms, unhealthy_after: 1}}}}",
            nginx.address
        ));
        let requests = (0..20).map(|_| get(&app));
        for (status, body) in futures_util::future::join_all(requests).await {
            assert_eq!(status, 200, "{listen}: {body}");
            assert!(body.starts_with("HTTP/2.0 "), "{listen}: {body}");
        }
        let series = "slidegate_upstream_addresses{state=\"in_rotation\",upstream=\"default\"}";
        // By a check that asks in the same way.
        eventually("it was checked", async || {
            get(&app).await.0 == 200 && app.metric(series).await == 1.0
        })
        .await;
    }
}

#[tokio::test]
async fn an_upstream_that_speaks_no_http_2_is_502_and_not_spoken_to_in_http_1() {
    let authority = Authority::new();
    let loopback = authority.certify("loopback", "IP:127.0.0.1, DNS:app.test");
    let tls = format!(
        "tls: {{{}, server_name: app.test}}, http: 2",
        ca(&authority)
    );
    let by = |address: SocketAddr, more: &str| {
        app(&format!("upstream: {{address: \"{address}\", {more}}}"))
    };
    // It refuses to choose.
    let nginx = serving(&loopback, "ssl", "");
    assert_eq!(get(&by(nginx.address, &tls)).await.0, 502);
    // It does not care.
    let server = Server::start(&loopback, &[]);
    assert_eq!(get(&by(server.address, &tls)).await.0, 502);
    // There is nothing to choose by.
    let nginx = serving(&loopback, "", "");
    assert_eq!(get(&by(nginx.address, "http: 2")).await.0, 502);
}

/// `openssl s_server`, which answers every GET with a page and knows no ALPN unless told to.
struct Server {
    address: SocketAddr,
    process: Child,
}

impl Server {
    fn start(shown: &Certified, options: &[&str]) -> Self {
        use std::io::{BufRead as _, BufReader};
        let path = |path: &Path| path.display().to_string();
        let mut process = Command::new("openssl")
            .args([
                "s_server",
                "-www",
                "-accept",
                "127.0.0.1:0",
                "-naccept",
                "100",
            ])
            .args([
                "-cert",
                &path(&shown.certificate),
                "-key",
                &path(&shown.key),
            ])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("`make test` installs it");
        let told = process.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(told).lines();
        let address = lines.find_map(|line| {
            let line = line.expect("text");
            line.strip_prefix("ACCEPT ")?.parse().ok()
        });
        // It goes on telling.
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.expect("it tells where it listens");
        Self { address, process }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
