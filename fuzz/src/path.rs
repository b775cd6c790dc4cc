//! How paths are read, and which patterns hold them: the same whatever a path is written like.
//!
//! An input's first line is a pattern of paths, in YAML's words. What follows is the path of a request.

use slidegate::policy::{PathPattern, PathSegment, Readings};

/// Panics if a path has other readings when it is written differently, or a pattern other paths.
pub fn check(data: &[u8]) {
    let (pattern, path) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (&b"/**"[..], data),
    };
    check_readings(path);
    let Ok(text) = std::str::from_utf8(pattern) else {
        return;
    };
    if let Ok(pattern) = text.parse() {
        check_pattern(&pattern, text);
        check_matches(&pattern, path);
    }
}

fn check_readings(path: &[u8]) {
    let read = readings(path);
    let (kept, resolved) = (&read[0], &read[read.len() - 1]);
    for reading in &read {
        let normal = reading.starts_with(b"/") && (!reading.ends_with(b"/") || reading == b"/");
        let segments = || reading.split(|byte| *byte == b'/').skip(1);
        let empty = segments().any(|segment| matches!(segment, b"" | b"."));
        assert!(normal && (!empty || reading == b"/"), "{reading:?}");
    }
    let climbs = resolved
        .split(|byte| *byte == b'/')
        .any(|segment| segment == b"..");
    assert!(!climbs, "{resolved:?} is resolved");
    assert_eq!(readings(kept), read, "read once more");
    assert_eq!(
        readings(resolved),
        std::slice::from_ref(resolved),
        "read once more"
    );

    for (what, other) in rewritten(path) {
        assert_eq!(readings(&other), read, "{what}: {other:?}");
    }
    for at in slashes(path) {
        let climbing = [&path[..at], b"/x/..", &path[at..]].concat();
        assert_eq!(readings(&climbing).last(), Some(resolved), "{climbing:?}");
    }
    for (what, other) in reescaped(path) {
        assert_eq!(readings(&other), read, "{what}: {other:?}");
        let ambiguous = Readings::of(path).is_ambiguous();
        assert_eq!(Readings::of(&other).is_ambiguous(), ambiguous, "{what}");
    }
}

fn check_pattern(pattern: &PathPattern, text: &str) {
    let shown = pattern.to_string();
    assert_eq!(shown.parse().as_ref(), Ok(pattern), "{text:?} is {shown:?}");
    assert!(pattern.covers(pattern));
    for (what, other) in rewritten(text.as_bytes()) {
        // A segment . is refused in a pattern: it is written in one way only.
        if what != DOT && !text.ends_with("/**") {
            let other = String::from_utf8(other).expect("it was text");
            assert_eq!(other.parse().as_ref(), Ok(pattern), "{what}: {other:?}");
        }
    }
    for (what, other) in reescaped(text.as_bytes()) {
        let other = String::from_utf8(other).expect("it was text");
        // An escaped star is no star.
        if what == CASE || !text.contains('*') {
            assert_eq!(other.parse().as_ref(), Ok(pattern), "{what}: {other:?}");
        }
    }
    if !text.contains('*') {
        for reading in readings(text.as_bytes()) {
            assert!(pattern.matches(&reading), "{text:?} holds itself");
        }
    }
}

fn check_matches(pattern: &PathPattern, path: &[u8]) {
    let everything: PathPattern = "/**".parse().expect("a pattern");
    for reading in readings(path) {
        let held = pattern.matches(&reading);
        assert_eq!(held, holds(&pattern.to_string(), &reading), "{reading:?}");
        assert!(held || !pattern.is_everything());
        assert!(everything.matches(&reading));
        let literal = std::str::from_utf8(&reading).map(escaped);
        if let Some(Ok(exact)) = literal.ok().map(|text| text.parse::<PathPattern>()) {
            assert!(exact.matches(&reading), "{exact} is {reading:?}");
            assert_eq!(pattern.covers(&exact), held, "{pattern} {exact}");
        }
    }
}

/// The rule of patterns as a person would tell it, from the text that one is shown as.
fn holds(pattern: &str, reading: &[u8]) -> bool {
    let (pattern, below) = match pattern.strip_suffix("/**") {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let split = |text: &[u8]| -> Vec<Vec<u8>> {
        let segments = text.split(|byte| *byte == b'/');
        let segments = segments.filter(|segment| !segment.is_empty());
        segments.map(<[u8]>::to_vec).collect()
    };
    let (wanted, found) = (split(pattern.as_bytes()), split(reading));
    let fits = |(wanted, found): (&Vec<u8>, &Vec<u8>)| {
        let literal = PathSegment::Literal(unescaped(wanted).into());
        wanted == b"*" || literal == PathSegment::Literal(found.as_slice().into())
    };
    found.len() >= wanted.len()
        && (below || found.len() == wanted.len())
        && wanted.iter().zip(&found).all(fits)
}

/// Escapes of what is shown, but that of `%`, which readings have too.
fn unescaped(shown: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = shown;
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, escape(rest)) {
            (b'%', Some(code)) if code != b'%' => {
                bytes.push(code);
                rest = &rest[2..];
            }
            _ => bytes.push(*byte),
        }
    }
    bytes
}

/// A reading as a pattern that is that one path.
fn escaped(reading: &str) -> String {
    let escape = |c: char| match c {
        '*' | '?' | '#' | ' ' => format!("%{:02X}", u32::from(c)),
        c => c.to_string(),
    };
    reading.chars().map(escape).collect()
}

/// Ways of writing it that mean nothing to any upstream.
fn rewritten(path: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut others = vec![("a slash at the end", [path, b"/"].concat())];
    for at in slashes(path) {
        let with = |more: &[u8]| [&path[..at], more, &path[at..]].concat();
        others.push(("a second slash", with(b"/")));
        others.push((DOT, with(b"/.")));
    }
    others
}

fn slashes(path: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| at).take(MOST)
}

/// The same bytes, escaped otherwise.
fn reescaped(path: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut others = Vec::new();
    let (mut upper, mut lower) = (path.to_vec(), path.to_vec());
    let mut at = 0;
    while at < path.len() {
        if path[at] == b'%' && escape(&path[at + 1..]).is_some() {
            upper[at + 1..at + 3].make_ascii_uppercase();
            lower[at + 1..at + 3].make_ascii_lowercase();
            at += 3;
            continue;
        }
        // Two bytes after a % may be what it escapes, and a slash is none once it is escaped.
        let near = path[at.saturating_sub(2)..=at].contains(&b'%');
        if !near && path[at].is_ascii_graphic() && path[at] != b'/' && others.len() < MOST {
            let code = format!("%{:02x}", path[at]);
            let other = [&path[..at], code.as_bytes(), &path[at + 1..]].concat();
            others.push(("a byte escaped", other));
        }
        at += 1;
    }
    others.extend([(CASE, upper), (CASE, lower)]);
    others
}

/// The byte of two hexadecimal digits.
fn escape(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits.get(..2)?).ok()?;
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

fn readings(path: &[u8]) -> Vec<Vec<u8>> {
    Readings::of(path).iter().map(<[u8]>::to_vec).collect()
}

const CASE: &str = "escapes in another case";
const DOT: &str = "a segment .";

/// So many places of a path are tried: each costs a reading.
const MOST: usize = 16;
