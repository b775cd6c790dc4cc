//! Who is counted: identifier sources, the rule that tries them in order, and the value that results.
//!
//! A value that a client chose never travels further than this room: what leaves is an address or a
//! keyed hash, so no byte of a client can pose as another identity, close a Redis hash tag, or be read
//! back from a store, a log or a metric.

mod hasher;
mod part;
mod read;
mod rule;
mod source;

use std::{fmt, net::IpAddr, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

pub use hasher::{IdentifierHasher, KeyTooLong, MAX_IDENTIFYING_VALUE};
pub use part::IdentifierPart;
pub(super) use read::stays_behind;
pub use rule::{Counted, IdentifierRule, MissingIdentifier, Refusal};
pub use source::{IdentifierEntry, IdentifierSource, MAX_PARTS, ParseIdentifierSourceError};

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

impl Identifier {
    /// Another number for another hash or address, and for one of the other kind mostly; to be hashed.
    pub(crate) fn bits(self) -> u128 {
        match self {
            Self::Hash(hash) => u128::from_le_bytes(hash),
            Self::Address(IpAddr::V4(address)) => address.to_bits().into(),
            Self::Address(IpAddr::V6(address)) => address.to_bits(),
            Self::Unix => 0,
        }
    }
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http::HeaderName;

    use super::*;
    use crate::policy::{Client, Consumers, RequestView};

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
        let view = RequestView {
            head: &head,
            client,
            peer_is_trusted: false,
        };
        let consumers = Consumers::default();
        let counted = rule.identify(&view, &hasher(), &consumers)?;
        Ok(counted.map(|counted| counted.identifier))
    }

    fn hasher() -> IdentifierHasher {
        IdentifierHasher::new(Some("a secret"), IdentifierHasher::DEFAULT_IPV6_PREFIX)
    }

    fn rule(sources: &[&str], missing: MissingIdentifier) -> IdentifierRule {
        let entries = sources
            .iter()
            .map(|source| IdentifierEntry::One(source.parse().expect(source)))
            .collect();
        IdentifierRule { entries, missing }
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
            Err(Refusal::DuplicateValue(IdentifierSource::Header(
                HeaderName::from_static("x-api-key")
            )))
        );
    }

    #[test]
    fn a_key_of_eight_kibibytes_is_taken_and_a_longer_one_refused() {
        by_key(&vec![b'k'; MAX_IDENTIFYING_VALUE]);
        let rule = rule(&["header:x-api-key"], MissingIdentifier::Allow);
        let refused = identify(
            &rule,
            &[("x-api-key", &vec![b'k'; MAX_IDENTIFYING_VALUE + 1])],
        );
        assert_eq!(
            refused,
            Err(Refusal::ValueTooLong(IdentifierSource::Header(
                HeaderName::from_static("x-api-key")
            )))
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
    fn a_key_is_counted_as_it_was_by_earlier_versions() {
        assert_eq!(by_key(b"K").to_string(), "-XBrtHW74zXSe_4a6AolUw");
    }

    #[test]
    fn another_secret_makes_other_identifiers() {
        let other = IdentifierHasher::new(Some("another"), 64);
        assert_ne!(hasher().api_key(b"K"), other.api_key(b"K"));
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
