//! Where clients connect: several listeners, TLS with certificates that are renewed, HTTP/2, sockets in the file
//! system, the PROXY protocol. The clients are curl and openssl, or bytes where no client would say such things.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
};

use slidegate::config::Config;

use crate::support::{
    app::App,
    certificates::{Authority, Certified, tls_listener},
    curl::curl_for,
    upstream::{Seen, Upstream},
    wire::Wire,
};

/// An app behind whose listeners an upstream answers; `listen` is one of them.
fn start(listen: &str) -> (App, Upstream) {
    let upstream = Upstream::start();
    (App::start_with_files(&yaml(listen, &upstream)), upstream)
}

fn yaml(listen: &str, upstream: &Upstream) -> String {
    format!(
        "listen: [{listen}]\nupstream: {{address: \"{}\"}}\nshutdown: {{drain_delay: 0ms}}\n\
         policies: [{{name: per-ip, limits: [1000/366d]}}]\n",
        upstream.address
    )
}

/// What curl prints of the answer: version, status and the subject it was shown; `options` before the URL.
fn curl(
    authority: &Authority,
    name: &str,
    at: SocketAddr,
    options: &[&str],
) -> Result<String, i32> {
    let output = curl_for("10", "%{http_version} %{http_code}")
        .arg("--cacert")
        .arg(authority.certificate())
        .args(["--resolve", &format!("{name}:{}:{}", at.port(), at.ip())])
        .args(options)
        .arg(format!("https://{name}:{}/", at.port()))
        .output()
        .expect("curl runs");
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        code => Err(code.unwrap_or(-1)),
    }
}

/// A header as it reached the upstream.
fn sent(seen: &Seen, name: &str) -> Option<String> {
    let value = seen.headers.get(name)?;
    Some(value.to_str().expect("text").to_owned())
}

/// The names in the certificate that is shown to a client which asks for `name`.
fn shown(at: SocketAddr, name: Option<&str>) -> String {
    let name = name.map_or(vec!["-noservername"], |name| vec!["-servername", name]);
    let client = Command::new("openssl")
        .args(["s_client", "-connect", &at.to_string()])
        .args(name)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .expect("openssl runs");
    let mut x509 = Command::new("openssl")
        .args(["x509", "-noout", "-ext", "subjectAltName"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl runs");
    let sent = x509.stdin.take().expect("piped").write_all(&client.stdout);
    sent.expect("openssl reads");
    let output = x509.wait_with_output().expect("openssl ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().last().unwrap_or_default().trim().to_owned()
}

#[test]
fn several_listeners_lead_to_one_proxy_with_one_set_of_counters() {
    let (app, _upstream) = start("\"127.0.0.1:0\", \"127.0.0.1:0\", {address: \"127.0.0.1:0\"}");
    let remaining = app.listeners.iter().map(|&at| {
        let answer = Wire::open(at).send(REQUEST).response();
        header(&answer, "x-ratelimit-remaining")
    });
    assert_eq!(remaining.collect::<Vec<_>>(), ["999", "998", "997"]);
}

#[test]
fn a_client_speaks_http_1_or_2_over_tls_as_it_likes() {
    let authority = Authority::new();
    let certified = authority.certify("server", "DNS:api.test");
    let (app, upstream) = start(&tls_listener(&[&certified], ""));
    let ask = |options: &[&str]| curl(&authority, "api.test", app.proxy, options);
    assert_eq!(ask(&["--http1.1"]).as_deref(), Ok("1.1 200"));
    assert_eq!(ask(&["--http2"]).as_deref(), Ok("2 200"));
    assert_eq!(
        ask(&["--http2", "--tls-max", "1.2"]).as_deref(),
        Ok("2 200")
    );
    assert_eq!(
        ask(&["--http2", "--data", "a body"]).as_deref(),
        Ok("2 200")
    );
    let told = upstream.last();
    assert_eq!(sent(&told, "x-forwarded-proto").as_deref(), Some("https"));
    assert_eq!(sent(&told, "x-forwarded-for").as_deref(), Some("127.0.0.1"));
    let host = format!("api.test:{}", app.proxy.port());
    assert_eq!(sent(&told, "host"), Some(host));
}

#[test]
fn clients_of_both_versions_are_counted_as_one() {
    let authority = Authority::new();
    let certified = authority.certify("server", "DNS:api.test");
    let upstream = Upstream::start();
    let app = App::start_with_files(&format!(
        "listen: [{}]\nupstream: {{address: \"{}\"}}\npolicies: [{{name: p, limits: [2/366d]}}]\n",
        tls_listener(&[&certified], ""),
        upstream.address
    ));
    let ask = |version| curl(&authority, "api.test", app.proxy, &[version]);
    assert_eq!(ask("--http2").as_deref(), Ok("2 200"));
    assert_eq!(ask("--http1.1").as_deref(), Ok("1.1 200"));
    assert_eq!(ask("--http2").as_deref(), Ok("2 429"));
    assert_eq!(ask("--http1.1").as_deref(), Ok("1.1 429"));
}

#[test]
fn a_client_is_shown_the_certificate_with_its_name_else_the_first() {
    let authority = Authority::new();
    let first = authority.certify("first", "DNS:first.test");
    let second = authority.certify("second", "DNS:second.test, DNS:*.wild.test");
    let (app, _upstream) = start(&tls_listener(&[&first, &second], ""));
    for (name, expected) in [
        (Some("first.test"), "DNS:first.test"),
        (Some("second.test"), "DNS:second.test, DNS:*.wild.test"),
        (Some("SECOND.test"), "DNS:second.test, DNS:*.wild.test"),
        (Some("a.wild.test"), "DNS:second.test, DNS:*.wild.test"),
        (Some("a.b.wild.test"), "DNS:first.test"),
        (Some("wild.test"), "DNS:first.test"),
        (Some("unknown.test"), "DNS:first.test"),
        (None, "DNS:first.test"),
    ] {
        assert_eq!(shown(app.proxy, name), expected, "{name:?}");
    }
}

#[test]
fn where_certificates_are_asked_for_only_their_bearers_are_served() {
    let authority = Authority::new();
    let server = authority.certify("server", "DNS:api.test");
    let bearer = authority.certify("bearer", "DNS:client.test");
    let stranger = Authority::new();
    let other = stranger.certify("other", "DNS:client.test");
    let ca = format!(", client_ca: {}", authority.certificate().display());
    let (app, upstream) = start(&tls_listener(&[&server], &ca));
    let with = |pair: &Certified, version| {
        let (certificate, key) = (path(&pair.certificate), path(&pair.key));
        let options = ["--cert", certificate, "--key", key, version];
        curl(&authority, "api.test", app.proxy, &options)
    };
    for version in ["--http1.1", "--http2"] {
        let served = format!("{} 200", version.trim_start_matches("--http"));
        assert_eq!(with(&bearer, version), Ok(served));
        assert!(with(&other, version).is_err(), "one of another authority");
        assert!(
            curl(&authority, "api.test", app.proxy, &[version]).is_err(),
            "none"
        );
    }
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_connection_dropped() {
    let authority = Authority::new();
    let before = authority.certify("before", "DNS:before.test");
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let put = |pair: &Certified| {
        fs::copy(&pair.certificate, &certificate).expect("copied");
        fs::copy(&pair.key, &key).expect("copied");
    };
    put(&before);
    let upstream = Upstream::start();
    let pair = Certified {
        certificate: certificate.clone(),
        key: key.clone(),
    };
    let config = yaml(&tls_listener(&[&pair], ""), &upstream);
    let file = folder.path().join("config.yaml");
    fs::write(&file, &config).expect("written");
    let app = App::start_file(&file);

    let series = format!(
        "slidegate_certificate_expiry_timestamp_seconds{{file=\"{}\"}}",
        certificate.display()
    );
    let ends = app.metric(&series).await;
    let mut kept = Kept::open(app.proxy);
    assert!(kept.ask(), "served before");

    put(&authority.certify_for("after", "DNS:after.test", 9));
    app.reload_file(&file).await;
    assert_eq!(shown(app.proxy, None), "DNS:after.test");
    assert!(kept.ask(), "the connection is served as before");
    let later = app.metric(&series).await - ends;
    assert!((6.9..7.1).contains(&(later / 86_400.0)), "{later}");

    fs::write(&key, "no key").expect("written");
    app.reload_file(&file).await;
    assert_eq!(
        shown(app.proxy, None),
        "DNS:after.test",
        "what is in force stays"
    );
    assert_eq!(
        app.metric("slidegate_config_reloads_total{result=\"refused\"}")
            .await,
        1.0
    );
    assert!(kept.ask());
}

#[test]
fn certificates_and_keys_that_are_of_no_use_are_told_with_their_place() {
    let authority = Authority::new();
    let (one, other) = (
        authority.certify("one", "DNS:one.test"),
        authority.certify("other", "DNS:other.test"),
    );
    let told = |certificate: &Path, key: &Path| {
        let pair = Certified {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(
            file.path(),
            yaml(&tls_listener(&[&pair], ""), &Upstream::start()),
        )
        .expect("written");
        let error = Config::load(file.path(), &|_| None).expect_err("of no use");
        error.to_string()
    };
    let mismatch = told(&one.certificate, &other.key);
    assert!(mismatch.contains("listen[0].tls: "), "{mismatch}");
    let (certificate, key) = (path(&one.certificate), path(&other.key));
    assert!(
        mismatch.contains(&format!("{key} is not the key of {certificate}")),
        "{mismatch}"
    );
    let swapped = told(&one.key, &one.certificate);
    assert!(
        swapped.contains("listen[0].tls.certificates[0].certificate: "),
        "{swapped}"
    );
    assert!(
        swapped.contains("this file holds no certificate in PEM"),
        "{swapped}"
    );
    assert!(
        swapped.contains("this file holds no private key in PEM"),
        "{swapped}"
    );
    let absent = told(Path::new("/nowhere.crt"), &one.key);
    assert!(absent.contains("this file cannot be read"), "{absent}");
}

#[test]
fn cleartext_http_2_is_served_where_it_is_asked_for_beside_http_1() {
    let (app, upstream) = start("{address: \"127.0.0.1:0\", h2c: true}, \"127.0.0.1:0\"");
    let ask = |at: SocketAddr, version| {
        let output = curl_for("10", "%{http_version} %{http_code}")
            .arg(version)
            .arg(format!("http://{at}/"))
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (both, only_1) = (app.listeners[0], app.listeners[1]);
    assert_eq!(ask(both, "--http2-prior-knowledge"), "2 200");
    assert_eq!(ask(both, "--http1.1"), "1.1 200");
    assert_eq!(ask(only_1, "--http1.1"), "1.1 200");
    assert_ne!(ask(only_1, "--http2-prior-knowledge"), "2 200");
    // The shortest request there is: whoever waits for as many bytes as HTTP/2 begins with waits for ever.
    let short = Wire::open(both).send(b"GET / HTTP/1.0\r\n\r\n").response();
    assert!(short.starts_with("HTTP/1.1 200"), "{short}");
    assert_eq!(upstream.seen().len(), 4);
}

#[test]
fn a_socket_in_the_file_system_is_listened_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s.sock");
    // One that a process has left behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("bound"));
    let listen = format!("{{address: \"unix:{}\", mode: \"0600\"}}", socket.display());
    let (app, upstream) = start(&listen);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(&socket).expect("it is there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&socket).expect("it listens");
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(upstream.seen().len(), 1);
    drop(app);
}

#[test]
fn a_socket_that_is_listened_at_or_a_file_is_not_replaced() {
    use slidegate::server::{ListenAddress, bind};
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| ListenAddress::Unix {
        path: folder.path().join(name),
        mode: 0o660,
    };
    let _held = bind("listen", &at("held")).expect("a new socket");
    let taken = bind("listen", &at("held")).expect_err("somebody listens");
    assert!(
        taken.to_string().contains("another process listens there"),
        "{taken}"
    );
    fs::write(folder.path().join("file"), "precious").expect("written");
    bind("listen", &at("file")).expect_err("it is a file");
    let kept = fs::read_to_string(folder.path().join("file")).expect("it is there");
    assert_eq!(kept, "precious");
}

#[test]
fn who_the_client_is_comes_by_proxy_protocol_of_both_versions() {
    let (app, upstream) = start("{address: \"127.0.0.1:0\", proxy_protocol: {from: [127.0.0.1]}}");
    for (header, client) in [
        (
            &b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n"[..],
            "203.0.113.7",
        ),
        (
            b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n",
            "2001:db8::7",
        ),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        (
            &v2(0x21, 0x11, &[203, 0, 113, 8, 192, 0, 2, 1, 18, 103, 1, 187]),
            "203.0.113.8",
        ),
        // With more behind the addresses, as load balancers add.
        (
            &v2(
                0x21,
                0x11,
                &[203, 0, 113, 9, 192, 0, 2, 1, 18, 103, 1, 187, 4, 0, 1, 0],
            ),
            "203.0.113.9",
        ),
        // A load balancer that speaks for itself.
        (&v2(0x20, 0x00, &[]), "127.0.0.1"),
    ] {
        let answer = Wire::open(app.proxy).send(header).send(REQUEST).response();
        assert!(answer.starts_with("HTTP/1.1 200"), "{client}: {answer}");
        assert_eq!(
            sent(&upstream.last(), "x-forwarded-for").as_deref(),
            Some(client)
        );
        // The same in one piece with the request, and byte by byte.
        let whole = [header, REQUEST].concat();
        let answer = Wire::open(app.proxy).send(&whole).response();
        assert!(answer.starts_with("HTTP/1.1 200"), "{client}: {answer}");
        let mut wire = Wire::open(app.proxy);
        for byte in &whole {
            wire.send(&[*byte]);
        }
        assert!(wire.response().starts_with("HTTP/1.1 200"), "{client}");
    }
    assert_eq!(upstream.seen().len(), 18);
}

#[test]
fn without_a_header_of_the_proxy_protocol_nobody_is_served() {
    let (app, upstream) = start("{address: \"127.0.0.1:0\", proxy_protocol: {from: [127.0.0.1]}}");
    let long = [&b"PROXY TCP4 "[..], &[b'1'; 5000]].concat();
    for bytes in [
        REQUEST,
        b"PROXY TCP4 203.0.113.7 192.0.2.1 4711\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PROXY TCP4 203.0.113.256 192.0.2.1 4711 443\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &v2(0x31, 0x11, &[203, 0, 113, 8, 192, 0, 2, 1, 18, 103, 1, 187]),
        &v2(0x21, 0x11, &[203, 0, 113]),
        &long,
    ] {
        assert_eq!(Wire::open(app.proxy).send(bytes).rest(), "");
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[test]
fn whoever_may_not_say_who_its_client_is_is_turned_away() {
    let (app, upstream) =
        start("{address: \"127.0.0.1:0\", proxy_protocol: {from: [192.0.2.0/24]}}");
    let header = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n";
    assert_eq!(Wire::open(app.proxy).send(header).send(REQUEST).rest(), "");
    assert_eq!(upstream.seen().len(), 0);
}

#[test]
fn the_proxy_protocol_comes_before_tls() {
    let authority = Authority::new();
    let certified = authority.certify("server", "DNS:api.test");
    let listen = tls_listener(&[&certified], "}, proxy_protocol: {from: [127.0.0.1]");
    let (app, upstream) = start(&listen);
    let ask = curl(
        &authority,
        "api.test",
        app.proxy,
        &["--http2", "--haproxy-protocol"],
    );
    assert_eq!(ask.as_deref(), Ok("2 200"));
    assert_eq!(
        sent(&upstream.last(), "x-forwarded-for").as_deref(),
        Some("127.0.0.1")
    );
    assert!(curl(&authority, "api.test", app.proxy, &["--http2"]).is_err());
}

#[test]
fn bytes_that_are_no_tls_end_the_connection_and_nothing_else() {
    let authority = Authority::new();
    let certified = authority.certify("server", "DNS:api.test");
    let (app, _upstream) = start(&tls_listener(&[&certified], ""));
    Wire::open(app.proxy).send(REQUEST).rest();
    Wire::open(app.proxy).send(&[0x16, 3, 1, 0xff, 0xff]);
    let ask = curl(&authority, "api.test", app.proxy, &["--http1.1"]);
    assert_eq!(ask.as_deref(), Ok("1.1 200"));
}

/// A header of version 2: command, family, addresses and what follows them.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([command, family]);
    header.extend(u16::try_from(rest.len()).expect("short").to_be_bytes());
    header.extend(rest);
    header
}

/// A connection that `openssl s_client` keeps.
struct Kept {
    client: std::process::Child,
    input: std::process::ChildStdin,
    output: std::io::BufReader<std::process::ChildStdout>,
}

impl Kept {
    fn open(at: SocketAddr) -> Self {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &at.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let input = client.stdin.take().expect("piped");
        let output = std::io::BufReader::new(client.stdout.take().expect("piped"));
        Self {
            client,
            input,
            output,
        }
    }

    /// Whether one more request is answered 200 with a whole body.
    fn ask(&mut self) -> bool {
        use std::io::BufRead as _;
        if self.input.write_all(REQUEST).is_err() {
            return false;
        }
        let (mut first, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap_or(0) == 0 {
                return false;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            if line == "\r\n" {
                break;
            }
            first.get_or_insert(line);
        }
        let read = self.output.read_exact(&mut vec![0; length]);
        read.is_ok() && first.is_some_and(|line| line.starts_with("HTTP/1.1 200"))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.client.kill());
        drop(self.client.wait());
    }
}

fn header(answer: &str, name: &str) -> String {
    let lines = answer.lines().filter_map(|line| line.split_once(": "));
    let mut found = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    found
        .next()
        .map(|(_, value)| value.to_owned())
        .unwrap_or_default()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
