//! `listen`, `metrics_listen`, `admin_listen`, `admin_token`, `threads` and `shutdown`: where the proxy is reached and how it stops.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    thread,
    time::Duration,
};

use crate::{
    admin::AdminToken,
    config::{
        PLACEHOLDER,
        duration::duration,
        leaf::{Rejected, integer, is_plain_integer},
        section::Section,
    },
    server::ServerSettings,
};

pub fn read(root: &mut Section<'_>) -> ServerSettings {
    let listen = root.word("listen", any_address(8000), address);
    let metrics_listen = root.word("metrics_listen", any_address(9464), address);
    if overlap(listen, metrics_listen) {
        let key = if root.has("metrics_listen") {
            "metrics_listen"
        } else {
            "listen"
        };
        let problem = format!(
            "listen {listen} and metrics_listen {metrics_listen} share port {}",
            listen.port()
        );
        root.conflict(key, problem, Some("give them different ports"));
    }
    let admin_listen = root.word("admin_listen", Some(loopback(9465)), admin_address);
    let others = [("listen", listen), ("metrics_listen", metrics_listen)];
    for (key, other) in others {
        if admin_listen.is_some_and(|admin| overlap(admin, other)) {
            let at = if root.has("admin_listen") {
                "admin_listen"
            } else {
                key
            };
            let problem = format!("admin_listen and {key} {other} share port {}", other.port());
            let hint = "give them different ports, or write admin_listen: off";
            root.conflict(at, problem, Some(hint));
        }
    }
    let threads = root.word("threads", available_threads(), |text| {
        let threads = integer(1..=1024)(text)?;
        Ok::<_, Rejected>(usize::try_from(threads).expect("at most 1024"))
    });
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
        threads,
        drain_delay,
        grace,
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

fn address(text: &str) -> Result<SocketAddr, Rejected> {
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
