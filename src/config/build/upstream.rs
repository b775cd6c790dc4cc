//! `upstream`, or `upstreams` and `routes`: where requests go.

use std::{collections::HashSet, net::SocketAddr, time::Duration};

use super::{
    listeners::reaches,
    matching::{HOSTS, List, PATHS},
};
use crate::{
    config::{
        duration::duration,
        leaf::{Choice, Rejected, choice, integer, is_plain_integer, name, nearest},
        section::Section,
    },
    pem,
    policy::{Conditions, MatchRule, PathPattern, Routes},
    server::ServerSettings,
    upstream::{
        Address, EjectSettings, HealthCheckSettings, Http, MOST_SOCKET_PATH, TlsSettings,
        UpstreamSettings, certificates,
    },
};

/// Upstreams, and which requests go to which.
pub struct Upstreams {
    pub all: Vec<UpstreamSettings>,
    pub routes: Routes,
}

/// `None` without a usable upstream.
pub fn read(root: &mut Section<'_>, server: &ServerSettings) -> Option<Upstreams> {
    let has_several = root.has("upstreams") || root.has("routes");
    let one = match has_several {
        true => {
            if let Some(one) = root.field("upstream") {
                one.conflict("stands beside upstreams and routes, which say where requests go: there is one or the others");
            }
            None
        }
        false => root.section("upstream", |section| {
            upstream(UpstreamSettings::DEFAULT_NAME, section, server)
        }),
    };
    let several = root.field("upstreams");
    if !has_several {
        // Known, and not there.
        routes(root, &[]);
        return Some(Upstreams {
            all: vec![one??],
            routes: Routes::everything(),
        });
    }
    root.require("upstreams", "upstreams: {web: {address: 127.0.0.1:3000}}");
    root.require("routes", "routes: [{upstream: web}]");
    let mut names = Vec::new();
    let mut given = 0;
    let all = several.and_then(|field| {
        field.mapping("web: {address: 127.0.0.1:3000}", |key, field| {
            given += 1;
            names.push(key.to_owned());
            if let Err(rejected) = name(key) {
                field.conflict(rejected.accepted);
            }
            field.section(|section| upstream(key, section, server))?
        })
    });
    let routes = routes(root, &names);
    let (all, routes) = (all?, routes?);
    (all.len() == given).then_some(Upstreams { all, routes })
}

/// The one of this name; `None` if it is at fault.
fn upstream(
    name: &str,
    section: &mut Section<'_>,
    server: &ServerSettings,
) -> Option<UpstreamSettings> {
    let addresses = addresses(section, server);
    let http = section.word("http", Http::default(), choice);
    let tls = tls(section, addresses.as_deref().unwrap_or_default());
    let defaults = UpstreamSettings::at(name, addresses.unwrap_or_default());
    let mut timeout = |key, default| {
        let range = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);
        section.word(key, default, duration(range))
    };
    let connect_timeout = timeout("connect_timeout", defaults.connect_timeout);
    let read_timeout = timeout("read_timeout", defaults.read_timeout);
    let write_timeout = timeout("write_timeout", defaults.write_timeout);
    let idle_timeout = timeout("idle_timeout", defaults.idle_timeout);
    let resolving = Duration::from_millis(100)..=Duration::from_secs(3600);
    let resolve_interval = section.word(
        "resolve_interval",
        defaults.resolve_interval,
        duration(resolving),
    );
    let eject = eject(section);
    let health_check = health_check(section);
    if defaults.addresses.is_empty() {
        return None;
    }
    Some(UpstreamSettings {
        http,
        tls: tls?,
        connect_timeout,
        read_timeout,
        write_timeout,
        idle_timeout,
        resolve_interval,
        eject: eject?,
        health_check: health_check?,
        ..defaults
    })
}

/// `address` or `addresses`; `None` if there is none that is usable.
fn addresses(section: &mut Section<'_>, server: &ServerSettings) -> Option<Vec<Address>> {
    let (one, several) = (section.field("address"), section.field("addresses"));
    let Some(several) = several else {
        section.require("address", "address: 127.0.0.1:3000");
        let address = one?.word(|text| address(text, server));
        return Some(vec![address?]);
    };
    if let Some(one) = one {
        one.conflict("stands beside addresses: write it into that list");
    }
    let mut given = 0;
    let mut seen = HashSet::new();
    let read = several.list("[app-1:3000, app-2:3000]", |item| {
        given += 1;
        item.word(|text| {
            let address = address(text, server)?;
            match seen.insert(address.clone()) {
                true => Ok(address),
                false => Err(Rejected::new("each stands once, and this one did")),
            }
        })
    });
    read.filter(|read| read.len() == given)
}

/// `None` if it is at fault; `Some(None)` for cleartext.
fn tls(section: &mut Section<'_>, addresses: &[Address]) -> Option<Option<TlsSettings>> {
    let Some(field) = section.field("tls") else {
        return Some(None);
    };
    let tls = field.section(|section| {
        section.note();
        let server_name =
            section.optional("server_name", |text| {
                match certificates::is_server_name(text) {
                    true => Ok(text.into()),
                    false => Err(Rejected::new(
                        "a host name or an address, as in api.example.com, without a port",
                    )),
                }
            });
        if !section.has("server_name") && addresses.iter().any(|one| one.host().is_none()) {
            let problem =
                "verifies a certificate, and the path of a unix socket is no name for one";
            section.conflict_here(problem, Some("write server_name: app.internal into it"));
        }
        let ca = section.content("ca", pem::certificates);
        let chain = section.content("certificate", pem::certificates);
        let key = section.content("key", pem::key);
        for (one, other) in [("certificate", "key"), ("key", "certificate")] {
            if section.has(one) && !section.has(other) {
                let problem =
                    format!("stands without {other}, and a client's certificate needs both");
                section.conflict(one, problem, None);
            }
        }
        let ca = ca.map_or(Some(None), |pem| {
            usable(section, "ca", certificates::authorities(&pem)).map(Some)
        });
        let client = chain.zip(key).map_or(Some(None), |(chain, key)| {
            usable(section, "key", certificates::client(&chain, &key)).map(Some)
        });
        Some(TlsSettings {
            server_name,
            ca: ca?,
            client: client?,
        })
    });
    tls.flatten().map(Some)
}

/// `None` if it is at fault; `Some(None)` if nothing is ejected.
fn eject(section: &mut Section<'_>) -> Option<Option<EjectSettings>> {
    let defaults = EjectSettings::default();
    let Some(field) = section.field("eject") else {
        return Some(Some(defaults));
    };
    if field.is_word() {
        return field.word(|text| match text {
            "off" => Ok(None),
            _ => Err(Rejected::new(
                "expected off, or a mapping as in {after: 3, for: 2s}",
            )),
        });
    }
    field.section(|section| {
        section.note();
        let range = Duration::from_millis(100)..=Duration::from_secs(3600);
        Some(EjectSettings {
            after: section.word("after", defaults.after, integer(1..=1000)),
            lasts: section.word("for", defaults.lasts, duration(range)),
        })
    })
}

/// `None` if it is at fault; `Some(None)` without checks.
fn health_check(section: &mut Section<'_>) -> Option<Option<HealthCheckSettings>> {
    let Some(field) = section.field("health_check") else {
        return Some(None);
    };
    let defaults = HealthCheckSettings::default();
    field.section(|section| {
        section.note();
        let path = section.optional("path", |text| match is_target(text) {
            true => Ok(text.into()),
            false => Err(
                Rejected::new("a path, perhaps with a query, as in /healthz")
                    .hint((!text.starts_with('/')).then(|| format!("write /{text}"))),
            ),
        });
        let range = Duration::from_millis(100)..=Duration::from_secs(3600);
        let interval = section.word("interval", defaults.interval, duration(range));
        let range = Duration::from_millis(1)..=Duration::from_secs(60);
        let timeout = section.word("timeout", defaults.timeout, duration(range));
        let mut many = |key, default| section.word(key, default, integer(1..=100));
        Some(HealthCheckSettings {
            path,
            interval,
            timeout,
            unhealthy_after: many("unhealthy_after", defaults.unhealthy_after),
            healthy_after: many("healthy_after", defaults.healthy_after),
        })
    })
}

/// `None` if one of them is at fault.
fn routes(root: &mut Section<'_>, names: &[String]) -> Option<Routes> {
    let mut given = 0;
    let mut used = HashSet::new();
    let mut earlier = Vec::new();
    let routes = root.list(
        "routes",
        "[{host: api.example.com, upstream: api}, {upstream: web}]",
        |item| {
            given += 1;
            item.section(|section| route(section, names, &mut used, &mut earlier))?
        },
    )?;
    // Of a route at fault it is not known where it leads.
    if routes.len() < given {
        return None;
    }
    let names = names.iter().enumerate();
    for (_, name) in names.filter(|(place, _)| !used.contains(place)) {
        root.conflict(
            "upstreams",
            format!("no route leads to the upstream {name}"),
            Some("write a route to it, or leave it out"),
        );
    }
    Some(Routes::new(routes))
}

/// Which requests, and the place of the upstream that they go to, which is then `used`. Routes that stand `earlier` are
/// taken first.
fn route(
    section: &mut Section<'_>,
    names: &[String],
    used: &mut HashSet<usize>,
    earlier: &mut Vec<(String, MatchRule)>,
) -> Option<(MatchRule, usize)> {
    let hosts = HOSTS.read_one_or_many(section);
    let paths = ROUTE_PATHS.read_one_or_many(section);
    section.require("upstream", "upstream: web");
    let to = section.optional("upstream", |text| named(text, names));
    used.extend(to);
    let mut all = Conditions::default();
    all.hosts = hosts?;
    all.paths = paths?;
    let rule = MatchRule {
        all,
        none: Conditions::default(),
    };
    if let Some((by, _)) = earlier.iter().find(|(_, taken)| taken.covers(&rule)) {
        section.conflict_here(
            format!("is never taken: {by} takes every request that it is for"),
            Some("the first route that is for a request decides"),
        );
    }
    earlier.push((section.path().to_string(), rule.clone()));
    Some((rule, to?))
}

/// The place of the upstream of this name.
fn named(text: &str, names: &[String]) -> Result<usize, Rejected> {
    // What is wrong with that is told already.
    if names.is_empty() {
        return Ok(0);
    }
    let place = names.iter().position(|name| name == text);
    place.ok_or_else(|| {
        let known = names.iter().map(String::as_str);
        Rejected::new(format!("the upstreams are: {}", names.join(", "))).hint(nearest(text, known))
    })
}

/// What the file at `key` was read into; `None` if it is at fault.
fn usable<T>(
    section: &Section<'_>,
    key: &str,
    read: Result<T, certificates::UnusableCertificate>,
) -> Option<T> {
    if let Err(error) = &read {
        section.conflict(key, error.to_string(), None);
    }
    read.ok()
}

/// Elsewhere `/v1/` is read as `/v1`; who writes it of a route means more.
const ROUTE_PATHS: List<PathPattern> = List {
    parse: |text| match text.strip_suffix('/') {
        Some(one) if !one.is_empty() => Err(Rejected::new(
            "a path is that one alone, and all below it with /** at its end",
        )
        .hint(Some(format!("write {one}/**, or {one}")))),
        _ => Ok(text.parse::<PathPattern>()?),
    },
    ..PATHS
};

impl Choice for Http {
    const ALL: &'static [Self] = &[Self::One, Self::Two];

    fn name(self) -> &'static str {
        match self {
            Self::One => "1",
            Self::Two => "2",
        }
    }
}

fn address(text: &str, server: &ServerSettings) -> Result<Address, Rejected> {
    let unix = text.starts_with("unix:");
    let Some(address) = (unix || host_and_port(text).is_some())
        .then(|| text.parse::<Address>().ok())
        .flatten()
    else {
        return Err(Rejected::new(match unix {
            true => format!(
                "a whole path of at most {MOST_SOCKET_PATH} bytes, as in unix:/run/app.sock"
            ),
            false => {
                "a host and a port from 1 to 65535, as in app:3000, 127.0.0.1:3000, [::1]:3000, or unix:/run/app.sock".to_owned()
            }
        })
        .hint(address_hint(text)));
    };
    let to = match &address {
        Address::Socket(socket) => Some(*socket),
        Address::Name { host, port } if **host == *"localhost" => {
            Some(SocketAddr::from(([127, 0, 0, 1], *port)))
        }
        Address::Name { .. } | Address::Unix(_) => None,
    };
    let here = to.filter(|to| to.ip().is_loopback());
    let mut listens = server
        .listen
        .iter()
        .filter_map(|listener| listener.address.tcp());
    if let Some(listen) = here.and_then(|to| listens.find(|listen| reaches(*listen, to))) {
        return Err(Rejected::new(format!(
            "this is where the proxy itself listens ({listen}), so requests would go in circles"
        )));
    }
    Ok(address)
}

fn is_target(text: &str) -> bool {
    text.starts_with('/')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
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
            _ if rest.contains(':') => "",
            "https" => ":443",
            _ => ":80",
        };
        let tls = match scheme {
            "https" => ", and tls: {} beside it",
            _ => "",
        };
        return Some(format!("write it without the scheme: {rest}{port}{tls}"));
    }
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some(format!(
            "an IPv6 address is written in brackets: [{text}]:3000"
        ));
    }
    (is_host(text) && !text.is_empty()).then(|| format!("write the port too: {text}:80"))
}
