//! What is said to Redis and heard from it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use redis::{
    Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{sync::OnceCell, time::error::Elapsed};

use super::{Link, NEVER, Shared};
use crate::store::{
    StoreError,
    redis::{script::Script, trouble::Trouble},
};

/// Calls that belong together, all over the same connection.
///
/// It outlives the timeout around them, so that a timeout is counted against the connection it met.
pub(in crate::store::redis) struct Exchange<'a> {
    shared: &'a Shared,
    link: OnceCell<Arc<Link>>,
    /// As in [`Class`](crate::store::redis::script::Class), for each call.
    asking: bool,
    /// In milliseconds since the connection was opened.
    sent: u64,
    /// Whether its budget has run out.
    late: AtomicBool,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(shared: &'a Shared, asking: bool) -> Self {
        Self {
            shared,
            link: OnceCell::new(),
            asking,
            sent: shared.millis(),
            late: AtomicBool::new(false),
        }
    }

    /// Whether a call has been sent, or is about to be.
    pub(in crate::store::redis) fn has_begun(&self) -> bool {
        self.link.initialized()
    }

    /// Calls a script, which `complete` gives its keys and arguments; by its source if the server does
    /// not know its name.
    pub(in crate::store::redis) async fn run(
        &self,
        script: &Script,
        complete: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let mut command = script.by_name();
        complete(&mut command);
        match self.send(&command).await? {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                if self.late.load(Ordering::Relaxed) {
                    return Err(StoreError::Timeout);
                }
                let mut command = script.by_source();
                complete(&mut command);
                self.send(&command).await?
            }
            answer => answer,
        }
        .map_err(refused)
    }

    /// Calls a plain command.
    pub(in crate::store::redis) async fn call(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.send(command).await?.map_err(refused)
    }

    /// What came of calls that were given a budget.
    pub(in crate::store::redis) fn outcome<T>(
        &self,
        calls: Result<Result<T, StoreError>, Elapsed>,
    ) -> Result<T, StoreError> {
        calls.unwrap_or_else(|_| {
            self.timed_out();
            Err(StoreError::Timeout)
        })
    }

    /// To be told when the budget ran out. The call under way may have run.
    ///
    /// Calls sent within half that time of each other met the same trouble: it counts once.
    pub(in crate::store::redis) fn timed_out(&self) {
        self.late.store(true, Ordering::Relaxed);
        let Some(link) = self.link.get() else { return };
        let half = self.shared.millis().saturating_sub(self.sent) / 2;
        let counted = link.timeout_counted.load(Ordering::Relaxed);
        if counted != NEVER && self.sent < counted + half {
            return;
        }
        link.timeout_counted.store(self.sent, Ordering::Relaxed);
        if link.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS {
            self.shared.drop_link(link.generation, Trouble::Silent);
        }
    }

    /// Drops the connection if the error in an answer says that this server is not the one to ask.
    pub(in crate::store::redis) fn heed(&self, error: &str) {
        let code = error.split(' ').next().unwrap_or_default();
        if let Some(link) = self.link.get()
            && WRONG_SERVER.contains(&code)
        {
            self.shared
                .drop_link(link.generation, Trouble::Said(error.to_owned()));
        }
    }

    /// The server's answer, which may be an error; or that there is none.
    async fn send(&self, command: &Cmd) -> Result<Result<Value, RedisError>, StoreError> {
        let link = self.link.get_or_try_init(|| self.shared.link()).await?;
        let mut connection = link.connection.clone();
        let answer = if self.asking {
            ask(&mut connection, command).await
        } else {
            connection.req_packed_command(command).await
        };
        match answer.and_then(Value::extract_error) {
            Err(error) if !is_answer(&error) => {
                self.shared
                    .drop_link(link.generation, Trouble::Said(error.to_string()));
                Err(StoreError::Io(error.to_string()))
            }
            answer => {
                // A late answer is no sign that the next will be in time.
                let late = self.late.load(Ordering::Relaxed);
                if !late && link.timeouts.load(Ordering::Relaxed) != 0 {
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

/// The answer to a command right behind `ASKING`, which holds for the next one on its connection.
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command.clone());
    let mut answers = connection.req_packed_commands(&both, 1, 1).await?;
    Ok(answers.pop().unwrap_or(Value::Nil))
}

/// Whether the server said it; else the connection is broken.
fn is_answer(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

fn refused(error: RedisError) -> StoreError {
    StoreError::Refused(error_text(&error))
}

/// As the server wrote it: code, then detail.
pub(in crate::store::redis) fn error_text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}

/// So many timeouts without an answer between them trip the breaker: one may be bad luck.
const TIMEOUTS: u32 = 3;

/// What a server says that may still answer, but is not the one to ask, or not now. Another
/// connection may lead to another server: after a fail-over the old one often lives on as a replica.
const WRONG_SERVER: [&str; 8] = [
    "READONLY",
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "NOAUTH",
    "WRONGPASS",
];
