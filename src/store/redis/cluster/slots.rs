//! Slots: which one a counter falls in, and what a cluster says about who has them.

use std::{
    fmt::{self, Write as _},
    ops::RangeInclusive,
    str::FromStr,
};

use crc::{CRC_16_XMODEM, Crc, Digest};
use redis::{ParsingError, Value, from_redis_value};

use crate::store::{
    Demand,
    redis::{key::Tag, topology::HostPort},
};

/// One of the 16,384 parts of the keys of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::redis) struct Slot(u16);

impl Slot {
    /// How many there are.
    pub(super) const COUNT: u16 = 1 << 14;

    /// The one that all counters of a demand's identifier under its policy share.
    ///
    /// The rule is the Redis cluster specification's: CRC-16/XMODEM of the hash tag, modulo the count.
    pub(in crate::store::redis) fn of(namespace: &str, demand: &Demand<'_>) -> Self {
        let mut sum = Sum(CRC.digest());
        write!(sum, "{}", Tag::new(namespace, demand)).expect("a sum takes anything");
        Self(sum.0.finalize() % Self::COUNT)
    }

    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

struct Sum<'a>(Digest<'a, u16, crc::Table<1>>);

impl fmt::Write for Sum<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Some slots, and the server that takes their writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) slots: RangeInclusive<usize>,
    pub(super) server: HostPort,
}

impl Range {
    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        self.slots.clone().count()
    }
}

/// Reads the reply of `CLUSTER SLOTS` by the server at `told_by`: per range its first and last slot, then
/// the primary as host, port and more, then the replicas. Without a host, it is that of whoever told.
/// `CLUSTER SHARDS` tells no more of use, and Redis-compatible services know it less often.
pub(super) fn read(reply: Value, told_by: &HostPort) -> Result<Vec<Range>, ParsingError> {
    let rows: Vec<Vec<Value>> = from_redis_value(reply)?;
    rows.into_iter().map(|row| range(row, told_by)).collect()
}

fn range(row: Vec<Value>, told_by: &HostPort) -> Result<Range, ParsingError> {
    let [first, last, primary, ..] = &row[..] else {
        return Err(ParsingError::from("a row ends early"));
    };
    let primary: Vec<Value> = from_redis_value(primary.clone())?;
    let [host, port, ..] = &primary[..] else {
        return Err(ParsingError::from("a server ends early"));
    };
    let host: Option<String> = from_redis_value(host.clone())?;
    let host = host.filter(|host| is_known(host));
    let (first, last): (usize, usize) = (number(first)?, number(last)?);
    if first > last || last >= Slot::COUNT.into() {
        return Err(ParsingError::from(format!("no slots: {first} to {last}")));
    }
    Ok(Range {
        slots: first..=last,
        server: HostPort {
            host: host.unwrap_or_else(|| told_by.host.clone()),
            port: number(port)?,
        },
    })
}

/// The client library cuts what does not fit.
fn number<T: TryFrom<i64>>(value: &Value) -> Result<T, ParsingError> {
    let number: i64 = from_redis_value(value.clone())?;
    T::try_from(number).map_err(|_| ParsingError::from(format!("out of range: {number}")))
}

/// A server writes nothing, or a question mark, where it does not know.
fn is_known(host: &str) -> bool {
    !host.is_empty() && host != "?"
}

/// A server's answer that another one is to be asked: `MOVED 3999 10.0.0.1:6381`, or `ASK …` where the slot
/// is on its way and only this call is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Redirect {
    /// Whether it is for this call only.
    pub(in crate::store::redis) asking: bool,
    /// `None` for the host that was asked.
    host: Option<String>,
    port: u16,
}

impl Redirect {
    /// Where the other one is, as told by the server at `asked`.
    pub(in crate::store::redis) fn at(&self, asked: &HostPort) -> HostPort {
        HostPort {
            host: self.host.as_ref().unwrap_or(&asked.host).clone(),
            port: self.port,
        }
    }
}

impl FromStr for Redirect {
    type Err = NoRedirect;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(' ');
        let asking = match words.next() {
            Some("MOVED") => false,
            Some("ASK") => true,
            _ => return Err(NoRedirect),
        };
        let address = words.nth(1).ok_or(NoRedirect)?;
        // An IPv6 address has no brackets here: the port follows the last colon.
        let (host, port) = address.rsplit_once(':').ok_or(NoRedirect)?;
        Ok(Self {
            asking,
            host: is_known(host).then(|| host.to_owned()),
            port: port.parse().map_err(|_| NoRedirect)?,
        })
    }
}

/// The text names no other server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct NoRedirect;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::Identifier,
        ratelimit::{Algorithm, Cost},
        store::Action,
    };

    fn at(host: &str, port: u16) -> HostPort {
        HostPort {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn a_slot_is_the_one_that_redis_computes() {
        let demand = Demand {
            policy: "per-key",
            identifier: Identifier::Unix,
            limit: "1/1m".parse().expect("a limit"),
            algorithm: Algorithm::SlidingWindowCounter,
            cost: Cost::ONE,
            action: Action::Take,
            audited: false,
        };
        // CLUSTER KEYSLOT rl:{default:per-key:unix}:60:1
        assert_eq!(Slot::of("default", &demand), Slot(4343));
        assert_eq!(
            CRC.checksum(b"123456789"),
            0x31c3,
            "the specification's example"
        );
    }

    #[test]
    fn a_redirect_tells_the_server_and_whether_it_is_for_this_call_only() {
        let redirect = |asking, host: Option<&str>, port| {
            Ok(Redirect {
                asking,
                host: host.map(str::to_owned),
                port,
            })
        };
        for (text, expected) in [
            (
                "MOVED 3999 10.0.0.1:6381",
                redirect(false, Some("10.0.0.1"), 6381),
            ),
            (
                "ASK 3999 redis-3.example:6381",
                redirect(true, Some("redis-3.example"), 6381),
            ),
            (
                "MOVED 3999 2001:db8::1:6381",
                redirect(false, Some("2001:db8::1"), 6381),
            ),
            ("MOVED 3999 :6381", redirect(false, None, 6381)),
            ("MOVED 3999 ?:6381", redirect(false, None, 6381)),
            ("MOVED 3999", Err(NoRedirect)),
            ("MOVED 3999 10.0.0.1:a", Err(NoRedirect)),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Err(NoRedirect),
            ),
            ("", Err(NoRedirect)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
    }

    #[test]
    fn what_a_cluster_tells_is_read_or_refused_and_never_a_panic() {
        use Value::{Array, BulkString, Int, Nil};
        let text = |text: &str| BulkString(text.into());
        let row = |first, last, host| {
            let server = Array(vec![host, Int(7001), text("id"), Array(vec![])]);
            Array(vec![Int(first), Int(last), server.clone(), server])
        };
        let read = |rows| read(Array(rows), &at("asked", 1)).ok();
        let range = |slots, host| Range {
            slots,
            server: at(host, 7001),
        };
        assert_eq!(
            read(vec![row(0, 9, text("10.0.0.1")), row(10, 16383, Nil)]),
            Some(vec![range(0..=9, "10.0.0.1"), range(10..=16383, "asked")])
        );
        assert_eq!(
            read(vec![row(0, 0, text(""))]),
            Some(vec![range(0..=0, "asked")])
        );
        for wrong in [
            row(0, 16384, text("a")),
            row(2, 1, text("a")),
            row(-1, 1, text("a")),
            Array(vec![]),
            Array(vec![Int(0), Int(1)]),
            Array(vec![Int(0), Int(1), Array(vec![text("a")])]),
            Array(vec![Int(0), Int(1), Array(vec![text("a"), Int(65_536)])]),
            Nil,
        ] {
            assert_eq!(read(vec![wrong.clone()]), None, "{wrong:?}");
        }
    }
}
