//! An answer that comes while the client is still sending is read by it, whole: by clients that people use, in every
//! version of HTTP. Each sends 10 MiB and is denied by its first bytes.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::support::{
    app::App,
    certificates::{Authority, tls_listener},
    recorder::Recorder,
    skip::skip,
    upstream::{Nobody, Upstream},
    wire::Wire,
};

const LARGE: usize = 10 << 20;

/// slidegate that denies everybody, by listeners of TLS and of cleartext.
struct Closed {
    app: App,
    upstream: Upstream,
    authority: Authority,
}

impl Closed {
    fn start() -> Self {
        let (upstream, authority) = (Upstream::start(), Authority::new());
        let certified = authority.certify("server", "IP:127.0.0.1");
        let app = App::start_with_files(&format!(
            "listen:\n  - {{address: \"127.0.0.1:0\", h2c: true}}\n  \
             - {}\n\
             upstream: {{address: \"{}\"}}\npolicies: [{{name: closed, limits: [0/1m]}}]\n",
            tls_listener(&[&certified], ""),
            upstream.address
        ));
        Self {
            app,
            upstream,
            authority,
        }
    }

    fn cleartext(&self) -> String {
        format!("http://{}/", self.app.listeners[0])
    }

    fn tls(&self) -> String {
        format!("https://{}/", self.app.listeners[1])
    }

    fn authority(&self) -> String {
        self.authority.certificate().display().to_string()
    }

    /// Holds `client` to have read all of the denial.
    fn is_read(&self, client: &str, output: &Output) {
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let trouble = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{client}: {trouble}{told}");
        let (head, body) = told.split_once("\n\n").unwrap_or((&told, ""));
        assert!(head.contains("429"), "{client}: {told}");
        assert!(
            head.to_lowercase().contains("x-ratelimit-limit"),
            "{client}: {told}"
        );
        let problem: serde_json::Value = serde_json::from_str(body.trim())
            .unwrap_or_else(|error| panic!("{client}: {error}: {told}"));
        assert_eq!(problem["title"], "Quota exceeded", "{client}");
        assert!(self.upstream.seen().is_empty(), "{client}");
    }
}

fn run(command: &mut Command) -> Output {
    let ran = command.stdin(Stdio::null()).output();
    ran.unwrap_or_else(|error| panic!("{command:?}: {error}. `make test` installs it"))
}

/// A body of that length in a file.
fn body() -> tempfile::NamedTempFile {
    let body = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(body.path(), vec![b'x'; LARGE]).expect("written");
    body
}

/// What curl makes of the answer to a POST of the whole of it: the head, an empty line, and the body.
fn curl(authority: &str, body: &Path, options: &[&str], url: &str) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "20"])
        .args(["--noproxy", "*", "--cacert", authority])
        // Else it would wait for a 100.
        .args(["--header", "Expect:"])
        .args(options)
        .args(["--dump-header", "-", "--request", "POST", "--upload-file"])
        .args([body.as_os_str(), url.as_ref()]);
    let output = run(&mut curl);
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    Output {
        stdout: text.into_bytes(),
        ..output
    }
}

/// With a length, and without one.
const FRAMINGS: [&str; 2] = ["Content-Type: text/plain", "Transfer-Encoding: chunked"];

#[test]
fn curl_reads_it() {
    let (closed, body) = (Closed::start(), body());
    let (cleartext, tls) = (closed.cleartext(), closed.tls());
    for (url, version) in [
        (&cleartext, "--http1.1"),
        (&cleartext, "--http2-prior-knowledge"),
        (&tls, "--http1.1"),
        (&tls, "--http2"),
    ] {
        for framing in FRAMINGS {
            let options = ["--header", framing, version];
            let output = curl(&closed.authority(), body.path(), &options, url);
            closed.is_read(&format!("{url} {version} {framing}"), &output);
        }
    }
}

/// Of a body that is too large, of an upstream that wants none, and of one that is away.
#[test]
fn so_are_other_answers_that_come_before_the_end_of_the_body() {
    let (recorder, body) = (Recorder::start(), body());
    let start = |upstream: SocketAddr, most: &str| {
        App::start(&format!(
            "listen: [{{address: \"127.0.0.1:0\", h2c: true}}]\nbounds: {{max_body_size: {most}}}\n\
             upstream: {{address: \"{upstream}\"}}\npolicies: [{{name: per-ip, limits: [1000/366d]}}]\n",
        ))
    };
    let nobody = Nobody::new();
    let (app, down) = (
        start(recorder.address, "1GiB"),
        start(nobody.address, "1GiB"),
    );
    let strict = start(recorder.address, "1MiB");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for framing in FRAMINGS {
            let options = ["--header", framing, version];
            for (url, status, body_of_it) in [
                (strict.url("/"), " 413", TOO_LARGE),
                (app.url("/at-once"), " 403", "\n\nno"),
                (down.url("/"), " 502", BAD_GATEWAY),
            ] {
                let output = curl(
                    "/etc/ssl/certs/ca-certificates.crt",
                    body.path(),
                    &options,
                    &url,
                );
                let trouble = String::from_utf8_lossy(&output.stderr);
                let told = String::from_utf8_lossy(&output.stdout);
                assert!(
                    output.status.success(),
                    "{status} {options:?}: {trouble}{told}"
                );
                let is_read = told.contains(status) && told.contains(body_of_it);
                assert!(is_read, "{options:?} {status}: {told}");
            }
        }
    }
}

/// Else a reset may overtake the answer: with whom that happens is luck.
#[test]
fn who_goes_on_sending_after_an_error_is_not_reset() {
    let nobody = Nobody::new();
    let app = App::start(&format!(
        "bounds: {{max_body_size: 1MiB}}\nupstream: {{address: \"{}\"}}\n\
         policies: [{{name: per-ip, limits: [1000/366d]}}]\n",
        nobody.address
    ));
    let recorder = Recorder::start();
    let strict = App::start(&format!(
        "bounds: {{max_body_size: 64KiB}}\nupstream: {{address: \"{}\"}}\n\
         policies: [{{name: per-ip, limits: [1000/366d]}}]\n",
        recorder.address
    ));
    let part = vec![b'x'; 128 << 10];
    let chunk = [format!("{:x}\r\n", part.len()).as_bytes(), &part, b"\r\n"].concat();
    for (app, framing, part, status) in [
        (&app, "Content-Length: 1000000", &part, 502),
        (&strict, "Transfer-Encoding: chunked", &chunk, 413),
    ] {
        let mut wire = Wire::open(app.proxy);
        wire.send(format!("POST / HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n").as_bytes());
        wire.send(part);
        let answer = wire.response();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        wire.send(part);
        assert!(wire.ends_in_order(), "{status}");
    }
}

const TOO_LARGE: &str = r#"{"type":"about:blank","title":"Payload Too Large","status":413,"#;
const BAD_GATEWAY: &str = r#"{"type":"about:blank","title":"Bad Gateway","status":502,"#;

/// It sends all of its body before it looks for an answer.
#[test]
fn pythons_http_client_reads_it() {
    let closed = Closed::start();
    for url in [closed.cleartext(), closed.tls()] {
        let output = run(Command::new("python3").args(["-c", PYTHON, &url, &closed.authority()]));
        closed.is_read(&format!("Python at {url}"), &output);
    }
}

const PYTHON: &str = r#"
import http.client, ssl, sys, urllib.parse
url, authority = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2]
if url.scheme == "https":
    trust = ssl.create_default_context(cafile=authority)
    client = http.client.HTTPSConnection(url.hostname, url.port, timeout=20, context=trust)
else:
    client = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
client.request("POST", "/", body=b"x" * (10 << 20))
answer = client.getresponse()
body = answer.read().decode()
print(answer.status, *answer.headers.items(), "", body, sep="\n")
"#;

#[test]
fn node_reads_it_in_both_versions() {
    if Command::new("node").arg("--version").output().is_err() {
        skip("node is not there: what it reads of an early answer was not looked at");
        return;
    }
    let closed = Closed::start();
    for url in [closed.cleartext(), closed.tls()] {
        for script in [NODE_1, NODE_2] {
            let output = run(Command::new("node").args(["-e", script, &url, &closed.authority()]));
            let version = script.lines().nth(1).unwrap_or_default();
            closed.is_read(&format!("{version} at {url}"), &output);
        }
    }
}

const NODE_1: &str = r#"
// node:http
const fs = require("fs"), url = process.argv[1];
const http = require(url.startsWith("https") ? "https" : "http");
const fail = (error) => { console.error(error); process.exit(1); };
const request = http.request(url, { method: "POST", ca: fs.readFileSync(process.argv[2]) });
request.on("error", fail);
request.on("response", (answer) => {
  let body = "";
  answer.on("data", (part) => (body += part)).on("error", fail).on("aborted", () => fail("aborted"));
  answer.on("end", () => {
    console.log([answer.statusCode, JSON.stringify(answer.headers), "", body].join("\n"));
    process.exit(0);
  });
});
request.end(Buffer.alloc(10 << 20, "x"));
"#;

const NODE_2: &str = r#"
// node:http2
const fs = require("fs"), http2 = require("http2");
const fail = (error) => { console.error(error); process.exit(1); };
const session = http2.connect(process.argv[1], { ca: fs.readFileSync(process.argv[2]) });
session.on("error", fail);
const stream = session.request({ ":method": "POST", ":path": "/" });
let head, body = "";
stream.on("error", fail);
stream.on("response", (told) => (head = told));
stream.on("data", (part) => (body += part));
stream.on("end", () => {
  console.log([head[":status"], JSON.stringify(head), "", body].join("\n"));
  session.destroy();
});
// A piece at a time: of all of it at once node's own bound on a session's memory makes an error.
let left = 160;
const send = () => {
  while (left-- > 0) if (!stream.write(Buffer.alloc(64 << 10, "x"))) return stream.once("drain", send);
  stream.end();
};
send();
"#;
