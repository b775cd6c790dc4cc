//! What is known of a request when it has ended, and the line that tells it.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use serde::{Serialize, Serializer};

use super::{
    ACCESS_TARGET, AccessFormat,
    date::{CommonDate, Rfc3339},
};
use crate::{
    policy::{Client, Identifier},
    ratelimit::Timestamp,
    upstream::Socket,
};

/// What is known of a request when it has ended.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord<'a> {
    /// When its head was read, by this proxy's clock.
    pub time: Timestamp,
    /// Who sent it, as trusted proxies say.
    pub client: Client,
    /// The method.
    pub method: Escaped<'a>,
    /// The host that it is for, as it was sent; `None` if it names none.
    pub host: Option<Escaped<'a>>,
    /// The path, as it was sent, without the query.
    pub path: Escaped<'a>,
    /// As in a request line: `HTTP/1.1`.
    pub version: &'static str,
    /// The version of TLS by which the client came; `None` in cleartext.
    pub tls: Option<&'a str>,
    /// The status that was sent; `None` if the client left before one was.
    pub status: Option<u16>,
    /// Of the response's body, in bytes.
    pub bytes_sent: u64,
    /// Of the request's body, in bytes.
    pub bytes_received: u64,
    /// How it ended.
    pub ended: RequestEnd,
    /// From its head to its end.
    pub duration: Duration,
    /// From its head to the decision on it; `None` if there was none.
    pub added: Option<Duration>,
    /// Where it went; `None` if it went nowhere.
    pub upstream: Option<UpstreamPart<'a>>,
    /// What the limiter decided: `pass`, `denied`, `refused` or `unavailable`; `None` if it was not asked.
    pub outcome: Option<&'static str>,
    /// The limit that its client is told of; `None` where none is in force.
    pub limit: Option<Reported<'a>>,
    /// What the request is called, in characters that stand for themselves.
    pub request_id: Option<&'a str>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestEnd {
    /// With a whole answer.
    Complete,
    /// By its client, before the whole answer was sent.
    ClientLeft,
    /// Within an answer of the upstream, and not by its client.
    Cut,
}

/// Where a request went.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamPart<'a> {
    /// The upstream's name.
    pub name: &'a str,
    /// The address that was tried last; `None` if none was.
    pub address: Option<&'a Socket>,
    /// From the last choice of an address to the head of an answer, or to the request's end; `None` if none was chosen.
    pub took: Option<Duration>,
}

/// A limit that decided.
#[derive(Clone, Copy, Debug)]
pub struct Reported<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The limit's.
    pub limit: &'a str,
    /// The plan whose limit it is, if it is one's.
    pub plan: Option<&'a str>,
    /// Who was counted: an address, or a hash.
    pub identifier: Identifier,
    /// Who decided, in the word of labels.
    pub decided_by: &'static str,
    /// How many more requests of cost 1 would be admitted.
    pub remaining: u64,
}

/// The line that tells a record, with its end. It allocates once, unless the line is a long one.
pub fn line(format: AccessFormat, record: &AccessRecord<'_>) -> String {
    let mut line = match format {
        AccessFormat::Json => {
            let mut json = Vec::with_capacity(USUAL_JSON);
            serde_json::to_writer(&mut json, &JsonLine::of(record))
                .expect("its keys are names and its values words and numbers");
            String::from_utf8(json).expect("JSON is text")
        }
        AccessFormat::Common => {
            let mut line = String::with_capacity(USUAL_COMMON);
            common(&mut line, record).expect("a string takes everything");
            line
        }
    };
    line.push('\n');
    line
}

/// `host ident authuser [date] "request" status bytes`, as the Apache HTTP server documents its `common`; then what the
/// limiter decided, and milliseconds.
fn common(line: &mut String, record: &AccessRecord<'_>) -> fmt::Result {
    match record.client {
        Client::Address(address) => write!(line, "{address}")?,
        Client::Unix => line.write_char('-')?,
    }
    let AccessRecord {
        method,
        path,
        version,
        ..
    } = record;
    let date = CommonDate(record.time);
    write!(line, " - - [{date}] \"{method} {path} {version}\"")?;
    match record.status {
        Some(status) => write!(line, " {status:03}")?,
        None => line.write_str(" -")?,
    }
    match record.bytes_sent {
        0 => line.write_str(" -")?,
        bytes => write!(line, " {bytes}")?,
    }
    let outcome = record.outcome.unwrap_or("-");
    write!(line, " {outcome} {}", Millis(record.duration))
}

/// The names and the order of what a JSON line has. It is flat, so that a column is a name.
#[derive(Serialize)]
struct JsonLine<'a> {
    timestamp: Rfc3339,
    target: &'static str,
    client: Shown<Client>,
    method: Escaped<'a>,
    host: Option<Escaped<'a>>,
    path: Escaped<'a>,
    version: &'static str,
    tls: Option<&'a str>,
    status: Option<u16>,
    bytes_sent: u64,
    bytes_received: u64,
    ended: RequestEnd,
    duration_ms: Millis,
    added_ms: Option<Millis>,
    upstream: Option<&'a str>,
    upstream_address: Option<Shown<&'a Socket>>,
    upstream_ms: Option<Millis>,
    outcome: Option<&'static str>,
    policy: Option<&'a str>,
    limit: Option<&'a str>,
    plan: Option<&'a str>,
    identifier: Option<Shown<Identifier>>,
    decided_by: Option<&'static str>,
    remaining: Option<u64>,
    request_id: Option<&'a str>,
}

impl<'a> JsonLine<'a> {
    fn of(record: &AccessRecord<'a>) -> Self {
        let AccessRecord {
            upstream, limit, ..
        } = *record;
        Self {
            timestamp: Rfc3339(record.time),
            target: ACCESS_TARGET,
            client: Shown(record.client),
            method: record.method,
            host: record.host,
            path: record.path,
            version: record.version,
            tls: record.tls,
            status: record.status,
            bytes_sent: record.bytes_sent,
            bytes_received: record.bytes_received,
            ended: record.ended,
            duration_ms: Millis(record.duration),
            added_ms: record.added.map(Millis),
            upstream: upstream.map(|upstream| upstream.name),
            upstream_address: upstream.and_then(|upstream| upstream.address.map(Shown)),
            upstream_ms: upstream.and_then(|upstream| upstream.took.map(Millis)),
            outcome: record.outcome,
            policy: limit.map(|limit| limit.policy),
            limit: limit.map(|limit| limit.limit),
            plan: limit.and_then(|limit| limit.plan),
            identifier: limit.map(|limit| Shown(limit.identifier)),
            decided_by: limit.map(|limit| limit.decided_by),
            remaining: limit.map(|limit| limit.remaining),
            request_id: record.request_id,
        }
    }
}

/// Bytes of a client in printable ASCII that has neither blanks nor quotes, and a backslash only where it stands for
/// something: `\x0A` is one byte, and `\...` at the end says that more was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Escaped<'a> {
    bytes: &'a [u8],
    most: usize,
}

impl<'a> Escaped<'a> {
    /// These, in at most 1,024 characters.
    pub const fn path(bytes: &'a [u8]) -> Self {
        Self { bytes, most: 1024 }
    }

    /// These, in at most 255 characters, as a name in DNS has.
    pub const fn host(bytes: &'a [u8]) -> Self {
        Self { bytes, most: 255 }
    }

    /// These, in at most 32 characters: no method that is registered has more than 17.
    pub const fn method(bytes: &'a [u8]) -> Self {
        Self { bytes, most: 32 }
    }

    /// How many of the bytes are told: all of them, or as many as leave room for the mark that says so.
    fn told(&self) -> usize {
        let (mut width, mut fitting) = (0, 0);
        for (place, byte) in self.bytes.iter().enumerate() {
            if width + CUT.len() <= self.most {
                fitting = place;
            }
            width += if is_plain(*byte) { 1 } else { 4 };
            if width > self.most {
                return fitting;
            }
        }
        self.bytes.len()
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (told, cut) = self.bytes.split_at(self.told());
        for run in told.chunk_by(|one, next| is_plain(*one) && is_plain(*next)) {
            match std::str::from_utf8(run) {
                Ok(text) if is_plain(run[0]) => f.write_str(text)?,
                _ => write!(f, "\\x{:02X}", run[0])?,
            }
        }
        match cut {
            [] => Ok(()),
            _ => f.write_str(CUT),
        }
    }
}

/// As it is told.
impl fmt::Debug for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Escaped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Printable ASCII that ends no word and no quotation.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'"' && byte != b'\\'
}

/// Milliseconds, to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub Duration);

impl Millis {
    fn value(self) -> f64 {
        self.0.as_micros() as f64 / 1000.0
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.value())
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.value())
    }
}

/// What is written as it is told.
struct Shown<T>(T);

impl<T: fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// What says that more was sent.
const CUT: &str = "\\...";

/// Most lines in JSON have no more bytes.
const USUAL_JSON: usize = 768;

/// Nor most common ones.
const USUAL_COMMON: usize = 192;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const ADDRESS: Socket = Socket::Tcp(SocketAddr::new(
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        3000,
    ));

    fn record<'a>() -> AccessRecord<'a> {
        AccessRecord {
            time: Timestamp::from_millis(1_798_761_599_123),
            client: Client::Address(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))),
            method: Escaped::method(b"GET"),
            host: Some(Escaped::host(b"api.example.com")),
            path: Escaped::path(b"/users/7"),
            version: "HTTP/1.1",
            tls: Some("TLSv1.3"),
            status: Some(200),
            bytes_sent: 512,
            bytes_received: 3,
            ended: RequestEnd::Complete,
            duration: Duration::from_micros(12_345),
            added: Some(Duration::from_micros(250)),
            upstream: Some(UpstreamPart {
                name: "web",
                address: Some(&ADDRESS),
                took: Some(Duration::from_millis(12)),
            }),
            outcome: Some("pass"),
            limit: Some(Reported {
                policy: "per-client",
                limit: "per-client-1m",
                plan: Some("gold"),
                identifier: Identifier::Address(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))),
                decided_by: "store",
                remaining: 99,
            }),
            request_id: None,
        }
    }

    /// One of which nothing is known but that it came.
    fn bare<'a>() -> AccessRecord<'a> {
        AccessRecord {
            client: Client::Unix,
            host: None,
            tls: None,
            status: None,
            bytes_sent: 0,
            ended: RequestEnd::ClientLeft,
            added: None,
            upstream: None,
            outcome: None,
            limit: None,
            ..record()
        }
    }

    fn json_of(record: &AccessRecord<'_>) -> Value {
        let line = line(AccessFormat::Json, record);
        serde_json::from_str(&line).expect("it is JSON")
    }

    #[test]
    fn a_json_line_is_one_flat_object() {
        let expected = json!({
            "timestamp": "2026-12-31T23:59:59.123Z",
            "target": "slidegate::access",
            "client": "203.0.113.7",
            "method": "GET",
            "host": "api.example.com",
            "path": "/users/7",
            "version": "HTTP/1.1",
            "tls": "TLSv1.3",
            "status": 200,
            "bytes_sent": 512,
            "bytes_received": 3,
            "ended": "complete",
            "duration_ms": 12.345,
            "added_ms": 0.25,
            "upstream": "web",
            "upstream_address": "10.0.0.1:3000",
            "upstream_ms": 12.0,
            "outcome": "pass",
            "policy": "per-client",
            "limit": "per-client-1m",
            "plan": "gold",
            "identifier": "203.0.113.7",
            "decided_by": "store",
            "remaining": 99,
            "request_id": null,
        });
        assert_eq!(json_of(&record()), expected);
    }

    #[test]
    fn what_is_not_known_is_null_and_every_name_is_there() {
        let (known, bare) = (json_of(&record()), json_of(&bare()));
        let names = |line: &Value| -> Vec<String> {
            let object = line.as_object().expect("an object");
            object.keys().cloned().collect()
        };
        assert_eq!(names(&known), names(&bare));
        for name in ["status", "host", "tls", "upstream", "outcome", "policy"] {
            assert_eq!(bare[name], Value::Null, "{name}");
        }
        assert_eq!(bare["client"], "unix");
        assert_eq!(bare["ended"], "client_left");
    }

    #[test]
    fn a_common_line_is_apaches_with_the_decision_and_the_time_behind_it() {
        assert_eq!(
            line(AccessFormat::Common, &record()),
            "203.0.113.7 - - [31/Dec/2026:23:59:59 +0000] \"GET /users/7 HTTP/1.1\" 200 512 pass 12.345\n"
        );
    }

    #[test]
    fn in_a_common_line_a_hyphen_stands_for_what_is_not_known() {
        assert_eq!(
            line(AccessFormat::Common, &bare()),
            "- - - [31/Dec/2026:23:59:59 +0000] \"GET /users/7 HTTP/1.1\" - - - 12.345\n"
        );
    }

    #[test]
    fn what_could_end_a_line_a_word_or_a_quotation_is_told_by_its_number() {
        let told = |bytes: &[u8]| Escaped::path(bytes).to_string();
        assert_eq!(told(b"/plain;x=1,%2F~*'`{}"), "/plain;x=1,%2F~*'`{}");
        assert_eq!(told(b"/a\r\nb"), "/a\\x0D\\x0Ab");
        assert_eq!(told(b"\" 200 1 \""), "\\x22\\x20200\\x201\\x20\\x22");
        assert_eq!(told(b"\\x22"), "\\x5Cx22");
        assert_eq!(told("/é\u{2028}".as_bytes()), "/\\xC3\\xA9\\xE2\\x80\\xA8");
        assert_eq!(told(b"\0\x1b[31m\x7f\xff"), "\\x00\\x1B[31m\\x7F\\xFF");
    }

    #[test]
    fn what_is_long_is_cut_and_says_so() {
        let whole = vec![b'a'; 1024];
        assert_eq!(Escaped::path(&whole).to_string(), "a".repeat(1024));
        let long = vec![b'a'; 1025];
        let expected = "a".repeat(1020) + "\\...";
        assert_eq!(Escaped::path(&long).to_string(), expected);
        let hostile = vec![0xff; 64 * 1024];
        let expected = "\\xFF".repeat(255) + "\\...";
        assert_eq!(Escaped::path(&hostile).to_string(), expected);
        let expected = "\\xFF".repeat(62) + "\\...";
        assert_eq!(Escaped::host(&hostile).to_string(), expected);
        let expected = "\\xFF".repeat(7) + "\\...";
        assert_eq!(Escaped::method(&hostile).to_string(), expected);
    }

    proptest! {
        #[test]
        fn whatever_a_client_sends_there_is_one_line_and_nothing_of_it_outside_its_place(
            method: Vec<u8>, host: Vec<u8>, path: Vec<u8>,
        ) {
            let hostile = AccessRecord {
                method: Escaped::method(&method),
                host: Some(Escaped::host(&host)),
                path: Escaped::path(&path),
                ..record()
            };
            for format in [AccessFormat::Json, AccessFormat::Common] {
                let line = line(format, &hostile);
                prop_assert!(line.len() < 4096);
                prop_assert!(line.bytes().all(|byte| byte == b'\n' || byte == b' ' || byte.is_ascii_graphic()));
                prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
            }
            let common = line(AccessFormat::Common, &hostile);
            let quoted: Vec<_> = common.split('"').collect();
            prop_assert_eq!(quoted.len(), 3);
            prop_assert_eq!(quoted[2], " 200 512 pass 12.345\n");
            prop_assert_eq!(quoted[1].split(' ').count(), 3);
            let json = json_of(&hostile);
            prop_assert_eq!(json["path"].as_str(), Some(&*Escaped::path(&path).to_string()));
            prop_assert_eq!(&json["status"], 200);
        }

        #[test]
        fn other_bytes_are_told_otherwise(one in ".{0,40}", other in ".{0,40}") {
            let told = |text: &str| Escaped::path(text.as_bytes()).to_string();
            prop_assert_eq!(one == other, told(&one) == told(&other));
        }
    }
}
