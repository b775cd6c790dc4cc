//! `upstream`: where requests go.

use std::{net::SocketAddr, time::Duration};

use super::listeners::reaches;
use crate::{
    config::{
        duration::duration,
        leaf::{Rejected, is_plain_integer},
        section::Section,
    },
    proxy::upstream::UpstreamSettings,
    server::ServerSettings,
};

/// `None` without a usable address.
pub fn read(section: &mut Section<'_>, server: &ServerSettings) -> Option<UpstreamSettings> {
    section.require("address", "address: 127.0.0.1:3000");
    let address = section.optional("address", |text| address(text, server));
    let mut timeout = |key, default| {
        let range = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);
        section.word(key, Duration::from_secs(default), duration(range))
    };
    let connect_timeout = timeout("connect_timeout", 1);
    let read_timeout = timeout("read_timeout", 60);
    let write_timeout = timeout("write_timeout", 60);
    let idle_timeout = timeout("idle_timeout", 50);
    let resolving = Duration::from_millis(100)..=Duration::from_secs(3600);
    let resolve_interval = section.word(
        "resolve_interval",
        Duration::from_secs(5),
        duration(resolving),
    );
    Some(UpstreamSettings {
        address: address?,
        connect_timeout,
        read_timeout,
        write_timeout,
        idle_timeout,
        resolve_interval,
    })
}

fn address(text: &str, server: &ServerSettings) -> Result<String, Rejected> {
    let Some((host, port)) = host_and_port(text) else {
        return Err(Rejected::new(
            "a host and a port from 1 to 65535, as in app:3000, 127.0.0.1:3000, [::1]:3000",
        )
        .hint(address_hint(text)));
    };
    let here = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    let to = format!("{here}:{port}").parse::<SocketAddr>();
    let mut listens = server
        .listen
        .iter()
        .filter_map(|listener| listener.address.tcp());
    let here = to.ok().filter(|to| to.ip().is_loopback());
    if let Some(listen) = here.and_then(|to| listens.find(|listen| reaches(*listen, to))) {
        return Err(Rejected::new(format!(
            "this is where the proxy itself listens ({listen}), so requests would go in circles"
        )));
    }
    Ok(text.to_owned())
}

/// A host, and a port that can be connected to.
pub fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = is_plain_integer(port)
        .then(|| port.parse().ok())
        .flatten()?;
    (port != 0 && is_host(host)).then_some((host, port))
}

/// An address in brackets, or labels of letters, digits, hyphens and underscores.
pub fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']');
        return address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    }
    let numeric = host
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if numeric {
        return host.parse::<std::net::Ipv4Addr>().is_ok();
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let name = host.strip_suffix('.').unwrap_or(host);
    name.len() <= 253
        && name
            .split('.')
            .all(|label| (1..=63).contains(&label.len()) && label.bytes().all(plain))
}

fn address_hint(text: &str) -> Option<String> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let rest = rest.split('/').next().unwrap_or_default();
        let rest = rest.rsplit('@').next().unwrap_or_default();
        let port = match scheme {
            "https" => {
                return Some("the upstream is spoken to in plain HTTP, without a scheme".into());
            }
            _ if rest.contains(':') => "",
            _ => ":80",
        };
        return Some(format!("write it without the scheme: {rest}{port}"));
    }
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some(format!(
            "an IPv6 address is written in brackets: [{text}]:3000"
        ));
    }
    (is_host(text) && !text.is_empty()).then(|| format!("write the port too: {text}:80"))
}
