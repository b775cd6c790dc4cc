//! The names of counters, `rl:{<namespace>:<policy>:<identifier>}:<window seconds>:<window number>`, and of logs,
//! which end in a word in the place of a number: `:exact` those that decide, `:log` those of who is audited.
//!
//! The braces are Redis's hash tag: all counters of one identifier under one policy share a slot.
//! Namespace and policy match `[a-z0-9_-]{1,32}` and an [`Identifier`] holds no byte that a client
//! chose, so no name can close the tag or be written in two ways.

use std::fmt::{self, Write as _};

use crate::{policy::Identifier, store::Demand};

/// The names of what is kept of an identifier under one limit: its counters, or its log, and the one of an audit.
///
/// They differ in their end alone, so that what comes before is written once.
#[derive(Debug)]
pub(super) struct Names {
    text: String,
    /// How much of the text all of them begin with.
    shared: usize,
}

impl Names {
    /// Those of what `demand` meets.
    pub(super) fn new(namespace: &str, demand: &Demand<'_>) -> Self {
        let mut text = String::with_capacity(USUAL_LENGTH);
        let (tag, seconds) = (Tag::new(namespace, demand), demand.limit.window().seconds());
        write!(text, "rl:{{{tag}}}:{seconds}:").expect("a string grows");
        Self {
            shared: text.len(),
            text,
        }
    }

    /// The counter of the window `number`.
    pub(super) fn counter(&mut self, number: u64) -> &[u8] {
        self.ending_in(format_args!("{number}"))
    }

    /// The counter of the window before `number`. Before window 0 there is none: its name wraps to a number that time
    /// never reaches.
    pub(super) fn previous(&mut self, number: u64) -> &[u8] {
        self.counter(number.wrapping_sub(1))
    }

    /// The log by which `sliding_log` decides.
    pub(super) fn log(&mut self) -> &[u8] {
        self.ending_in(format_args!("exact"))
    }

    /// The log of who is audited.
    pub(super) fn audit(&mut self) -> &[u8] {
        self.ending_in(format_args!("log"))
    }

    fn ending_in(&mut self, end: fmt::Arguments<'_>) -> &[u8] {
        self.text.truncate(self.shared);
        self.text.write_fmt(end).expect("a string grows");
        self.text.as_bytes()
    }
}

/// Room for namespaces and policies of usual length, and a hash.
const USUAL_LENGTH: usize = 96;

/// What all counters of one identifier under one policy have in common: on a cluster it decides where they
/// are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag<'a> {
    namespace: &'a str,
    policy: &'a str,
    identifier: Identifier,
}

impl<'a> Tag<'a> {
    /// That of the counters of `demand`.
    pub(super) fn new(namespace: &'a str, demand: &Demand<'a>) -> Self {
        Self {
            namespace,
            policy: demand.policy,
            identifier: demand.identifier,
        }
    }
}

impl fmt::Display for Tag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            policy,
            identifier,
        } = self;
        write!(f, "{namespace}:{policy}:{identifier}")
    }
}

/// A name like a counter's that no counter has: a probe that writes may touch it.
pub(super) fn probe(namespace: &str) -> String {
    format!("rl:{{{namespace}}}:probe")
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use super::*;
    use crate::{
        ratelimit::{Algorithm, Cost},
        store::Action,
    };

    fn demand(identifier: Identifier) -> Demand<'static> {
        Demand {
            policy: "per-key",
            identifier,
            limit: "100/1m".parse().expect("a limit"),
            algorithm: Algorithm::SlidingWindowCounter,
            cost: Cost::ONE,
            action: Action::Take,
            audited: false,
        }
    }

    #[test]
    fn a_counter_is_named_by_who_is_counted_under_what_and_when() {
        let hash = demand(Identifier::Hash([0xff; 16]));
        let mut names = Names::new("default", &hash);
        assert_eq!(
            names.counter(29_000_000),
            b"rl:{default:per-key:_____________________w}:60:29000000"
        );
        assert_eq!(
            names.log(),
            b"rl:{default:per-key:_____________________w}:60:exact"
        );
        assert_eq!(
            names.audit(),
            b"rl:{default:per-key:_____________________w}:60:log"
        );
        let address = demand(Identifier::Address(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        assert_eq!(
            Names::new("eu", &address).previous(7),
            b"rl:{eu:per-key:::1}:60:6"
        );
    }

    #[test]
    fn window_0_has_no_previous_counter() {
        let mut names = Names::new("default", &demand(Identifier::Unix));
        assert_eq!(
            names.previous(0),
            b"rl:{default:per-key:unix}:60:18446744073709551615"
        );
    }
}
