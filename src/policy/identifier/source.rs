//! Where an identity comes from: one place in a request, or several of them together.

use std::{fmt, str::FromStr};

use http::HeaderName;

/// One place in a request; written `header:x-api-key`, `client_ip` in YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentifierSource {
    /// The value of a request header, an API key; an auth scheme (`Bearer`) before it is stripped.
    Header(HeaderName),
    /// The consumer that has the key in a request header; written like [`Self::Header`], and this where the header is
    /// one that holds the keys of consumers.
    Consumer(HeaderName),
    /// The value of a cookie; its name's case matters (RFC 6265).
    Cookie(Box<str>),
    /// The value of a query parameter; its name, decoded. Case matters.
    Query(Box<str>),
    /// The host that the request is for.
    Host,
    /// The path, as the upstream that reads most into it reads it.
    Path,
    /// The method.
    Method,
    /// None: everybody is counted together.
    Constant,
    /// The client's address.
    ClientIp,
}

/// What is tried at once: a source, or several that identify only together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentifierEntry {
    /// One source.
    One(IdentifierSource),
    /// Each of these, 2 to [`MAX_PARTS`]; if one has no value, all have none.
    All(Box<[IdentifierSource]>),
}

/// The most sources that are combined into one identifier: more than anybody wants, and few enough to be read
/// without allocating.
pub const MAX_PARTS: usize = 4;

impl IdentifierSource {
    /// Whether every request has a value in it. A request of HTTP/1.0 may name no host.
    pub const fn is_never_missing(&self) -> bool {
        match self {
            Self::Path | Self::Method | Self::Constant | Self::ClientIp => true,
            Self::Header(_) | Self::Consumer(_) | Self::Cookie(_) | Self::Query(_) | Self::Host => {
                false
            }
        }
    }
}

impl IdentifierEntry {
    /// Takes the values of these headers for keys of consumers.
    pub fn look_for_consumers_in(&mut self, headers: &[HeaderName]) {
        let sources = match self {
            Self::One(source) => std::slice::from_mut(source),
            Self::All(sources) => sources,
        };
        for source in sources {
            match source {
                IdentifierSource::Header(name) if headers.contains(name) => {
                    *source = IdentifierSource::Consumer(name.clone());
                }
                _ => {}
            }
        }
    }

    /// Its sources.
    pub fn sources(&self) -> &[IdentifierSource] {
        match self {
            Self::One(source) => std::slice::from_ref(source),
            Self::All(sources) => sources,
        }
    }

    /// Whether every request has a value in it, so that nothing after it is tried.
    pub fn is_never_missing(&self) -> bool {
        self.sources()
            .iter()
            .all(IdentifierSource::is_never_missing)
    }

    /// Whether every request that has a value in `other` has one in this entry.
    pub fn is_there_wherever(&self, other: &Self) -> bool {
        let is_there = |source: &IdentifierSource| {
            source.is_never_missing() || other.sources().contains(source)
        };
        self.sources().iter().all(is_there)
    }
}

/// As in YAML.
impl fmt::Display for IdentifierSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) | Self::Consumer(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::Method => f.write_str("method"),
            Self::Constant => f.write_str("constant"),
            Self::ClientIp => f.write_str("client_ip"),
        }
    }
}

/// `header:x-tenant + header:x-user`.
impl fmt::Display for IdentifierEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, source) in self.sources().iter().enumerate() {
            if index > 0 {
                f.write_str(" + ")?;
            }
            source.fmt(f)?;
        }
        Ok(())
    }
}

impl FromStr for IdentifierSource {
    type Err = ParseIdentifierSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("header", name)) => return header(name),
            Some(("cookie", name)) => return cookie(name),
            Some(("query", name)) => return query(name),
            _ => {}
        }
        match text {
            "host" => Ok(Self::Host),
            "path" => Ok(Self::Path),
            "method" => Ok(Self::Method),
            "constant" => Ok(Self::Constant),
            "client_ip" => Ok(Self::ClientIp),
            _ => Err(ParseIdentifierSourceError::Unknown),
        }
    }
}

fn header(name: &str) -> Result<IdentifierSource, ParseIdentifierSourceError> {
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| ParseIdentifierSourceError::HeaderName)?;
    match name.as_str() {
        "host" => Err(ParseIdentifierSourceError::HostHeader),
        "cookie" => Err(ParseIdentifierSourceError::CookieHeader),
        name if OF_THE_CONNECTION.contains(&name) => {
            Err(ParseIdentifierSourceError::OfTheConnection)
        }
        _ => Ok(IdentifierSource::Header(name)),
    }
}

/// A token, as RFC 6265 has it.
fn cookie(name: &str) -> Result<IdentifierSource, ParseIdentifierSourceError> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match !name.is_empty() && name.bytes().all(token) {
        true => Ok(IdentifierSource::Cookie(name.into())),
        false => Err(ParseIdentifierSourceError::CookieName),
    }
}

/// What stands for itself in a query and in a challenge.
fn query(name: &str) -> Result<IdentifierSource, ParseIdentifierSourceError> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\#%&+;=".contains(&byte);
    match !name.is_empty() && name.bytes().all(plain) {
        true => Ok(IdentifierSource::Query(name.into())),
        false => Err(ParseIdentifierSourceError::QueryName),
    }
}

/// The text is not an identifier source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdentifierSourceError {
    /// No source has this name.
    #[error(
        "an identifier source is header:<name>, cookie:<name>, query:<name>, host, path, method, constant or \
         client_ip"
    )]
    Unknown,
    /// The part after `header:` is not a header name.
    #[error("a header name is made of letters, digits and hyphens, as in header:x-api-key")]
    HeaderName,
    /// The part after `cookie:` is not a cookie's name.
    #[error("a cookie's name is a token such as session or __Host-id, without blanks, = and ;")]
    CookieName,
    /// The part after `query:` is not a parameter's name.
    #[error(
        "a query parameter is named as it reads when decoded, as in query:api_key, in ASCII without blanks and \
         without any of \" \\ # % & + ; ="
    )]
    QueryName,
    /// The header speaks of the connection or the message, or names an address that anyone may invent.
    #[error(
        "this header identifies nobody; an identity comes from a key, as in header:x-api-key, or is client_ip"
    )]
    OfTheConnection,
    /// It has a source of its own.
    #[error("the host is a source of its own, without port and in any case: host")]
    HostHeader,
    /// It holds all cookies at once.
    #[error("this header holds every cookie; one of them is cookie:<name>")]
    CookieHeader,
}

/// Headers that are about the message or the way it came, not about who sent it.
const OF_THE_CONNECTION: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-real-ip",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(texts: &[&str]) -> IdentifierEntry {
        let sources = texts.iter().map(|text| text.parse().expect(text));
        let sources: Box<[IdentifierSource]> = sources.collect();
        match &*sources {
            [one] => IdentifierEntry::One(one.clone()),
            _ => IdentifierEntry::All(sources),
        }
    }

    #[test]
    fn a_source_reads_back_from_its_text() {
        for text in [
            "header:x-api-key",
            "cookie:__Host-Session",
            "query:filter[user]",
            "query:key:part",
            "host",
            "path",
            "method",
            "constant",
            "client_ip",
        ] {
            let source: IdentifierSource = text.parse().expect(text);
            assert_eq!(source.to_string(), text);
        }
    }

    #[test]
    fn names_that_no_request_can_have_are_refused() {
        use super::ParseIdentifierSourceError as Error;
        for (text, error) in [
            ("cookie:", Error::CookieName),
            ("cookie:a b", Error::CookieName),
            ("cookie:a=b", Error::CookieName),
            ("cookie:a;b", Error::CookieName),
            ("query:", Error::QueryName),
            ("query:api%5Fkey", Error::QueryName),
            ("query:a b", Error::QueryName),
            ("query:a\"b", Error::QueryName),
            ("query:clé", Error::QueryName),
            ("header:Host", Error::HostHeader),
            ("header:Cookie", Error::CookieHeader),
            ("header:X-Real-IP", Error::OfTheConnection),
            ("session:a", Error::Unknown),
            ("header", Error::Unknown),
        ] {
            assert_eq!(text.parse::<IdentifierSource>(), Err(error), "{text}");
        }
    }

    #[test]
    fn what_every_request_has_is_known_and_what_implies_it() {
        for never_missing in [&["client_ip"][..], &["constant"], &["path", "method"]] {
            assert!(entry(never_missing).is_never_missing(), "{never_missing:?}");
        }
        for sometimes in [&["host"][..], &["cookie:a"], &["client_ip", "query:a"]] {
            assert!(!entry(sometimes).is_never_missing(), "{sometimes:?}");
        }
        let (narrow, wide) = (entry(&["header:a", "header:b"]), entry(&["header:a"]));
        assert!(wide.is_there_wherever(&narrow));
        assert!(!narrow.is_there_wherever(&wide));
        assert!(entry(&["path"]).is_there_wherever(&wide));
    }
}
