//! What a request has in each source.
//!
//! A value that is there twice is refused: the upstream could take the one that is not counted. So is one that the
//! upstream is not to get. Where one value
//! can be written in several ways that some upstreams read alike, it is counted as the one that they read.

use std::borrow::Cow;

use http::{HeaderName, Method, header, request::Parts};

use super::{
    IdentifierHasher, IdentifierSource, KeyTooLong, MAX_IDENTIFYING_VALUE, Refusal,
    part::IdentifierPart,
};
use crate::policy::{Consumer, Consumers, RequestView, matching, path::Readings};

/// What a request has in a source.
pub(super) enum Found<'a, 'c> {
    /// A value of the request.
    Part(IdentifierPart<'a>),
    /// The consumer that it stands for.
    Consumer(&'c Consumer),
}

impl IdentifierSource {
    /// What the request has in this source; `None` if nothing, or nothing but blanks.
    pub(super) fn read<'a, 'c>(
        &self,
        view: &RequestView<'a>,
        hasher: &IdentifierHasher,
        consumers: &'c Consumers,
    ) -> Result<Option<Found<'a, 'c>>, Refusal> {
        self.find(view, hasher, consumers).map_err(|why| match why {
            Unreadable::Twice => Refusal::DuplicateValue(self.clone()),
            Unreadable::TooLong => Refusal::ValueTooLong(self.clone()),
            Unreadable::StaysBehind => Refusal::StaysBehind(self.clone()),
            Unreadable::AmbiguousPath => Refusal::AmbiguousPath,
        })
    }

    fn find<'a, 'c>(
        &self,
        view: &RequestView<'a>,
        hasher: &IdentifierHasher,
        consumers: &'c Consumers,
    ) -> Result<Option<Found<'a, 'c>>, Unreadable> {
        let head = view.head;
        let part = match self {
            Self::Header(name) => match only_line(name, head)? {
                Some(value) => header_key(value)?.map(IdentifierPart::Header),
                None => None,
            },
            // A key that nobody has is none, so that inventing one is worth nothing.
            Self::Consumer(name) => match only_line(name, head)? {
                Some(value) => {
                    let key = hasher.api_key(value)?;
                    let consumer = key.and_then(|key| consumers.with_key(key));
                    return Ok(consumer.map(Found::Consumer));
                }
                None => None,
            },
            Self::Cookie(name) => {
                let value = cookie(name, head)?.map(cookie_value);
                bounded(value, |value| value.len())?.map(IdentifierPart::Cookie)
            }
            Self::Query(name) => {
                let value = parameter(name, head)?;
                bounded(value, |value| value.len())?.map(IdentifierPart::Query)
            }
            Self::Host => {
                let host = matching::host(head).filter(|host| !host.is_empty());
                host.map(IdentifierPart::Host)
            }
            Self::Path => Some(IdentifierPart::Path(path(head)?)),
            Self::Method => Some(IdentifierPart::Method(method(&head.method))),
            Self::Constant => Some(IdentifierPart::Constant),
            Self::ClientIp => Some(IdentifierPart::Client(hasher.grouped(view.client))),
        };
        Ok(part.map(Found::Part))
    }
}

/// Why what is there can not be taken.
enum Unreadable {
    Twice,
    TooLong,
    StaysBehind,
    AmbiguousPath,
}

impl From<KeyTooLong> for Unreadable {
    fn from(KeyTooLong: KeyTooLong) -> Self {
        Self::TooLong
    }
}

/// The key in a header's value; `None` if nothing is left of it.
pub(super) fn header_key(value: &[u8]) -> Result<Option<&[u8]>, KeyTooLong> {
    if value.len() > MAX_IDENTIFYING_VALUE {
        return Err(KeyTooLong);
    }
    let key = without_scheme(value.trim_ascii());
    Ok((!key.is_empty()).then_some(key))
}

/// `Bearer k`, `bearer   k` and `k` are the same key; `Bearer` alone is none.
///
/// A scheme's case does not matter (RFC 9110, 11.1); a key's does.
fn without_scheme(value: &[u8]) -> &[u8] {
    match value.split_at_checked(BEARER.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(BEARER) => match rest {
            [] => rest,
            [b' ' | b'\t', ..] => rest.trim_ascii_start(),
            _ => value,
        },
        _ => value,
    }
}

const BEARER: &[u8] = b"bearer";

/// `None` if it is empty.
fn bounded<T>(value: Option<T>, length: impl Fn(&T) -> usize) -> Result<Option<T>, Unreadable> {
    match value {
        Some(value) if length(&value) > MAX_IDENTIFYING_VALUE => Err(Unreadable::TooLong),
        value => Ok(value.filter(|value| length(value) > 0)),
    }
}

/// The one value of the header; `None` if it is absent.
fn only_line<'a>(name: &HeaderName, head: &'a Parts) -> Result<Option<&'a [u8]>, Unreadable> {
    let lines = head.headers.get_all(name).iter();
    sent_on(name, head, only(lines.map(|line| line.as_bytes()))?)
}

fn only<T>(mut values: impl Iterator<Item = T>) -> Result<Option<T>, Unreadable> {
    let value = values.next();
    match values.next() {
        Some(_) => Err(Unreadable::Twice),
        None => Ok(value),
    }
}

/// The cookie's value as it was sent, in whichever line: HTTP/2 may send each cookie in one of its own.
fn cookie<'a>(name: &str, head: &'a Parts) -> Result<Option<&'a [u8]>, Unreadable> {
    let lines = head.headers.get_all(header::COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let values = pairs.filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = (&pair[..equals], &pair[equals + 1..]);
        (found.trim_ascii() == name.as_bytes()).then(|| value.trim_ascii())
    });
    sent_on(&header::COOKIE, head, only(values)?)
}

/// What was found in the header, unless that stays behind.
fn sent_on<T>(name: &HeaderName, head: &Parts, found: Option<T>) -> Result<Option<T>, Unreadable> {
    match found {
        Some(_) if stays_behind(name, head) => Err(Unreadable::StaysBehind),
        found => Ok(found),
    }
}

/// Whether `Connection` names the header: then it is for whoever receives it, and not sent on (RFC 9110, 7.6.1).
pub(in crate::policy) fn stays_behind(name: &HeaderName, head: &Parts) -> bool {
    let lines = head.headers.get_all(header::CONNECTION).iter();
    let mut named = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    named.any(|named| {
        named
            .trim_ascii()
            .eq_ignore_ascii_case(name.as_str().as_bytes())
    })
}

/// Without quotes around it and with its escapes decoded, as many upstreams read it: to them `"a"` and `%61` are
/// `a`, and would each be counted anew.
fn cookie_value(value: &[u8]) -> Cow<'_, [u8]> {
    let bare = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value);
    percent_encoding::percent_decode(bare).into()
}

/// The value of the query parameter, decoded.
fn parameter<'a>(name: &str, head: &'a Parts) -> Result<Option<Cow<'a, str>>, Unreadable> {
    let query = head.uri.query().unwrap_or_default();
    let pairs = form_urlencoded::parse(query.as_bytes());
    only(pairs.filter_map(|(found, value)| (found == name).then_some(value)))
}

/// The reading that folds most ways to write a path into one. A path that could be read in further ways is
/// refused, else each of them could be a counter of its own for what the upstream takes for one path.
fn path(head: &Parts) -> Result<Cow<'_, [u8]>, Unreadable> {
    let readings = Readings::of(head.uri.path().as_bytes());
    match readings.is_ambiguous() {
        true => Err(Unreadable::AmbiguousPath),
        false => Ok(readings.into_resolved()),
    }
}

/// A method that HTTP defines, or nothing for any other: else each invented one would be counted anew.
fn method(method: &Method) -> &str {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::CONNECT,
        Method::OPTIONS,
        Method::TRACE,
        Method::PATCH,
    ];
    match KNOWN.contains(method) {
        true => method.as_str(),
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use http::HeaderValue;

    use super::*;
    use crate::policy::Client;

    /// What a request with this line and these headers has in `source`.
    fn read(
        source: &str,
        line: &str,
        headers: &[(&str, &[u8])],
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let source: IdentifierSource = source.parse().expect(source);
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let mut request = http::Request::builder().method(method).uri(target);
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value).expect("a header value");
            request = request.header(*name, value);
        }
        let (head, ()) = request.body(()).expect(line).into_parts();
        let view = RequestView {
            head: &head,
            client: Client::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
            peer_is_trusted: false,
        };
        let hasher = IdentifierHasher::new(None, 64);
        let consumers = Consumers::default();
        let found = source.read(&view, &hasher, &consumers)?;
        Ok(found.map(|found| {
            let Found::Part(part) = found else {
                panic!("nobody is known");
            };
            let mut bytes = Vec::new();
            IdentifierPart::encode(&[part], &mut |piece| bytes.extend_from_slice(piece));
            bytes.split_off(9)
        }))
    }

    fn is(value: &str) -> Result<Option<Vec<u8>>, Refusal> {
        Ok(Some(value.as_bytes().to_vec()))
    }

    fn twice(source: &str) -> Result<Option<Vec<u8>>, Refusal> {
        Err(Refusal::DuplicateValue(source.parse().expect(source)))
    }

    fn too_long(source: &str) -> Result<Option<Vec<u8>>, Refusal> {
        Err(Refusal::ValueTooLong(source.parse().expect(source)))
    }

    fn of_cookies(lines: &[&[u8]]) -> Result<Option<Vec<u8>>, Refusal> {
        let headers: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
        read("cookie:sid", "GET /", &headers)
    }

    #[test]
    fn a_cookie_is_found_in_any_line_and_between_others() {
        for lines in [
            &[&b"sid=abc"[..]][..],
            &[b"a=1; sid=abc; b=2"],
            &[b"a=1;sid=abc;b"],
            &[b"a=1", b"sid=abc", b"b=2"],
            &[b"xsid=1; SID=2; sidx=3;  sid = abc "],
            &[b"a=sid=x; sid=abc"],
        ] {
            assert_eq!(of_cookies(lines), is("abc"), "{lines:?}");
        }
        for lines in [&[][..], &[&b"SID=abc"[..]], &[b"sid"], &[b"a=sid=abc"]] {
            assert_eq!(of_cookies(lines), Ok(None), "{lines:?}");
        }
        assert_eq!(of_cookies(&[b"sid=a=b=="]), is("a=b=="));
        assert_eq!(of_cookies(&[b"sid=\xff"]), Ok(Some(vec![0xff])));
    }

    #[test]
    fn a_cookie_in_quotes_or_with_escapes_is_the_one_that_upstreams_read() {
        for line in [&b"sid=\"abc\""[..], b"sid=%61bc", b"sid=\"a%62%63\""] {
            assert_eq!(of_cookies(&[line]), is("abc"), "{line:?}");
        }
        assert_eq!(of_cookies(&[b"sid=\"abc"]), is("\"abc"));
        assert_eq!(of_cookies(&[b"sid=\""]), is("\""));
        assert_eq!(of_cookies(&[b"sid=a%zz%"]), is("a%zz%"));
    }

    #[test]
    fn an_empty_cookie_is_absent_and_one_sent_twice_is_refused() {
        for line in [&b"sid="[..], b"sid=\"\"", b"sid=  ; a=1"] {
            assert_eq!(of_cookies(&[line]), Ok(None), "{line:?}");
        }
        for lines in [
            &[&b"sid=a; sid=b"[..]][..],
            &[b"sid=a; x=1; sid=a"],
            &[b"sid=a", b"sid=b"],
            &[b"sid=; sid=b"],
        ] {
            assert_eq!(of_cookies(lines), twice("cookie:sid"), "{lines:?}");
        }
    }

    #[test]
    fn a_query_parameter_is_decoded_in_name_and_value() {
        for target in [
            "/?api_key=a+b",
            "/?api%5Fkey=a%20b",
            "/x?a=1&%61pi_key=%61%20b&c",
            "/?&&api_key=a+b&",
        ] {
            let line = format!("GET {target}");
            assert_eq!(read("query:api_key", &line, &[]), is("a b"), "{target}");
        }
        for target in [
            "/",
            "/?",
            "/?api_key",
            "/?api_key=",
            "/?API_KEY=a",
            "/?a=api_key=b",
            "/api_key=b",
            "/?a=1;api_key=b",
        ] {
            let line = format!("GET {target}");
            assert_eq!(read("query:api_key", &line, &[]), Ok(None), "{target}");
        }
    }

    #[test]
    fn a_query_parameter_sent_twice_is_refused_however_it_is_spelt() {
        for target in [
            "/?api_key=a&api_key=a",
            "/?api_key=a&x=1&api%5Fkey=b",
            "/?api_key&api_key=b",
        ] {
            let line = format!("GET {target}");
            let refused = twice("query:api_key");
            assert_eq!(read("query:api_key", &line, &[]), refused, "{target}");
        }
    }

    #[test]
    fn a_value_of_eight_kibibytes_is_taken_and_a_longer_one_refused() {
        let most = "v".repeat(MAX_IDENTIFYING_VALUE);
        let of_query = |value: &str| read("query:k", &format!("GET /?k={value}"), &[]);
        assert_eq!(of_query(&most), is(&most));
        assert_eq!(of_query(&format!("{most}v")), too_long("query:k"));
        let of_cookie = |value: &str| of_cookies(&[format!("sid={value}").as_bytes()]);
        assert_eq!(of_cookie(&most), is(&most));
        assert_eq!(of_cookie(&format!("{most}v")), too_long("cookie:sid"));
    }

    #[test]
    fn a_host_is_the_same_in_any_case_and_with_any_port() {
        let of = |host: &str| read("host", "GET /", &[("host", host.as_bytes())]);
        for host in ["api.example.com", "API.example.COM:80", "api.example.com."] {
            assert_eq!(of(host), is("api.example.com"), "{host}");
        }
        assert_eq!(of(""), Ok(None));
        assert_eq!(of(":80"), Ok(None));
        assert_eq!(read("host", "GET /", &[]), Ok(None));
    }

    #[test]
    fn a_path_is_the_same_however_it_is_written() {
        for target in [
            "/api/x",
            "//api/./x/",
            "/%61pi/%78?y=1",
            "/api%2fx",
            "/api%2Fx",
            "/api\\x",
            "/api;v=1/x",
            "/api/x;v=2",
            "/y/../api/x",
            "/y/%2e%2E/api/x",
        ] {
            let line = format!("GET {target}");
            assert_eq!(read("path", &line, &[]), is("/api/x"), "{target}");
        }
        for target in ["/y%2fx/../api", "/a//../api", "/api;%2fx", "/a/..;/api"] {
            let read = read("path", &format!("GET {target}"), &[]);
            assert_eq!(read, Err(Refusal::AmbiguousPath), "{target}");
        }
    }

    #[test]
    fn methods_that_http_does_not_define_are_one() {
        assert_eq!(read("method", "GET /", &[]), is("GET"));
        assert_eq!(read("method", "PATCH /", &[]), is("PATCH"));
        for invented in ["X1 /", "get /", "PROPFIND /"] {
            assert_eq!(read("method", invented, &[]), is(""), "{invented}");
        }
    }
}
