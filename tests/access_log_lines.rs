//! What the access log tells of requests, and what it never does.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
};

use regex::bytes::Regex;
use serde_json::{Value, json};

use crate::support::{
    binary::Binary,
    redis::eventually,
    upstream::{Nobody, Upstream},
    wire::Wire,
};

/// The common log format as the documentation of the Apache HTTP server has it, by its mod_log_config
/// `%h %l %u %t "%r" %>s %b`, with what follows it here.
const COMMON: &str = r#"^(?<host>[0-9a-f.:]+|-) (?<ident>-) (?<user>-) \[(?<day>[0-9]{2})/(?<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)/(?<year>[0-9]{4}):(?<hour>[0-9]{2}):(?<minute>[0-9]{2}):(?<second>[0-9]{2}) \+0000\] "(?<method>[^" ]+) (?<path>[^" ]+) (?<version>HTTP/[0-9]\.[0-9])" (?<status>[0-9]{3}|-) (?<bytes>[1-9][0-9]*|-) (?<outcome>pass|denied|refused|unavailable|-) (?<millis>[0-9]+\.[0-9]{3})$"#;

const POLICY: &str = "policies: [{name: per-ip, limits: [1000/366d]}]\n";

fn yaml(upstream: &Upstream, rest: &str) -> String {
    let address = upstream.address;
    format!("upstream: {{address: \"{address}\"}}\nshutdown: {{drain_delay: 0s}}\n{rest}")
}

/// Lines of requests so far, in JSON.
fn json_lines(log: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| {
        let object: Value = serde_json::from_str(line).ok()?;
        (object["target"] == "slidegate::access").then_some(object)
    });
    lines.collect()
}

fn common_lines(log: &str) -> Vec<&str> {
    let lines = log.lines().filter(|line| line.contains(" - - ["));
    lines.collect()
}

async fn status(binary: &Binary, path: &str) -> u16 {
    let response = reqwest::get(binary.url(path)).await;
    response.expect("it is answered").status().as_u16()
}

/// So many lines, as soon as they are there, in the order of their paths: a request is answered before it is logged, and
/// workers do not wait for each other.
async fn lines_of(binary: &Binary, number: usize) -> Vec<Value> {
    eventually("the requests are logged", async || {
        json_lines(&binary.log()).len() >= number
    })
    .await;
    let mut lines = json_lines(&binary.log());
    assert_eq!(lines.len(), number, "{lines:#?}");
    lines.sort_by_key(|line| line["path"].to_string());
    lines
}

/// All that it logged, to its end.
fn log_to_the_end(binary: Binary) -> String {
    let mut file = binary.log_file();
    binary.signal("TERM");
    assert_eq!(binary.exit_code(), Some(0));
    std::io::read_to_string(&mut file).expect("the log is text")
}

#[tokio::test]
async fn each_request_is_one_json_line_that_tells_what_it_got_and_why() {
    let upstream = Upstream::start();
    let rest = "access_log: {format: json}\n\
        identity: {trusted_proxies: [127.0.0.0/8]}\n\
        block: {client_ip: [198.51.100.7]}\n\
        exempt: {path: [/4]}\n\
        policies: [{name: per-ip, limits: [1/366d, 9/365d]}]\n";
    let binary = Binary::start(&yaml(&upstream, rest));
    let client = reqwest::Client::new();
    for (path, from) in [
        ("/1", "203.0.113.9"),
        ("/2", "203.0.113.9"),
        ("/3", "198.51.100.7"),
        ("/4", "203.0.113.9"),
    ] {
        let request = client.post(binary.url(path)).body("abc");
        let sent = request.header("X-Forwarded-For", from).send().await;
        drop(sent.expect("it is answered").bytes().await);
    }
    let lines = lines_of(&binary, 4).await;
    let told = |name: &str| -> Value { lines.iter().map(|line| line[name].clone()).collect() };
    assert_eq!(told("status"), json!([200, 429, 403, 200]));
    assert_eq!(
        told("outcome"),
        json!(["pass", "denied", "refused", "pass"])
    );
    assert_eq!(told("path"), json!(["/1", "/2", "/3", "/4"]));
    let clients = ["203.0.113.9", "203.0.113.9", "198.51.100.7", "203.0.113.9"];
    assert_eq!(told("client"), json!(clients));
    assert_eq!(told("policy"), json!(["per-ip", "per-ip", null, null]));
    assert_eq!(
        told("limit"),
        json!(["per-ip-366d", "per-ip-366d", null, null])
    );
    assert_eq!(told("remaining"), json!([0, 0, null, null]));
    assert_eq!(told("decided_by"), json!(["store", "store", null, null]));
    assert_eq!(told("upstream"), json!(["default", null, null, "default"]));
    let address = upstream.address.to_string();
    assert_eq!(
        told("upstream_address"),
        json!([address, null, null, address])
    );
    assert_eq!(lines[0]["bytes_sent"], 2);
    assert_eq!(lines[0]["bytes_received"], 3);
    for line in &lines {
        assert_eq!(line["method"], "POST");
        assert_eq!(line["host"], json!(binary.proxy.to_string()));
        assert_eq!(line["version"], "HTTP/1.1");
        assert_eq!(line["tls"], Value::Null);
        assert_eq!(line["ended"], "complete");
        assert_eq!(line["request_id"].as_str().map(str::len), Some(36));
        let millis = |name: &str| line[name].as_f64().expect("a number");
        assert!(0.0 < millis("added_ms") && millis("added_ms") <= millis("duration_ms"));
        assert!(
            line["timestamp"]
                .as_str()
                .is_some_and(|at| at.ends_with('Z'))
        );
    }
    assert!(lines[0]["upstream_ms"].as_f64() <= lines[0]["duration_ms"].as_f64());
}

#[tokio::test]
async fn a_common_line_is_what_readers_of_apaches_logs_expect() {
    let upstream = Upstream::start();
    let rest = "access_log: {format: common}\npolicies: [{name: per-ip, limits: [2/366d]}]\n";
    let binary = Binary::start(&yaml(&upstream, rest));
    for path in ["/a?key=k", "/status/204", "/z"] {
        status(&binary, path).await;
    }
    let log = log_to_the_end(binary);
    let lines = common_lines(&log);
    let form = Regex::new(COMMON).expect("a regular expression");
    let fields = lines.iter().map(|line| {
        let found = form.captures(line.as_bytes());
        let found = found.unwrap_or_else(|| panic!("{line}"));
        ["host", "method", "path", "status", "bytes", "outcome"]
            .map(|name| String::from_utf8(found[name].to_vec()).expect("it is ASCII"))
    });
    let mut fields: Vec<_> = fields.collect();
    fields.sort();
    assert_eq!(
        fields[..2],
        [
            ["127.0.0.1", "GET", "/a", "200", "2", "pass"],
            ["127.0.0.1", "GET", "/status/204", "204", "-", "pass"],
        ]
    );
    assert_eq!(fields[2][..4], ["127.0.0.1", "GET", "/z", "429"]);
    assert_eq!((fields.len(), &*fields[2][5]), (3, "denied"));
}

#[tokio::test]
async fn of_a_hundred_requests_a_tenth_is_ten_lines_whatever_became_of_them() {
    let upstream = Upstream::start();
    let rest = "access_log: {format: json, sample: 0.1}\n\
        policies: [{name: per-ip, match: {path: [/denied]}, limits: [0/366d]}]\n";
    let binary = Binary::start(&yaml(&upstream, rest));
    for _ in 0..25 {
        for path in ["/", "/denied", "/status/500", "/status/404"] {
            status(&binary, path).await;
        }
    }
    assert_eq!(json_lines(&log_to_the_end(binary)).len(), 10);
}

#[tokio::test]
async fn a_reload_turns_it_on_and_off_and_nothing_needs_a_restart() {
    let upstream = Upstream::start();
    let binary = Binary::start(&yaml(&upstream, POLICY));
    let reloaded = async |times: f64, rest: &str| {
        binary.rewrite(&yaml(&upstream, &format!("{rest}{POLICY}")));
        binary.signal("HUP");
        eventually("it is reloaded", async || {
            let series = "slidegate_config_reloads_total{result=\"applied\"}";
            let exposition = binary.observed("/metrics").await;
            crate::support::app::metric(&exposition, series) >= times
        })
        .await;
    };
    status(&binary, "/before").await;
    reloaded(1.0, "access_log: {format: json}\n").await;
    status(&binary, "/while").await;
    reloaded(2.0, "access_log: {format: common}\n").await;
    status(&binary, "/other").await;
    reloaded(3.0, "access_log: {format: off}\n").await;
    status(&binary, "/after").await;
    let log = log_to_the_end(binary);
    assert!(!log.contains("restart"), "{log}");
    let json = json_lines(&log);
    assert_eq!((json.len(), &json[0]["path"]), (1, &json!("/while")));
    let common = common_lines(&log);
    assert!(
        common.len() == 1 && common[0].contains("GET /other"),
        "{log}"
    );
}

#[tokio::test]
async fn no_level_of_other_lines_silences_it_or_tells_it_twice() {
    let upstream = Upstream::start();
    for log in [
        "{level: off}",
        "{level: error, format: json}",
        "{level: 'slidegate::access=trace,info'}",
        "{level: 'info,slidegate::access=off', format: json}",
        "{level: trace}",
    ] {
        let rest = format!("log: {log}\naccess_log: {{format: json}}\n{POLICY}");
        let binary = Binary::start(&yaml(&upstream, &rest));
        status(&binary, "/here").await;
        let told = log_to_the_end(binary);
        assert_eq!(told.matches("/here").count(), 1, "{log}: {told}");
        assert_eq!(json_lines(&told).len(), 1, "{log}: {told}");
    }
}

#[tokio::test]
async fn no_request_forges_a_line_or_hides_its_own() {
    let upstream = Upstream::start();
    let heads: [&[u8]; 9] = [
        b"GET /a\"\x20200\x20HTTP/1.1\r\nHost: h",
        b"GET /\"-\" HTTP/1.1\r\nHost: h",
        b"GET /\\\"x\\x0a HTTP/1.1\r\nHost: h",
        b"GET /\xff\xc3\xa9\xe2\x80\xa8 HTTP/1.1\r\nHost: h",
        b"GET /a\x01\x1b[31mb\x7f HTTP/1.1\r\nHost: h",
        b"GET /%0a%0d%22 HTTP/1.1\r\nHost: h",
        b"GET / HTTP/1.1\r\nHost: h\",\"status\":500,\"x\":\"",
        b"GET / HTTP/1.1\r\nHost: h\xff\t{}",
        b"G\"ET / HTTP/1.1\r\nHost: h",
    ];
    let form = Regex::new(COMMON).expect("a regular expression");
    for format in ["json", "common"] {
        let rest = format!("access_log: {{format: {format}}}\n{POLICY}");
        let binary = Binary::start(&yaml(&upstream, &rest));
        let mut reached = 0;
        for head in heads {
            let mut wire = Wire::open(binary.proxy);
            wire.send(head).send(b"\r\nConnection: close\r\n\r\n");
            wire.rest();
            let exposition = binary.observed("/metrics").await;
            let counted = ["2xx", "3xx", "4xx", "5xx"].map(|class| {
                let series = format!("slidegate_requests_total{{status=\"{class}\"}}");
                crate::support::app::metric(&exposition, &series)
            });
            reached = counted.iter().sum::<f64>() as usize;
        }
        assert!(reached > 5, "Pingora takes most of them: {reached}");
        let mut long = Wire::open(binary.proxy);
        let path = "/\"long".repeat(1000);
        long.send(
            format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        long.rest();
        let log = log_to_the_end(binary);
        assert!(log.lines().all(|line| line.len() < 4096));
        if format == "json" {
            let lines = json_lines(&log);
            assert_eq!(lines.len(), reached + 1, "{log}");
            for line in &lines {
                let fields = line.as_object().expect("an object").len();
                assert_eq!(fields, 25, "{line}");
            }
            let paths = lines.iter().map(|line| line["path"].as_str());
            let paths: Vec<_> = paths.map(Option::unwrap_or_default).collect();
            assert!(paths.contains(&"/\\x22-\\x22"), "{paths:?}");
            assert!(paths.contains(&"/%0a%0d%22"), "{paths:?}");
        } else {
            let lines = common_lines(&log);
            assert_eq!(lines.len(), reached + 1, "{log}");
            for line in lines {
                assert!(form.is_match(line.as_bytes()), "{line}");
            }
        }
    }
}

#[tokio::test]
async fn no_key_of_a_client_is_in_it_wherever_it_was_sent() {
    let upstream = Upstream::start();
    for format in ["json", "common"] {
        let rest = format!(
            "access_log: {{format: {format}}}\nlog: {{level: debug}}\n\
            policies: [{{name: per-key, identifier: [header:x-api-key, query:key, cookie:session], limits: [9/366d]}}]\n"
        );
        let binary = Binary::start(&yaml(&upstream, &rest));
        let url = binary.proxy;
        for head in [
            "GET /here?key=hunter2 HTTP/1.1\r\nHost: h".to_owned(),
            "GET /here?hunter2 HTTP/1.1\r\nHost: h".to_owned(),
            "GET /here#hunter2 HTTP/1.1\r\nHost: h".to_owned(),
            "GET /here HTTP/1.1\r\nHost: h\r\nX-Api-Key: hunter2".to_owned(),
            "GET /here HTTP/1.1\r\nHost: h\r\nCookie: session=hunter2".to_owned(),
            "GET /here HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer hunter2".to_owned(),
            "GET /here HTTP/1.1\r\nHost: hunter2:hunter2@h".to_owned(),
            format!("GET http://hunter2:hunter2@{url}/here?key=hunter2 HTTP/1.1\r\nHost: h"),
            format!("GET http://hunter2@{url}?key=hunter2 HTTP/1.1\r\nHost: h"),
            "GET hunter2?key=hunter2 HTTP/1.1\r\nHost: h".to_owned(),
        ] {
            let mut wire = Wire::open(binary.proxy);
            wire.send(head.as_bytes());
            wire.send(b"\r\nReferer: http://h/?key=hunter2\r\nConnection: close\r\n\r\n");
            wire.rest();
        }
        let log = log_to_the_end(binary);
        assert!(log.matches("/here").count() >= 6, "{log}");
        assert!(!log.contains("hunter2"), "{log}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_its_answer_has_no_status() {
    let upstream = Upstream::start();
    let rest = format!("access_log: {{format: json}}\n{POLICY}");
    let binary = Binary::start(&yaml(&upstream, &rest));
    let mut wire = Wire::open(binary.proxy);
    wire.send(b"GET /slow/600000 HTTP/1.1\r\nHost: h\r\n\r\n");
    eventually("it is on its way", async || !upstream.seen().is_empty()).await;
    drop(wire);
    let lines = lines_of(&binary, 1).await;
    assert_eq!(lines[0]["status"], Value::Null);
    assert_eq!(lines[0]["ended"], "client_left");
    assert_eq!(lines[0]["outcome"], "pass");
}

#[tokio::test]
async fn a_client_of_http_2_that_leaves_is_told_of_like_one_of_http_1() {
    let upstream = Upstream::start();
    let rest = format!("access_log: {{format: json}}\n{POLICY}");
    let binary = Binary::start_h2c(&yaml(&upstream, &rest));
    let stream = tokio::net::TcpStream::connect(binary.proxy).await;
    let stream = stream.expect("a connection");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let request = http::Request::get("http://h/slow/600000?key=hunter2");
    let request = request.body(()).expect("a request");
    let (answer, _) = client.send_request(request, true).expect("it is sent");
    eventually("it is on its way", async || !upstream.seen().is_empty()).await;
    drop(answer);
    let lines = lines_of(&binary, 1).await;
    assert_eq!(lines[0]["version"], "HTTP/2.0");
    assert_eq!(lines[0]["host"], "h");
    assert_eq!(lines[0]["path"], "/slow/600000");
    assert_eq!(lines[0]["status"], Value::Null);
    assert_eq!(lines[0]["ended"], "client_left");
    assert!(!binary.log().contains("hunter2"));
    connection.abort();
}

#[tokio::test]
async fn an_answer_in_which_the_upstream_breaks_off_is_told_as_cut_and_keeps_its_status() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    let answering = std::thread::spawn(move || {
        // The first connection is one that only sees whether anybody is there.
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let asked = BufReader::new(&stream).lines();
            let blank = asked.map_while(Result::ok).find(String::is_empty);
            if blank.is_some() {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
                stream.write_all(answer).expect("it is sent");
                return;
            }
        }
    });
    let rest = format!("access_log: {{format: json}}\n{POLICY}");
    let binary = Binary::start(&format!("upstream: {{address: \"{address}\"}}\n{rest}"));
    let mut wire = Wire::open(binary.proxy);
    wire.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let rest = wire.rest();
    assert!(rest.ends_with("\r\n\r\nabc"), "{rest}");
    answering.join().expect("it has answered");
    let lines = lines_of(&binary, 1).await;
    let told = ["status", "ended", "bytes_sent"].map(|name| lines[0][name].clone());
    assert_eq!(told, [json!(200), json!("cut"), json!(3)]);
}

#[tokio::test]
async fn what_slidegate_itself_answers_is_told_with_how_far_it_came() {
    let nobody = Nobody::new();
    let rest = format!(
        "upstreams: {{away: {{address: \"{}\"}}}}\nroutes: [{{path: [/away/**], upstream: away}}]\n\
        shutdown: {{drain_delay: 0s}}\naccess_log: {{format: json}}\n{POLICY}",
        nobody.address
    );
    let binary = Binary::start(&rest);
    assert_eq!(status(&binary, "/away").await, 502);
    assert_eq!(status(&binary, "/nowhere").await, 404);
    let mut wire = Wire::open(binary.proxy);
    wire.send(b"GET nowhere HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(wire.response().starts_with("HTTP/1.1 400"));
    let lines = lines_of(&binary, 3).await;
    let told = |name: &str| -> Value { lines.iter().map(|line| line[name].clone()).collect() };
    assert_eq!(told("status"), json!([400, 502, 404]));
    assert_eq!(told("outcome"), json!([null, "pass", "pass"]));
    assert_eq!(told("upstream"), json!([null, "away", null]));
    let address = nobody.address.to_string();
    assert_eq!(told("upstream_address"), json!([null, address, null]));
    assert_eq!(told("ended"), json!(["complete", "complete", "complete"]));
}
