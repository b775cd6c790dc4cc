//! Many requests, one script call: what waits at the same moment travels together.
//!
//! Requests hand in their groups and wait for their part of the answer. A driver task takes whatever is
//! there, sends it as one call and turns to the next at once: calls are pipelined, nothing waits for a
//! timer or for an answer to somebody else, and a lone request is a batch of its own. The script decides
//! each group on its own, so what travels together stands or falls alone.

use std::{
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use redis::Value;
use tokio::{
    select,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    connection::{Connection, Exchange},
    script::{self, Answer, Answers, Class, Part, Script, Terms},
};
use crate::{clock, ratelimit::Timestamp, store::StoreError};

/// Where requests hand in their groups. Dropping it ends the driver.
#[derive(Debug)]
pub(super) struct Batcher {
    queue: mpsc::UnboundedSender<Waiting>,
    /// One for each request that waits, in the queue or for an answer.
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct Waiting {
    part: Part,
    whom: Whom,
}

/// Who waits.
#[derive(Debug)]
struct Whom {
    answer: oneshot::Sender<Result<(Timestamp, Answers), StoreError>>,
    _place: OwnedSemaphorePermit,
}

impl Batcher {
    /// Starts the driver, on `runtime`. A call that is not answered within `budget` counts as a timeout.
    pub(super) fn start(
        connection: &Arc<Connection>,
        script: Arc<Script>,
        budget: Duration,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        runtime.spawn(drive(waiting, Arc::downgrade(connection), script, budget));
        Self {
            queue,
            places: Arc::new(Semaphore::new(MOST_WAITING)),
        }
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        MOST_WAITING - self.places.available_permits()
    }

    /// Sends a part with whatever else waits, and waits for the store's time and an answer for each group.
    pub(super) async fn ask(&self, part: Part) -> Result<(Timestamp, Answers), StoreError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let _place = place.map_err(|_| StoreError::Overloaded)?;
        let (answer, answered) = oneshot::channel();
        let whom = Whom { answer, _place };
        let waiting = Waiting { part, whom };
        self.queue
            .send(waiting)
            .map_err(|_| StoreError::Disconnected)?;
        answered.await.unwrap_or(Err(StoreError::Disconnected))
    }
}

async fn drive(
    mut waiting: mpsc::UnboundedReceiver<Waiting>,
    connection: Weak<Connection>,
    script: Arc<Script>,
    budget: Duration,
) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, MOST_PARTS).await > 0 {
        let Some(connection) = connection.upgrade() else {
            return;
        };
        // In a cluster a call is for one slot.
        if batch[0].part.class.slot.is_some() {
            batch.sort_by_key(|waiting| waiting.part.class.slot);
        }
        while !batch.is_empty() {
            let class = batch[0].part.class;
            let alike = batch
                .iter()
                .take_while(|waiting| waiting.part.class == class)
                .count();
            let together: Vec<Waiting> = batch.drain(..alike).collect();
            let (connection, script) = (Arc::clone(&connection), Arc::clone(&script));
            tokio::spawn(async move { call(&connection, &script, budget, class, together).await });
        }
    }
}

/// One script call for all of `batch`, which is of this class.
async fn call(
    connection: &Connection,
    script: &Script,
    budget: Duration,
    class: Class,
    mut batch: Vec<Waiting>,
) {
    // What has not been sent yet, and nobody waits for or not any longer, is not charged.
    let now = Instant::from_std(clock::instant());
    batch.retain(|waiting| !waiting.whom.answer.is_closed() && now < waiting.part.until);
    let (parts, mut waiting): (Vec<Part>, Vec<Whom>) = batch
        .into_iter()
        .map(|waiting| (waiting.part, waiting.whom))
        .unzip();
    let exchange = connection.exchange(class.asking);
    let mut sent = pin!(exchange.run(script, |command| script::write_take(
        command, class.at, &parts
    )));
    let reply = match timeout(budget, &mut sent).await {
        Ok(reply) => reply,
        Err(_) => {
            exchange.timed_out();
            if exchange.has_begun() {
                late(&mut waiting, sent).await
            } else {
                Err(StoreError::Timeout)
            }
        }
    };
    let reply = reply.and_then(|reply| {
        let requests = parts.iter();
        script::read_take(
            reply,
            requests.map(|part| part.groups.iter().map(Terms::len)),
        )
    });
    match reply {
        Ok((now, answers)) => {
            for (whom, answers) in waiting.into_iter().zip(answers) {
                heed(&exchange, &answers);
                // Whoever no longer waits has been answered by its budget.
                let _ = whom.answer.send(Ok((now, answers)));
            }
        }
        Err(error) => {
            for whom in waiting {
                let _ = whom.answer.send(Err(error.clone()));
            }
        }
    }
}

/// A reply past the budget: waited for only while somebody does, who may have charges to give back.
async fn late(
    waiting: &mut [Whom],
    sent: impl Future<Output = Result<Value, StoreError>>,
) -> Result<Value, StoreError> {
    let nobody = async {
        for whom in waiting {
            whom.answer.closed().await;
        }
    };
    select! {
        reply = timeout(LATE, sent) => reply.unwrap_or(Err(StoreError::Timeout)),
        () = nobody => Err(StoreError::Timeout),
    }
}

/// Drops the connection if a group's error says that this server is not the one to ask.
fn heed(exchange: &Exchange<'_>, answers: &[Answer]) {
    for answer in answers {
        if let Answer::Failed(StoreError::Refused(text)) = answer {
            exchange.heed(text);
        }
    }
}

/// The most requests that wait for the store, in the queue or for an answer; one more goes by its
/// policies' failure modes at once. At 1 KiB each, that is 4 MiB.
const MOST_WAITING: usize = 4096;

/// How long past the budget a reply is waited for that tells what was charged. No longer than a connection
/// lasts whose server does not answer.
const LATE: Duration = Duration::from_secs(2);

/// The most requests in one call: Redis does nothing else while the script runs, some 2 µs for each.
const MOST_PARTS: usize = 64;
