//! The connection to Redis, and what requests meet while there is none.
//!
//! A supervisor task owns connecting. Until its first attempt has ended, requests wait for it; after
//! that they either find a connection or fail at once, paying nothing. The connection is dropped when
//! it breaks, when the server says that it is not the one to ask (a replica, one that is loading, one
//! that wants another password), and after [`TIMEOUTS`] timeouts in a row; the supervisor then tries
//! until a probe succeeds. Nothing here sends a call twice, except by the script's source to a server
//! that did not know its name.

mod supervisor;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use redis::{
    Cmd, ErrorKind, RedisError, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
    time::error::Elapsed,
};

pub(super) use supervisor::Dialer;

use super::script::Script;
use crate::{
    clock,
    store::{Health, StoreError},
};

/// So many timeouts without an answer between them trip the breaker: one may be bad luck.
const TIMEOUTS: u32 = 3;

/// A connection that heals by itself.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    supervisor: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    /// `None` before the first connection and while tripped.
    link: ArcSwapOption<Link>,
    tripped: AtomicBool,
    /// In milliseconds since `opened`.
    next_probe: AtomicU64,
    opened: Instant,
    /// Whether the first attempt has ended.
    attempted: watch::Sender<bool>,
    /// Tells the supervisor why the link was dropped: once for each link.
    lost: mpsc::Sender<String>,
}

/// One connection, from its probe until it is dropped.
struct Link {
    generation: u64,
    connection: MultiplexedConnection,
    /// Since the last answer.
    timeouts: AtomicU32,
}

impl Connection {
    /// Starts to connect, on `runtime`.
    pub(super) fn open(dialer: Dialer, runtime: &tokio::runtime::Handle) -> Self {
        let (lost, losses) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            link: ArcSwapOption::empty(),
            tripped: AtomicBool::new(false),
            next_probe: AtomicU64::new(0),
            opened: clock::instant(),
            attempted: watch::Sender::new(false),
            lost,
        });
        let supervisor = runtime
            .spawn(supervisor::run(dialer, Arc::clone(&shared), losses))
            .abort_handle();
        Self { shared, supervisor }
    }

    pub(super) fn health(&self) -> Health {
        let tripped = self.shared.tripped.load(Ordering::Relaxed);
        let next_probe = Duration::from_millis(self.shared.next_probe.load(Ordering::Relaxed));
        Health {
            tripped,
            next_probe: if tripped {
                next_probe.saturating_sub(clock::elapsed(self.shared.opened))
            } else {
                Duration::ZERO
            },
        }
    }

    /// The calls of one request.
    pub(super) fn exchange(&self) -> Exchange<'_> {
        Exchange {
            shared: &self.shared,
            link: None,
        }
    }
}

/// The connection goes with it; calls under way fail.
impl Drop for Connection {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

/// The calls of one request, all over the same connection.
///
/// It outlives the timeout around them, so that a timeout is counted against the connection it met.
pub(super) struct Exchange<'a> {
    shared: &'a Shared,
    link: Option<Arc<Link>>,
}

impl Exchange<'_> {
    /// Calls a script, which `complete` gives its keys and arguments; by its source if the server does
    /// not know its name.
    pub(super) async fn run(
        &mut self,
        script: &Script,
        complete: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let mut command = script.by_name();
        complete(&mut command);
        match self.send(&command).await? {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let mut command = script.by_source();
                complete(&mut command);
                self.send(&command).await?
            }
            answer => answer,
        }
        .map_err(refused)
    }

    /// Calls a plain command.
    pub(super) async fn call(&mut self, command: &Cmd) -> Result<Value, StoreError> {
        self.send(command).await?.map_err(refused)
    }

    /// What came of calls that were given a budget.
    pub(super) fn outcome<T>(
        self,
        calls: Result<Result<T, StoreError>, Elapsed>,
    ) -> Result<T, StoreError> {
        calls.unwrap_or_else(|_| {
            self.timed_out();
            Err(StoreError::Timeout)
        })
    }

    /// To be told when the budget ran out. The call under way may have run.
    pub(super) fn timed_out(self) {
        let Some(link) = &self.link else { return };
        if link.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS {
            self.shared
                .drop_link(link.generation, "it does not answer".to_owned());
        }
    }

    /// Drops the connection if the error in an answer says that this server is not the one to ask.
    pub(super) fn heed(&self, error: &str) {
        let code = error.split(' ').next().unwrap_or_default();
        if let Some(link) = &self.link
            && WRONG_SERVER.contains(&code)
        {
            self.shared.drop_link(link.generation, error.to_owned());
        }
    }

    /// The server's answer, which may be an error; or that there is none.
    async fn send(&mut self, command: &Cmd) -> Result<Result<Value, RedisError>, StoreError> {
        let link = match &self.link {
            Some(link) => link,
            None => self.link.insert(self.shared.link().await?),
        };
        let mut connection = link.connection.clone();
        let answer = connection.req_packed_command(command).await;
        match answer.and_then(Value::extract_error) {
            Err(error) if !is_answer(&error) => {
                self.shared.drop_link(link.generation, error.to_string());
                Err(StoreError::Io(error.to_string()))
            }
            answer => {
                if link.timeouts.load(Ordering::Relaxed) != 0 {
                    link.timeouts.store(0, Ordering::Relaxed);
                }
                if let Err(error) = &answer {
                    self.heed(&error_text(error));
                }
                Ok(answer)
            }
        }
    }
}

/// What a server says that may still answer, but is not the one to ask, or not now. Another
/// connection may lead to another server: after a fail-over the old one often lives on as a replica.
const WRONG_SERVER: [&str; 7] = [
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "NOAUTH",
    "WRONGPASS",
];

/// Whether the server said it; else the connection is broken.
fn is_answer(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

fn refused(error: RedisError) -> StoreError {
    StoreError::Refused(error_text(&error))
}

/// As the server wrote it: code, then detail.
fn error_text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}

impl Shared {
    /// The connection. Waits only while the first attempt is under way.
    async fn link(&self) -> Result<Arc<Link>, StoreError> {
        if let Some(link) = self.link.load_full() {
            return Ok(link);
        }
        if !self.tripped.load(Ordering::Acquire) {
            self.attempted
                .subscribe()
                .wait_for(|attempted| *attempted)
                .await
                .expect("the sender is in self");
        }
        self.link.load_full().ok_or(StoreError::Disconnected)
    }

    /// Drops the link of this generation, if it has not been dropped yet.
    fn drop_link(&self, generation: u64, reason: String) {
        let current = self.link.load();
        let Some(link) = current
            .as_ref()
            .filter(|link| link.generation == generation)
        else {
            return;
        };
        let found = self.link.compare_and_swap(link, None);
        if found.as_ref().is_some_and(|found| Arc::ptr_eq(found, link)) {
            self.tripped.store(true, Ordering::Release);
            // The channel is empty: the supervisor takes a loss before it makes the next link.
            let _ = self.lost.try_send(reason);
        }
    }
}

/// Neither the address nor the password is in a connection's own form.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("generation", &self.generation)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}
