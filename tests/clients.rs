//! Who a client is behind other proxies, through the whole proxy: every case of an address that another limiter
//! took for the wrong client. The grammar of the headers is tested where it is read, in `src/policy/client.rs`.

use reqwest::StatusCode;

use crate::support::{
    app::App,
    skip::skip,
    upstream::{Seen, Upstream},
    wire::Wire,
};

/// Two requests a minute from each client; the test itself connects from 127.0.0.1.
struct Setup {
    app: App,
    upstream: Upstream,
}

impl Setup {
    fn new(identity: &str) -> Self {
        Self::with(identity, "policies: [{name: per-ip, limits: [2/366d]}]")
    }

    fn with(identity: &str, rest: &str) -> Self {
        let upstream = Upstream::start();
        let app = App::start(&format!(
            "upstream: {{address: \"{}\"}}\nidentity: {{{identity}}}\n{rest}",
            upstream.address
        ));
        Self { app, upstream }
    }

    async fn get(&self, headers: &[(&str, &str)]) -> StatusCode {
        let mut request = reqwest::Client::new().get(self.app.url("/"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("a response").status()
    }

    /// Whether three requests with these values of one header are counted as one client: the third is denied.
    async fn are_one(&self, name: &str, values: [&str; 3]) -> bool {
        let mut statuses = Vec::new();
        for value in values {
            statuses.push(self.get(&[(name, value)]).await);
        }
        assert_eq!(statuses[..2], [200, 200], "{values:?}");
        statuses[2] == StatusCode::TOO_MANY_REQUESTS
    }

    fn told(&self) -> Seen {
        self.upstream.last()
    }
}

const XFF: &str = "X-Forwarded-For";

const LOOPBACK: &str = "trusted_proxies: [127.0.0.0/8]";

#[tokio::test]
async fn addresses_of_one_prefix_behind_a_trusted_proxy_are_one_client() {
    let setup = Setup::new(LOOPBACK);
    let of_one = ["2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2::9"];
    assert!(setup.are_one(XFF, of_one).await);
    let other = setup.get(&[(XFF, "2001:db8:1:3::1")]).await;
    assert_eq!(other, StatusCode::OK, "another /64");
    let ipv4 = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
    assert!(!setup.are_one(XFF, ipv4).await, "IPv4 is not masked");
}

#[tokio::test]
async fn the_prefix_by_which_addresses_are_one_client_is_the_one_that_is_set() {
    for (prefix, same, other) in [
        (56, "2001:db8:1:2ff::2", "2001:db8:1:300::1"),
        (65, "2001:db8:1:200:7fff::2", "2001:db8:1:200:8000::"),
        (128, "2001:db8:1:200:0::1", "2001:db8:1:200::2"),
    ] {
        let setup = Setup::new(&format!("{LOOPBACK}, ipv6_prefix: {prefix}"));
        let of_one = ["2001:db8:1:200::1", same, "2001:db8:1:200::1"];
        assert!(setup.are_one(XFF, of_one).await, "{prefix}");
        assert_eq!(setup.get(&[(XFF, other)]).await, 200, "{prefix}");
        let told = &setup.told().headers["x-forwarded-for"];
        assert_eq!(told, other, "the upstream is told the whole address");
    }
}

#[tokio::test]
async fn another_port_is_no_other_client() {
    let setup = Setup::new(LOOPBACK);
    let ports = [
        "198.51.100.9:50001",
        "198.51.100.9:50002",
        "::ffff:198.51.100.9",
    ];
    assert!(setup.are_one(XFF, ports).await);
    assert_eq!(setup.told().headers["x-forwarded-for"], "198.51.100.9");
    let ports = ["[2001:db8::1]:443", "[2001:db8::1]:444", "2001:db8::1"];
    assert!(setup.are_one(XFF, ports).await);
    let zones = ["fe80::1%eth0", "[fe80::1%eth1]:443", "fe80::1"];
    assert!(setup.are_one(XFF, zones).await, "nor is another zone");
}

#[tokio::test]
async fn an_entry_that_is_no_address_is_answered_and_counted_as_the_proxy_that_sent_it() {
    let setup = Setup::new(LOOPBACK);
    let unusable = ["unknown", "203.0.113.5, unknown", "fe80::1%"];
    assert!(setup.are_one(XFF, unusable).await);
    let usable = setup.get(&[(XFF, "unknown, 203.0.113.5")]).await;
    assert_eq!(usable, StatusCode::OK, "203.0.113.5 is another client");
    assert_eq!(setup.told().headers["x-forwarded-for"], "203.0.113.5");
}

#[tokio::test]
async fn what_a_client_sends_to_a_proxy_of_so_many_hops_changes_nothing() {
    let setup = Setup::new("trusted_proxies: 1");
    let spoofed = [
        "\"2.2.2.2, 198.51.100.1",
        "198.51.100.2, 198.51.100.1",
        "198.51.100.1",
    ];
    assert!(setup.are_one(XFF, spoofed).await);
    assert_eq!(setup.told().headers["x-forwarded-for"], "198.51.100.1");
}

#[tokio::test]
async fn a_range_written_as_ipv6_trusts_the_ipv4_peers_that_it_means() {
    let setup = Setup::new("trusted_proxies: [\"::ffff:127.0.0.0/104\"]");
    assert_eq!(setup.get(&[(XFF, "203.0.113.5")]).await, StatusCode::OK);
    assert_eq!(setup.told().headers["x-forwarded-for"], "203.0.113.5");
}

#[tokio::test]
async fn an_ipv4_peer_of_an_ipv6_listener_is_the_ipv4_client_that_it_is() {
    let upstream = Upstream::start();
    let Some(app) = App::start_on_ipv6(&format!(
        "upstream: {{address: \"{}\"}}\nidentity: {{{LOOPBACK}}}\n\
         policies: [{{name: per-ip, limits: [2/366d]}}]",
        upstream.address
    )) else {
        return skip("this machine has no IPv6");
    };
    let setup = Setup { app, upstream };
    assert_eq!(setup.get(&[]).await, StatusCode::OK);
    assert_eq!(setup.told().headers["x-forwarded-for"], "127.0.0.1");
    assert_eq!(setup.get(&[(XFF, "203.0.113.5")]).await, StatusCode::OK);
    assert_eq!(setup.told().headers["x-forwarded-for"], "203.0.113.5");
    let of_one = ["127.0.0.1", "::ffff:127.0.0.1"].map(|address| [(XFF, address)]);
    assert_eq!(setup.get(&of_one[0]).await, StatusCode::OK);
    assert_eq!(setup.get(&of_one[1]).await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn an_ipv4_client_is_the_same_in_every_setting_however_either_is_written() {
    let setup = Setup::with(
        LOOPBACK,
        "block: {client_ip: [\"::ffff:198.51.100.0/120\"]}\n\
         exempt: {client_ip: [\"::ffff:203.0.113.1\"]}\n\
         policies:\n\
         - name: per-ip\n  \
           limits: [1/366d]\n  \
           match: {not: {client_ip: [\"::ffff:192.0.2.0/121\"]}}\n  \
           overrides: [{client_ip: [\"::ffff:203.0.113.2\"], limits: [0/366d]}]",
    );
    for form in ["", "::ffff:"] {
        for (address, expected) in [
            ("198.51.100.7", [403, 403]),
            ("203.0.113.1", [200, 200]),
            ("203.0.113.2", [429, 429]),
            ("192.0.2.127", [200, 200]),
        ] {
            let from = format!("{form}{address}");
            let of = [(XFF, from.as_str())];
            let statuses = [setup.get(&of).await, setup.get(&of).await];
            assert_eq!(statuses, expected, "{from}");
        }
    }
    let of_one = ["192.0.2.128", "::ffff:192.0.2.128"].map(|address| [(XFF, address)]);
    assert_eq!(setup.get(&of_one[0]).await, StatusCode::OK);
    assert_eq!(setup.get(&of_one[1]).await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn forwarded_is_read_where_it_is_the_header_and_only_there() {
    let setup = Setup::new(&format!("{LOOPBACK}, client_ip_header: forwarded"));
    let unusable = [
        "for=unknown:abc",
        "for=\"[2001:db8::1]:+443\"",
        "for=_hidden",
    ];
    assert!(setup.are_one("Forwarded", unusable).await);
    let hidden_ports = [
        "for=\"192.0.2.1:_p\"",
        "for=6.6.6.6, for=\"192.0.2.1\"",
        "For=192.0.2.1;proto=https",
    ];
    assert!(setup.are_one("Forwarded", hidden_ports).await);
    let ignored = setup.get(&[(XFF, "203.0.113.5")]).await;
    assert_eq!(ignored, StatusCode::TOO_MANY_REQUESTS, "it is the peer");
    assert!(setup.told().headers.get("forwarded").is_none());
}

#[tokio::test]
async fn without_trusted_proxies_no_header_makes_a_client() {
    for identity in ["", "trusted_proxies: [192.0.2.0/24]"] {
        let setup = Setup::new(identity);
        let spoofed = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];
        assert!(setup.are_one(XFF, spoofed).await, "{identity}");
        assert_eq!(setup.told().headers["x-forwarded-for"], "127.0.0.1");
    }
}

#[tokio::test]
async fn the_upstream_is_told_the_client_that_was_counted_and_tls_only_by_a_trusted_proxy() {
    let proto = ("X-Forwarded-Proto", "https");
    let spoofed = ("X-Forwarded-Host", "evil.example");
    for (identity, client, scheme) in [
        (LOOPBACK, "203.0.113.9", "https"),
        ("", "127.0.0.1", "http"),
    ] {
        let setup = Setup::new(identity);
        let listed = (XFF, "6.6.6.6, 203.0.113.9, 127.0.0.2");
        setup.get(&[listed, proto, spoofed]).await;
        let told = setup.told().headers;
        let values = |name: &str| told.get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(values("x-forwarded-for"), [client]);
        assert_eq!(values("x-forwarded-proto"), [scheme]);
        let host = setup.app.proxy.to_string();
        assert_eq!(values("x-forwarded-host"), [host.as_str()]);
    }
}

#[tokio::test]
async fn a_proxy_protocol_preamble_is_a_bad_request_and_makes_no_client() {
    let v2 = |command: u8, family: u8, addresses: &[u8]| {
        let signature = b"\r\n\r\n\0\r\nQUIT\n";
        let length = u8::try_from(addresses.len()).expect("short");
        [&signature[..], &[command, family, 0, length], addresses].concat()
    };
    let ipv4 = [203, 0, 113, 9, 192, 0, 2, 1, 1, 2, 3, 4];
    let preambles = [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(),
        b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 80\r\n".to_vec(),
        b"PROXY TCP6 2001:db8::9 2001:db8::1 40000 80\r\n".to_vec(),
        v2(0x20, 0x11, &[0; 12]),
        v2(0x20, 0, &[]),
        v2(0x21, 0x11, &ipv4),
        v2(0x21, 0x21, &[1; 36]),
    ];
    for identity in [LOOPBACK, ""] {
        let setup = Setup::new(identity);
        for preamble in &preambles {
            let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
            let mut wire = Wire::open(setup.app.proxy);
            let answer = wire.send(&[preamble, &request[..]].concat()).rest();
            let told = format!("{}: {answer}", preamble.escape_ascii());
            assert!(answer.starts_with("HTTP/1.1 400 "), "{told}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{told}");
            assert!(!answer.to_ascii_lowercase().contains("ratelimit"), "{told}");
        }
        assert!(setup.upstream.seen().is_empty());
        let statuses = [setup.get(&[]).await, setup.get(&[]).await];
        assert_eq!(statuses, [200, 200], "none of them was counted");
    }
}
