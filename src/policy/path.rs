//! The path of a request as its upstream will read it, and patterns of paths.
//!
//! Upstreams disagree about paths, so no single normal form is safe: `/admin%2Fx` is one segment to some and two
//! to others. What nearly all agree on is always done: `//` merged, `/./` and a trailing slash dropped, percent
//! escapes decoded once. For what they disagree on, a path has two [`Readings`]: escaped separators, `\` and
//! `;params` kept, or decoded; `..` kept, or resolved. A path on which they could differ in further ways is
//! [`Ambiguous`](Readings::is_ambiguous).
//!
//! A `%` that stays is written `%25`, so that a normal path read again is itself.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    str::FromStr,
};

use smallvec::SmallVec;

/// One or two normal paths, each beginning with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readings<'a> {
    kept: Cow<'a, [u8]>,
    /// If it differs.
    resolved: Option<Vec<u8>>,
    ambiguous: bool,
}

impl<'a> Readings<'a> {
    /// How `path`, without a query, may be read. It is borrowed if it is normal already.
    pub fn of(path: &'a [u8]) -> Self {
        if is_normal(path) {
            return Self {
                kept: Cow::Borrowed(path),
                resolved: None,
                ambiguous: false,
            };
        }
        let (decoded, found) = decode(path);
        let kept = joined(decoded.split(|byte| *byte == b'/'));
        let mut resolved: SmallVec<[&[u8]; 16]> = SmallVec::new();
        let mut climbs = false;
        // Parameters end where the segment does as it was sent: an escaped separator in them is one of them.
        for sent in decoded.split(|byte| *byte == b'/') {
            let bare = sent.split(|byte| *byte == b';').next().unwrap_or_default();
            for segment in split_escaped(bare) {
                match segment {
                    b"" | b"." => {}
                    b".." => {
                        climbs = true;
                        resolved.pop();
                    }
                    segment => resolved.push(segment),
                }
            }
        }
        let resolved = joined(resolved.into_iter());
        Self {
            ambiguous: match climbs {
                true => found.escapes || found.parameters || found.empty,
                false => found.escapes && found.parameters,
            },
            resolved: (resolved != kept).then_some(resolved),
            kept: Cow::Owned(kept),
        }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.kept).chain(self.resolved.as_deref())
    }

    /// The one that folds the most ways to write a path into one: separators decoded, parameters dropped, `..`
    /// resolved. Whoever keeps them takes several of its paths for this one, and none for two.
    pub fn into_resolved(self) -> Cow<'a, [u8]> {
        self.resolved.map_or(self.kept, Cow::Owned)
    }

    /// Whether upstreams could read it in further ways: more than one of `..`, `;` and escaped separators is in
    /// it, or `..` with `//`.
    pub fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }
}

/// The segments of a normal path; none for `/`.
pub fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    path.split(|byte| *byte == b'/')
        .filter(|segment| !segment.is_empty())
}

/// Whether every reading of it is itself.
fn is_normal(path: &[u8]) -> bool {
    let [b'/', rest @ ..] = path else {
        return false;
    };
    let mut before = b'/';
    for &byte in rest {
        match byte {
            b'%' | b'\\' | b';' => return false,
            b'/' | b'.' if before == b'/' => return false,
            _ => before = byte,
        }
    }
    rest.is_empty() || before != b'/'
}

/// What a path has in it that upstreams read differently.
#[derive(Default)]
struct Found {
    /// `%2F`, `%5C` or `\`.
    escapes: bool,
    /// `;`, escaped or not.
    parameters: bool,
    /// `//`.
    empty: bool,
}

/// Every escape decoded but those of `/`, `\` and `%`, which are written `%2F`, `%5C` and `%25`; so is a `%`
/// that begins none.
fn decode(path: &[u8]) -> (Vec<u8>, Found) {
    let mut decoded = Vec::with_capacity(path.len());
    let mut found = Found::default();
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        rest = after;
        let byte = match (byte, after) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    match high << 4 | low {
                        separator @ (b'/' | b'\\') => {
                            found.escapes = true;
                            decoded.extend(if separator == b'/' { SLASH } else { BACKSLASH });
                            continue;
                        }
                        byte => byte,
                    }
                }
                _ => b'%',
            },
            (b'\\', _) => {
                found.escapes = true;
                decoded.extend(BACKSLASH);
                continue;
            }
            (byte, _) => *byte,
        };
        match byte {
            b'%' => decoded.extend(PERCENT),
            byte => {
                found.parameters |= byte == b';';
                found.empty |= byte == b'/' && decoded.last() == Some(&b'/');
                decoded.push(byte);
            }
        }
    }
    (decoded, found)
}

/// Splits at the separators that [`decode`] left escaped.
fn split_escaped(segment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(segment);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text
            .windows(SLASH.len())
            .position(|three| three == SLASH || three == BACKSLASH);
        rest = end.map(|end| &text[end + SLASH.len()..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// The segments with a `/` before each, without those that mean nothing.
fn joined<'s>(segments: impl Iterator<Item = &'s [u8]>) -> Vec<u8> {
    let mut path = Vec::new();
    for segment in segments {
        if !matches!(segment, b"" | b".") {
            path.push(b'/');
            path.extend(segment);
        }
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

const SLASH: &[u8] = b"%2F";
const BACKSLASH: &[u8] = b"%5C";
const PERCENT: &[u8] = b"%25";

/// Which paths: `/login` is that one, `/users/*/avatar` has any one segment at the `*`, `/api/**` is `/api` and
/// all below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pub(super) segments: Vec<PathSegment>,
    /// Whether it holds what is below, too.
    pub(super) below: bool,
}

/// One segment of a [`PathPattern`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathSegment {
    /// This one, as a normal path has it.
    Literal(Box<[u8]>),
    /// Any.
    Any,
}

impl PathPattern {
    /// Whether a normal path is one of its paths.
    pub fn matches(&self, path: &[u8]) -> bool {
        let mut segments = segments(path);
        let fits = self.segments.iter().all(|wanted| match segments.next() {
            Some(segment) => wanted.matches(segment),
            None => false,
        });
        fits && (self.below || segments.next().is_none())
    }

    /// Whether every path is one of its paths.
    pub fn is_everything(&self) -> bool {
        self.below && self.segments.is_empty()
    }

    /// Whether it is one path alone.
    pub fn is_one(&self) -> bool {
        !self.below && !self.segments.contains(&PathSegment::Any)
    }

    /// Whether every path of `other` is one of its own.
    pub fn covers(&self, other: &Self) -> bool {
        let length = self.segments.len();
        let fits = match self.below {
            true => other.segments.len() >= length,
            false => other.segments.len() == length && !other.below,
        };
        let mut pairs = self.segments.iter().zip(&other.segments);
        fits && pairs.all(|(ours, theirs)| *ours == PathSegment::Any || ours == theirs)
    }
}

impl PathSegment {
    fn matches(&self, segment: &[u8]) -> bool {
        match self {
            Self::Literal(literal) => **literal == *segment,
            Self::Any => true,
        }
    }
}

impl FromStr for PathPattern {
    type Err = ParsePathPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, below) = match text.strip_suffix("/**") {
            Some(path) => (path, true),
            None => (text, false),
        };
        if !text.starts_with('/') {
            return Err(ParsePathPatternError::NoSlash);
        }
        if text.contains(['?', '#']) {
            return Err(ParsePathPatternError::Query);
        }
        if text.chars().any(|c| c.is_control() || c == ' ') {
            return Err(ParsePathPatternError::NotAPath);
        }
        let mut segments = Vec::new();
        for written in path.split('/').filter(|segment| !segment.is_empty()) {
            segments.push(match written {
                "*" => PathSegment::Any,
                _ if written.contains('*') => return Err(ParsePathPatternError::Star),
                _ => PathSegment::Literal(literal(written)?),
            });
        }
        if segments.len() > MAX_SEGMENTS {
            return Err(ParsePathPatternError::TooDeep);
        }
        Ok(Self { segments, below })
    }
}

/// A segment of a pattern in its normal form.
fn literal(written: &str) -> Result<Box<[u8]>, ParsePathPatternError> {
    let escapes = written.match_indices('%').map(|(at, _)| &written[at + 1..]);
    for escape in escapes {
        let digits = escape.as_bytes().get(..2).unwrap_or_default();
        if digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(ParsePathPatternError::Escape);
        }
    }
    let (literal, found) = decode(written.as_bytes());
    if found.escapes || found.parameters || matches!(&*literal, b"." | b"..") {
        return Err(ParsePathPatternError::Ambiguous);
    }
    match std::str::from_utf8(&literal) {
        Ok(text) if text.contains(char::is_control) => Err(ParsePathPatternError::NotAPath),
        Ok(_) => Ok(literal.into()),
        Err(_) => Err(ParsePathPatternError::Escape),
    }
}

/// As it is written in YAML, in its normal form.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                PathSegment::Literal(literal) => {
                    f.write_char('/')?;
                    for c in String::from_utf8_lossy(literal).chars() {
                        match c {
                            // As they are they would mean something else, or nothing.
                            '*' | '?' | '#' | ' ' => write!(f, "%{:02X}", u32::from(c))?,
                            c => f.write_char(c)?,
                        }
                    }
                }
                PathSegment::Any => f.write_str("/*")?,
            }
        }
        match (self.below, self.segments.is_empty()) {
            (true, _) => f.write_str("/**"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

/// The text is not a pattern of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePathPatternError {
    /// It begins with something else.
    #[error("a path begins with /, as in /login, /api/**, /users/*/avatar")]
    NoSlash,
    /// A `?` or `#`, which no path has.
    #[error(
        "a path is matched without its query; write %3F or %23 for a ? or # that is part of it"
    )]
    Query,
    /// A space or a control character.
    #[error("a path has no spaces or control characters; write %20 for a space")]
    NotAPath,
    /// A `*` within a segment, or `**` before the end.
    #[error(
        "* stands for one whole segment, and ** for all that is below, at the end: /users/*/avatar, /api/**"
    )]
    Star,
    /// A `%` that begins no escape of UTF-8.
    #[error(
        "% begins two hexadecimal digits, of a character in UTF-8; write %25 for a % that is part of it"
    )]
    Escape,
    /// What upstreams read differently.
    #[error(
        "a pattern is written in one way only: without . and .. segments, ;, \\, %2F and %5C, which requests may \
         have and which are read either way"
    )]
    Ambiguous,
    /// More segments than [`MAX_SEGMENTS`].
    #[error("a pattern has at most {MAX_SEGMENTS} segments")]
    TooDeep,
}

/// The most segments of a pattern: far more than paths have, and it bounds what a request costs.
pub const MAX_SEGMENTS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(path: &str) -> Vec<String> {
        let readings = Readings::of(path.as_bytes());
        let text = |reading: &[u8]| String::from_utf8(reading.to_vec()).expect("text");
        readings.iter().map(text).collect()
    }

    fn pattern(text: &str) -> PathPattern {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_upstreams_agree_on_is_read_in_one_way() {
        for (path, normal) in [
            ("/", "/"),
            ("", "/"),
            ("//", "/"),
            ("/.", "/"),
            ("/api/x", "/api/x"),
            ("/./api/x", "/api/x"),
            ("//api///x", "/api/x"),
            ("/api/x/", "/api/x"),
            ("/api/x/.", "/api/x"),
            ("/%61pi/%78", "/api/x"),
            ("/%2e/api", "/api"),
            ("/caf%c3%a9", "/café"),
            ("/a%3Fb", "/a?b"),
            ("/a%2541", "/a%2541"),
            ("/a%zz%", "/a%25zz%25"),
            ("/.well-known", "/.well-known"),
            ("/a..b/...", "/a..b/..."),
            ("*", "/*"),
        ] {
            assert_eq!(readings(path), [normal], "{path}");
        }
    }

    #[test]
    fn what_they_disagree_on_is_read_in_two_ways() {
        for (path, kept, resolved) in [
            ("/api%2fx", "/api%2Fx", "/api/x"),
            ("/api%5Cx", "/api%5Cx", "/api/x"),
            ("/api\\x", "/api%5Cx", "/api/x"),
            ("/api;v=1/x", "/api;v=1/x", "/api/x"),
            ("/api%3Bv/x", "/api;v/x", "/api/x"),
            ("/.;/api", "/.;/api", "/api"),
            ("/info/../admin", "/info/../admin", "/admin"),
            ("/info/%2e%2E/admin", "/info/../admin", "/admin"),
            ("/../admin/..", "/../admin/..", "/"),
        ] {
            assert_eq!(readings(path), [kept, resolved], "{path}");
            assert!(!Readings::of(path.as_bytes()).is_ambiguous(), "{path}");
        }
    }

    #[test]
    fn a_path_with_more_than_two_readings_is_ambiguous() {
        for path in [
            "/admin/..%2fpublic/x",
            "/admin%2f..",
            "/admin/..\\x",
            "/a/..;/b",
            "/a;x/../b",
            "/a//../b",
            "/a/%2e%2e/%5cb",
            "/login;%2Fx",
        ] {
            assert!(Readings::of(path.as_bytes()).is_ambiguous(), "{path}");
        }
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        let readings = Readings::of(b"/users/7/avatar.png");
        assert!(matches!(readings.kept, Cow::Borrowed(_)));
    }

    #[test]
    fn a_pattern_holds_whole_segments() {
        for (text, inside, outside) in [
            (
                "/login",
                &["/login"][..],
                &["/", "/login/x", "/log", "/Login"][..],
            ),
            ("/", &["/"], &["/a"]),
            (
                "/api/**",
                &["/api", "/api/x", "/api/x/y"],
                &["/", "/apis", "/x/api"],
            ),
            (
                "/users/*/avatar",
                &["/users/7/avatar"],
                &["/users/avatar", "/users/7/8/avatar"],
            ),
            ("/*", &["/a"], &["/", "/a/b"]),
            ("/**", &["/", "/a", "/a/b"], &[]),
            ("//%61pi/", &["/api"], &["/api/x"]),
        ] {
            let pattern = pattern(text);
            for path in inside {
                assert!(pattern.matches(path.as_bytes()), "{path} in {text}");
            }
            for path in outside {
                assert!(!pattern.matches(path.as_bytes()), "{path} not in {text}");
            }
        }
    }

    #[test]
    fn a_pattern_covers_another_if_it_holds_all_of_its_paths() {
        for (wide, narrow) in [
            ("/**", "/"),
            ("/api/**", "/api"),
            ("/api/**", "/api/*/x/**"),
            ("/users/*", "/users/me"),
        ] {
            assert!(pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
            assert!(!pattern(narrow).covers(&pattern(wide)), "{narrow} {wide}");
        }
        assert!(!pattern("/*/x").covers(&pattern("/a/y")));
    }

    #[test]
    fn a_pattern_is_written_back_as_it_is_read() {
        for text in [
            "/",
            "/**",
            "/*",
            "/api/**",
            "/users/*/avatar",
            "/a%3Fb%23c%20d",
            "/%2A/%2A%2A",
            "/100%25",
        ] {
            assert_eq!(pattern(text).to_string(), text);
        }
        assert_eq!(pattern("//%61pi//**").to_string(), "/api/**");
    }
}
