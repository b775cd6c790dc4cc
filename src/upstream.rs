//! Which of an upstream's addresses a request goes to, and which of them are out of turn: arithmetic on what was
//! seen, with the time as an argument.
//!
//! An *upstream* is a service under one name. Its *addresses* are as configured: sockets, names, unix sockets. A
//! *target* is what one of them leads to by now, and a [`Member`] is a target with its [`Standing`]. The members of
//! an upstream are its [`Rotation`]. Connections, names and checks are `proxy::upstream`'s.

mod address;
pub mod certificates;
mod rotation;
mod standing;

use std::{path::Path, time::Duration};

pub use address::{Address, Socket, Target};
pub use rotation::{Member, Rotation};
pub use standing::{Standing, State};

/// A service to which requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// Its name, in logs and labels. `default` where there is one without a name.
    pub name: Box<str>,
    /// Where it is; at least one. A host name is resolved in the background, never for a request.
    pub addresses: Vec<Address>,
    /// What is spoken to it. Default HTTP/1.1.
    pub http: Http,
    /// How its certificate is verified; `None` speaks in cleartext, the default.
    pub tls: Option<TlsSettings>,
    /// For a connection to be established, TLS included. Default 1 s.
    pub connect_timeout: Duration,
    /// Between two reads of a response. Default 60 s.
    pub read_timeout: Duration,
    /// For one write of a request. Default 60 s.
    pub write_timeout: Duration,
    /// How long an idle connection is kept for reuse; shorter than the upstream's own. Default 50 s.
    pub idle_timeout: Duration,
    /// How often a host name is resolved again. Default 5 s.
    pub resolve_interval: Duration,
    /// When an address is left out for what requests saw of it; `None` never does.
    pub eject: Option<EjectSettings>,
    /// How addresses are asked whether they are well; `None`, the default, asks none.
    pub health_check: Option<HealthCheckSettings>,
}

/// Which HTTP is spoken to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1.
    #[default]
    One,
    /// HTTP/2: by ALPN where there is TLS, else from the first byte on. Nothing else is fallen back to.
    Two,
}

/// How an upstream's certificate is verified, and who we are to it. What the files held when they were read is in
/// here, so that two settings with other contents differ.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The name that its certificate is for. Default: the host of the address.
    pub server_name: Option<Box<str>>,
    /// Whose certificates are trusted, in DER. Default: those whom Mozilla trusts, as of the build.
    pub ca: Option<Vec<Vec<u8>>>,
    /// Who we are to an upstream that asks. Default: nobody.
    pub client: Option<ClientCertificate>,
}

/// A client's certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, then those between it and the CA, in DER.
    pub chain: Vec<Vec<u8>>,
    /// Its key, in DER.
    pub key: Vec<u8>,
}

/// When an address is left out for what requests saw of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectSettings {
    /// So many requests in a row that it took no connection for, or did not answer. Default 3.
    pub after: u32,
    /// How long it is left out before one request tries it again. Default 2 s.
    pub lasts: Duration,
}

/// How addresses are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckSettings {
    /// The target of a GET that is answered with a status from 200 to 399; `None` only connects.
    pub path: Option<Box<str>>,
    /// Between two checks of an address. Default 2 s.
    pub interval: Duration,
    /// For all of a check. Default 1 s.
    pub timeout: Duration,
    /// So many checks in a row that fail take an address out. Default 2.
    pub unhealthy_after: u32,
    /// So many in a row that pass bring it back. Default 1.
    pub healthy_after: u32,
}

/// Nothing of what files held is shown.
impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSettings")
            .field("server_name", &self.server_name)
            .field("ca", &self.ca.as_ref().map(Vec::len))
            .field("client", &self.client.is_some())
            .finish()
    }
}

impl UpstreamSettings {
    /// The name of the one that is configured without.
    pub const DEFAULT_NAME: &str = "default";

    /// One at `addresses` with defaults for everything else.
    pub fn at(name: &str, addresses: Vec<Address>) -> Self {
        Self {
            name: name.into(),
            addresses,
            http: Http::default(),
            tls: None,
            connect_timeout: Duration::from_secs(1),
            read_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(50),
            resolve_interval: Duration::from_secs(5),
            eject: Some(EjectSettings::default()),
            health_check: None,
        }
    }

    /// Its addresses in words.
    pub fn told(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        addresses.join(", ")
    }
}

impl Default for EjectSettings {
    fn default() -> Self {
        Self {
            after: 3,
            lasts: Duration::from_secs(2),
        }
    }
}

impl Default for HealthCheckSettings {
    fn default() -> Self {
        Self {
            path: None,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            unhealthy_after: 2,
            healthy_after: 1,
        }
    }
}

/// Whether a path can be that of a unix socket: absolute, and short enough for the system.
pub fn is_socket_path(path: &Path) -> bool {
    path.is_absolute() && path.as_os_str().len() <= MOST_SOCKET_PATH
}

/// Bytes of the path of a unix socket: what `sun_path` holds before its last zero.
pub const MOST_SOCKET_PATH: usize = 107;
