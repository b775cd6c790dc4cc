//! The URL of a Redis, as the configuration gives it.

use std::{fmt, str::FromStr};

use super::topology::HostPort;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

/// `redis://user:password@host:6379/0`, `rediss://` for TLS, or `unix:/path`.
///
/// It may hold a password: its `Display` and `Debug` are the address alone.
#[derive(Clone)]
pub struct RedisUrl {
    info: ConnectionInfo,
    names_port: bool,
}

impl RedisUrl {
    /// Whether it asks for TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Whether it is the path of a socket.
    pub fn is_unix(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::Unix(_))
    }

    /// Whether a port is written in it.
    pub fn names_port(&self) -> bool {
        self.names_port
    }

    /// The number of the database; 0 where none is written.
    pub fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    /// Whether a user is written in it.
    pub fn names_user(&self) -> bool {
        self.info.redis_settings().username().is_some()
    }

    /// Whether a password is written in it.
    pub fn holds_password(&self) -> bool {
        self.info.redis_settings().password().is_some()
    }

    /// The host and the port; `None` for a socket.
    pub(super) fn host_port(&self) -> Option<HostPort> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                let (host, port) = (host.clone(), *port);
                Some(HostPort { host, port })
            }
            _ => None,
        }
    }

    /// What a client connects with.
    pub(super) fn connection_info(&self) -> &ConnectionInfo {
        &self.info
    }
}

impl FromStr for RedisUrl {
    type Err = ParseRedisUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Err(ParseRedisUrlError::Scheme);
        }
        let url = redis::parse_redis_url(text).ok_or(ParseRedisUrlError::Syntax)?;
        // The client would take `#insecure`, and then refuse to connect.
        if url.fragment().is_some() {
            return Err(ParseRedisUrlError::Fragment);
        }
        let names_port = url.port().is_some();
        let info = url.into_connection_info();
        let info = info.map_err(|_| ParseRedisUrlError::Syntax)?;
        Ok(Self { info, names_port })
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.addr().fmt(f)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

/// The text is not the URL of a Redis. The text itself is in no variant: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRedisUrlError {
    /// Another scheme, or none.
    #[error(
        "a Redis is redis://user:password@host:6379/0, rediss:// for TLS, or unix:/path/to/socket"
    )]
    Scheme,
    /// A `#`.
    #[error("nothing follows a # in the URL of a Redis: certificates are always verified")]
    Fragment,
    /// The scheme is right and something after it is not.
    #[error("after its scheme this is no Redis URL, as in redis://user:password@host:6379/0")]
    Syntax,
}

const SCHEMES: [&str; 3] = ["redis://", "rediss://", "unix:/"];
