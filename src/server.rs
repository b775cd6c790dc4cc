//! Listeners, worker threads, and how they stop.
//!
//! Pingora's own server is not used: its shutdown sleeps a fixed time that nothing can shorten, it closes
//! listeners before a load balancer has noticed, and a port in use leaves a process without a listener.
//! Here each worker is a thread with a runtime, an accept loop and an upstream pool of its own, so that a
//! request never leaves the thread it arrived on.

mod census;
mod connection;
mod listener;
mod opening;
mod pace;
mod tls;
mod transport;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use pingora::apps::ServerApp;
use tokio::{sync::watch, time::timeout};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::{connection::Connection, listener::BACKLOG, transport::Socket};
use crate::{
    clock,
    policy::{ClientRule, IdentifierHasher},
};

pub(crate) use self::connection::Lingering;
pub use self::{
    census::{Census, CensusSettings},
    connection::Bounds,
    listener::{BindError, Bound, ListenAddress, bind, bind_tcp},
    opening::{ListenerSettings, Opening, ProxyProtocol},
    pace::{InFlight, Pace},
    tls::{Certificate, IdentityError, IdentityFiles, KeyPair, ServerIdentity, Tls, TlsSettings},
};

/// Where to listen and how to stop.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Where the proxy listens; at least one. Default `0.0.0.0:8000`, in cleartext.
    pub listen: Vec<ListenerSettings>,
    /// Where metrics and health are served. Default `0.0.0.0:9464`.
    pub metrics_listen: SocketAddr,
    /// Where operators ask; `None` for nowhere. Default `127.0.0.1:9465`.
    pub admin_listen: Option<SocketAddr>,
    /// What each client may take.
    pub bounds: Bounds,
    /// How many connections there may be.
    pub census: CensusSettings,
    /// Worker threads. Default: the CPUs this process may use, by affinity and cgroup limit.
    pub threads: usize,
    /// How long new requests are still served after readiness is off. Default 2 s: what a load balancer
    /// needs to notice.
    pub drain_delay: Duration,
    /// How long requests in flight may take to finish after that. Default 20 s, so that both fit the 30 s
    /// that Kubernetes grants.
    pub grace: Duration,
}

/// Whether the process is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// It is not.
    No,
    /// It finishes what it has.
    Graceful,
    /// At once.
    Now,
}

/// Whether new requests are welcome; shared by whoever tells and whoever asks.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Whether new requests are welcome.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Says whether new requests are welcome.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }
}

/// A thread with a runtime of its own, on which everything it serves stays.
pub struct Worker {
    name: String,
    runtime: tokio::runtime::Runtime,
}

/// A worker at work. Dropping it cuts off what it still serves.
pub struct RunningWorker {
    thread: std::thread::JoinHandle<()>,
    /// Closed when it has served its last connection, or panicked.
    ended: tokio::sync::oneshot::Receiver<()>,
    cut_on_drop: DropGuard,
}

impl Worker {
    /// A worker that has not begun.
    ///
    /// # Errors
    /// If the system grants no more resources.
    pub fn new(index: usize) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let name = format!("worker-{index}");
        Ok(Self { name, runtime })
    }

    /// Where background tasks of this worker are spawned; they run once it begins.
    pub fn handle(&self) -> &tokio::runtime::Handle {
        self.runtime.handle()
    }

    /// Serves `app` on its thread until `closing` is true and what was in flight has ended.
    ///
    /// # Errors
    /// If the system grants no more threads.
    pub fn start<A>(
        self,
        listeners: Vec<Listener>,
        app: A,
        guests: Guests,
        closing: watch::Receiver<bool>,
    ) -> io::Result<RunningWorker>
    where
        A: ServerApp + Send + Sync + 'static,
    {
        let (alive, ended) = tokio::sync::oneshot::channel();
        let cut = CancellationToken::new();
        let until_cut = cut.clone();
        let thread = std::thread::Builder::new().name(self.name).spawn(move || {
            let served = serve(listeners, Arc::new(app), guests, closing);
            self.runtime.block_on(async {
                until_cut.run_until_cancelled(served).await;
                drop(alive);
                // Its background tasks serve the other workers too, until all have ended.
                until_cut.cancelled().await;
            });
            // Connections and background tasks end here, wherever they are.
            self.runtime.shutdown_background();
        })?;
        Ok(RunningWorker {
            thread,
            ended,
            cut_on_drop: cut.drop_guard(),
        })
    }
}

impl RunningWorker {
    /// Resolves when it has served its last connection, or panicked.
    pub async fn ended(&mut self) {
        // The sender is only ever dropped: the error is the message.
        let _ = (&mut self.ended).await;
    }

    /// Ends its background tasks and its thread, and tells whether it had panicked.
    pub fn panicked(self) -> bool {
        drop(self.cut_on_drop);
        self.thread.join().is_err()
    }
}

/// A listener, and what becomes of its connections.
#[derive(Debug)]
pub struct Listener {
    /// Where they come from.
    pub bound: Bound,
    /// What comes before HTTP.
    pub opening: Opening,
}

impl Listener {
    /// The same listener once more, for another accept loop.
    ///
    /// # Errors
    /// If the process has no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            bound: self.bound.try_clone()?,
            opening: self.opening.clone(),
        })
    }
}

/// In cleartext, HTTP/1.
impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self {
            bound: listener.into(),
            opening: Opening::default(),
        }
    }
}

/// Accepts connections for `app` until `closing` is true, then returns when the last of them has ended.
///
/// Connections that the kernel has already accepted by then are served too; idle ones are closed.
pub async fn serve<A>(
    listeners: Vec<Listener>,
    app: Arc<A>,
    guests: Guests,
    closing: watch::Receiver<bool>,
) where
    A: ServerApp + Send + Sync + 'static,
{
    let serving = Serving {
        app,
        guests,
        closing,
        connections: TaskTracker::new(),
        lingering: TaskTracker::new(),
    };
    join_all(
        listeners
            .into_iter()
            .map(|listener| serving.accept(listener)),
    )
    .await;
    serving.finish().await;
}

/// How many may connect, and what each of them may take.
#[derive(Clone, Debug)]
pub struct Guests {
    /// What each may take.
    pub bounds: Bounds,
    /// Those there are; all workers share it.
    pub census: Arc<Census>,
}

impl Guests {
    /// Operators, Prometheus and probes: the defaults, told to nobody, and few of them, since what they hold is no
    /// longer there for clients.
    pub fn of_operators() -> Self {
        let settings = CensusSettings {
            connections: 256,
            connections_per_address: 64,
        };
        let networks = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
        let rule = ClientRule::default();
        Self {
            bounds: Bounds::default(),
            census: Arc::new(Census::new(settings, networks, rule, None)),
        }
    }
}

/// What the listeners of a worker share.
struct Serving<A> {
    app: Arc<A>,
    guests: Guests,
    closing: watch::Receiver<bool>,
    connections: TaskTracker,
    /// Where a connection goes that is closed while its client still sends.
    lingering: TaskTracker,
}

impl<A> Serving<A>
where
    A: ServerApp + Send + Sync + 'static,
{
    /// Accepts until told to close, then what the kernel has accepted by then.
    async fn accept(&self, Listener { bound, opening }: Listener) {
        let listener = match bound.watched() {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "The listener can not be watched.");
                return;
            }
        };
        let opening = Arc::new(opening);
        let mut failing = Failing::default();
        let mut closing = self.closing.clone();
        let mut at_once = 0;
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((socket, peer)) => {
                        self.serve(socket, peer, opening.clone());
                        at_once = (at_once + 1) % MOST_AT_ONCE;
                        if at_once == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    Err(error) => failing.pause_after(&error).await,
                },
                () = is_true(&mut closing) => break,
            }
        }
        for _ in 0..BACKLOG {
            tokio::select! {
                biased;
                accepted = listener.accept() => if let Ok((socket, peer)) = accepted {
                    self.serve(socket, peer, opening.clone());
                },
                () = std::future::ready(()) => break,
            }
        }
    }

    fn serve(&self, socket: Socket, peer: Option<SocketAddr>, opening: Arc<Opening>) {
        let (app, shutdown) = (self.app.clone(), self.closing.clone());
        let (lingering, bounds) = (self.lingering.clone(), self.guests.bounds);
        let Some(mut counted) = self.guests.census.admit() else {
            return;
        };
        self.connections.spawn(async move {
            let opened = opening
                .open(socket, peer, |client| counted.is_of(client))
                .await;
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    tracing::debug!(?peer, %error, "A connection ended before a request.");
                    if let Some(reason) = error.counted_as() {
                        counted.ended(reason);
                    }
                    return;
                }
            };
            let connection = Connection::new(opened, bounds, counted, lingering);
            let mut stream = Some(Box::new(connection) as pingora::protocols::Stream);
            while let Some(open) = stream {
                stream = app.process_new(open, &shutdown).await;
            }
        });
    }

    async fn finish(self) {
        self.app.cleanup().await;
        self.connections.close();
        self.connections.wait().await;
        // Their answers are sent; a client that goes on sending does not keep the process.
        self.lingering.close();
        drop(timeout(LINGER_AT_END, self.lingering.wait()).await);
    }
}

/// Resolves when the value is true, or can no longer become it.
async fn is_true(value: &mut watch::Receiver<bool>) {
    // An error says that the sender is gone; either way there is no more to wait for.
    drop(value.wait_for(|value| *value).await);
}

/// What hinders accepting connections, told now and then rather than each time.
#[derive(Default)]
struct Failing {
    told: Option<Instant>,
    untold: u64,
}

impl Failing {
    /// Out of descriptors, accept fails at once and again: without a pause the loop would only spin.
    async fn pause_after(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionAborted {
            return;
        }
        match self.told {
            Some(told) if clock::elapsed(told) < BETWEEN_LINES => self.untold += 1,
            _ => {
                let more = match std::mem::take(&mut self.untold) {
                    0 => 0,
                    untold => untold + 1,
                };
                tracing::error!(%error, more, "A connection could not be accepted.");
                self.told = Some(clock::instant());
            }
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// How many connections are accepted before those that are there have their turn. Each takes some 0.1 ms to begin,
/// and the runtime polls in the order of waking: an unbounded burst is what everybody else would wait behind.
const MOST_AT_ONCE: u32 = 16;

/// How long clients that still send after their answer are waited for at the end.
const LINGER_AT_END: Duration = Duration::from_secs(1);

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Between two lines about what hinders accepting.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::{
        net::TcpStream,
        sync::atomic::{AtomicU32, Ordering},
    };

    use async_trait::async_trait;
    use pingora::{protocols::Stream, server::ShutdownWatch};

    use super::*;

    /// Counts connections and ends them.
    #[derive(Default)]
    struct Counting(AtomicU32);

    #[async_trait]
    impl ServerApp for Counting {
        async fn process_new(self: &Arc<Self>, _: Stream, _: &ShutdownWatch) -> Option<Stream> {
            self.0.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    #[tokio::test]
    async fn who_is_there_has_a_turn_between_a_few_of_a_burst_of_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a listener");
        let burst: Vec<TcpStream> = (0..BURST)
            .map(|_| TcpStream::connect(address).expect("the kernel accepts"))
            .collect();

        let (app, (close, closing)) = (Arc::new(Counting::default()), watch::channel(false));
        let mut guests = Guests::of_operators();
        let networks = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
        let census = CensusSettings::default();
        guests.census = Arc::new(Census::new(census, networks, ClientRule::default(), None));
        let served = tokio::spawn(serve(vec![listener.into()], app.clone(), guests, closing));
        let (mut before, mut most) = (0, 0);
        while before < BURST {
            tokio::task::yield_now().await;
            let now = app.0.load(Ordering::Relaxed);
            most = most.max(now - before);
            before = now;
        }
        close.send_replace(true);
        served.await.expect("it ends");
        drop(burst);
        assert!(most <= 2 * MOST_AT_ONCE, "{most} in one turn");
    }

    /// As many as the kernel keeps for a listener of the standard library.
    const BURST: u32 = 128;
}
