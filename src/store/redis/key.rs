//! The names of counters, `rl:{<namespace>:<policy>:<identifier>}:<window seconds>:<window number>`, and of logs,
//! which end in `:log` in the place of a number.
//!
//! The braces are Redis's hash tag: all counters of one identifier under one policy share a slot.
//! Namespace and policy match `[a-z0-9_-]{1,32}` and an [`Identifier`] holds no byte that a client
//! chose, so no name can close the tag or be written in two ways.

use std::fmt;

use crate::{policy::Identifier, ratelimit::Window, store::Demand};

/// The name of one counter.
///
/// It is written straight into the command ([`redis::RedisWrite::write_arg_fmt`]), without a string of
/// its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    tag: Tag<'a>,
    window: Window,
    number: u64,
}

/// The name of the log that stands beside an audited identifier's counters of one window length.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogKey<'a> {
    tag: Tag<'a>,
    window: Window,
}

impl<'a> LogKey<'a> {
    /// The log of what `demand` is charged.
    pub(super) fn new(namespace: &'a str, demand: &Demand<'a>) -> Self {
        Self {
            tag: Tag::new(namespace, demand),
            window: demand.limit.window(),
        }
    }
}

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

impl<'a> Key<'a> {
    /// The counter that `demand` meets in the window `number`.
    pub(super) fn new(namespace: &'a str, demand: &Demand<'a>, number: u64) -> Self {
        Self {
            tag: Tag::new(namespace, demand),
            window: demand.limit.window(),
            number,
        }
    }

    /// The same counter, one window before. Before window 0 there is none: its name wraps to a number
    /// that time never reaches.
    pub(super) fn previous(self) -> Self {
        Self {
            number: self.number.wrapping_sub(1),
            ..self
        }
    }

    /// The same counter, one window later.
    pub(super) fn next(self) -> Self {
        Self {
            number: self.number + 1,
            ..self
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tag,
            window,
            number,
        } = self;
        let seconds = window.seconds();
        write!(f, "rl:{{{tag}}}:{seconds}:{number}")
    }
}

impl fmt::Display for LogKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.window.seconds();
        write!(f, "rl:{{{}}}:{seconds}:log", self.tag)
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
        assert_eq!(
            Key::new("default", &hash, 29_000_000).to_string(),
            "rl:{default:per-key:_____________________w}:60:29000000"
        );
        let address = demand(Identifier::Address(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        assert_eq!(
            Key::new("eu", &address, 7).previous().to_string(),
            "rl:{eu:per-key:::1}:60:6"
        );
    }

    #[test]
    fn window_0_has_no_previous_counter() {
        let key = Key::new("default", &demand(Identifier::Unix), 0);
        assert_eq!(
            key.previous().to_string(),
            "rl:{default:per-key:unix}:60:18446744073709551615"
        );
    }
}
