//! Who sent a request: the peer of its connection, or who that peer says it was, if it is a trusted proxy.
//!
//! A header that names addresses is a list to which each proxy appends the one that connected to it. So it is
//! read from the right, one address for each trusted proxy passed, and no further: what stands left of that
//! was written by whoever sent it, and can change nothing. An element that is no address ends the walk at
//! the last address that was vouched for.
//!
//! ```text
//! X-Forwarded-For: whatever the client wrote, 203.0.113.7, 10.0.0.9     peer 10.0.0.5
//!                                             client       <- trusted <- trusted
//! ```
//!
//! Both headers are read by hand. For `X-Forwarded-For` there is no grammar; the crates that parse `Forwarded`
//! read it from the left and whole, so that a stray quote of a client voids what a trusted proxy appended.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str,
};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::cidr::CidrSet;

/// Who sent a request, as far as the network and trusted proxies tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// An address; IPv4 in its own form.
    Address(IpAddr),
    /// A peer on a unix socket.
    Unix,
}

/// How the client is found behind other proxies.
#[derive(Clone, Debug, Default)]
pub struct ClientRule {
    /// Whose word counts.
    pub trusted: TrustedProxies,
    /// Where they say it.
    pub header: ClientHeader,
}

/// The proxies between clients and this one.
#[derive(Clone, Debug)]
pub enum TrustedProxies {
    /// So many, whatever their addresses: every request passes them all. 0 trusts nobody.
    Hops(u8),
    /// Those with these addresses.
    Ranges(CidrSet),
}

/// Nobody: who connects is the client.
impl Default for TrustedProxies {
    fn default() -> Self {
        Self::Hops(0)
    }
}

/// The header in which a proxy names who connected to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientHeader {
    /// `X-Forwarded-For`, the default: what most proxies write.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

/// The address, or `unix`.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

impl Client {
    /// The client of this address, as proxies and logs write it: IPv6 perhaps in brackets, perhaps with a zone, and
    /// perhaps with a port, or `unix:`, nginx's word for a peer on a unix socket.
    pub fn written(text: &[u8]) -> Option<Self> {
        match text.trim_ascii() {
            b"unix:" => Some(Self::Unix),
            text => address(text).map(Self::from),
        }
    }

    /// Whether its address is in `set`; that of a peer on a unix socket, which has none, is in no set.
    pub(super) fn is_in(self, set: &CidrSet) -> bool {
        match self {
            Self::Address(address) => set.contains(address),
            Self::Unix => false,
        }
    }
}

impl ClientRule {
    /// Whether what this peer says of its client counts.
    pub fn trusts(&self, peer: Client) -> bool {
        self.vouches(peer, 0)
    }

    /// Who sent a request that `peer` handed over with these headers.
    pub fn client(&self, peer: Client, headers: &HeaderMap) -> Client {
        let mut client = peer;
        if !self.trusts(peer) {
            // Mostly so, and then there is nothing to be looked for.
            return client;
        }
        let mut named = Named::new(self.header, headers);
        for passed in 0..MOST_PROXIES {
            if !self.vouches(client, passed) {
                break;
            }
            let Some(address) = named.next() else {
                break;
            };
            client = Client::from(address);
        }
        client
    }

    /// Whether a proxy, found after `passed` others, is trusted.
    fn vouches(&self, proxy: Client, passed: u8) -> bool {
        match &self.trusted {
            TrustedProxies::Hops(hops) => passed < *hops,
            TrustedProxies::Ranges(ranges) => proxy.is_in(ranges),
        }
    }
}

impl ClientHeader {
    /// Its name.
    pub fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => http::header::FORWARDED,
        }
    }
}

/// The addresses that a header names, from the right, all its lines being one list. It is read as far as it is
/// asked for, and ends for good at an element that names none.
struct Named<'a> {
    header: ClientHeader,
    lines: http::header::ValueIter<'a, HeaderValue>,
    /// What is left of the current line.
    rest: Option<&'a [u8]>,
}

impl<'a> Named<'a> {
    fn new(header: ClientHeader, headers: &'a HeaderMap) -> Self {
        let mut lines = headers.get_all(header.name()).into_iter();
        let rest = lines.next_back().map(HeaderValue::as_bytes);
        Self {
            header,
            lines,
            rest,
        }
    }

    fn element(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        // The comma before it included: what is as long as may be is so wherever it stands.
        let reach = rest.len().saturating_sub(LONGEST_ELEMENT + 1);
        let has_quotes = self.header == ClientHeader::Forwarded;
        match last_comma(&rest[reach..], has_quotes) {
            Some(comma) => {
                self.rest = Some(&rest[..reach + comma]);
                Some(&rest[reach + comma + 1..])
            }
            None if rest.len() > LONGEST_ELEMENT => None,
            None => {
                self.rest = self.lines.next_back().map(HeaderValue::as_bytes);
                Some(rest)
            }
        }
    }
}

impl Iterator for Named<'_> {
    type Item = IpAddr;

    fn next(&mut self) -> Option<IpAddr> {
        let element = self.element()?.trim_ascii();
        match self.header {
            ClientHeader::XForwardedFor => address(element),
            ClientHeader::Forwarded => address(forwarded_for(element)?),
        }
    }
}

/// The last comma, outside of quotes where there are any. Escapes are not looked at: [`forwarded_for`] finds no
/// address in an element that has one.
fn last_comma(text: &[u8], has_quotes: bool) -> Option<usize> {
    let mut quoted = false;
    text.iter().rposition(|byte| {
        quoted ^= has_quotes && *byte == b'"';
        *byte == b',' && !quoted
    })
}

/// The value of `for` in an element such as `for="[2001:db8::1]:4711";proto=https`; `None` if it is absent,
/// there twice, or malformed.
fn forwarded_for(element: &[u8]) -> Option<&[u8]> {
    // An escaped quote takes the ends of elements for something else, here and in `last_comma`; wherever that is so,
    // an escape stands in what is taken for the element.
    if element.contains(&b'\\') {
        return None;
    }
    let mut found = None;
    let mut quoted = false;
    let pairs = element.split(|byte| {
        quoted ^= *byte == b'"';
        *byte == b';' && !quoted
    });
    for pair in pairs {
        if pair.trim_ascii().is_empty() {
            continue;
        }
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"for") && found.replace(unquoted(value)?).is_some() {
            return None;
        }
    }
    found
}

fn unquoted(value: &[u8]) -> Option<&[u8]> {
    let inner = match value {
        [b'"', inner @ .., b'"'] => inner,
        value => value,
    };
    (!inner.contains(&b'"')).then_some(inner)
}

/// An address as proxies write it: IPv6 perhaps in brackets, perhaps with a zone, and perhaps with a port.
///
/// Zone and port are dropped, so that they make no client of their own; malformed ones make it no address.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        return (port.is_empty() || is_port(port.strip_prefix(':')?))
            .then(|| ipv6(address))
            .flatten()
            .map(IpAddr::V6);
    }
    if let Some((address, port)) = text.split_once(':')
        && !port.contains(':')
    {
        let address: Ipv4Addr = address.parse().ok()?;
        return is_port(port).then_some(IpAddr::V4(address));
    }
    match text.parse() {
        Ok(address) => Some(IpAddr::V4(address)),
        Err(_) => ipv6(text).map(IpAddr::V6),
    }
}

/// With a zone (`fe80::1%eth0`) or without. A zone names an interface of the machine that wrote it.
fn ipv6(text: &str) -> Option<Ipv6Addr> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let is_zone = |zone: &str| (1..=32).contains(&zone.len()) && zone.bytes().all(is_obfuscation);
    zone.is_none_or(is_zone)
        .then(|| address.parse().ok())
        .flatten()
}

/// A number, or `_` and a word that hides it (RFC 7239, 6.3).
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(word) => !word.is_empty() && word.bytes().all(is_obfuscation),
        None => {
            let digits = (1..=5).contains(&text.len());
            let digits = digits && text.bytes().all(|byte| byte.is_ascii_digit());
            digits && text.parse::<u16>().is_ok()
        }
    }
}

const fn is_obfuscation(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// No chain is longer; what is left of it counts for nothing.
const MOST_PROXIES: u8 = 32;

/// The longest element that is looked at, in bytes: a Forwarded element may hold a host name beside an
/// address.
const LONGEST_ELEMENT: usize = 512;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The client of a request that came from 10.0.0.5, by ranges: 10.0.0.0/8 and 2001:db8:f::/48 are trusted.
    fn by_ranges(header: ClientHeader, lines: &[&str]) -> String {
        let ranges = ["10.0.0.0/8", "2001:db8:f::/48"].map(|range| range.parse().expect(range));
        let trusted = TrustedProxies::Ranges(ranges.into_iter().collect());
        client(&ClientRule { trusted, header }, "10.0.0.5", lines)
    }

    fn by_hops(hops: u8, lines: &[&str]) -> String {
        let trusted = TrustedProxies::Hops(hops);
        let header = ClientHeader::XForwardedFor;
        client(&ClientRule { trusted, header }, "10.0.0.5", lines)
    }

    fn client(rule: &ClientRule, peer: &str, lines: &[&str]) -> String {
        let peer = Client::from(peer.parse::<IpAddr>().expect(peer));
        let mut headers = HeaderMap::new();
        for line in lines {
            let value = HeaderValue::from_bytes(line.as_bytes()).expect(line);
            headers.append(rule.header.name(), value);
        }
        rule.client(peer, &headers).to_string()
    }

    fn xff(line: &str) -> String {
        by_ranges(ClientHeader::XForwardedFor, &[line])
    }

    fn forwarded(line: &str) -> String {
        by_ranges(ClientHeader::Forwarded, &[line])
    }

    const PEER: &str = "10.0.0.5";

    /// The last element is the proxy's, and what its client chose stands in it between quotes.
    #[test]
    fn an_escaped_quote_in_what_a_proxy_forwards_gives_no_entry_of_the_client_a_voice() {
        for line in [
            r#"for=6.6.6.6;x=y, for=203.0.113.9;host="a\"""#,
            r#"for=203.0.113.9;host="a\",for=6.6.6.6;x=\"b""#,
            r#"for=203.0.113.9;host="a\", for=6.6.6.6""#,
            r#"for=203.0.113.9;host="\",for=6.6.6.6;x=""#,
            r#"for=6.6.6.6;x="\", for=203.0.113.9;host="\"""#,
        ] {
            assert_eq!(forwarded(line), PEER, "{line}");
        }
    }

    #[test]
    fn who_connects_is_the_client_where_nobody_is_trusted() {
        let rule = ClientRule::default();
        assert_eq!(client(&rule, PEER, &["203.0.113.9"]), PEER);
        assert!(!rule.trusts(Client::Unix));
    }

    #[test]
    fn the_header_of_a_peer_that_is_not_trusted_is_ignored() {
        let ranges = ["192.0.2.0/24".parse().expect("a range")];
        let trusted = TrustedProxies::Ranges(ranges.into_iter().collect());
        let header = ClientHeader::XForwardedFor;
        let rule = ClientRule { trusted, header };
        assert_eq!(client(&rule, PEER, &["203.0.113.9"]), PEER);
        assert_eq!(client(&rule, "192.0.2.1", &["203.0.113.9"]), "203.0.113.9");
        assert!(!rule.trusts(Client::Unix), "a socket is in no range");
    }

    #[test]
    fn the_right_most_address_that_is_no_trusted_proxy_is_the_client() {
        assert_eq!(xff("203.0.113.9"), "203.0.113.9");
        assert_eq!(xff("6.6.6.6, 203.0.113.9, 10.0.0.9"), "203.0.113.9");
        assert_eq!(xff("6.6.6.6,203.0.113.9 ,\t10.0.0.9"), "203.0.113.9");
        assert_eq!(xff("203.0.113.9, 2001:db8:f::1"), "203.0.113.9");
        assert_eq!(xff("10.0.0.7, 10.0.0.9"), "10.0.0.7", "all are trusted");
    }

    #[test]
    fn all_lines_of_the_header_are_one_list() {
        let lines = |lines: &[&str]| by_ranges(ClientHeader::XForwardedFor, lines);
        assert_eq!(lines(&["203.0.113.9", "10.0.0.9"]), "203.0.113.9");
        assert_eq!(lines(&["6.6.6.6", "203.0.113.9, 10.0.0.9"]), "203.0.113.9");
        assert_eq!(lines(&["203.0.113.9, 10.0.0.8", "10.0.0.9"]), "203.0.113.9");
        assert_eq!(lines(&["203.0.113.9", ""]), PEER, "an empty line ends it");
    }

    #[test]
    fn so_many_hops_are_counted_from_the_right_whatever_their_addresses() {
        assert_eq!(by_hops(1, &["6.6.6.6, 203.0.113.9"]), "203.0.113.9");
        assert_eq!(by_hops(2, &["203.0.113.9, 192.0.2.1"]), "203.0.113.9");
        assert_eq!(by_hops(2, &["192.0.2.1"]), "192.0.2.1", "a shorter list");
        assert_eq!(by_hops(2, &[]), PEER);
    }

    #[test]
    fn ports_brackets_and_zones_make_no_client_of_their_own() {
        for text in [
            "198.51.100.9",
            "198.51.100.9:50001",
            "198.51.100.9:50002",
            "198.51.100.9:_hidden",
            "::ffff:198.51.100.9",
            "[::ffff:198.51.100.9]:443",
            " 198.51.100.9\t",
        ] {
            assert_eq!(xff(text), "198.51.100.9", "{text}");
        }
        for text in [
            "2001:db8::1",
            "2001:DB8:0::1",
            "[2001:db8::1]",
            "[2001:db8::1]:443",
            "2001:db8::1%eth0",
            "[2001:db8::1%eth1]:9",
        ] {
            assert_eq!(xff(text), "2001:db8::1", "{text}");
        }
    }

    #[test]
    fn what_is_no_address_ends_the_walk_at_the_last_one_vouched_for() {
        for text in [
            "",
            ",",
            "unknown",
            "203.0.113.5, unknown",
            "203.0.113.5, ",
            "203.0.113.5,,",
            "fe80::1%",
            "fe80::1%a b",
            "fe80::1%eth0%eth1",
            "[fe80::1",
            "[203.0.113.5]",
            "[2001:db8::1]443",
            "[2001:db8::1]:",
            "[2001:db8::1]:+443",
            "203.0.113.5:",
            "203.0.113.5:+80",
            "203.0.113.5:65536",
            "203.0.113.5:_",
            "203.0.113.05",
            "0xcb.0.113.5",
            "3405803781",
            "localhost",
            "\u{e9}",
        ] {
            assert_eq!(xff(text), PEER, "{text}");
        }
        assert_eq!(xff("unknown, 203.0.113.5"), "203.0.113.5");
        assert_eq!(xff("6.6.6.6, unknown, 10.0.0.9"), "10.0.0.9");
    }

    #[test]
    fn what_a_client_wrote_can_not_void_what_a_proxy_appended() {
        let (long, many) = ("x".repeat(100_000), "6.6.6.6,".repeat(10_000));
        for left in ["\"2.2.2.2", "\"", "\\", "a\"b\"c\"", ",,,;=", &long, &many] {
            let line = format!("{left}, 198.51.100.1");
            assert_eq!(by_hops(1, &[&line]), "198.51.100.1", "{left:.9}");
            assert_eq!(xff(&line), "198.51.100.1", "{left:.9}");
            let line = format!("{left}, for=198.51.100.1");
            assert_eq!(forwarded(&line), "198.51.100.1", "{left:.9}");
            let line = format!("{left}, for=\"198.51.100.1:80\";host=\"a,b\"");
            assert_eq!(forwarded(&line), "198.51.100.1", "{left:.9}");
        }
    }

    #[test]
    fn a_list_of_trusted_addresses_is_walked_for_so_many_and_an_endless_element_not_at_all() {
        let many = format!(
            "203.0.113.9{}",
            ", 10.0.0.9".repeat(usize::from(MOST_PROXIES))
        );
        assert_eq!(xff(&many), "10.0.0.9");
        let fewer = format!(
            "203.0.113.9{}",
            ", 10.0.0.9".repeat(usize::from(MOST_PROXIES) - 1)
        );
        assert_eq!(xff(&fewer), "203.0.113.9");
        for before in ["", ",", "10.0.0.9,"] {
            let blanks = |all| " ".repeat(all - "203.0.113.9".len());
            let longest = format!("{before}203.0.113.9{}", blanks(LONGEST_ELEMENT));
            assert_eq!(xff(&longest), "203.0.113.9", "behind {before:?}");
            let longer = format!("{before}203.0.113.9{}", blanks(LONGEST_ELEMENT + 1));
            assert_eq!(xff(&longer), PEER, "behind {before:?}");
        }
    }

    #[test]
    fn forwarded_names_the_client_by_for_however_it_is_written() {
        for text in [
            "for=192.0.2.60",
            "For=\"192.0.2.60\"",
            "FOR=192.0.2.60;proto=http;by=203.0.113.43",
            "proto=http; for=192.0.2.60 ;by=_x",
            "for=\"192.0.2.60:4711\"",
            "for=\"192.0.2.60:_p\"",
            ";for=192.0.2.60; ;",
            "host=\"a;for=6.6.6.6,b\";for=192.0.2.60",
            "for=6.6.6.6, for=192.0.2.60, for=10.0.0.9",
        ] {
            assert_eq!(forwarded(text), "192.0.2.60", "{text}");
        }
        let bracketed = "for=\"[2001:db8:cafe::17]:4711\";by=_y";
        assert_eq!(forwarded(bracketed), "2001:db8:cafe::17");
        assert_eq!(
            by_ranges(ClientHeader::Forwarded, &["for=192.0.2.60", "for=10.0.0.9"]),
            "192.0.2.60"
        );
    }

    #[test]
    fn forwarded_without_a_usable_for_is_the_peer() {
        for text in [
            "for=unknown",
            "for=unknown:abc",
            "for=_hidden",
            "for=\"[2001:db8::1]:+443\"",
            "by=192.0.2.60",
            "192.0.2.60",
            "for",
            "for=",
            "for=\"",
            "for=\"192.0.2.60",
            "for=192.0.2.60\"",
            "for=\"192.0.2.\\60\"",
            "for=192.0.2.60;for=6.6.6.6",
            "for=6.6.6.6, for=_hidden",
        ] {
            assert_eq!(forwarded(text), PEER, "{text}");
        }
    }

    proptest! {
        /// Whatever a client writes into either header, the address that a trusted proxy appends is found.
        #[test]
        fn nothing_left_of_the_trusted_part_changes_the_client(
            left in "[ -~\\t]{0,80}",
            lines in 1usize..3,
            separator in prop_oneof![Just(","), Just(", ")],
        ) {
            let before = vec![left.as_str(); lines - 1];
            for (header, own) in [
                (ClientHeader::XForwardedFor, "203.0.113.9"),
                (ClientHeader::Forwarded, "for=\"203.0.113.9:1\";proto=https"),
            ] {
                let last = format!("{left}{separator}{own}");
                let lines = [&before[..], &[&last]].concat();
                prop_assert_eq!(by_ranges(header, &lines), "203.0.113.9");
            }
        }

        /// No text makes it panic, and no text leads past what is vouched for.
        #[test]
        fn no_text_leads_to_an_address_that_is_not_in_it(text in "\\PC{0,60}") {
            for found in [xff(&text), forwarded(&text)] {
                let address: IpAddr = found.parse().expect("an address");
                prop_assert!(found == PEER || text.contains(':') || text.contains(&address.to_string()));
            }
        }
    }
}
