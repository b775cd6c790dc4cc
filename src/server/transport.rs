//! What a client's bytes come through: a socket, what was read of it ahead, TLS.

use std::{
    io,
    os::fd::{AsRawFd as _, RawFd},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// A client's socket.
pub(super) type Socket = Either<TcpStream, UnixStream>;

/// What HTTP is spoken through.
pub(super) type Transport = Either<Rewound, Box<TlsStream<Rewound>>>;

/// A client's socket, of which a beginning may have been read to see what it is.
#[derive(Debug)]
pub(super) struct Rewound {
    ahead: BytesMut,
    socket: Socket,
}

impl Rewound {
    /// Of which nothing was read yet.
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            ahead: BytesMut::new(),
            socket,
        }
    }

    /// The socket, without what was read ahead.
    pub(super) fn into_socket(self) -> Socket {
        self.socket
    }

    /// What was read and not consumed.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Reads more ahead, up to `most` bytes in all; `false` if the client ended, or that many are there.
    pub(super) async fn read_ahead(&mut self, most: usize) -> io::Result<bool> {
        let room = most.saturating_sub(self.ahead.len());
        if room == 0 {
            return Ok(false);
        }
        let mut ahead = (&mut self.ahead).limit(room);
        Ok(self.socket.read_buf(&mut ahead).await? > 0)
    }

    /// Takes out what was read: it is no part of what the client says.
    pub(super) fn consume(&mut self, length: usize) {
        self.ahead.advance(length);
    }

    /// Sends what is written at once.
    pub(super) fn set_nodelay(&self) -> io::Result<()> {
        match &self.socket {
            Either::Left(tcp) => tcp.set_nodelay(true),
            Either::Right(_) => Ok(()),
        }
    }

    /// Its descriptor.
    pub(super) fn descriptor(&self) -> RawFd {
        match &self.socket {
            Either::Left(tcp) => tcp.as_raw_fd(),
            Either::Right(unix) => unix.as_raw_fd(),
        }
    }
}

impl AsyncRead for Rewound {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, buffer);
        }
        let length = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead[..length]);
        self.ahead.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
