//! The rule by which a policy finds who is counted: entries tried in order, and what happens without any.

use std::fmt;

use http::HeaderName;
use smallvec::SmallVec;

use super::{
    Identifier, IdentifierEntry, IdentifierHasher, IdentifierPart, IdentifierSource,
    MAX_IDENTIFYING_VALUE, MAX_PARTS, read::Found,
};
use crate::{
    policy::{Consumers, RequestView},
    ratelimit::Cost,
};

/// The sources that a policy tries in order, and what happens when none has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifierRule {
    /// At least one.
    pub entries: Vec<IdentifierEntry>,
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

impl MissingIdentifier {
    /// The word in YAML.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientIp => "client_ip",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Why a request is answered before any store is asked. Names what is configured, and nothing that a client sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Several values where one identifies: limiter and upstream could disagree on which counts.
    #[error("{} was sent more than once", Told(.0))]
    DuplicateValue(IdentifierSource),
    /// Longer than [`MAX_IDENTIFYING_VALUE`].
    #[error("{} is longer than {MAX_IDENTIFYING_VALUE} bytes", Told(.0))]
    ValueTooLong(IdentifierSource),
    /// `Connection` names its header, so that the upstream would not get what is counted.
    #[error("{} is for the connection alone: Connection names it", Told(.0))]
    StaysBehind(IdentifierSource),
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
    /// Upstreams read the path in so many ways that policies cannot go by it.
    #[error("the path has .. or ; together with escaped or doubled separators")]
    AmbiguousPath,
    /// No entry has a value, and the policy requires one: all of these, which are its first.
    #[error("an identifier is required: {}", AllTold(.0))]
    IdentifierRequired(Box<[IdentifierSource]>),
}

/// Who is counted, and how that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'c> {
    /// The value that is counted.
    pub identifier: Identifier,
    /// The place of the entry that had a value; one past the last where none had.
    pub entry: usize,
    /// The plan of the consumer, if it is one.
    pub plan: Option<&'c str>,
}

impl IdentifierRule {
    /// Who is counted; `None` if this policy does not ask about the request.
    ///
    /// # Errors
    /// A [`Refusal`] for an identity that cannot be taken as sent, or that is required and missing.
    pub fn identify<'c>(
        &self,
        view: &RequestView<'_>,
        hasher: &IdentifierHasher,
        consumers: &'c Consumers,
    ) -> Result<Option<Counted<'c>>, Refusal> {
        for (place, entry) in self.entries.iter().enumerate() {
            if let Some((identifier, plan)) = entry.identify(view, hasher, consumers)? {
                return Ok(Some(Counted {
                    identifier,
                    entry: place,
                    plan,
                }));
            }
        }
        match self.missing {
            MissingIdentifier::ClientIp => Ok(Some(Counted {
                identifier: hasher.client(view.client),
                entry: self.entries.len(),
                plan: None,
            })),
            MissingIdentifier::Allow => Ok(None),
            MissingIdentifier::Deny => Err(Refusal::IdentifierRequired(self.required())),
        }
    }

    /// Whether any request is counted by a key: the value of one header, and nothing else.
    pub fn counts_keys(&self) -> bool {
        let is_key = |entry: &IdentifierEntry| {
            matches!(entry, IdentifierEntry::One(IdentifierSource::Header(_)))
        };
        self.entries.iter().any(is_key)
    }

    /// Whether any request is counted by a consumer, and nothing else.
    pub fn counts_lone_consumers(&self) -> bool {
        let is_consumer = |entry: &IdentifierEntry| {
            matches!(entry, IdentifierEntry::One(IdentifierSource::Consumer(_)))
        };
        self.entries.iter().any(is_consumer)
    }

    /// Whether any request is counted by a consumer, alone or together with others.
    pub fn counts_consumers(&self) -> bool {
        let mut sources = self.entries.iter().flat_map(IdentifierEntry::sources);
        sources.any(|source| matches!(source, IdentifierSource::Consumer(_)))
    }

    /// Whether any request is counted by a hash: of a key, or of anything else but an address alone.
    pub fn counts_hashes(&self) -> bool {
        self.entries.iter().any(|entry| *entry != ADDRESS)
    }

    /// Whether any request is counted by its client's address alone: by a source, or for want of another.
    pub fn counts_addresses(&self) -> bool {
        self.entries.contains(&ADDRESS) || self.falls_back()
    }

    /// Whether a request without a value in any entry is counted by its address.
    pub fn falls_back(&self) -> bool {
        self.missing == MissingIdentifier::ClientIp && !self.is_never_missing()
    }

    /// Whether any request is counted as `identifier`, going by its kind.
    pub fn counts(&self, identifier: Identifier) -> bool {
        match identifier {
            Identifier::Hash(_) => self.counts_hashes(),
            Identifier::Address(_) | Identifier::Unix => self.counts_addresses(),
        }
    }

    /// Whether every request has a value in some entry.
    pub fn is_never_missing(&self) -> bool {
        self.entries.iter().any(IdentifierEntry::is_never_missing)
    }

    /// What a request that has none of the entries could have sent.
    fn required(&self) -> Box<[IdentifierSource]> {
        let first = self.entries.first().map(IdentifierEntry::sources);
        let sources = first.unwrap_or_default().iter();
        sources
            .filter(|source| !source.is_never_missing())
            .cloned()
            .collect()
    }
}

impl IdentifierEntry {
    /// The identifier, and the plan of the consumer in it.
    fn identify<'c>(
        &self,
        view: &RequestView<'_>,
        hasher: &IdentifierHasher,
        consumers: &'c Consumers,
    ) -> Result<Option<(Identifier, Option<&'c str>)>, Refusal> {
        let mut plan = None;
        let mut parts: SmallVec<[IdentifierPart<'_>; MAX_PARTS]> = SmallVec::new();
        for source in self.sources() {
            match source.read(view, hasher, consumers)? {
                Some(Found::Part(part)) => parts.push(part),
                Some(Found::Consumer(consumer)) => {
                    plan = consumer.plan.as_deref();
                    parts.push(IdentifierPart::Consumer(consumer));
                }
                None => return Ok(None),
            }
        }
        Ok(Some((hasher.identifier(&parts), plan)))
    }
}

const ADDRESS: IdentifierEntry = IdentifierEntry::One(IdentifierSource::ClientIp);

/// A source as clients know it.
struct Told<'a>(&'a IdentifierSource);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IdentifierSource::Header(name) | IdentifierSource::Consumer(name) => {
                write!(f, "the header {name}")
            }
            IdentifierSource::Cookie(name) => write!(f, "the cookie {name}"),
            IdentifierSource::Query(name) => write!(f, "the query parameter {name}"),
            IdentifierSource::Host => f.write_str("the host"),
            IdentifierSource::Path => f.write_str("the path"),
            IdentifierSource::Method => f.write_str("the method"),
            IdentifierSource::Constant => f.write_str("nothing"),
            IdentifierSource::ClientIp => f.write_str("the address"),
        }
    }
}

struct AllTold<'a>(&'a [IdentifierSource]);

impl fmt::Display for AllTold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, source) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" and ")?;
            }
            Told(source).fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::policy::Client;

    fn entry(text: &str) -> IdentifierEntry {
        let sources = text.split(" + ").map(|text| text.parse().expect(text));
        let sources: Box<[IdentifierSource]> = sources.collect();
        match &*sources {
            [one] => IdentifierEntry::One(one.clone()),
            _ => IdentifierEntry::All(sources),
        }
    }

    fn rule(entries: &[&str], missing: MissingIdentifier) -> IdentifierRule {
        let entries = entries.iter().copied().map(entry).collect();
        IdentifierRule { entries, missing }
    }

    fn identify(
        rule: &IdentifierRule,
        client: &str,
        headers: &[(&str, &str)],
    ) -> Result<Option<Identifier>, Refusal> {
        let mut request = http::Request::builder().uri("/a");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let client = match client {
            "unix" => Client::Unix,
            address => {
                let address: IpAddr = address.parse().expect(address);
                Client::from(address)
            }
        };
        let view = RequestView {
            head: &head,
            client,
            peer_is_trusted: false,
        };
        let hasher = IdentifierHasher::new(Some("a secret"), 64);
        let consumers = Consumers::default();
        let counted = rule.identify(&view, &hasher, &consumers)?;
        Ok(counted.map(|counted| counted.identifier))
    }

    fn counted(rule: &IdentifierRule, client: &str, headers: &[(&str, &str)]) -> String {
        let identifier = identify(rule, client, headers).expect("accepted");
        identifier.expect("counted").to_string()
    }

    #[test]
    fn a_composite_tells_apart_which_part_a_value_is_in() {
        let rule = rule(&["header:a + header:b"], MissingIdentifier::ClientIp);
        let of = |a: &str, b: &str| counted(&rule, "192.0.2.7", &[("a", a), ("b", b)]);
        assert_eq!(of("x", "y"), of("x", "y"));
        for (a, b) in [("y", "x"), ("xy", ""), ("x", "yy"), ("xx", "y")] {
            assert_ne!(of("x", "y"), of(a, b), "{a:?} {b:?}");
        }
        assert_ne!(of("ab", "c"), of("a", "bc"));
    }

    #[test]
    fn a_composite_of_an_address_and_a_header_is_not_ambiguous() {
        let by_both = rule(&["client_ip + header:a"], MissingIdentifier::Allow);
        let of = |client: &str, a: &str| counted(&by_both, client, &[("a", a)]);
        assert_ne!(of("192.0.2.7", "192.0.2.8"), of("192.0.2.8", "192.0.2.7"));
        assert_ne!(of("unix", "a"), of("192.0.2.7", "a"));
        assert_ne!(of("::", "a"), of("0.0.0.0", "a"));
        assert_eq!(of("::ffff:192.0.2.7", "a"), of("192.0.2.7", "a"));
        assert_eq!(of("2001:db8::1", "a"), of("2001:db8::2", "a"), "one /64");
        // Absent is not empty, and neither is a composite of less.
        assert_eq!(identify(&by_both, "192.0.2.7", &[("a", "")]), Ok(None));
        assert_eq!(identify(&by_both, "192.0.2.7", &[]), Ok(None));
    }

    #[test]
    fn a_composite_without_one_of_its_parts_is_absent_and_the_next_entry_is_tried() {
        let rule = rule(
            &["header:a + header:b", "header:b", "client_ip"],
            MissingIdentifier::ClientIp,
        );
        let of = |headers: &[(&str, &str)]| counted(&rule, "192.0.2.7", headers);
        let both = of(&[("a", "x"), ("b", "y")]);
        let second = of(&[("b", "y")]);
        assert_eq!([both.len(), second.len()], [22, 22]);
        assert_ne!(both, second);
        assert_eq!(of(&[("a", ""), ("b", "y")]), second);
        assert_eq!(of(&[("a", "Bearer"), ("b", "y")]), second);
        assert_eq!(of(&[("a", "x")]), "192.0.2.7");
    }

    #[test]
    fn the_identifier_of_a_combination_stays_what_it_is() {
        let of = |entries: &[&str], headers: &[(&str, &str)]| {
            counted(
                &rule(entries, MissingIdentifier::Deny),
                "192.0.2.7",
                headers,
            )
        };
        let headers = [("a", "Bearer x"), ("cookie", "s=y")];
        let told = [
            of(&["client_ip + header:a + cookie:s"], &headers),
            of(&["cookie:s"], &headers),
            of(&["path"], &headers),
            of(&["constant"], &headers),
        ];
        let expected = [
            "3-dUaRiDLoMU7MMahBGKfw",
            "gwrGcUSV97f6_I5Af90fHQ",
            "64vw3nzmHkxDhGa4Ir1_jg",
            "lxvPm0T8EeHO9dQa_PIkcg",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn each_kind_has_a_name_space_of_its_own() {
        let headers = [("a", "/a"), ("cookie", "s=/a"), ("host", "x")];
        let of = |source| {
            counted(
                &rule(&[source], MissingIdentifier::Deny),
                "192.0.2.7",
                &headers,
            )
        };
        assert_ne!(of("header:a"), of("cookie:s"));
        assert_ne!(of("header:a"), of("path"));
        assert_ne!(of("cookie:s"), of("path"));
    }

    #[test]
    fn everybody_is_one_to_a_constant() {
        let rule = rule(&["constant"], MissingIdentifier::ClientIp);
        let one = counted(&rule, "192.0.2.7", &[("a", "x")]);
        assert_eq!(one, counted(&rule, "unix", &[]));
    }

    #[test]
    fn what_is_required_is_told_by_name_and_never_by_value() {
        let told = |entries: &[&str], headers: &[(&str, &str)]| {
            let rule = rule(entries, MissingIdentifier::Deny);
            identify(&rule, "192.0.2.7", headers).map_err(|refusal| refusal.to_string())
        };
        for (entry, expected) in [
            ("header:x-api-key", "the header x-api-key"),
            ("cookie:session", "the cookie session"),
            ("query:api_key", "the query parameter api_key"),
            ("host", "the host"),
            (
                "client_ip + header:x-tenant + cookie:session",
                "the header x-tenant and the cookie session",
            ),
        ] {
            let expected = format!("an identifier is required: {expected}");
            assert_eq!(told(&[entry], &[("x-other", "hunter2")]), Err(expected));
        }
        let twice = [("cookie", "session=hunter2"), ("cookie", "session=hunter3")];
        assert_eq!(
            told(&["cookie:session"], &twice),
            Err("the cookie session was sent more than once".to_owned())
        );
    }

    #[test]
    fn a_key_is_the_value_of_a_lone_header_and_nothing_else() {
        let kinds = |entries: &[&str]| {
            let rule = rule(entries, MissingIdentifier::Deny);
            (
                rule.counts_keys(),
                rule.counts_hashes(),
                rule.counts_addresses(),
            )
        };
        assert_eq!(kinds(&["header:a"]), (true, true, false));
        assert_eq!(kinds(&["header:a + header:b"]), (false, true, false));
        assert_eq!(kinds(&["client_ip + header:b"]), (false, true, false));
        assert_eq!(kinds(&["cookie:a", "client_ip"]), (false, true, true));
        assert_eq!(kinds(&["client_ip"]), (false, false, true));
        let constant = rule(&["constant"], MissingIdentifier::ClientIp);
        assert!(!constant.counts_addresses(), "nobody is without a constant");
    }
}
