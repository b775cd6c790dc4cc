//! Ranges of addresses, `10.0.0.0/8`, and sets of them.
//!
//! An IPv4 address has one form here: `::ffff:10.1.2.3` is 10.1.2.3 on both sides of every comparison. What a
//! range is for is its user's business.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A range of addresses: `10.0.0.0/8`, or one address. A wide one comes before those that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr(IpNet);

/// Addresses in any of some ranges. A look-up takes as many steps as the number of ranges has digits in
/// binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CidrSet {
    /// Disjoint and ascending, like `v6`.
    v4: Vec<Ipv4Net>,
    v6: Vec<Ipv6Net>,
}

impl Cidr {
    /// Whether it holds every address of its family.
    pub fn is_everything(self) -> bool {
        self.0.prefix_len() == 0
    }

    /// Whether every address of `other` is in it.
    pub fn covers(self, other: Self) -> bool {
        self.0.contains(&other.0)
    }
}

impl FromIterator<Cidr> for CidrSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(ranges: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in ranges {
            match range.0 {
                IpNet::V4(range) => v4.push(range),
                IpNet::V6(range) => v6.push(range),
            }
        }
        Self {
            v4: Ipv4Net::aggregate(&v4),
            v6: Ipv6Net::aggregate(&v6),
        }
    }
}

impl CidrSet {
    /// Whether `address`, an IPv4 one in either form, is in one of the ranges.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let after = self.v4.partition_point(|range| range.network() <= address);
                after > 0 && self.v4[after - 1].contains(&address)
            }
            IpAddr::V6(address) => {
                let after = self.v6.partition_point(|range| range.network() <= address);
                after > 0 && self.v6[after - 1].contains(&address)
            }
        }
    }

    /// Whether every address of `range` is in it.
    pub fn covers(&self, range: Cidr) -> bool {
        match range.0 {
            IpNet::V4(range) => {
                let after = self
                    .v4
                    .partition_point(|own| own.network() <= range.network());
                after > 0 && self.v4[after - 1].contains(&range)
            }
            IpNet::V6(range) => {
                let after = self
                    .v6
                    .partition_point(|own| own.network() <= range.network());
                after > 0 && self.v6[after - 1].contains(&range)
            }
        }
    }

    /// Whether no address is in it.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// With its prefix, unless it is one address.
impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            self.0.addr().fmt(f)
        } else {
            self.0.fmt(f)
        }
    }
}

/// The ranges, merged where they touch.
impl fmt::Display for CidrSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v4 = self.v4.iter().copied().map(IpNet::V4);
        let v6 = self.v6.iter().copied().map(IpNet::V6);
        for (place, range) in v4.chain(v6).enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(f, "{separator}{}", Cidr(range))?;
        }
        Ok(())
    }
}

impl FromStr for Cidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ParseCidrError::Syntax)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(digits) => plain_number(digits).filter(|prefix| *prefix <= longest),
            None => Some(longest),
        };
        let prefix = prefix.ok_or(ParseCidrError::Syntax)?;
        let mapped = address.is_ipv6() && address.to_canonical().is_ipv4();
        let prefix = match mapped {
            true => prefix
                .checked_sub(MAPPED)
                .ok_or(ParseCidrError::BeyondMapped)?,
            false => prefix,
        };
        let range = IpNet::new(address.to_canonical(), prefix);
        let range = range.expect("the prefix is at most as long as the address");
        match range.trunc() {
            start if start == range => Ok(Self(range)),
            start => Err(ParseCidrError::NotItsStart { start: Self(start) }),
        }
    }
}

/// Digits without a sign or a leading zero.
fn plain_number(digits: &str) -> Option<u8> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let plain = plain && (digits.len() == 1 || !digits.starts_with('0'));
    plain.then(|| digits.parse().ok()).flatten()
}

/// The text is not a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseCidrError {
    /// Not an address, or not a prefix of its length.
    #[error("an address or a range of them, as in 10.0.0.0/8, 2001:db8::/32, 192.0.2.7")]
    Syntax,
    /// `::ffff:0:0/90` is IPv4 in part, and something else in part.
    #[error(
        "IPv4 addresses written as IPv6 have a prefix of 96 or more, as in ::ffff:10.0.0.0/104"
    )]
    BeyondMapped,
    /// The address has bits that the prefix leaves out: one of the two is a slip.
    #[error("a range is written by its first address, which is {start} for this prefix")]
    NotItsStart {
        /// The range that it would be.
        start: Cidr,
    },
}

/// The bits before an IPv4 address that is written as IPv6.
const MAPPED: u8 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[&str]) -> CidrSet {
        let parsed = ranges.iter().map(|range| range.parse().expect(range));
        parsed.collect::<Vec<Cidr>>().into_iter().collect()
    }

    fn has(set: &CidrSet, address: &str) -> bool {
        set.contains(address.parse().expect(address))
    }

    #[test]
    fn a_set_covers_the_ranges_that_its_own_hold_together() {
        let set = set(&["10.0.0.0/9", "10.128.0.0/9", "192.0.2.7", "2001:db8::/32"]);
        let covers = |range: &str| set.covers(range.parse().expect(range));
        for range in [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.255.255.255",
            "192.0.2.7",
            "2001:db8::/32",
            "2001:db8:ffff::/48",
        ] {
            assert!(covers(range), "{range}");
        }
        for range in [
            "10.0.0.0/7",
            "11.0.0.0",
            "9.255.255.255",
            "192.0.2.6/31",
            "0.0.0.0/0",
            "2001:db8::/31",
            "2001:db9::",
            "::/0",
        ] {
            assert!(!covers(range), "{range}");
        }
        assert!(!CidrSet::default().covers("10.0.0.0/8".parse().expect("a range")));
    }

    #[test]
    fn a_set_holds_what_its_ranges_do_edges_included_and_nothing_beside() {
        let set = set(&[
            "10.0.0.0/8",
            "10.1.0.0/16",
            "192.0.2.7",
            "2001:db8::/32",
            "::1",
            "198.51.100.0/25",
            "198.51.100.128/25",
        ]);
        for inside in [
            "10.0.0.0",
            "10.255.255.255",
            "192.0.2.7",
            "2001:db8::",
            "2001:db8:ffff::1",
            "::1",
            "198.51.100.200",
        ] {
            assert!(has(&set, inside), "{inside}");
        }
        for outside in [
            "9.255.255.255",
            "11.0.0.0",
            "192.0.2.6",
            "192.0.2.8",
            "2001:db7:ffff::",
            "2001:db9::",
            "::2",
            "::",
            "198.51.101.0",
        ] {
            assert!(!has(&set, outside), "{outside}");
        }
        assert!(!has(&CidrSet::default(), "10.0.0.1"));
    }

    #[test]
    fn an_ipv4_address_is_the_same_in_both_forms_on_both_sides() {
        for range in ["::ffff:10.0.0.0/104", "10.0.0.0/8"] {
            let set = set(&[range]);
            assert_eq!(set.to_string(), "10.0.0.0/8");
            for address in ["10.1.2.3", "::ffff:10.1.2.3"] {
                assert!(has(&set, address), "{address} in {range}");
            }
        }
        let refused = "::ffff:0.0.0.0/95".parse::<Cidr>();
        assert_eq!(refused, Err(ParseCidrError::BeyondMapped));
    }

    #[test]
    fn a_range_that_surprises_is_refused() {
        for text in [
            "",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "10/8",
            "010.0.0.0/8",
            "::/129",
            "fe80::1%eth0",
            "localhost",
            " 10.0.0.0/8",
            "10.0.0.0-10.0.0.9",
            "*",
        ] {
            assert_eq!(text.parse::<Cidr>(), Err(ParseCidrError::Syntax), "{text}");
        }
        let told = "10.1.2.3/8".parse::<Cidr>().expect_err("no start");
        assert!(told.to_string().contains("10.0.0.0/8"), "{told}");
    }
}
