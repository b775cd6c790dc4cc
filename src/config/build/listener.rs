//! One entry of `listen`: where clients connect, and what comes before HTTP there.

use std::path::{Path, PathBuf};

use super::{identity::ranges, listeners};
use crate::{
    config::{
        field::Field,
        leaf::{self, Rejected},
        section::Section,
    },
    pem,
    server::{
        IdentityFiles, KeyPair, ListenAddress, ListenerSettings, ProxyProtocol, ServerIdentity,
        TlsSettings,
    },
    upstream::{MOST_SOCKET_PATH, is_socket_path},
};

/// An address, or a mapping that has one.
pub fn read(field: Field<'_>) -> Option<ListenerSettings> {
    if field.is_word() {
        return field.word(address).map(ListenerSettings::plain);
    }
    field.section(settings)?
}

fn settings(section: &mut Section<'_>) -> Option<ListenerSettings> {
    section.require("address", "address: 0.0.0.0:8000");
    let address = section.optional("address", address);
    let mode = section.optional("mode", mode);
    let h2c = section.word("h2c", false, leaf::boolean);
    let tls = section
        .field("tls")
        .map(|field| field.section(tls).flatten());
    let proxy_protocol = section.field("proxy_protocol").and_then(|field| {
        field
            .section(|section| proxy_protocol(section, address.as_ref()))
            .flatten()
    });
    if h2c && tls.is_some() {
        let problem = "is about cleartext, and this listener speaks TLS";
        section.conflict(
            "h2c",
            problem,
            Some("leave it out: TLS clients choose HTTP/2 by themselves"),
        );
    }
    let address = match (address?, mode) {
        (ListenAddress::Unix { path, .. }, Some(mode)) => ListenAddress::Unix { path, mode },
        (address @ ListenAddress::Tcp(_), Some(_)) => {
            let problem = "has no effect: only a unix: socket has permissions";
            section.conflict("mode", problem, None);
            address
        }
        (address, None) => address,
    };
    Some(ListenerSettings {
        address,
        // A fault in it must not make a cleartext listener.
        tls: match tls {
            Some(tls) => Some(tls?),
            None => None,
        },
        h2c,
        proxy_protocol,
    })
}

/// `address:port`, or `unix:/path`.
pub fn address(text: &str) -> Result<ListenAddress, Rejected> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = PathBuf::from(path);
        return match is_socket_path(&path) {
            true => Ok(ListenAddress::Unix {
                path,
                mode: DEFAULT_MODE,
            }),
            false => Err(Rejected::new(format!(
                "a whole path of at most {MOST_SOCKET_PATH} bytes, as in unix:/run/slidegate.sock"
            ))),
        };
    }
    listeners::address(text)
        .map(ListenAddress::Tcp)
        .map_err(|rejected| {
            let hint = text.starts_with('/').then(|| format!("write unix:{text}"));
            Rejected {
                accepted: format!("{}, or unix:/run/slidegate.sock", rejected.accepted),
                hint: rejected.hint.or(hint),
            }
        })
}

/// Permissions as of `chmod`, in octal.
fn mode(text: &str) -> Result<u32, Rejected> {
    let octal = text.len() == 4 && text.starts_with('0');
    let mode = octal.then(|| u32::from_str_radix(text, 8).ok()).flatten();
    mode.ok_or_else(|| Rejected::new("permissions in four octal digits, as in \"0660\""))
}

fn tls(section: &mut Section<'_>) -> Option<TlsSettings> {
    section.require(
        "certificates",
        "certificates: [{certificate: tls.crt, key: tls.key}]",
    );
    let certificates = section.list(
        "certificates",
        "[{certificate: tls.crt, key: tls.key}]",
        |field| field.section(key_pair).flatten(),
    );
    let client_ca = section.watched_file("client_ca", |path| pem::certificates(path).map(drop));
    let files = IdentityFiles {
        certificates: certificates?,
        client_ca,
    };
    section.note();
    if !section.looks_into_files() {
        return Some(TlsSettings { identity: None });
    }
    match ServerIdentity::read(&files) {
        Ok(identity) => {
            section.note_content(&identity.fingerprint());
            Some(TlsSettings {
                identity: Some(identity),
            })
        }
        Err(error) => {
            section.conflict_here(error.to_string(), None);
            None
        }
    }
}

fn key_pair(section: &mut Section<'_>) -> Option<KeyPair> {
    section.require("certificate", "certificate: /etc/slidegate/tls.crt");
    section.require("key", "key: /etc/slidegate/tls.key");
    let look = |path: &Path| pem::certificates(path).map(drop);
    let certificate = section.watched_file("certificate", look);
    let key = section.watched_file("key", |path| pem::key(path).map(drop));
    Some(KeyPair {
        certificate: certificate?,
        key: key?,
    })
}

fn proxy_protocol(
    section: &mut Section<'_>,
    address: Option<&ListenAddress>,
) -> Option<ProxyProtocol> {
    if let Some(ListenAddress::Unix { .. }) = address {
        if section.field("from").is_some() {
            let problem = "has no effect: who connects to a unix: socket has no address";
            section.conflict("from", problem, Some("mode says who may connect"));
        }
        return Some(ProxyProtocol::FromAll);
    }
    // Of a listener without an address nothing more can be said.
    if address.is_some() {
        section.require("from", "from: [10.0.0.0/8]");
    }
    let from = section.field("from")?;
    let from = ranges(from, "[10.0.0.0/8, \"fd00::/8\"]")?;
    Some(ProxyProtocol::From(from.into_iter().collect()))
}

/// For the process's user and group.
const DEFAULT_MODE: u32 = 0o660;
