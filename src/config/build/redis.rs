//! How a Redis is reached: `store.url`, its password, `store.tls`, `store.sentinel`, `store.cluster`.
//!
//! What would have no effect with the URL there is, is refused: whoever wrote it counts on it.

use super::upstream::{host_and_port, is_host};
use crate::{
    config::{leaf::Rejected, section::Section},
    pem,
    store::{
        ClientFiles, ClusterSettings, HostPort, ParseRedisUrlError, Password, RedisSettings,
        RedisUrl, SentinelSettings, TlsFiles, Topology, files,
    },
};

/// The budget and the namespace are the defaults. `None` for this process's memory, or if the URL is at
/// fault.
pub fn read(section: &mut Section<'_>) -> Option<RedisSettings> {
    let url = section.secret("url", url);
    // Of a URL at fault nothing can be said.
    let known = url.is_some() || !section.has("url");
    let url = url.flatten();
    let password = password(section);
    let tls = section.section("tls", tls).unwrap_or_default();
    let watched = section.has("sentinel");
    let sentinel = section.section("sentinel", |section| sentinel(section, watched));
    let cluster = section.field("cluster");
    let cluster = cluster.and_then(|field| field.section(cluster_settings));
    match &url {
        Some(url) => agree(section, url, password.as_ref()),
        None if known => {
            for key in ["password", "password_file", "tls", "sentinel", "cluster"] {
                let given = !key.starts_with("password") || password.is_some();
                if section.has(key) && given {
                    section.conflict(key, IN_MEMORY, None);
                }
            }
        }
        None => {}
    }
    url.map(|url| RedisSettings {
        password,
        tls,
        topology: match (sentinel.flatten(), cluster) {
            (Some(sentinel), _) => Topology::Sentinel(sentinel),
            (None, Some(cluster)) => Topology::Cluster(cluster),
            (None, None) => Topology::Single,
        },
        ..RedisSettings::new(url)
    })
}

/// Whether what stands beside the URL goes with it.
fn agree(section: &Section<'_>, url: &RedisUrl, password: Option<&Password>) {
    if password.is_some() && url.holds_password() {
        section.conflict(
            "url",
            "holds a password beside the one of its own key",
            Some(ONE_PASSWORD),
        );
    }
    // A file that can not be read is a fault of its own.
    let lacks_password = password.is_none() && !section.has("password_file");
    if lacks_password && url.names_user() && !url.holds_password() {
        section.conflict("url", "names a user and has no password", Some(NO_PASSWORD));
    }
    if section.has("tls") && !url.is_tls() {
        section.conflict("tls", NO_TLS, Some("write rediss:// in store.url"));
    }
    if section.has("cluster") {
        agree_with_cluster(section, url);
    }
    if section.has("sentinel") && !section.has("cluster") {
        agree_with_sentinel(section, url);
    }
}

fn agree_with_sentinel(section: &Section<'_>, url: &RedisUrl) {
    if url.is_unix() {
        section.conflict(
            "sentinel",
            "has no effect: store.url is a socket",
            Some(SERVICE),
        );
    } else if url.names_port() {
        section.conflict(
            "url",
            "has a port, and the sentinels tell the port",
            Some(SERVICE),
        );
    }
}

fn agree_with_cluster(section: &Section<'_>, url: &RedisUrl) {
    if section.has("sentinel") {
        let both = "stands beside sentinel";
        section.conflict("cluster", both, Some("a cluster needs no sentinels"));
    }
    if url.is_unix() {
        let socket = "has no effect: store.url is a socket";
        section.conflict("cluster", socket, Some(MEMBER));
    }
    if url.database() != 0 {
        let database = "names a database, and a cluster has none but 0";
        section.conflict("url", database, Some(MEMBER));
    }
}

/// `password` or `password_file`. An empty password is none, so that it can come from a variable that
/// is unset.
fn password(section: &mut Section<'_>) -> Option<Password> {
    let known = section.secret("password", |text| Ok::<_, Rejected>(text.to_owned()));
    let known = known.filter(|password| !password.is_empty());
    let file = section.file("password_file", |path| files::password(path).map(drop));
    if known.is_some() && file.is_some() {
        let both = "stands beside password";
        section.conflict("password_file", both, Some(ONE_PASSWORD));
    }
    file.map(Password::File).or(known.map(Password::Known))
}

fn tls(section: &mut Section<'_>) -> TlsFiles {
    let ca = section.file("ca", |path| pem::certificates(path).map(drop));
    let certificate = section.file("certificate", |path| pem::certificates(path).map(drop));
    let key = section.file("key", |path| pem::key(path).map(drop));
    for (one, other) in [("certificate", "key"), ("key", "certificate")] {
        if section.has(one) && !section.has(other) {
            let problem = format!("stands without {other}, and a client's certificate needs both");
            section.conflict(one, problem, None);
        }
    }
    let client = certificate.zip(key);
    let client = client.map(|(certificate, key)| ClientFiles { certificate, key });
    TlsFiles { ca, client }
}

/// `None` without a usable address.
fn sentinel(section: &mut Section<'_>, given: bool) -> Option<SentinelSettings> {
    if given {
        section.require(
            "addresses",
            "addresses: [sentinel-0:26379, sentinel-1:26379]",
        );
    }
    let example = "[sentinel-0:26379, sentinel-1:26379, sentinel-2:26379]";
    let addresses = section.list("addresses", example, |item| {
        item.word(|text| address(text, 26379, "sentinel-0:26379"))
    });
    let user = section.optional("user", |text| Ok::<_, Rejected>(text.to_owned()));
    let password = password(section);
    if user.is_some() && password.is_none() {
        section.conflict("user", "stands without a password", Some(SENTINEL_PASSWORD));
    }
    Some(SentinelSettings {
        addresses: addresses.filter(|addresses| !addresses.is_empty())?,
        user,
        password,
    })
}

fn cluster_settings(section: &mut Section<'_>) -> ClusterSettings {
    section.note();
    let example = "[redis-1:6379, redis-2:6379]";
    let addresses = section.list("addresses", example, |item| {
        item.word(|text| address(text, 6379, "redis-1:6379"))
    });
    ClusterSettings {
        addresses: addresses.unwrap_or_default(),
    }
}

/// A host, and perhaps another port than is custom.
fn address(text: &str, custom: u16, example: &str) -> Result<HostPort, Rejected> {
    let bare = is_host(text).then_some((text, custom));
    let (host, port) = bare.or_else(|| host_and_port(text)).ok_or_else(|| {
        Rejected::new(format!(
            "a host and perhaps a port, as in {example}, 10.0.0.1, [::1]:{custom}"
        ))
    })?;
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    Ok(HostPort { host, port })
}

/// The URL of a Redis; `None` for this process's memory.
fn url(text: &str) -> Result<Option<RedisUrl>, Rejected> {
    if text == "memory:" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| match error {
        ParseRedisUrlError::Fragment => Rejected::new(error.to_string()),
        ParseRedisUrlError::Scheme => Rejected::new(ACCEPTED),
        ParseRedisUrlError::Syntax => Rejected::new(ACCEPTED).hint(Some(URL_HINT.to_owned())),
    })
}

const ACCEPTED: &str = "a store is memory:, redis://user:password@host:6379/0, the same with rediss:// \
     for TLS, or unix:/path/to/socket";

const URL_HINT: &str = "write characters such as / @ : # % of a password as %2F %40 %3A %23 %25, or \
     the password into store.password as it is; the database is a number";

const IN_MEMORY: &str = "has no effect: store.url is memory:, or left out";

const NO_TLS: &str = "has no effect: store.url asks for no TLS";

const ONE_PASSWORD: &str =
    "there is one: in the URL, in password, or in the file that password_file names";

const NO_PASSWORD: &str = "without one the user is not told to the server; write store.password or \
     store.password_file";

const SENTINEL_PASSWORD: &str = "without one the user is not told to the sentinels; write password or \
     password_file beside it";

const MEMBER: &str = "the URL of a cluster leads to one of its servers, as in redis://redis-0:6379";

const SERVICE: &str = "with sentinels the host of store.url is the name under which they watch the \
     server, as in redis://mymaster/0";
