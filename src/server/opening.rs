//! What comes before HTTP on a new connection: who the client is by PROXY protocol, TLS, which HTTP it speaks.
//!
//! All of it together has one deadline, so that a client that says nothing, or little at a time, is soon gone.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use pingora::protocols::tls::SslDigest;
use ppp::{HeaderResult, PartialResult as _, v1, v2};
use tokio::time::timeout;
use tokio_util::either::Either;

use super::{
    listener::ListenAddress,
    tls::{H2, Tls, TlsSettings},
    transport::{Rewound, Socket, Transport},
};
use crate::{metrics::ConnectionEnd, policy::CidrSet};

/// A listener for clients, as it is configured.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    /// Where it is.
    pub address: ListenAddress,
    /// Whether it speaks TLS; HTTP/1.1 and HTTP/2 then, as the client likes. Default: not.
    pub tls: Option<TlsSettings>,
    /// Whether it speaks HTTP/2 to those who begin with that, in cleartext. Default: not.
    pub h2c: bool,
    /// Whether every connection begins with a header of the PROXY protocol, version 1 or 2. Default: none does.
    pub proxy_protocol: Option<ProxyProtocol>,
}

impl ListenerSettings {
    /// In cleartext, HTTP/1.
    pub fn plain(address: ListenAddress) -> Self {
        Self {
            address,
            tls: None,
            h2c: false,
            proxy_protocol: None,
        }
    }
}

/// Who says by PROXY protocol who its client is.
#[derive(Clone, Debug)]
pub enum ProxyProtocol {
    /// Peers with these addresses; others are turned away.
    From(CidrSet),
    /// Whoever may connect to the socket in the file system.
    FromAll,
}

/// What a listener does with a new connection.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// Its TLS.
    pub tls: Option<Arc<Tls>>,
    /// Whether it speaks HTTP/2 in cleartext.
    pub h2c: bool,
    /// Whether it wants the PROXY protocol.
    pub proxy_protocol: Option<ProxyProtocol>,
}

/// A connection on which HTTP is spoken from here on.
pub(super) struct Opened {
    pub(super) transport: Transport,
    /// Who connected, or for whom.
    pub(super) client: Option<SocketAddr>,
    pub(super) is_h2: bool,
    pub(super) tls: Option<Arc<SslDigest>>,
}

/// Why a connection ended before a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotOpened {
    #[error("it took too long")]
    TooLong,
    #[error("there are too many connections from its address")]
    TooManyOfAddress,
    #[error("the peer is none that may say who its client is")]
    UntrustedPeer,
    #[error("it does not begin with a header of the PROXY protocol")]
    NoProxyHeader,
    #[error(transparent)]
    Broken(#[from] io::Error),
}

impl NotOpened {
    /// The same as it is counted; `None` where it was.
    pub(super) fn counted_as(&self) -> Option<ConnectionEnd> {
        match self {
            Self::TooManyOfAddress => None,
            Self::TooLong => Some(ConnectionEnd::SlowStart),
            Self::UntrustedPeer | Self::NoProxyHeader | Self::Broken(_) => {
                Some(ConnectionEnd::BadStart)
            }
        }
    }
}

impl Opening {
    /// What these settings ask for.
    pub fn new(settings: &ListenerSettings) -> Self {
        let identity = settings.tls.as_ref().map(TlsSettings::identity);
        Self {
            tls: identity.map(|identity| Arc::new(Tls::new(identity.clone()))),
            h2c: settings.h2c,
            proxy_protocol: settings.proxy_protocol.clone(),
        }
    }

    /// Gets as far as HTTP; `admits` is asked once the client's address is known, and before TLS costs anything.
    pub(super) async fn open(
        &self,
        socket: Socket,
        peer: Option<SocketAddr>,
        admits: impl FnOnce(Option<IpAddr>) -> bool,
    ) -> Result<Opened, NotOpened> {
        let stream = Rewound::new(socket);
        // Responses are written whole: waiting for more to send would only delay them.
        if let Err(error) = stream.set_nodelay() {
            tracing::debug!(%error, "A connection stays without TCP_NODELAY.");
        }
        if self.is_plain() {
            if !admits(peer.map(|peer| peer.ip())) {
                return Err(NotOpened::TooManyOfAddress);
            }
            return Ok(Opened::plain(stream, peer, false));
        }
        timeout(LONGEST, self.prepare(stream, peer, admits))
            .await
            .unwrap_or(Err(NotOpened::TooLong))
    }

    fn is_plain(&self) -> bool {
        self.tls.is_none() && !self.h2c && self.proxy_protocol.is_none()
    }

    async fn prepare(
        &self,
        mut stream: Rewound,
        peer: Option<SocketAddr>,
        admits: impl FnOnce(Option<IpAddr>) -> bool,
    ) -> Result<Opened, NotOpened> {
        let client = match &self.proxy_protocol {
            None => peer,
            Some(from) if !from.trusts(peer) => return Err(NotOpened::UntrustedPeer),
            Some(_) => proxied(&mut stream).await?.or(peer),
        };
        if !admits(client.map(|client| client.ip())) {
            return Err(NotOpened::TooManyOfAddress);
        }
        let Some(tls) = &self.tls else {
            let is_h2 = self.h2c && begins_like_h2(&mut stream).await?;
            return Ok(Opened::plain(stream, client, is_h2));
        };
        let stream = tls.acceptor().accept(stream).await?;
        let (_, session) = stream.get_ref();
        let version = session
            .protocol_version()
            .and_then(|version| version.as_str());
        let suite = session.negotiated_cipher_suite();
        let suite = suite.and_then(|suite| suite.suite().as_str());
        let digest = SslDigest::new(
            suite.unwrap_or_default(),
            version.unwrap_or_default(),
            None,
            None,
            Vec::new(),
        );
        Ok(Opened {
            client,
            is_h2: session.alpn_protocol() == Some(H2),
            tls: Some(Arc::new(digest)),
            transport: Either::Right(Box::new(stream)),
        })
    }
}

impl Opened {
    fn plain(stream: Rewound, client: Option<SocketAddr>, is_h2: bool) -> Self {
        Self {
            transport: Either::Left(stream),
            client,
            is_h2,
            tls: None,
        }
    }
}

impl ProxyProtocol {
    fn trusts(&self, peer: Option<SocketAddr>) -> bool {
        match (self, peer) {
            (Self::FromAll, _) => true,
            (Self::From(peers), Some(peer)) => peers.contains(peer.ip().to_canonical()),
            (Self::From(_), None) => false,
        }
    }
}

/// Reads the header of the PROXY protocol and tells the client that it names; `None` if it names none, as where a
/// load balancer speaks for itself.
async fn proxied(stream: &mut Rewound) -> Result<Option<SocketAddr>, NotOpened> {
    loop {
        let parsed = HeaderResult::parse(stream.ahead());
        if !is_half_a_line(stream.ahead()) && !parsed.is_incomplete() {
            let (length, client) = match &parsed {
                HeaderResult::V1(Ok(header)) => (header.header.len(), of_v1(header)),
                HeaderResult::V2(Ok(header)) => (header.len(), of_v2(header)),
                _ => return Err(NotOpened::NoProxyHeader),
            };
            stream.consume(length);
            return Ok(client);
        }
        if !stream.read_ahead(LONGEST_HEADER).await? {
            return Err(NotOpened::NoProxyHeader);
        }
    }
}

/// Whether a header of version 1 is still to end: ppp takes one that is cut behind a blank for a faulty one.
fn is_half_a_line(ahead: &[u8]) -> bool {
    ahead.starts_with(b"PROXY ")
        && ahead.len() < LONGEST_LINE
        && !ahead.windows(2).any(|pair| pair == b"\r\n")
}

fn of_v1(header: &v1::Header<'_>) -> Option<SocketAddr> {
    match header.addresses {
        v1::Addresses::Tcp4(four) => Some((four.source_address, four.source_port).into()),
        v1::Addresses::Tcp6(six) => Some((six.source_address, six.source_port).into()),
        v1::Addresses::Unknown => None,
    }
}

fn of_v2(header: &v2::Header<'_>) -> Option<SocketAddr> {
    if header.command == v2::Command::Local {
        return None;
    }
    match header.addresses {
        v2::Addresses::IPv4(four) => Some((four.source_address, four.source_port).into()),
        v2::Addresses::IPv6(six) => Some((six.source_address, six.source_port).into()),
        v2::Addresses::Unix(_) | v2::Addresses::Unspecified => None,
    }
}

/// Whether the client begins as HTTP/2 does (RFC 9113, 3.4). No method of HTTP/1 is `PRI`.
async fn begins_like_h2(stream: &mut Rewound) -> io::Result<bool> {
    while PREFACE.starts_with(stream.ahead()) && stream.ahead().len() < PREFACE.len() {
        if !stream.read_ahead(READ_AHEAD).await? {
            return Ok(false);
        }
    }
    Ok(stream.ahead().starts_with(PREFACE))
}

/// How HTTP/2 begins, as much of it as no HTTP/1 does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// A first read takes as much of a request as there is.
const READ_AHEAD: usize = 4096;

/// Of a PROXY header of version 1, in bytes, with its end.
const LONGEST_LINE: usize = 107;

/// Of any PROXY header, in bytes: version 2 has what load balancers add to 232.
const LONGEST_HEADER: usize = 4096;

/// From a connection to its first byte of HTTP.
const LONGEST: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::future::Future;

    use futures_util::FutureExt as _;
    use tokio::{io::AsyncWriteExt as _, net::UnixStream};

    use super::*;

    /// What becomes of bytes that come in two pieces: the first is read and looked at before the second is sent.
    async fn cut<T>(bytes: &[u8], at: usize, read: impl AsyncFnOnce(&mut Rewound) -> T) -> T {
        let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
        let mut stream = Rewound::new(Either::Right(server));
        let mut reading = std::pin::pin!(read(&mut stream));
        client.write_all(&bytes[..at]).await.expect("sent");
        // The runtime has to see that there is something to read.
        for _ in 0..3 {
            assert!(still_waits(reading.as_mut()).await, "decided by {at} bytes");
        }
        client.write_all(&bytes[at..]).await.expect("sent");
        reading.await
    }

    async fn still_waits<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
        tokio::task::yield_now().await;
        future.as_mut().now_or_never().is_none()
    }

    #[tokio::test]
    async fn http_2_is_recognised_however_its_first_bytes_are_cut() {
        for at in 0..PREFACE.len() {
            let is_h2 = cut(PREFACE, at, async |stream| begins_like_h2(stream).await).await;
            assert!(is_h2.expect("read"), "cut at {at}");
        }
    }

    #[tokio::test]
    async fn nothing_is_waited_for_once_it_is_no_http_2() {
        for start in ["G", "PU", "PROPFIND", "PRI * HTTP/2.1"] {
            let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
            let mut stream = Rewound::new(Either::Right(server));
            client.write_all(start.as_bytes()).await.expect("sent");
            assert!(!begins_like_h2(&mut stream).await.expect("read"), "{start}");
            assert_eq!(stream.ahead(), start.as_bytes(), "nothing is lost");
        }
    }

    #[tokio::test]
    async fn a_header_of_the_proxy_protocol_is_read_however_it_is_cut() {
        let header = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n";
        for at in 0..header.len() {
            let client = cut(header, at, async |stream| proxied(stream).await).await;
            let client = client.expect("a header").expect("a client");
            assert_eq!(client.to_string(), "203.0.113.7:4711", "cut at {at}");
        }
    }
}
