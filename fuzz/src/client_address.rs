//! Who the client is behind trusted proxies: only what these wrote decides it.
//!
//! The first byte of an input picks the rule (see [`rule`]). The first line after it is what the sender wrote, the
//! others are the header's lines as trusted proxies left them.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderValue};
use slidegate::policy::{Client, ClientHeader, ClientRule, TrustedProxies};

/// Panics if the client is not the one that the trusted part of the header names.
pub fn check(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let (rule, peer) = rule(first);
    let mut lines = rest.split(|byte| *byte == b'\n');
    let sender = lines.next().unwrap_or_default();
    let lines: Vec<&[u8]> = lines.collect();

    let client = find(&rule, peer, &lines);
    assert!(
        client == peer || entries(&lines).any(|entry| entry == client),
        "{client:?} stands nowhere"
    );
    if rule.header == ClientHeader::XForwardedFor && lines.iter().all(|line| is_short(line)) {
        assert_eq!(client, by_the_book(&rule, peer, &lines));
    }

    check_appended(&rule, &lines);

    // Something that is no address ends the walk, so that it does not come to what the sender wrote. A line that
    // no proxy writes, with a quote that does not end, has no elements to keep apart.
    if rule.header == ClientHeader::Forwarded && !lines.iter().all(|line| quotes_end(line)) {
        return;
    }
    let sealed = find(&rule, peer, &[&[&b"unknown"[..]], &lines[..]].concat());
    let ahead = find(&rule, peer, &[&[sender, b"unknown"], &lines[..]].concat());
    assert_eq!(sealed, ahead, "a line before it");
    for seal in [&b",unknown"[..], b", unknown"] {
        let first = [sender, seal].concat();
        let ahead = find(&rule, peer, &[&[&first[..]], &lines[..]].concat());
        assert_eq!(sealed, ahead, "an entry before it");
        if let Some((line, others)) = lines.split_first() {
            let joined = [sender, seal, b",", line].concat();
            // Else the line is left out, and with it what the proxy wrote.
            if HeaderValue::from_bytes(&joined).is_ok() {
                let ahead = find(&rule, peer, &[&[&joined[..]], others].concat());
                assert_eq!(sealed, ahead, "in the same line");
            }
        }
    }
}

/// Panics if what is in the header already keeps a client from being found that trusted proxies append.
fn check_appended(rule: &ClientRule, lines: &[&[u8]]) {
    let (client, proxy) = ("203.0.113.9", "10.0.0.9");
    let entry = |address: &str| match rule.header {
        ClientHeader::XForwardedFor => address.to_owned(),
        ClientHeader::Forwarded => format!("for=\"{address}:1\";host=\"a,b\";proto=https"),
    };
    let (appended, hops) = match &rule.trusted {
        TrustedProxies::Ranges(ranges) if ranges.contains("203.0.113.9".parse().expect("one")) => {
            return;
        }
        TrustedProxies::Hops(0 | u8::MAX) => return,
        TrustedProxies::Hops(hops) => (usize::from(*hops) - 1, *hops),
        TrustedProxies::Ranges(_) => (3, 0),
    };
    let mut list = vec![entry(client)];
    list.resize(appended + 1, entry(proxy));
    let list = list.join(", ");
    let peer = Client::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5)));
    let expected = Client::Address(client.parse().expect("an address"));

    let mut own_line = lines.to_vec();
    own_line.push(list.as_bytes());
    assert_eq!(find(rule, peer, &own_line), expected, "{hops} hops, a line");
    if let Some((last, others)) = lines.split_last() {
        let joined = [last, &b", "[..], list.as_bytes()].concat();
        // Else the line is left out, and with it what was appended.
        if HeaderValue::from_bytes(&joined).is_ok() {
            let mut same_line = others.to_vec();
            same_line.push(&joined);
            assert_eq!(find(rule, peer, &same_line), expected, "{hops} hops");
        }
    }
}

/// By the four lower bits: the header, and whom it trusts. By the fifth: a peer with an address, or without.
fn rule(byte: u8) -> (ClientRule, Client) {
    let ranges = |texts: &[&str]| {
        let ranges = texts.iter().map(|text| text.parse().expect("a range"));
        TrustedProxies::Ranges(ranges.collect())
    };
    let rule = ClientRule {
        header: match byte & 1 {
            0 => ClientHeader::XForwardedFor,
            _ => ClientHeader::Forwarded,
        },
        trusted: match (byte >> 1) & 7 {
            hops @ 0..=4 => TrustedProxies::Hops(hops),
            5 => TrustedProxies::Hops(u8::MAX),
            6 => ranges(&["10.0.0.0/8", "2001:db8::/32"]),
            _ => ranges(&["0.0.0.0/0", "::/0"]),
        },
    };
    let peer = match (byte >> 4) & 1 {
        0 => Client::Unix,
        _ => Client::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5))),
    };
    (rule, peer)
}

/// Lines that HTTP does not allow are left out.
fn find(rule: &ClientRule, peer: Client, lines: &[&[u8]]) -> Client {
    let mut headers = HeaderMap::new();
    for line in lines {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(rule.header.name(), value);
        }
    }
    rule.client(peer, &headers)
}

/// Every address that stands in the lines, whatever is around it.
fn entries(lines: &[&[u8]]) -> impl Iterator<Item = Client> {
    let words = lines
        .iter()
        .flat_map(|line| line.split(|byte| b",;=\" \t".contains(byte)));
    words.filter_map(|word| address(std::str::from_utf8(word).ok()?))
}

/// What is left of it without brackets, zone and port, well formed or not.
fn address(word: &str) -> Option<Client> {
    let outside = word.split_once(']').map_or(word, |(inside, _)| inside);
    let bare = outside.strip_prefix('[').unwrap_or(outside);
    let bare = bare.split_once('%').map_or(bare, |(address, _)| address);
    let without_port = bare.rsplit_once(':').map_or(bare, |(address, _)| address);
    [bare, without_port]
        .iter()
        .find_map(|text| text.parse::<IpAddr>().ok())
        .map(Client::from)
}

/// Whether none of its elements is as long as those that are not looked at.
fn is_short(line: &[u8]) -> bool {
    line.split(|byte| *byte == b',')
        .all(|element| element.len() < 512)
}

/// `X-Forwarded-For` as the rule is told in a sentence: the whole list, from the right, while who is named is
/// trusted.
fn by_the_book(rule: &ClientRule, peer: Client, lines: &[&[u8]]) -> Client {
    let list = lines
        .iter()
        .filter(|line| HeaderValue::from_bytes(line).is_ok())
        .flat_map(|line| line.split(|byte| *byte == b','));
    let list: Vec<&[u8]> = list.collect();
    let mut client = peer;
    for (passed, element) in (0..32).zip(list.iter().rev()) {
        let trusted = match &rule.trusted {
            TrustedProxies::Hops(hops) => passed < *hops,
            // Of those above, a range of all, and one of 10.
            TrustedProxies::Ranges(ranges) => {
                matches!(client, Client::Address(address) if ranges.contains(address))
            }
        };
        let alone = ClientRule {
            trusted: TrustedProxies::Hops(1),
            header: ClientHeader::XForwardedFor,
        };
        // Alone in the header, it is the client or it is no address.
        let nobody = Client::Address(IpAddr::V4(Ipv4Addr::new(240, 0, 0, 1)));
        let named = find(&alone, Client::Unix, &[element]);
        let again = find(&alone, nobody, &[element]);
        if !trusted || named != again {
            break;
        }
        client = named;
    }
    client
}

/// Whether every quoted string in it ends, as RFC 9110 has them: a backslash escapes what follows it.
fn quotes_end(line: &[u8]) -> bool {
    let mut quoted = false;
    let mut bytes = line.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => {
                let _ = bytes.next();
            }
            _ => {}
        }
    }
    !quoted
}
