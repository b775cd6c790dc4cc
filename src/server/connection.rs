//! A client's connection, as Pingora wants to see it.
//!
//! Pingora buffers connections only behind its own listeners; without a buffer each part of a response
//! would be a packet of its own.

use std::{
    io,
    net::SocketAddr,
    os::fd::AsRawFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType, raw_connect::ProxyDigest,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream, ReadBuf},
    net::TcpStream,
    time::timeout,
};

/// A buffered TCP connection that knows its peer.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufStream<TcpStream>,
    id: UniqueIDType,
    socket: Arc<SocketDigest>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        // Responses are written whole: waiting for more to send would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "A connection stays without TCP_NODELAY.");
        }
        let id = stream.as_raw_fd();
        let socket = SocketDigest::from_raw_fd(id);
        socket
            .peer_addr
            .set(Some(peer.into()))
            .expect("a new digest knows no peer");
        Self {
            stream: BufStream::with_capacity(READ_BUFFER, WRITE_BUFFER, stream),
            id,
            socket: Arc::new(socket),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Says that no more comes, then reads on for a while.
///
/// A socket closed with unread bytes is reset, and a reset makes a client that is still sending lose the
/// answer it was just sent: a 429 to an upload. A client with nothing left to send closes at once.
#[async_trait]
impl Shutdown for Connection {
    async fn shutdown(&mut self) {
        if let Err(error) = AsyncWriteExt::shutdown(&mut self.stream).await {
            tracing::debug!(%error, "A connection was gone before it was shut down.");
            return;
        }
        let linger = async {
            let mut dropped = [0; READ_BUFFER];
            while let Ok(Ok(1..)) = timeout(LINGER_IDLE, self.stream.read(&mut dropped)).await {}
        };
        // Its end is as good as any other.
        drop(timeout(LINGER, linger).await);
    }
}

impl UniqueID for Connection {
    fn id(&self) -> UniqueIDType {
        self.id
    }
}

impl GetSocketDigest for Connection {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(self.socket.clone())
    }
}

impl GetTimingDigest for Connection {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Connection {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl Peek for Connection {}
impl Ssl for Connection {}

/// Holds the head of almost every request; a body is read past the buffer.
const READ_BUFFER: usize = 8 * 1024;

/// Head and small body of a response leave in one packet: an Ethernet segment.
const WRITE_BUFFER: usize = 1460;

/// How long a client that is still sending is listened to after its answer, in all and between two reads.
const LINGER: Duration = Duration::from_secs(10);
const LINGER_IDLE: Duration = Duration::from_secs(1);
