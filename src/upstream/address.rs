//! Where an upstream is said to be, and where that leads.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use super::is_socket_path;

/// Where an upstream is said to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a port.
    Socket(SocketAddr),
    /// A name that may lead to several addresses, and to others tomorrow.
    Name {
        /// The name.
        host: Box<str>,
        /// The port.
        port: u16,
    },
    /// A unix socket, by its absolute path.
    Unix(PathBuf),
}

/// What can be connected to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Socket {
    /// By TCP.
    Tcp(SocketAddr),
    /// By a unix socket.
    Unix(PathBuf),
}

/// What an address leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// What is connected to.
    pub socket: Socket,
    /// The host that it was found by: the name that its certificate is for, unless another is configured. Empty
    /// for a unix socket.
    pub host: Box<str>,
}

impl Address {
    /// What it leads to, where no name server needs to be asked.
    pub fn target(&self) -> Option<Target> {
        match self {
            Self::Socket(socket) => Some(self.found(*socket)),
            Self::Unix(path) => Some(Target {
                socket: Socket::Unix(path.clone()),
                host: Box::default(),
            }),
            Self::Name { .. } => None,
        }
    }

    /// That it leads to `socket`.
    pub fn found(&self, socket: SocketAddr) -> Target {
        let host = match self {
            Self::Socket(socket) => socket.ip().to_string().into(),
            Self::Name { host, .. } => host.clone(),
            Self::Unix(_) => Box::default(),
        };
        Target {
            socket: Socket::Tcp(socket),
            host,
        }
    }

    /// The host that is in it; none in a unix socket's.
    pub fn host(&self) -> Option<String> {
        match self {
            Self::Socket(socket) => Some(socket.ip().to_string()),
            Self::Name { host, .. } => Some(host.to_string()),
            Self::Unix(_) => None,
        }
    }
}

/// The text is no address. What is accepted, and what was meant, the configuration tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no address")]
pub struct ParseAddressError;

/// `host:port`, `address:port` or `unix:/path`.
impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return match is_socket_path(&path) {
                true => Ok(Self::Unix(path)),
                false => Err(ParseAddressError),
            };
        }
        if let Ok(socket) = text.parse() {
            return Ok(Self::Socket(socket));
        }
        let (host, port) = text.rsplit_once(':').ok_or(ParseAddressError)?;
        let port = port.parse().map_err(|_| ParseAddressError)?;
        Ok(Self::Name {
            host: host.into(),
            port,
        })
    }
}

/// As it is written in YAML.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(socket) => socket.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(socket) => socket.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
