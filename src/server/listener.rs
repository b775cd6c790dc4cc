//! Where clients connect: an address or a socket in the file system, bound before anything runs.

use std::{
    fmt, fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use socket2::{Domain, Socket, TcpKeepalive, Type};

use super::transport;

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address and a port; `[::]` is every address, of IPv4 too.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix {
        /// Where it is made. A socket that nobody listens at any more is replaced.
        path: PathBuf,
        /// Who may connect: permissions as of `chmod`. Default 0660, the process's user and group.
        mode: u32,
    },
}

impl ListenAddress {
    /// The address and port, unless it is a socket in the file system.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix { .. } => None,
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listener that was bound.
#[derive(Debug)]
pub enum Bound {
    /// At an address.
    Tcp(TcpListener),
    /// At a path.
    Unix(UnixListener),
}

impl From<TcpListener> for Bound {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Bound {
    /// The same listener once more, for another accept loop.
    ///
    /// # Errors
    /// If the process has no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(listener.try_clone()?),
            Self::Unix(listener) => Self::Unix(listener.try_clone()?),
        })
    }

    /// Where it is, with the port that it was given.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn address(&self) -> io::Result<String> {
        Ok(match self {
            Self::Tcp(listener) => listener.local_addr()?.to_string(),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().unwrap_or(Path::new(""));
                format!("unix:{}", path.display())
            }
        })
    }

    /// Has the runtime watch it.
    pub(super) fn watched(self) -> io::Result<Accepting> {
        Ok(match self {
            Self::Tcp(listener) => Accepting::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Self::Unix(listener) => Accepting::Unix(tokio::net::UnixListener::from_std(listener)?),
        })
    }
}

/// A listener that the runtime watches.
pub(super) enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Accepting {
    /// The next connection, and its peer's address where that has one.
    pub(super) async fn accept(&self) -> io::Result<(transport::Socket, Option<SocketAddr>)> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                (transport::Socket::Left(stream), Some(peer))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                (transport::Socket::Right(stream), None)
            }
        })
    }
}

/// An address that could not be bound.
#[derive(Debug, thiserror::Error)]
#[error(
    "{setting}: cannot listen on {address}: {source}\n    hint: {}",
    hint(source, address)
)]
pub struct BindError {
    setting: &'static str,
    address: ListenAddress,
    source: io::Error,
}

/// Binds `address`, named by the setting it came from, so that a port in use is told before anything runs.
///
/// # Errors
/// If the address is taken, foreign or not permitted.
pub fn bind(setting: &'static str, address: &ListenAddress) -> Result<Bound, BindError> {
    let bound = match address {
        ListenAddress::Tcp(address) => tcp(*address).map(Bound::Tcp),
        ListenAddress::Unix { path, mode } => unix(path, *mode).map(Bound::Unix),
    };
    bound.map_err(|source| BindError {
        setting,
        address: address.clone(),
        source,
    })
}

/// The same for an address, of which there is a listener of the standard library then.
///
/// # Errors
/// If the address is taken, foreign or not permitted.
pub fn bind_tcp(setting: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    tcp(address).map_err(|source| BindError {
        setting,
        address: ListenAddress::Tcp(address),
        source,
    })
}

/// As std would, but with a backlog that a burst of new connections fits in: std's holds 128.
fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // A restart may bind while connections of the process before are still closing.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // Those who connect inherit it. A WebSocket may be silent for ever: one whose client is gone without a word would stay.
    let keepalive = TcpKeepalive::new();
    let keepalive = keepalive.with_time(KEEPALIVE).with_interval(BETWEEN_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    // And this. Where megabytes wait in the kernel, it tells of room only once a third of them is sent: a slow reader
    // would look like one that takes nothing.
    socket.set_tcp_notsent_lowat(MOST_UNSENT)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    remove_if_left_over(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    // Before it listens nobody can connect, whatever the umask left.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Removes a socket that a process left which has ended; never a file, nor a socket that is listened at.
fn remove_if_left_over(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(refused) {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn hint(error: &io::Error, address: &ListenAddress) -> &'static str {
    match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, ListenAddress::Tcp(_)) => {
            "another process listens there: stop it (`ss -ltnp` names it), or choose another port"
        }
        (io::ErrorKind::AddrInUse, ListenAddress::Unix { .. }) => {
            "another process listens there (`ss -lxp` names it), or it is a file and no socket: choose another path"
        }
        (io::ErrorKind::PermissionDenied, ListenAddress::Tcp(_)) => {
            "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one"
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            "this machine has no such address: 0.0.0.0 means all"
        }
        (_, ListenAddress::Tcp(_)) => "choose another address",
        (_, ListenAddress::Unix { .. }) => {
            "its directory has to exist, and this process to be allowed to write there"
        }
    }
}

/// The most connections that wait to be accepted; the kernel's own bound (`somaxconn`) is the same.
pub(super) const BACKLOG: i32 = 4096;

/// What the kernel takes of an answer before it can send it, in bytes.
const MOST_UNSENT: u32 = 128 * 1024;

/// How long a connection is silent until the kernel asks whether anybody is there, and from one question to the next;
/// after nine without an answer it is closed, by Linux's default.
const KEEPALIVE: Duration = Duration::from_secs(60);
const BETWEEN_PROBES: Duration = Duration::from_secs(10);
