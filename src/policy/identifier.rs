//! Who is counted: identifier sources, the rule that tries them in order, and the value that results.
//!
//! A value that a client chose never travels further than this file: what leaves is an address or a
//! keyed hash, so no byte of a client can pose as another identity, close a Redis hash tag, or be read
//! back from a store, a log or a metric.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderName;

use super::{Client, RequestView};
use crate::ratelimit::Cost;

/// The value that is counted.
///
/// Its text, in Redis keys and logs, is 22 base64url characters for a hash, the canonical address for an
/// address, and `unix` for peers on a unix socket; the three can never be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identifier {
    /// A keyed hash of values that the client sent.
    Hash([u8; 16]),
    /// A client address, IPv6 grouped by prefix.
    Address(IpAddr),
    /// A peer without an address.
    Unix,
}

/// Where an identity comes from; written `header:x-api-key`, `client_ip` in YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentifierSource {
    /// The value of a request header, an API key; an auth scheme (`Bearer`) before it is stripped.
    Header(HeaderName),
    /// The client's address.
    ClientIp,
}

/// The sources that a policy tries in order, and what happens when none has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifierRule {
    /// At least one.
    pub sources: Vec<IdentifierSource>,
    /// What a request without any of them meets.
    pub missing: MissingIdentifier,
}

/// What a request meets that has no identity in any source of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingIdentifier {
    /// It is counted by the client's address: the default, since it neither turns clients away nor lets
    /// them go uncounted.
    #[default]
    ClientIp,
    /// This policy does not ask about it.
    Allow,
    /// It is answered 401.
    Deny,
}

/// Why a request is answered before any store is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Several lines of the header that identifies: limiter and upstream could disagree on which counts.
    #[error("the header {0} was sent more than once")]
    DuplicateHeader(HeaderName),
    /// Longer than [`MAX_HEADER_VALUE`].
    #[error("the header {0} is longer than {MAX_HEADER_VALUE} bytes")]
    HeaderTooLong(HeaderName),
    /// What a trusted proxy says of the request's cost is no cost, or too much.
    #[error("the header {header} holds an integer from 1 to {max}")]
    InvalidCost {
        /// Where it says it.
        header: HeaderName,
        /// The most that is accepted.
        max: Cost,
    },
    /// The client is on the block list.
    #[error("this address is blocked")]
    Blocked,
    /// Upstreams read the path in so many ways that the policies for paths cannot tell which of them apply.
    #[error("the path has .. or ; together with escaped or doubled separators")]
    AmbiguousPath,
    /// No source has a value, and the policy requires one.
    #[error("an identifier is required: {0}")]
    IdentifierRequired(HeaderName),
}

/// A key longer than [`MAX_HEADER_VALUE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is at most {MAX_HEADER_VALUE} bytes long")]
pub struct KeyTooLong;

/// The longest identifying header value that is hashed, in bytes.
pub const MAX_HEADER_VALUE: usize = 8 * 1024;

/// The keyed hash that turns what a client sent into an [`Identifier`].
///
/// BLAKE3 in keyed mode, cut to 128 bits. Proxies that share a Redis share the secret, else they count
/// one client as two.
#[derive(Clone)]
pub struct IdentifierHasher {
    key: [u8; 32],
    ipv6_prefix: u8,
}

impl IdentifierHasher {
    /// IPv6 clients are grouped by this prefix unless configured: what a subscriber commonly gets.
    pub const DEFAULT_IPV6_PREFIX: u8 = 64;

    /// A hasher keyed by `secret`; `None` stands for a fixed, public key.
    pub fn new(secret: Option<&str>, ipv6_prefix: u8) -> Self {
        Self {
            key: blake3::derive_key(KEY_CONTEXT, secret.unwrap_or_default().as_bytes()),
            ipv6_prefix: ipv6_prefix.min(128),
        }
    }

    /// The identifier of a client's address; `None` for a peer without one is [`Identifier::Unix`].
    pub fn client(&self, client: Client) -> Identifier {
        match client {
            Client::Unix => Identifier::Unix,
            Client::Address(address) => Identifier::Address(self.group(address.to_canonical())),
        }
    }

    /// The identifier of an API key as a header's value holds it, an auth scheme (`Bearer`) before it
    /// perhaps; `None` if nothing is left of it.
    ///
    /// # Errors
    /// If it is longer than [`MAX_HEADER_VALUE`].
    pub fn api_key(&self, value: &[u8]) -> Result<Option<Identifier>, KeyTooLong> {
        if value.len() > MAX_HEADER_VALUE {
            return Err(KeyTooLong);
        }
        let key = without_scheme(value.trim_ascii());
        Ok((!key.is_empty()).then(|| self.value(Kind::Header, key)))
    }

    /// The identifier of a value: its kind, then its length, then its bytes, so that different parts can
    /// never be written as the same whole.
    fn value(&self, kind: Kind, value: &[u8]) -> Identifier {
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        hash.update(&[kind as u8]);
        hash.update(&(value.len() as u64).to_le_bytes());
        hash.update(value);
        let mut short = [0; 16];
        short.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        Identifier::Hash(short)
    }

    fn group(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.ipv6_prefix))
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }
}

/// The key is a secret.
impl fmt::Debug for IdentifierHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentifierHasher")
            .field("ipv6_prefix", &self.ipv6_prefix)
            .finish_non_exhaustive()
    }
}

impl IdentifierRule {
    /// Who is counted; `None` if this policy does not ask about the request.
    ///
    /// # Errors
    /// A [`Refusal`] for an identity that cannot be taken as sent, or that is required and missing.
    pub fn identify(
        &self,
        view: &RequestView<'_>,
        hasher: &IdentifierHasher,
    ) -> Result<Option<Identifier>, Refusal> {
        for source in &self.sources {
            if let Some(identifier) = source.identify(view, hasher)? {
                return Ok(Some(identifier));
            }
        }
        match self.missing {
            MissingIdentifier::ClientIp => Ok(Some(hasher.client(view.client))),
            MissingIdentifier::Allow => Ok(None),
            MissingIdentifier::Deny => Err(Refusal::IdentifierRequired(self.required_header())),
        }
    }

    /// Whether any request is counted by a key.
    pub fn counts_keys(&self) -> bool {
        let is_header = |source: &IdentifierSource| matches!(source, IdentifierSource::Header(_));
        self.sources.iter().any(is_header)
    }

    /// Whether any request is counted by its client's address: by a source, or for want of another.
    pub fn counts_addresses(&self) -> bool {
        self.sources.contains(&IdentifierSource::ClientIp)
            || self.missing == MissingIdentifier::ClientIp
    }

    /// Whether any request is counted as `identifier`, going by its kind.
    pub fn counts(&self, identifier: Identifier) -> bool {
        match identifier {
            Identifier::Hash(_) => self.counts_keys(),
            Identifier::Address(_) | Identifier::Unix => self.counts_addresses(),
        }
    }

    fn required_header(&self) -> HeaderName {
        self.sources
            .iter()
            .find_map(|source| match source {
                IdentifierSource::Header(name) => Some(name.clone()),
                IdentifierSource::ClientIp => None,
            })
            .unwrap_or(http::header::AUTHORIZATION)
    }
}

impl IdentifierSource {
    fn identify(
        &self,
        view: &RequestView<'_>,
        hasher: &IdentifierHasher,
    ) -> Result<Option<Identifier>, Refusal> {
        match self {
            Self::Header(name) => {
                let Some(value) = only_line(name, view)? else {
                    return Ok(None);
                };
                let too_long = |KeyTooLong| Refusal::HeaderTooLong(name.clone());
                hasher.api_key(value).map_err(too_long)
            }
            Self::ClientIp => Ok(Some(hasher.client(view.client))),
        }
    }
}

/// The one value of the header; `None` if it is absent.
fn only_line<'a>(name: &HeaderName, view: &RequestView<'a>) -> Result<Option<&'a [u8]>, Refusal> {
    let mut lines = view.head.headers.get_all(name).iter();
    let Some(value) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(Refusal::DuplicateHeader(name.clone()));
    }
    Ok(Some(value.as_bytes()))
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

/// What kind of source a hashed value came from: each kind has its own name space.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Header = 1,
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash(hash) => {
                let mut text = [0; 22];
                let length = URL_SAFE_NO_PAD
                    .encode_slice(hash, &mut text)
                    .expect("16 bytes are 22 characters");
                f.write_str(std::str::from_utf8(&text[..length]).expect("base64 is ASCII"))
            }
            Self::Address(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// What [`Display`](fmt::Display) writes, and only that: an address in another form names no counter.
impl FromStr for Identifier {
    type Err = ParseIdentifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let identifier = if text == "unix" {
            Self::Unix
        } else if let Ok(address) = text.parse::<IpAddr>() {
            Self::Address(address.to_canonical())
        } else {
            let mut hash = [0; 16];
            match URL_SAFE_NO_PAD.decode_slice(text, &mut hash) {
                Ok(16) => Self::Hash(hash),
                Ok(_) | Err(_) => return Err(ParseIdentifierError),
            }
        };
        (identifier.to_string() == text)
            .then_some(identifier)
            .ok_or(ParseIdentifierError)
    }
}

/// The text is not an identifier. It is not repeated: it may be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an identifier is 22 characters, an address, or unix, exactly as it stands in logs and in Redis"
)]
pub struct ParseIdentifierError;

impl fmt::Display for IdentifierSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::ClientIp => f.write_str("client_ip"),
        }
    }
}

impl FromStr for IdentifierSource {
    type Err = ParseIdentifierSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = text.strip_prefix("header:") {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| ParseIdentifierSourceError::HeaderName)?;
            if OF_THE_CONNECTION.contains(&name.as_str()) {
                return Err(ParseIdentifierSourceError::OfTheConnection);
            }
            return Ok(Self::Header(name));
        }
        match text {
            "client_ip" => Ok(Self::ClientIp),
            _ => Err(ParseIdentifierSourceError::Unknown),
        }
    }
}

/// The text is not an identifier source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdentifierSourceError {
    /// No source has this name.
    #[error("an identifier source is header:<name> or client_ip")]
    Unknown,
    /// The part after `header:` is not a header name.
    #[error("a header name is made of letters, digits and hyphens, as in header:x-api-key")]
    HeaderName,
    /// The header speaks of the connection or the message, or names an address that anyone may invent.
    #[error(
        "this header identifies nobody; an identity comes from a key, as in header:x-api-key, or is client_ip"
    )]
    OfTheConnection,
}

/// Headers that are about the message or the way it came, not about who sent it.
const OF_THE_CONNECTION: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-real-ip",
];

const BEARER: &[u8] = b"bearer";
const KEY_CONTEXT: &str = "slidegate 2026-12 identifier hash";

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn identify(
        rule: &IdentifierRule,
        headers: &[(&str, &[u8])],
    ) -> Result<Option<Identifier>, Refusal> {
        let mut request = http::Request::new(());
        for (name, value) in headers {
            request.headers_mut().append(
                HeaderName::from_bytes(name.as_bytes()).expect("a header name"),
                http::HeaderValue::from_bytes(value).expect("a header value"),
            );
        }
        let (head, ()) = request.into_parts();
        let client = Client::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
        rule.identify(
            &RequestView {
                head: &head,
                client,
                peer_is_trusted: false,
            },
            &hasher(),
        )
    }

    fn hasher() -> IdentifierHasher {
        IdentifierHasher::new(Some("a secret"), IdentifierHasher::DEFAULT_IPV6_PREFIX)
    }

    fn rule(sources: &[&str], missing: MissingIdentifier) -> IdentifierRule {
        let sources = sources
            .iter()
            .map(|source| source.parse().expect(source))
            .collect();
        IdentifierRule { sources, missing }
    }

    fn by_key(key: &[u8]) -> Identifier {
        identify(
            &rule(&["header:x-api-key"], MissingIdentifier::Deny),
            &[("x-api-key", key)],
        )
        .expect("accepted")
        .expect("counted")
    }

    fn by_address(address: &str) -> String {
        hasher()
            .client(Client::Address(address.parse().expect(address)))
            .to_string()
    }

    #[test]
    fn a_scheme_is_no_part_of_the_key_and_its_case_does_not_matter() {
        let bearer = by_key(b"Bearer K");
        assert_eq!(bearer, by_key(b"bearer K"));
        assert_eq!(bearer, by_key(b"BEARER   K"));
        assert_eq!(bearer, by_key(b"K"));
        assert_ne!(bearer, by_key(b"Bearer k"), "a key's case matters");
        assert_ne!(bearer, by_key(b"BearerK"), "a key may begin like a scheme");
    }

    #[test]
    fn an_empty_key_or_a_scheme_without_one_counts_as_absent() {
        let rule = rule(&["header:x-api-key"], MissingIdentifier::ClientIp);
        let by_ip = identify(&rule, &[]).expect("accepted");
        assert_eq!(by_ip.expect("counted").to_string(), "192.0.2.7");
        for value in [&b""[..], b"   ", b"Bearer", b"Bearer  "] {
            assert_eq!(identify(&rule, &[("x-api-key", value)]), Ok(by_ip));
        }
    }

    #[test]
    fn keys_are_bytes_and_differ_where_their_bytes_do() {
        let (utf8, latin1) = (by_key("kéy".as_bytes()), by_key(b"k\xe9y"));
        assert_ne!(utf8, latin1);
        assert_eq!(latin1, by_key(b"k\xe9y"));
        assert_ne!(by_key("тест".as_bytes()), by_key(b"ok"));
    }

    #[test]
    fn two_lines_of_the_identifying_header_are_refused() {
        let rule = rule(
            &["header:x-api-key", "client_ip"],
            MissingIdentifier::ClientIp,
        );
        let refused = identify(&rule, &[("x-api-key", b"A"), ("x-api-key", b"B")]);
        assert_eq!(
            refused,
            Err(Refusal::DuplicateHeader(HeaderName::from_static(
                "x-api-key"
            )))
        );
    }

    #[test]
    fn a_key_of_eight_kibibytes_is_taken_and_a_longer_one_refused() {
        by_key(&vec![b'k'; MAX_HEADER_VALUE]);
        let rule = rule(&["header:x-api-key"], MissingIdentifier::Allow);
        let refused = identify(&rule, &[("x-api-key", &vec![b'k'; MAX_HEADER_VALUE + 1])]);
        assert_eq!(
            refused,
            Err(Refusal::HeaderTooLong(HeaderName::from_static("x-api-key")))
        );
    }

    #[test]
    fn a_missing_identifier_is_counted_by_address_let_go_or_refused_as_the_policy_says() {
        let counted = |missing| identify(&rule(&["header:x-api-key"], missing), &[]);
        let by_ip = counted(MissingIdentifier::ClientIp).expect("accepted");
        assert_eq!(by_ip.expect("counted").to_string(), "192.0.2.7");
        assert_eq!(counted(MissingIdentifier::Allow), Ok(None));
        assert!(matches!(
            counted(MissingIdentifier::Deny),
            Err(Refusal::IdentifierRequired(_))
        ));
    }

    #[test]
    fn a_header_can_not_pose_as_an_address() {
        let posing = by_key(b"192.0.2.7").to_string();
        assert_eq!(posing.len(), 22);
        assert!(
            posing
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        );
    }

    #[test]
    fn an_identifier_reads_back_from_its_text_and_from_no_other() {
        let hashed = by_key(b"K");
        let grouped = hasher().client(Client::Address("2001:db8:1:2::1".parse().expect("one")));
        let short = hasher().client(Client::Address("192.0.2.7".parse().expect("one")));
        for identifier in [hashed, grouped, short, Identifier::Unix] {
            assert_eq!(identifier.to_string().parse(), Ok(identifier));
        }
        let padded = format!("{hashed}==");
        let others = ["", "K", &padded, "2001:DB8::", "::ffff:192.0.2.7", "UNIX"];
        for text in others {
            assert_eq!(
                text.parse::<Identifier>(),
                Err(ParseIdentifierError),
                "{text}"
            );
        }
        // The last of 22 characters holds two bits; the other four are always 0.
        let loose = "AAAAAAAAAAAAAAAAAAAAAB";
        assert_eq!(loose.parse::<Identifier>(), Err(ParseIdentifierError));
    }

    #[test]
    fn a_policy_counts_addresses_by_a_source_or_for_want_of_another() {
        let kinds = |sources: &[&str], missing| {
            let rule = rule(sources, missing);
            (rule.counts_keys(), rule.counts_addresses())
        };
        let (by_ip, deny) = (MissingIdentifier::ClientIp, MissingIdentifier::Deny);
        assert_eq!(kinds(&["header:x-api-key"], deny), (true, false));
        assert_eq!(kinds(&["header:x-api-key"], by_ip), (true, true));
        assert_eq!(kinds(&["client_ip"], by_ip), (false, true));
        assert_eq!(kinds(&["header:a", "client_ip"], deny), (true, true));
    }

    #[test]
    fn another_secret_makes_other_identifiers() {
        let other = IdentifierHasher::new(Some("another"), 64);
        assert_ne!(
            hasher().value(Kind::Header, b"K"),
            other.value(Kind::Header, b"K")
        );
    }

    #[test]
    fn ipv6_clients_are_grouped_by_their_prefix_and_ipv4_clients_are_not() {
        assert_eq!(
            by_address("2001:db8:1:2::1"),
            by_address("2001:db8:1:2:ffff::9")
        );
        assert_ne!(by_address("2001:db8:1:2::1"), by_address("2001:db8:1:3::1"));
        assert_ne!(by_address("192.0.2.7"), by_address("192.0.2.8"));
        assert_eq!(by_address("::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn a_prefix_of_zero_or_all_bits_does_what_it_says() {
        let group = |prefix| {
            let address = "2001:db8::1".parse().expect("an address");
            IdentifierHasher::new(None, prefix)
                .client(Client::Address(address))
                .to_string()
        };
        assert_eq!(group(0), "::");
        assert_eq!(group(128), "2001:db8::1");
    }
}
