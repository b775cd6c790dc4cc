//! From the bytes of a log to its requests; what is no request is counted.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use super::{
    format::{self, Format},
    lines::{Line, Lines, begins_zipped},
    record::Record,
    unreadable::{Reason, Unreadable, beginning},
    wrapper::{Unwrapped, Unwrapper, Wrapper},
};

/// What was read, of one log or of several.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// How many requests the logs tell of.
    pub requests: u64,
    /// How many of them are not as HTTP wants them, and stand as `GET /`.
    pub not_http: u64,
    /// How many lines tell of a request, by their format.
    pub formats: BTreeMap<Format, u64>,
    /// How many lines were wrapped.
    pub wrappers: BTreeMap<Wrapper, u64>,
    /// How many lines tell of none, by reason.
    pub unreadable: BTreeMap<Reason, u64>,
    /// The first of them, at most [`Self::MOST_SHOWN`].
    pub shown: Vec<Unreadable>,
}

impl Reading {
    /// How many unreadable lines are shown.
    pub const MOST_SHOWN: usize = 5;

    /// How many lines tell of no request.
    pub fn unread(&self) -> u64 {
        self.unreadable.values().sum()
    }

    /// Adds what was read of the next log.
    pub fn add(&mut self, next: Self) {
        self.requests += next.requests;
        self.not_http += next.not_http;
        add(&mut self.formats, next.formats);
        add(&mut self.wrappers, next.wrappers);
        add(&mut self.unreadable, next.unreadable);
        self.shown.extend(next.shown);
        self.shown.truncate(Self::MOST_SHOWN);
    }

    fn unreadable(&mut self, file: &str, line: u64, reason: Reason, text: &[u8]) {
        *self.unreadable.entry(reason).or_default() += 1;
        if self.shown.len() < Self::MOST_SHOWN {
            self.shown.push(Unreadable {
                file: file.to_owned(),
                line,
                reason,
                begins: beginning(text),
            });
        }
    }
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, more: BTreeMap<K, u64>) {
    for (key, count) in more {
        *counts.entry(key).or_default() += count;
    }
}

/// Reads the log `bytes`, zipped or not, which is called `file`, and hands each request to `each`.
///
/// # Errors
/// If the bytes cannot be read. A line that cannot is no error, but counted in `reading`.
pub fn read<'r>(
    file: &str,
    bytes: impl Read + 'r,
    reading: &mut Reading,
    each: &mut dyn FnMut(&Record),
) -> io::Result<()> {
    let mut lines = Lines::new(bytes)?;
    let mut unwrapper = Unwrapper::default();
    let mut number = 0;
    while let Some(line) = lines.next()? {
        number += 1;
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong(line) => {
                reading.unreadable(file, number, Reason::TooLong, line);
                continue;
            }
            Line::Broken => {
                reading.unreadable(file, number, Reason::BrokenGzip, b"");
                continue;
            }
        };
        match request(line, &mut unwrapper, reading) {
            Ok(Some(record)) => each(&record),
            Ok(None) => {}
            Err(reason) => reading.unreadable(file, number, reason, line),
        }
    }
    for _ in 0..unwrapper.unfinished() {
        reading.unreadable(file, number, Reason::Cut, b"");
    }
    Ok(())
}

/// What a line tells of; `None` for a part of one.
fn request(
    line: &[u8],
    unwrapper: &mut Unwrapper,
    reading: &mut Reading,
) -> Result<Option<Record>, Reason> {
    if begins_zipped(line) {
        return Err(Reason::Compressed);
    }
    let (line, wrapper) = match unwrapper.unwrap(line)? {
        Unwrapped::Line(line, wrapper) => (line, wrapper),
        Unwrapped::Part => return Ok(None),
        Unwrapped::TooLong => return Err(Reason::TooLong),
    };
    let (format, found) = format::find(line)?;
    let record = Record::from(found);
    reading.requests += 1;
    reading.not_http += u64::from(!record.is_http);
    *reading.formats.entry(format).or_default() += 1;
    if let Some(wrapper) = wrapper {
        *reading.wrappers.entry(wrapper).or_default() += 1;
    }
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::policy::Client;

    fn logged(log: &[u8]) -> (Vec<Record>, Reading) {
        let (mut records, mut reading) = (Vec::new(), Reading::default());
        let each = &mut |record: &Record| records.push(record.clone());
        read("a.log", log, &mut reading, each).expect("in memory");
        (records, reading)
    }

    fn record(line: impl AsRef<[u8]>) -> Record {
        let (mut records, reading) = logged(line.as_ref());
        assert_eq!(reading.shown, []);
        assert_eq!(records.len(), 1);
        records.remove(0)
    }

    fn reasons(log: impl AsRef<[u8]>) -> Vec<(Reason, u64)> {
        logged(log.as_ref()).1.unreadable.into_iter().collect()
    }

    fn client(text: &str) -> Client {
        Client::written(text.as_bytes()).expect(text)
    }

    fn header<'r>(record: &'r Record, name: &str) -> &'r [u8] {
        record
            .head
            .headers
            .get(name)
            .map_or(b"", |value| value.as_bytes())
    }

    /// The same request in each of the ways.
    #[test]
    fn a_request_is_read_alike_from_every_format() {
        let at = 1_548_116_774;
        for (format, host, line) in [
            (
                Format::Common,
                "",
                r#"2001:db8::7 - - [22/Jan/2019:03:56:14 +0330] "POST /a?b=1 HTTP/1.1" 201 512"#,
            ),
            (
                Format::Common,
                "h:443",
                r#"h:443 2001:db8::7 - - [22/Jan/2019:03:56:14 +0330] "POST /a?b=1 HTTP/1.1" 201 512"#,
            ),
            (
                Format::Combined,
                "",
                r#"2001:db8::7 - u [22/Jan/2019:00:26:14 +0000] "POST /a?b=1 HTTP/2.0" 201 512 "-" "curl/8" "-" 0.01"#,
            ),
            (
                Format::EnvoyText,
                "h",
                r#"[2019-01-22T00:26:14.000Z] "POST /a?b=1 HTTP/2" 201 - 0 512 1 1 "2001:db8::7" "curl/8" "id" "h" "tcp://10.0.0.9:80""#,
            ),
            (
                Format::EnvoyText,
                "h",
                r#"[2019-01-22T00:26:14.000Z] "POST /a?b=1 HTTP/2" 201 - via_upstream - "-" 0 512 1 1 "-" "curl/8" "id" "h" "10.0.0.9:80" cluster 10.0.0.1:3 10.0.0.2:80 [2001:db8::7]:5000 - default"#,
            ),
            (
                Format::EnvoyJson,
                "h",
                r#"{"start_time":"2019-01-22T00:26:14Z","method":"POST","path":"/a?b=1","response_code":201,"authority":"h","downstream_remote_address":"[2001:db8::7]:5000","user_agent":"curl/8"}"#,
            ),
            (
                Format::NginxJson,
                "h",
                r#"{"time_iso8601":"2019-01-22T03:56:14+03:30","remote_addr":"2001:db8::7","request":"POST /a?b=1 HTTP/1.1","status":"201","host":"h","http_user_agent":"curl/8"}"#,
            ),
            (
                Format::NginxJson,
                "h",
                r#"{"msec":1548116774.000,"remote_addr":"2001:db8::7","request_method":"POST","uri":"/a","args":"b=1","status":201,"host":"h"}"#,
            ),
            (
                Format::TraefikJson,
                "h",
                r#"{"ClientAddr":"[2001:db8::7]:39490","ClientHost":"2001:db8::7","DownstreamStatus":201,"RequestHost":"h","RequestMethod":"POST","RequestPath":"/a?b=1","StartUTC":"2019-01-22T00:26:14Z","request_User-Agent":"curl/8","time":"2019-01-22T00:26:15Z"}"#,
            ),
            (
                Format::CaddyJson,
                "h",
                r#"{"ts":1548116774.0,"request":{"remote_ip":"2001:db8::7","client_ip":"2001:db8::7","method":"POST","host":"h","uri":"/a?b=1","headers":{"User-Agent":["curl/8"]}},"status":201}"#,
            ),
            (
                Format::SlidegateJson,
                "h",
                r#"{"timestamp":"2019-01-22T00:26:14.000Z","target":"slidegate::access","client":"2001:db8::7","method":"POST","host":"h","path":"/a?b=1","status":201}"#,
            ),
        ] {
            let record = record(line);
            assert_eq!(
                logged(line.as_bytes()).1.formats,
                [(format, 1)].into(),
                "{line}"
            );
            assert_eq!(record.at.as_millis(), at * 1000, "{line}");
            assert_eq!(record.client, client("2001:db8::7"), "{line}");
            assert_eq!(record.head.method, "POST", "{line}");
            assert_eq!(record.head.uri, "/a?b=1", "{line}");
            assert_eq!(record.status, Some(StatusCode::CREATED), "{line}");
            assert_eq!(header(&record, "host"), host.as_bytes(), "{line}");
            if line.contains("curl/8") {
                assert_eq!(header(&record, "user-agent"), b"curl/8", "{line}");
            }
        }
    }

    /// Nothing but a line break ends a line, and a wrapper changes nothing.
    #[test]
    fn wrapped_lines_are_read_as_those_in_them() {
        let line = r#"10.0.0.1 - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1" 200 1"#;
        let docker = serde_json::json!({"log": format!("{line}\n"), "stream": "stdout"});
        let log = format!("{line}\r\n2019-01-22T00:26:14.000000000Z stdout F {line}\n{docker}\n");
        let (records, reading) = logged(log.as_bytes());
        assert_eq!(records.len(), 3);
        assert_eq!(reading.formats, [(Format::Common, 3)].into());
        let wrappers = [(Wrapper::Cri, 1), (Wrapper::Docker, 1)];
        assert_eq!(reading.wrappers, wrappers.into());
    }

    const STAMP: &str = "[22/Jan/2019:03:56:14 +0330]";

    #[test]
    fn quotes_of_clients_are_read_escaped_or_not() {
        for (written, target) in [
            (r#"GET /a\"b HTTP/1.1"#, r#"/a"b"#),
            (r#"GET /a\x22b HTTP/1.1"#, r#"/a"b"#),
            (r#"GET /a"b HTTP/1.1"#, r#"/a"b"#),
            (r#"GET /a" 200 5 "b\" 404 1 HTTP/1.1"#, "/a"),
            (r"GET /\xd9\x85 HTTP/1.1", "/م"),
            (r#"GET /a\" 200 5 b HTTP/1.1"#, r#"/a" 200 5 b"#),
        ] {
            let line = format!(r#"10.0.0.1 - - {STAMP} "{written}" 404 209 "-" "a \"b\" c""#);
            let (records, reading) = logged(line.as_bytes());
            assert_eq!(reading.formats.len(), 1, "{line}");
            // http takes a quote in no path; what stands there is looked at below.
            let found = format::find(line.as_bytes()).expect(&line).1;
            assert!(found.target.starts_with(target.as_bytes()), "{line}");
            assert_eq!(records.len(), 1);
        }
    }

    #[test]
    fn users_may_have_spaces_and_brackets() {
        for user in ["-", "a b", "a [b] c", "[", "x [22/Jan] y", "\"a\""] {
            let line = format!(r#"10.0.0.1 - {user} {STAMP} "GET /p HTTP/1.1" 200 -"#);
            assert_eq!(record(&line).head.uri, "/p", "{line}");
        }
    }

    #[test]
    fn addresses_come_with_ports_brackets_and_zones() {
        for (written, plain) in [
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("10.0.0.1:80", "10.0.0.1"),
        ] {
            let line = format!(r#"{written} - - {STAMP} "GET / HTTP/1.1" 200 1"#);
            assert_eq!(record(&line).client, client(plain), "{line}");
        }
        let line = format!(r#"unix: - - {STAMP} "GET / HTTP/1.1" 200 1"#);
        assert_eq!(record(&line).client, Client::Unix);
    }

    #[test]
    fn what_is_no_http_still_counts_and_is_told() {
        for request in [
            "-",
            "",
            r"\x16\x03\x01\x00",
            "GET",
            "a b c",
            "GET a",
            "\x03\0/*\0",
        ] {
            let line = format!(r#"10.0.0.1 - - {STAMP} "{request}" 400 0 "-" "-""#);
            let (records, reading) = logged(line.as_bytes());
            assert_eq!(records.len(), 1, "{line}");
            assert_eq!(reading.not_http, 1, "{line}");
            assert_eq!(records[0].head.uri, "/", "{line}");
        }
        for request in [
            "OPTIONS * HTTP/1.1",
            "CONNECT a:443 HTTP/1.1",
            "GET http://a/b HTTP/1.1",
        ] {
            let line = format!(r#"10.0.0.1 - - {STAMP} "{request}" 400 0"#);
            assert_eq!(logged(line.as_bytes()).1.not_http, 0, "{line}");
        }
    }

    #[test]
    fn a_missing_status_is_none() {
        let line = format!(r#"10.0.0.1 - - {STAMP} "GET / HTTP/1.1" - -"#);
        assert_eq!(record(&line).status, None);
    }

    /// As in the file that comes with nginx.
    #[test]
    fn a_field_of_addresses_is_who_the_request_was_forwarded_for() {
        let line = format!(
            r#"10.0.0.1 - - {STAMP} "GET / HTTP/1.1" 200 1 "-" "x" "203.0.113.9, 10.0.0.2""#
        );
        let record = record(&line);
        assert_eq!(header(&record, "x-forwarded-for"), b"203.0.113.9, 10.0.0.2");
        assert_eq!(record.client, client("10.0.0.1"));
    }

    #[test]
    fn what_cannot_be_read_is_counted_by_reason() {
        for (reason, line) in [
            (Reason::Format, "10.0.0.1 GET /"),
            (Reason::Format, "\x16\x03\x01"),
            (Reason::Json, "{\"remote_addr\": \"10.0.0.1\""),
            (
                Reason::NoRequest,
                r#"{"level":"debug","msg":"selected upstream"}"#,
            ),
            (Reason::NoRequest, r#"{"a": 1}"#),
            (
                Reason::Stamp,
                r#"10.0.0.1 - - [yesterday] "GET / HTTP/1.1" 200 1"#,
            ),
            (
                Reason::Stamp,
                r#"{"remote_addr":"10.0.0.1","request":"GET / HTTP/1.1"}"#,
            ),
            (
                Reason::Client,
                r#"- - - [22/Jan/2019:03:56:14 +0330] "GET / HTTP/1.1" 200 1"#,
            ),
            (
                Reason::Client,
                r#"[2019-01-22T00:26:14Z] "GET / HTTP/2" 200 - 0 1 1 1 "-" "-" "-" "-" "-""#,
            ),
            (Reason::Empty, "  "),
            (Reason::Cut, "2019-01-22T00:26:14.000000000Z stdout P 10.0"),
        ] {
            assert_eq!(reasons(line), [(reason, 1)], "{line}");
        }
        let long = [b'a'; 70_000];
        assert_eq!(reasons(long), [(Reason::TooLong, 1)]);
        assert_eq!(reasons(b""), []);
        assert_eq!(reasons(b"- - - - - - -\n-\n"), [(Reason::Format, 2)]);
    }

    #[test]
    fn of_many_unreadable_lines_the_first_five_are_shown() {
        let log: String = (1..=9).map(|line| format!("line {line}\x1b\n")).collect();
        let (_, reading) = logged(log.as_bytes());
        assert_eq!(reading.unread(), 9);
        let shown = reading.shown.iter().map(|line| (line.line, &*line.begins));
        let shown: Vec<_> = shown.collect();
        assert_eq!(shown.len(), Reading::MOST_SHOWN);
        assert_eq!(shown[4], (5, "line 5\\x1b"));
    }

    #[test]
    fn a_gzip_stream_glued_in_costs_its_own_lines_only() {
        use std::io::Write as _;
        let line = format!("10.0.0.1 - - {STAMP} \"GET / HTTP/1.1\" 200 1\n");
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zip.write_all(line.repeat(1000).as_bytes())
            .expect("in memory");
        let zip = zip.finish().expect("in memory");
        let log = [line.as_bytes(), &zip, b"\n", line.as_bytes()].concat();
        let (records, reading) = logged(&log);
        assert_eq!(records.len(), 2);
        assert_eq!(reading.unreadable.get(&Reason::Compressed), Some(&1));
    }

    #[test]
    fn the_address_that_a_proxy_appended_is_who_connected_to_it() {
        let line = r#"[2026-01-24T01:38:00.000Z] "POST / HTTP/1.1" 201 - 0 1 4 2 "203.0.113.9, [fd00::1]:54321" "curl" "id" "h" "-""#;
        let record = record(line);
        assert_eq!(record.peer, client("fd00::1"));
        assert_eq!(header(&record, "x-forwarded-for"), b"203.0.113.9");
    }
}
