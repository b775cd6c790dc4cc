//! Lines of fields, with spaces between them and quotes around some.
//!
//! Read by hand: what clients put between the quotes may hold more of them, escaped or not, and names of users may
//! hold spaces; a grammar of fields takes such a line for a broken one. So fields are found from what cannot be mistaken:
//! the address at the beginning, a time in brackets, a status after the request.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode};

use super::Format;
use crate::{
    policy::Client,
    ratelimit::Timestamp,
    replay::{
        record::{Found, add_header, last_forwarded, set_host},
        stamp,
        unreadable::Reason,
    },
};

/// `host ident user [time] "request" status bytes "referer" "user agent" …`, the last two of the combined format alone.
/// A virtual host may stand before, as in `%v:%p %h …`.
pub(super) fn find(line: &[u8]) -> Result<(Format, Found), Reason> {
    let (bracket, at, rest) = time(line)?;
    let mut words = line[..bracket].split(|byte| *byte == b' ');
    let first = words.next().unwrap_or_default();
    let (client, host) = match Client::written(first) {
        Some(client) => (client, &b""[..]),
        None => {
            let second = words.next().and_then(Client::written);
            (second.ok_or(Reason::Client)?, first)
        }
    };
    let rest = rest.strip_prefix(b" \"").ok_or(Reason::Format)?;
    let (request, rest) = request(rest).ok_or(Reason::Format)?;
    let (status, rest) = word(rest);
    let (_bytes, rest) = word(rest);
    let mut headers = HeaderMap::new();
    set_host(&mut headers, host);
    let mut quoted = Fields(rest);
    let format = match (quoted.next(), quoted.next()) {
        (Some(Field::Quoted(referer)), Some(Field::Quoted(agent))) => {
            add_header(&mut headers, b"referer", &unescaped(referer));
            add_header(&mut headers, b"user-agent", &unescaped(agent));
            for field in quoted {
                if let Field::Quoted(list) = field
                    && last_forwarded(list).is_some()
                {
                    add_header(&mut headers, b"x-forwarded-for", list);
                    break;
                }
            }
            Format::Combined
        }
        _ => Format::Common,
    };
    let (method, target) = method_and_target(&unescaped(request));
    let found = Found {
        at,
        client,
        peer: client,
        status: StatusCode::from_bytes(status).ok(),
        method,
        target,
        headers,
    };
    Ok((format, found))
}

/// Whether what a bracket begins with is an address, and no time.
pub(super) fn begins_with_address(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    words.next().and_then(Client::written).is_some()
}

/// `[time] "request" status flags … "x-forwarded-for" "user agent" "request id" "authority" "upstream" …`. What
/// stands between, and after, differs between versions, and Istio's: there the client's address is the fourth field
/// after the quoted five.
pub(super) fn find_envoy(line: &[u8]) -> Result<Found, Reason> {
    let end = line.iter().position(|byte| *byte == b']');
    let end = end.ok_or(Reason::Format)?;
    let at = stamp::rfc3339(&line[1..end]).ok_or(Reason::Stamp)?;
    let rest = line[end + 1..].strip_prefix(b" \"").ok_or(Reason::Format)?;
    let (request, rest) = request(rest).ok_or(Reason::Format)?;
    let (status, rest) = word(rest);

    let fields: Vec<_> = Fields(rest).collect();
    let is_quoted = |fields: &[Field<'_>]| fields.iter().all(|field| field.quoted().is_some());
    let five = fields
        .windows(5)
        .position(is_quoted)
        .ok_or(Reason::Format)?;
    let quoted = |place: usize| fields[five + place].quoted().unwrap_or_default();
    let mut headers = HeaderMap::new();
    set_host(&mut headers, quoted(3));
    add_header(&mut headers, b"user-agent", quoted(1));
    add_header(&mut headers, b"x-request-id", quoted(2));
    let forwarded = last_forwarded(quoted(0));
    let downstream = match fields.get(five + 8) {
        Some(Field::Bare(address)) => Client::written(address),
        _ => None,
    };
    // Envoy appends who connected.
    let last = forwarded.map(|(last, _)| last);
    let client = downstream.or(last).ok_or(Reason::Client)?;
    match forwarded {
        Some((last, before)) if last == client => {
            add_header(&mut headers, b"x-forwarded-for", before);
        }
        _ => add_header(&mut headers, b"x-forwarded-for", quoted(0)),
    }
    let (method, target) = method_and_target(request);
    Ok(Found {
        at,
        client,
        peer: client,
        status: StatusCode::from_bytes(status).ok(),
        method,
        target,
        headers,
    })
}

/// Method and target of a request line.
pub(super) fn method_and_target(request: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut parts = request.splitn(2, |byte| *byte == b' ');
    let method = parts.next().unwrap_or_default();
    let rest = parts.next().unwrap_or_default();
    // What a client put into its target may hold spaces; the version does not.
    let version = rest.iter().rposition(|byte| *byte == b' ');
    let target = match version {
        Some(space) if rest[space + 1..].starts_with(b"HTTP/") => &rest[..space],
        _ => rest,
    };
    (method.to_vec(), target.to_vec())
}

/// Where the first bracket stands that holds a time, the time, and what comes after.
fn time(line: &[u8]) -> Result<(usize, Timestamp, &[u8]), Reason> {
    let mut reason = Reason::Format;
    let brackets = line.iter().enumerate().filter(|(_, byte)| **byte == b'[');
    for (bracket, _) in brackets {
        let rest = &line[bracket + 1..];
        let reach = &rest[..rest.len().min(LONGEST_TIME + 1)];
        let Some(end) = reach.iter().position(|byte| *byte == b']') else {
            continue;
        };
        // nginx may be told to write the other form.
        let at = stamp::common(&rest[..end]).or_else(|| stamp::rfc3339(&rest[..end]));
        if let Some(at) = at {
            return Ok((bracket, at, &rest[end + 1..]));
        }
        if rest[end + 1..].starts_with(b" \"") {
            reason = Reason::Stamp;
        }
    }
    Err(reason)
}

/// The request, of which the quote before is gone, and what comes after the one that ends it: the first quote that a
/// status follows, and that is not escaped; else, since not everybody escapes, the first at all.
fn request(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let ends = |(place, byte): (usize, &u8)| {
        let rest = &text[place + 1..];
        (*byte == b'"' && is_status(word(rest).0)).then_some(place)
    };
    let candidates = || text.iter().enumerate().filter_map(ends);
    let end = candidates()
        .find(|end| !is_escaped(text, *end))
        .or_else(|| candidates().next())?;
    Some((&text[..end], &text[end + 1..]))
}

/// Whether an odd number of backslashes stands before.
fn is_escaped(text: &[u8], place: usize) -> bool {
    let before = text[..place].iter().rev();
    before.take_while(|byte| **byte == b'\\').count() % 2 == 1
}

fn is_status(word: &[u8]) -> bool {
    word == b"-" || (word.len() == 3 && word.iter().all(u8::is_ascii_digit))
}

/// The word after one space, and what comes after it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let Some(text) = text.strip_prefix(b" ") else {
        return (b"", text);
    };
    let end = text.iter().position(|byte| *byte == b' ');
    text.split_at(end.unwrap_or(text.len()))
}

/// Fields to the end of a line.
struct Fields<'l>(&'l [u8]);

#[derive(Clone, Copy, Debug)]
enum Field<'l> {
    Quoted(&'l [u8]),
    Bare(&'l [u8]),
}

impl<'l> Field<'l> {
    fn quoted(self) -> Option<&'l [u8]> {
        match self {
            Self::Quoted(text) => Some(text),
            Self::Bare(_) => None,
        }
    }
}

impl<'l> Iterator for Fields<'l> {
    type Item = Field<'l>;

    fn next(&mut self) -> Option<Field<'l>> {
        let text = self.0.strip_prefix(b" ")?;
        let Some(inner) = text.strip_prefix(b"\"") else {
            let (bare, rest) = word(self.0);
            self.0 = rest;
            return Some(Field::Bare(bare));
        };
        // A quote with neither a space nor the end behind it is a client's.
        let is_end = |place: &usize| {
            inner[*place] == b'"'
                && matches!(inner.get(place + 1), None | Some(b' '))
                && !is_escaped(inner, *place)
        };
        match (0..inner.len()).find(is_end) {
            Some(end) => {
                self.0 = &inner[end + 1..];
                Some(Field::Quoted(&inner[..end]))
            }
            None => {
                self.0 = b"";
                Some(Field::Quoted(inner))
            }
        }
    }
}

/// `\x22`, `\"`, `\\` and the other escapes of logs, as what they stand for.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        let (stands_for, left) = match (byte, after) {
            (b'\\', [b'x', high, low, left @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, left),
                _ => (b'\\', after),
            },
            (b'\\', [escaped @ (b'"' | b'\\'), left @ ..]) => (*escaped, left),
            (b'\\', [b'n', left @ ..]) => (b'\n', left),
            (b'\\', [b'r', left @ ..]) => (b'\r', left),
            (b'\\', [b't', left @ ..]) => (b'\t', left),
            _ => (*byte, after),
        };
        plain.push(stands_for);
        rest = left;
    }
    Cow::Owned(plain)
}

fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// In bytes: longer than any time that is read.
const LONGEST_TIME: usize = 40;
