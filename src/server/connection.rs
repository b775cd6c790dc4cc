//! A client's connection, as Pingora wants to see it.
//!
//! Pingora buffers connections only behind its own listeners; without a buffer each part of a response
//! would be a packet of its own.

use std::{
    any::Any,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use http::StatusCode;
use pingora::{
    http::ResponseHeader,
    protocols::{
        ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
        TimingDigest, UniqueID, UniqueIDType, raw_connect::ProxyDigest, tls::SslDigest,
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream, ReadBuf},
    time::{Sleep, sleep, timeout, timeout_at},
};
use tokio_util::{either::Either, task::TaskTracker};

use super::{
    census::Counted,
    opening::Opened,
    pace::{Pace, Phase},
    transport::{Socket, Transport},
};
use crate::{clock, metrics::ConnectionEnd};

/// What a client may take on a connection.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// From the first byte of a request to the end of its head. Default 15 s.
    pub header_timeout: Duration,
    /// The most of a head that is read, in bytes. Default 64 KiB.
    pub max_header_size: usize,
    /// How long a connection without a request is kept. Default 75 s, longer than most clients and load balancers keep
    /// theirs, so that it is they who close.
    pub idle_timeout: Duration,
    /// How long a client may take nothing of what it is sent. Default 60 s.
    pub body_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(15),
            max_header_size: 64 * 1024,
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(60),
        }
    }
}

/// A buffered connection that knows its client.
#[derive(Debug)]
pub(super) struct Connection {
    /// There until it is dropped.
    stream: Option<BufStream<Transport>>,
    /// Whether we said that no more comes while the client still may send.
    ours: Half,
    /// Whether bytes may lie in the write buffer.
    unflushed: bool,
    id: UniqueIDType,
    socket: Arc<SocketDigest>,
    is_h2: bool,
    /// How it is encrypted, if it is.
    tls: Option<Arc<SslDigest>>,
    bounds: Bounds,
    pace: Arc<Pace>,
    /// What brings the pace to whoever knows where a request begins and ends.
    digest: Arc<ProxyDigest>,
    /// How much has come of a head that is awaited.
    head: usize,
    /// Until when it is, where it did not come at once.
    late: Option<Pin<Box<Sleep>>>,
    /// Since when nothing has come of the next request; of HTTP/2, when it began.
    idle: Option<Instant>,
    /// When to look at that.
    look: Option<Pin<Box<Sleep>>>,
    /// Until when the client has to take something.
    stalled: Option<Pin<Box<Sleep>>>,
    counted: Counted,
    /// Where a connection goes that is closed while its client still sends.
    lingering: TaskTracker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Open,
    Shut,
    /// The client closed its own half: there is nothing to wait for.
    Done,
}

impl Connection {
    pub(super) fn new(
        opened: Opened,
        bounds: Bounds,
        counted: Counted,
        lingering: TaskTracker,
    ) -> Self {
        let id = match &opened.transport {
            Either::Left(plain) => plain.descriptor(),
            Either::Right(tls) => tls.get_ref().0.descriptor(),
        };
        let socket = SocketDigest::from_raw_fd(id);
        socket
            .peer_addr
            .set(opened.client.map(Into::into))
            .expect("a new digest knows no peer");
        let stream = BufStream::with_capacity(READ_BUFFER, WRITE_BUFFER, opened.transport);
        let pace = Arc::new(Pace::new(match opened.is_h2 {
            true => Phase::Head,
            false => Phase::Idle,
        }));
        let nothing = ResponseHeader::build(StatusCode::OK, Some(0)).expect("a head of a status");
        let ours: Box<dyn Any + Send + Sync> = Box::new(pace.clone());
        Self {
            stream: Some(stream),
            ours: Half::Open,
            unflushed: false,
            id,
            socket: Arc::new(socket),
            is_h2: opened.is_h2,
            tls: opened.tls,
            bounds,
            pace,
            digest: Arc::new(ProxyDigest::new(Box::new(nothing), Some(ours))),
            head: 0,
            late: None,
            idle: None,
            look: None,
            stalled: None,
            counted,
            lingering,
        }
    }

    /// Notes that something was written, or that nothing could be.
    fn has_written(&mut self, written: &Poll<io::Result<usize>>) {
        // Who is answered has sent a head, whether or not the proxy has said so: it does not see operators' requests.
        if written.is_ready() && !self.is_h2 && self.pace.phase() == Phase::Head {
            self.pace.set(Phase::Idle);
        }
        self.unflushed |= written.is_ready();
    }

    /// Sends what was written. Pingora itself would keep a body back until the buffer is full.
    fn send_written(&mut self, context: &mut Context<'_>) {
        if self.unflushed {
            self.unflushed = self.stream().poll_flush(context).is_pending();
        }
    }

    /// Follows the head of a request: `length` bytes came of whatever is read.
    fn head_advances(&mut self, context: &mut Context<'_>, length: usize) -> io::Result<()> {
        match (self.pace.phase(), length) {
            (Phase::Busy, 0) if self.is_h2 => return self.is_not_idle_for_long(context),
            (Phase::Busy, _) => {}
            (Phase::Idle, 0) => return self.is_not_idle_for_long(context),
            (Phase::Idle, _) => {
                self.pace.set(Phase::Head);
                self.idle = None;
                self.head = length;
                self.late = None;
            }
            (Phase::Head, 0) => return self.head_is_not_late(context),
            (Phase::Head, _) => self.head += length,
        }
        if self.pace.phase() != Phase::Head {
            return Ok(());
        }
        if self.is_h2 && self.head >= PREFACE {
            // From here on its frames have bounds of their own.
            self.pace.set(Phase::Busy);
        } else if self.head > self.bounds.max_header_size + BODY_READ_AHEAD {
            self.counted.ended(ConnectionEnd::LargeHead);
            return Err(io::Error::other("the head of the request does not end"));
        }
        Ok(())
    }

    fn head_is_not_late(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        // Its beginning was read a moment ago: whoever reads asks on until there is nothing more.
        let patience = self.bounds.header_timeout;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(patience)));
        match late.as_mut().poll(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                self.counted.ended(ConnectionEnd::SlowHead);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// Pingora would set a timer before each request, and drop it when that comes; of HTTP/2 it would cut the end of an answer
    /// that it has written and the client has not read. This one stays, however many requests do, and looks at the
    /// time when it goes off.
    fn is_not_idle_for_long(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let patience = self.bounds.idle_timeout;
        let since = *self.idle.get_or_insert_with(clock::instant);
        let look = self.look.take();
        let mut look = look.unwrap_or_else(|| Box::pin(sleep(patience)));
        while look.as_mut().poll(context).is_ready() {
            let since = match self.is_h2 {
                true => self.no_request_since().max(since),
                false => since,
            };
            if clock::elapsed(since) >= patience {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let until = tokio::time::Instant::from_std(since) + patience;
            look.as_mut().reset(until);
        }
        self.look = Some(look);
        Ok(())
    }

    /// Of HTTP/2: since when nothing is asked for, and all that was is sent.
    fn no_request_since(&self) -> Instant {
        match self.stalled {
            Some(_) => clock::instant(),
            None => self.pace.idle_since(),
        }
    }

    /// Bounds how long the client of HTTP/2 takes nothing; in HTTP/1 Pingora does.
    fn bound_stall<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() || !self.is_h2 {
            self.stalled = None;
            return written;
        }
        let patience = self.bounds.body_timeout;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        match stalled.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                self.counted.ended(ConnectionEnd::SlowRead);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    fn stream(&mut self) -> Pin<&mut BufStream<Transport>> {
        Pin::new(self.stream.as_mut().expect("there until it is dropped"))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.stream().poll_read(context, buffer);
        // Whoever waits for the client has written all there is for now: a head whose body is late is sent.
        if read.is_pending() {
            self.send_written(context);
        }
        let ended = matches!(&read, Poll::Ready(Ok(()))) && buffer.filled().len() == before;
        if ended && buffer.remaining() > 0 {
            self.ours = Half::Done;
        }
        match self.head_advances(context, buffer.filled().len() - before) {
            Ok(()) => read,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write(context, buffer);
        self.has_written(&written);
        // The head of a response waits for the beginning of its body, so that both leave in one packet.
        if !buffer.starts_with(HEAD) {
            self.send_written(context);
        }
        self.bound_stall(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write_vectored(context, buffers);
        self.has_written(&written);
        self.send_written(context);
        self.bound_stall(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        // Of the stream within: the same for every one of them.
        self.stream
            .as_ref()
            .is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.stream().poll_flush(context);
        self.unflushed &= flushed.is_pending();
        self.bound_stall(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ours == Half::Open {
            self.ours = Half::Shut;
        }
        self.stream().poll_shutdown(context)
    }
}

/// Pingora shuts a connection down by [`AsyncWrite`]; what this trait adds is for its own streams.
#[async_trait]
impl Shutdown for Connection {
    async fn shutdown(&mut self) {
        if let Err(error) = AsyncWriteExt::shutdown(self).await {
            tracing::debug!(%error, "A connection was gone before it was shut down.");
        }
    }
}

/// Reads on for a while where we said that no more comes and the client has not.
///
/// A socket closed with unread bytes is reset, and a reset makes a client that is still sending lose the
/// answer it was just sent: a 429 to an upload.
impl Drop for Connection {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Handle::try_current();
        if let (Half::Shut, Some(stream), Ok(_)) = (self.ours, self.stream.take(), runtime)
            && self.lingering.len() < MOST_LINGERING
        {
            // What is still encrypted is of no interest.
            let socket = match stream.into_inner() {
                Either::Left(plain) => plain.into_socket(),
                Either::Right(tls) => tls.into_inner().0.into_socket(),
            };
            self.lingering.spawn(linger(socket));
        }
    }
}

async fn linger(mut stream: Socket) {
    let mut dropped = [0; READ_BUFFER];
    let mut lingering = Lingering::begin();
    // Whether the client ended or the time did, the socket is closed then.
    while lingering
        .hears(async {
            let read = stream.read(&mut dropped).await;
            read.ok().filter(|length| *length > 0)
        })
        .await
    {}
}

/// How a client is listened to that still sends after its answer: for a while, and so much.
pub(crate) struct Lingering {
    until: tokio::time::Instant,
    left: usize,
}

impl Lingering {
    pub(crate) fn begin() -> Self {
        Self {
            until: tokio::time::Instant::from_std(clock::instant()) + LINGER,
            left: LINGER_BYTES,
        }
    }

    /// Waits for the next part, which tells how many bytes came, or that no more do; whether there may be another.
    pub(crate) async fn hears(&mut self, part: impl Future<Output = Option<usize>>) -> bool {
        let Ok(Ok(Some(length))) = timeout_at(self.until, timeout(LINGER_IDLE, part)).await else {
            return false;
        };
        let rest = self.left.checked_sub(length);
        self.left = rest.unwrap_or_default();
        rest.is_some()
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
    /// There is no proxy before us that would speak CONNECT: this is how what is ours gets to Pingora's callbacks.
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        Some(self.digest.clone())
    }
}

impl Ssl for Connection {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.tls.clone()
    }

    /// By what the client chose, in TLS or by how it began.
    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.is_h2.then_some(ALPN::H2)
    }
}

impl Peek for Connection {}

/// Holds the head of almost every request; a body is read past the buffer.
const READ_BUFFER: usize = 8 * 1024;

/// Head and small body of a response leave in one packet: an Ethernet segment.
const WRITE_BUFFER: usize = 1460;

/// How long a client that is still sending is listened to after its answer, in all and between two reads.
const LINGER: Duration = Duration::from_secs(10);
const LINGER_IDLE: Duration = Duration::from_secs(1);

/// As much of an upload as is read for the sake of its answer, in bytes: 64 MiB.
const LINGER_BYTES: usize = 64 << 20;

/// How many connections of a worker may linger; one more is closed at once.
const MOST_LINGERING: usize = 256;

/// How HTTP/2 begins, in bytes.
const PREFACE: usize = 24;

/// What may be read of a body with the head before it, in bytes.
const BODY_READ_AHEAD: usize = 64 * 1024;

/// How the head of a response begins.
const HEAD: &[u8] = b"HTTP/1.";
