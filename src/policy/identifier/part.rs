//! What identifies, as it is hashed: each value with its kind, so that no two identities are written alike.

use std::{borrow::Cow, net::IpAddr};

use crate::policy::{Client, Consumer};

/// A value that identifies, alone or with others.
///
/// Of a header, a cookie or a query parameter its name is no part: of two that a policy lists, either may hold the
/// same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentifierPart<'a> {
    /// A header's value, without an auth scheme.
    Header(&'a [u8]),
    /// A consumer, by its name: its keys change.
    Consumer(&'a Consumer),
    /// A cookie's value.
    Cookie(Cow<'a, [u8]>),
    /// A query parameter's value.
    Query(Cow<'a, str>),
    /// A host.
    Host(Cow<'a, str>),
    /// A path.
    Path(Cow<'a, [u8]>),
    /// A method.
    Method(&'a str),
    /// Nothing: everybody is the same.
    Constant,
    /// A client, an IPv6 address grouped already.
    Client(Client),
}

/// What kind of source a value came from: each has its own name space. The numbers are in what Redis holds, so
/// they stay.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Header = 1,
    Cookie = 2,
    Query = 3,
    Host = 4,
    Path = 5,
    Method = 6,
    Constant = 7,
    AddressV4 = 8,
    AddressV6 = 9,
    Unix = 10,
    Consumer = 11,
    Composite = 255,
}

impl IdentifierPart<'_> {
    /// Writes these parts to `out`, piece by piece, so that no others are written as the same bytes.
    ///
    /// A lone part is its kind (one byte), the length of its value (eight bytes, the lowest first) and the value.
    /// Several, or none, are a kind of their own and their number (eight bytes), then each like a lone one.
    pub fn encode(parts: &[Self], out: &mut impl FnMut(&[u8])) {
        if let [lone] = parts {
            return lone.write(out);
        }
        out(&[Kind::Composite as u8]);
        out(&(parts.len() as u64).to_le_bytes());
        for part in parts {
            part.write(out);
        }
    }

    /// Writes what a lone consumer is.
    pub(super) fn encode_consumer(name: &str, out: &mut dyn FnMut(&[u8])) {
        write(Kind::Consumer, name.as_bytes(), &mut |piece| out(piece));
    }

    fn write(&self, out: &mut impl FnMut(&[u8])) {
        match self {
            Self::Header(value) => write(Kind::Header, value, out),
            Self::Consumer(consumer) => write(Kind::Consumer, consumer.name.as_bytes(), out),
            Self::Cookie(value) => write(Kind::Cookie, value, out),
            Self::Query(value) => write(Kind::Query, value.as_bytes(), out),
            Self::Host(host) => write(Kind::Host, host.as_bytes(), out),
            Self::Path(path) => write(Kind::Path, path, out),
            Self::Method(method) => write(Kind::Method, method.as_bytes(), out),
            Self::Constant => write(Kind::Constant, &[], out),
            Self::Client(Client::Unix) => write(Kind::Unix, &[], out),
            Self::Client(Client::Address(IpAddr::V4(address))) => {
                write(Kind::AddressV4, &address.octets(), out);
            }
            Self::Client(Client::Address(IpAddr::V6(address))) => {
                write(Kind::AddressV6, &address.octets(), out);
            }
        }
    }
}

fn write(kind: Kind, value: &[u8], out: &mut impl FnMut(&[u8])) {
    out(&[kind as u8]);
    out(&(value.len() as u64).to_le_bytes());
    out(value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Identifier;

    fn encoded(parts: &[IdentifierPart<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        IdentifierPart::encode(parts, &mut |piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// Of few and short values, so that equal and nearly equal lists are often met.
    fn part() -> impl Strategy<Value = IdentifierPart<'static>> {
        let value = || {
            proptest::sample::select(vec![
                "",
                "a",
                "aa",
                "\x01",
                "\x01\x01",
                "\0\0\0\0\0\0\0\0",
                "\x7f\0\0\x01",
                "\x01\x01\0\0\0\0\0\0\0a",
            ])
        };
        let client = proptest::sample::select(vec!["127.0.0.1", "10.0.0.1", "::", "7f00:1::"]);
        prop_oneof![
            value().prop_map(|value| IdentifierPart::Header(value.as_bytes())),
            value().prop_map(|value| IdentifierPart::Cookie(value.as_bytes().into())),
            value().prop_map(|value| IdentifierPart::Query(value.into())),
            value().prop_map(|value| IdentifierPart::Host(value.into())),
            value().prop_map(|value| IdentifierPart::Path(value.as_bytes().into())),
            value().prop_map(IdentifierPart::Method),
            Just(IdentifierPart::Constant),
            Just(IdentifierPart::Client(Client::Unix)),
            client.prop_map(|text| {
                IdentifierPart::Client(Client::Address(text.parse().expect("an address")))
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn different_parts_are_written_differently(
            one in proptest::collection::vec(part(), 0..4),
            other in proptest::collection::vec(part(), 0..4),
        ) {
            prop_assert_eq!(one == other, encoded(&one) == encoded(&other));
        }
    }

    /// Every list of up to three headers and cookies with values of up to two bytes, each of which is a kind: where
    /// one part ends and the next begins can be mistaken in any way there is.
    #[test]
    fn no_value_is_taken_for_a_part() {
        let kinds = [Kind::Header as u8, Kind::Cookie as u8];
        let mut values = vec![Vec::new()];
        for one in kinds {
            values.push(vec![one]);
            values.extend(kinds.map(|two| vec![one, two]));
        }
        let parts: Vec<_> = values
            .iter()
            .flat_map(|value| {
                let cookie = IdentifierPart::Cookie(value.into());
                [IdentifierPart::Header(value), cookie]
            })
            .collect();
        let mut lists: Vec<Vec<IdentifierPart<'_>>> = vec![Vec::new()];
        let mut longest = lists.clone();
        for _ in 0..3 {
            longest = longest
                .iter()
                .flat_map(|list| {
                    parts
                        .iter()
                        .map(|part| [&list[..], std::slice::from_ref(part)].concat())
                })
                .collect();
            lists.extend(longest.iter().cloned());
        }
        let mut seen = std::collections::HashMap::new();
        for list in &lists {
            if let Some(other) = seen.insert(encoded(list), list) {
                panic!("{other:?} is written as {list:?}");
            }
        }
        assert_eq!(seen.len(), 1 + 14 + 14 * 14 + 14 * 14 * 14);
    }

    #[test]
    fn every_kind_has_a_name_space_of_its_own() {
        let address =
            |text: &str| IdentifierPart::Client(Client::Address(text.parse().expect("an address")));
        let consumer = Consumer {
            name: "".into(),
            plan: None,
            identifier: Identifier::Unix,
        };
        let empty = [
            IdentifierPart::Header(b""),
            IdentifierPart::Consumer(&consumer),
            IdentifierPart::Cookie(b"".into()),
            IdentifierPart::Query("".into()),
            IdentifierPart::Host("".into()),
            IdentifierPart::Path(b"".into()),
            IdentifierPart::Method(""),
            IdentifierPart::Constant,
            IdentifierPart::Client(Client::Unix),
            address("0.0.0.0"),
            address("::"),
        ];
        let mut kinds: Vec<u8> = empty.map(|part| encoded(&[part])[0]).to_vec();
        kinds.push(encoded(&[])[0]);
        let written = kinds.len();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), written, "{kinds:?}");
    }
}
