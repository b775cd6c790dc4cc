//! `listen`, `metrics_listen`, `admin_listen`, `admin_token`, `threads` and `shutdown`: where the proxy is reached and how it stops.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    thread,
    time::Duration,
};

use super::listener;
use crate::{
    admin::AdminToken,
    config::{
        PLACEHOLDER,
        duration::duration,
        leaf::{Rejected, integer, is_plain_integer},
        section::Section,
    },
    server::{Bounds, CensusSettings, ListenAddress, ListenerSettings, ServerSettings},
};

pub fn read(root: &mut Section<'_>) -> ServerSettings {
    let listen = match root.field("listen") {
        None => vec![ListenerSettings::plain(any_address(8000).into())],
        Some(field) if field.is_word() => {
            let address = field.word(listener::address);
            address.map(ListenerSettings::plain).into_iter().collect()
        }
        Some(field) => field
            .list("[0.0.0.0:8000]", listener::read)
            .unwrap_or_default(),
    };
    let metrics_listen = root.word("metrics_listen", any_address(9464), address);
    let admin_listen = root.word("admin_listen", Some(loopback(9465)), admin_address);
    keep_apart(root, &listen, metrics_listen, admin_listen);
    let threads = root.word("threads", available_threads(), integer(1..=1024));
    let shutdown = root.section("shutdown", |section| {
        let up_to_an_hour = || duration(Duration::ZERO..=Duration::from_secs(3600));
        (
            section.word("drain_delay", Duration::from_secs(2), up_to_an_hour()),
            section.word("grace", Duration::from_secs(20), up_to_an_hour()),
        )
    });
    let (drain_delay, grace) = shutdown.unwrap_or_default();
    ServerSettings {
        listen,
        metrics_listen,
        admin_listen,
        bounds: Bounds::default(),
        census: CensusSettings::default(),
        threads,
        drain_delay,
        grace,
    }
}

/// Adds a fault for every two listeners of which one would take the other's connections.
fn keep_apart(
    root: &Section<'_>,
    listen: &[ListenerSettings],
    metrics_listen: SocketAddr,
    admin_listen: Option<SocketAddr>,
) {
    let of_clients = listen
        .iter()
        .map(|listener| ("listen", listener.address.clone()));
    let all: Vec<(&str, ListenAddress)> = of_clients
        .chain([("metrics_listen", metrics_listen.into())])
        .chain(admin_listen.map(|address| ("admin_listen", address.into())))
        .collect();
    for (index, (key, address)) in all.iter().enumerate() {
        for (earlier_key, earlier) in &all[..index] {
            let shared = match (earlier, address) {
                (ListenAddress::Tcp(one), ListenAddress::Tcp(other)) if overlap(*one, *other) => {
                    format!("share port {}", one.port())
                }
                (
                    ListenAddress::Unix { path: one, .. },
                    ListenAddress::Unix { path: other, .. },
                ) if one == other => "are the same socket".to_owned(),
                _ => continue,
            };
            let at = if root.has(key) { key } else { earlier_key };
            let problem = format!("{earlier_key} {earlier} and {key} {address} {shared}");
            let hint = match *key {
                "admin_listen" => "give them different ports, or write admin_listen: off",
                _ => "give them different ports",
            };
            root.conflict(at, problem, Some(hint));
        }
    }
}

/// Whether a connection to `to` may arrive at `listen`; a free port (0) is never another's.
///
/// `0.0.0.0` takes its port on every IPv4 address, `[::]` on every address, since Linux makes it
/// dual-stack unless told otherwise.
pub fn reaches(listen: SocketAddr, to: SocketAddr) -> bool {
    let every = listen.ip().is_unspecified() && (listen.is_ipv6() || to.is_ipv4());
    listen.port() != 0 && listen.port() == to.port() && (every || listen.ip() == to.ip())
}

fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    reaches(one, other) || reaches(other, one)
}

/// An address of this machine and a port.
pub fn address(text: &str) -> Result<SocketAddr, Rejected> {
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    let address = is_plain_integer(port).then(|| text.parse().ok()).flatten();
    address.ok_or_else(|| {
        let hint = if is_plain_integer(text) {
            Some(format!("write 0.0.0.0:{text}"))
        } else if text.starts_with(':') {
            Some(format!("write 0.0.0.0{text}"))
        } else if text.starts_with("localhost:") {
            Some(text.replacen("localhost", "127.0.0.1", 1))
                .map(|address| format!("names are not resolved here: write {address}"))
        } else {
            None
        };
        Rejected::new("an address and a port, as in 0.0.0.0:8000, 127.0.0.1:8000, [::]:8000")
            .hint(hint)
    })
}

/// What who asks at `admin_listen` must show. Empty is nothing, so that it can come from a variable that is unset.
pub fn admin_token(root: &mut Section<'_>, server: &ServerSettings) -> Option<AdminToken> {
    let is_known = root.looks_into_files();
    let token = root.secret("admin_token", |text| {
        let token = match text {
            "" => None,
            PLACEHOLDER if !is_known => Some(PLACEHOLDER.repeat(16).parse()),
            text => Some(text.parse::<AdminToken>()),
        };
        token.transpose()
    });
    // Of a token at fault nothing more can be said.
    let is_at_fault = root.has("admin_token") && token.is_none();
    let token = token.flatten();
    match server.admin_listen {
        Some(admin) if !admin.ip().is_loopback() && token.is_none() && !is_at_fault => {
            let problem =
                format!("{admin} can be reached from elsewhere, and there is no admin_token");
            let hint = format!(
                "write 127.0.0.1:{}, or admin_token: \"${{file:/run/secrets/admin_token}}\" beside it",
                admin.port()
            );
            root.conflict("admin_listen", problem, Some(&hint));
        }
        None if token.is_some() => {
            root.conflict("admin_token", "has no effect: admin_listen is off", None);
        }
        _ => {}
    }
    token
}

/// Nowhere, or an address.
fn admin_address(text: &str) -> Result<Option<SocketAddr>, Rejected> {
    if text == "off" {
        return Ok(None);
    }
    address(text).map(Some).map_err(|rejected| Rejected {
        accepted: "an address and a port, as in 127.0.0.1:9465 or [::1]:9465, or off".to_owned(),
        hint: rejected
            .hint
            .map(|hint| hint.replace("0.0.0.0", "127.0.0.1")),
    })
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn any_address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}

fn available_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_listeners_collide_where_one_would_take_the_others_connections() {
        let overlap = |one: &str, other: &str| {
            let (one, other) = (address(one).expect(one), address(other).expect(other));
            assert_eq!(super::overlap(one, other), super::overlap(other, one));
            super::overlap(one, other)
        };
        assert!(overlap("127.0.0.1:80", "127.0.0.1:80"));
        assert!(overlap("0.0.0.0:80", "127.0.0.1:80"));
        assert!(overlap("[::]:80", "127.0.0.1:80"));
        assert!(overlap("[::]:80", "0.0.0.0:80"));
        assert!(!overlap("0.0.0.0:80", "[::1]:80"));
        assert!(!overlap("127.0.0.1:80", "127.0.0.2:80"));
        assert!(!overlap("127.0.0.1:80", "127.0.0.1:81"));
        assert!(
            !overlap("127.0.0.1:0", "127.0.0.1:0"),
            "two free ports differ"
        );
    }
}
