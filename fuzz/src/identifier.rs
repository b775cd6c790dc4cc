//! Who is counted by a key: the same key is the same identifier, and another key another.
//!
//! An input is read in three ways. Its first line is one header value, what follows another. Both are lists of parts, with
//! commas between them, each beginning with the letter of its kind (see [`part`]). And all of it is what a list of parts
//! may be written as, to be hashed.

use std::net::IpAddr;

use slidegate::policy::{Client, Identifier, IdentifierHasher, IdentifierPart};

/// Panics if two identities have one identifier and are not the same, or are the same and have two.
pub fn check(data: &[u8]) {
    check_keys(data);
    check_parts(data);
    check_written(data);
}

fn check_keys(data: &[u8]) {
    let (one, other) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &b"k"[..]),
    };
    let hasher = IdentifierHasher::new(Some("a secret"), IdentifierHasher::DEFAULT_IPV6_PREFIX);
    let (first, second) = (identifier(&hasher, one), identifier(&hasher, other));
    assert_eq!(first == second, key(one) == key(other));
    for (value, found) in [(one, first), (other, second)] {
        let Some(identifier) = found else {
            assert!(key(value).is_none());
            continue;
        };
        let text = identifier.to_string();
        assert_eq!(text.len(), 22);
        assert_eq!(text.parse(), Ok(identifier), "it is read back");
        // Without its scheme it is the same key, unless a scheme comes to stand first.
        let bare = key(value).unwrap_or_default();
        if key(bare) == Some(bare) {
            assert_eq!(Some(identifier), self::identifier(&hasher, bare));
        }
        for scheme in ["Bearer ", "bearer\t ", " BEARER  "] {
            let with_scheme = [scheme.as_bytes(), bare].concat();
            if with_scheme.len() <= LONGEST {
                assert_eq!(Some(identifier), self::identifier(&hasher, &with_scheme));
            }
        }
        let unkeyed = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
        assert_ne!(Some(identifier), self::identifier(&unkeyed, value));
    }
}

/// `None` for a value that holds no key, or too long a one.
fn identifier(hasher: &IdentifierHasher, value: &[u8]) -> Option<Identifier> {
    let found = hasher.api_key(value);
    assert_eq!(found.is_err(), value.len() > LONGEST);
    found.ok().flatten()
}

/// The key in a header's value, told in other words than the library's.
fn key(value: &[u8]) -> Option<&[u8]> {
    if value.len() > LONGEST {
        return None;
    }
    let value = value.trim_ascii();
    let end = value.iter().position(|byte| b" \t".contains(byte));
    let (word, rest) = value.split_at(end.unwrap_or(value.len()));
    let key = match word.eq_ignore_ascii_case(b"bearer") {
        true => rest.trim_ascii(),
        false => value,
    };
    (!key.is_empty()).then_some(key)
}

fn check_parts(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let mut list = || -> Vec<Part> {
        let parts = lines.next().unwrap_or_default();
        let parts = parts.split(|byte| *byte == b',');
        parts.filter_map(part).collect()
    };
    let (one, other) = (list(), list());
    for parts in [&one, &other] {
        assert_eq!(
            read(&written(parts)).as_ref(),
            Some(parts),
            "it is read back"
        );
    }
    let same = one == other;
    assert_eq!(written(&one) == written(&other), same);
    // A lone client is its network, and no hash.
    let is_client = |parts: &[Part]| matches!(parts, [Part(8..=10, _)]);
    if !is_client(&one) && !is_client(&other) {
        assert_eq!(hashed(&one) == hashed(&other), same, "{one:?} {other:?}");
    }
}

/// What is written like a list of parts is that list as it is written, and no other.
fn check_written(data: &[u8]) {
    if let Some(parts) = read(data)
        && parts.iter().all(|part| part.built().is_some())
    {
        assert_eq!(written(&parts), data, "{parts:?}");
    }
}

/// The number of a kind, and a value of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part(u8, Vec<u8>);

impl Part {
    /// `None` if its kind has no such values.
    fn built(&self) -> Option<IdentifierPart<'_>> {
        let Self(kind, value) = self;
        let text = || std::str::from_utf8(value).ok();
        Some(match kind {
            1 => IdentifierPart::Header(value),
            2 => IdentifierPart::Cookie(value.into()),
            3 => IdentifierPart::Query(text()?.into()),
            4 => IdentifierPart::Host(text()?.into()),
            5 => IdentifierPart::Path(value.into()),
            6 => IdentifierPart::Method(text()?),
            7 if value.is_empty() => IdentifierPart::Constant,
            8 => address(<[u8; 4]>::try_from(value.as_slice()).ok()?),
            9 => address(<[u8; 16]>::try_from(value.as_slice()).ok()?),
            10 if value.is_empty() => IdentifierPart::Client(Client::Unix),
            _ => return None,
        })
    }
}

fn address(bytes: impl Into<IpAddr>) -> IdentifierPart<'static> {
    IdentifierPart::Client(Client::Address(bytes.into()))
}

/// By the first byte, `h` for a header, `c` for a cookie, `q` for a query parameter, `o` for a host, `p` for a path, `m`
/// for a method, `*` for everybody, `4` and `6` for addresses, which are so many bytes, and `u` for a unix socket.
fn part(text: &[u8]) -> Option<Part> {
    let (letter, value) = text.split_first()?;
    let kind = b"hcqopm*46u".iter().position(|known| known == letter)? + 1;
    let part = Part(u8::try_from(kind).ok()?, value.to_vec());
    part.built().is_some().then_some(part)
}

fn written(parts: &[Part]) -> Vec<u8> {
    let mut bytes = Vec::new();
    IdentifierPart::encode(&built(parts), &mut |piece| bytes.extend_from_slice(piece));
    bytes
}

fn hashed(parts: &[Part]) -> Identifier {
    let hasher = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
    hasher.identifier(&built(parts))
}

fn built(parts: &[Part]) -> Vec<IdentifierPart<'_>> {
    parts.iter().filter_map(Part::built).collect()
}

/// The parts that are written like this: a lone one, or a 255 and the number of those that follow.
fn read(written: &[u8]) -> Option<Vec<Part>> {
    let (count, mut rest) = match written {
        [255, rest @ ..] => number(rest)?,
        _ => (1, written),
    };
    if written.first() == Some(&255) && count == 1 {
        return None;
    }
    let mut parts = Vec::new();
    for _ in 0..count {
        let (kind, after) = rest.split_first()?;
        let (length, after) = number(after)?;
        let (value, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
        parts.push(Part(*kind, value.to_vec()));
        rest = after;
    }
    rest.is_empty().then_some(parts)
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

/// The longest value that is taken, in bytes.
const LONGEST: usize = 8 * 1024;
