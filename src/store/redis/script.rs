//! The scripts of `lua/`, and their contract (`lua/README.md`) in Rust: what is sent, what is understood.

use std::fmt;

use redis::{Cmd, RedisWrite, Value};
use smallvec::SmallVec;

use super::key::Key;
use crate::{
    ratelimit::{Algorithm, Counts, Decision, Timestamp},
    store::{Action, At, Charged, Demand, Group, StoreError},
};

/// A script and the name under which Redis caches it.
pub(super) struct Script {
    source: String,
    sha: String,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.sha)
    }
}

impl Script {
    /// Decides groups of demands and charges them.
    pub(super) fn take() -> Self {
        let rules = Algorithm::ALL.map(rule).concat();
        Self::new([COUNTER, &rules, include_str!("../../../lua/take.lua")].concat())
    }

    /// Takes units back.
    pub(super) fn give_back() -> Self {
        Self::new([COUNTER, include_str!("../../../lua/give_back.lua")].concat())
    }

    fn new(source: String) -> Self {
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }

    /// The whole text.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// A call by name, to be completed with keys and arguments.
    pub(super) fn by_name(&self) -> Cmd {
        let mut command = Cmd::with_capacity(24, 320);
        command.arg("EVALSHA").arg(&self.sha);
        command
    }

    /// A call that carries the source, for a server that does not know the name.
    pub(super) fn by_source(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.source);
        command
    }
}

/// The Lua side of an algorithm.
fn rule(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingWindowCounter => {
            include_str!("../../../lua/sliding_window_counter.lua")
        }
    }
}

const COUNTER: &str = include_str!("../../../lua/counter.lua");

/// Completes a call of [`Script::take`]. `guess` is when the script is thought to run.
pub(super) fn write_take<'g, 'd: 'g>(
    command: &mut Cmd,
    namespace: &str,
    groups: impl Iterator<Item = &'g Group<'d>> + Clone,
    guess: Timestamp,
    at: At,
) {
    let demands = || groups.clone().flatten();
    let number = |demand: &Demand<'_>| demand.limit.window().position(guess).number;

    command.arg(2 * demands().count());
    for demand in demands() {
        let current = Key::new(namespace, demand, number(demand));
        command.write_arg_fmt(current);
        command.write_arg_fmt(current.previous());
    }
    match at {
        At::Now => command.arg(""),
        At::Stamp(stamp) => command.arg(stamp.as_millis()),
    };
    for group in groups.clone() {
        command.arg(group.len());
        for demand in group {
            command
                .arg(demand.algorithm.name())
                .arg(action(demand.action))
                .arg(demand.limit.quota())
                .arg(demand.limit.window().seconds())
                .arg(demand.cost.units())
                .arg(number(demand));
        }
    }
}

const fn action(action: Action) -> &'static str {
    match action {
        Action::Take => "take",
        Action::Peek => "peek",
        Action::Charge => "charge",
    }
}

/// What the script says about one group.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// One decision per demand.
    Decided(SmallVec<[Decision; 2]>),
    /// The guess was wrong for one of its demands; nothing is charged.
    OtherWindow,
    /// It could not be decided, or the answer is not understood.
    Failed(StoreError),
}

/// Reads the reply of [`Script::take`]: the store's time, and an answer per group.
///
/// # Errors
/// [`StoreError::Reply`] if it has no time. What else is not understood concerns the group where that
/// happens, and those after it.
pub(super) fn read_take<'g, 'd: 'g>(
    reply: Value,
    groups: impl Iterator<Item = &'g Group<'d>>,
) -> Result<(Timestamp, Vec<Answer>), StoreError> {
    let Value::Array(elements) = reply else {
        return Err(not_understood("not an array", Some(&reply)));
    };
    let mut elements = elements.iter();
    let now = Timestamp::from_millis(next_number(&mut elements)?);
    let answers = groups
        .map(|group| read_group(&mut elements, group, now).unwrap_or_else(Answer::Failed))
        .collect();
    Ok((now, answers))
}

fn read_group(
    elements: &mut std::slice::Iter<'_, Value>,
    group: &Group<'_>,
    now: Timestamp,
) -> Result<Answer, StoreError> {
    let status = elements
        .next()
        .ok_or_else(|| not_understood("it ends early", None))?;
    let admitted = match number(status) {
        Some(DENIED) => false,
        Some(ADMITTED) => true,
        Some(OTHER_WINDOW) => return Ok(Answer::OtherWindow),
        Some(_) => return Err(not_understood("no such status", Some(status))),
        None => {
            let text = text(status).ok_or_else(|| not_understood("no status", Some(status)))?;
            return Ok(Answer::Failed(StoreError::Refused(text.to_owned())));
        }
    };
    let mut decisions = SmallVec::new();
    for demand in group {
        decisions.push(Decision {
            algorithm: demand.algorithm,
            limit: demand.limit,
            cost: demand.cost,
            allowed: next_number(elements)? == 1,
            counts: Counts {
                current: next_number(elements)?,
                previous: next_number(elements)?,
            },
            now,
            charged: admitted && demand.action != Action::Peek,
        });
    }
    Ok(Answer::Decided(decisions))
}

const DENIED: u64 = 0;
const ADMITTED: u64 = 1;
const OTHER_WINDOW: u64 = 2;

/// Completes a call of [`Script::give_back`].
pub(super) fn write_give_back(command: &mut Cmd, namespace: &str, charged: &[Charged<'_>]) {
    command.arg(charged.len());
    for Charged {
        demand,
        window_number,
    } in charged
    {
        command.write_arg_fmt(Key::new(namespace, demand, *window_number));
    }
    for Charged { demand, .. } in charged {
        command.arg(demand.cost.units());
    }
}

/// Reads the reply of [`Script::give_back`].
///
/// # Errors
/// [`StoreError::Refused`] with the first counter's error, if any has one.
pub(super) fn read_give_back(reply: &Value) -> Result<(), StoreError> {
    let Value::Array(elements) = reply else {
        return Err(not_understood("not an array", Some(reply)));
    };
    for element in elements {
        if number(element).is_none() {
            let text = text(element).ok_or_else(|| not_understood("no number", Some(element)))?;
            return Err(StoreError::Refused(text.to_owned()));
        }
    }
    Ok(())
}

/// Reads the reply of `TIME`.
///
/// # Errors
/// [`StoreError::Reply`] if it is not seconds and microseconds.
pub(super) fn read_time(reply: Value) -> Result<Timestamp, StoreError> {
    let Value::Array(elements) = reply else {
        return Err(not_understood("not an array", Some(&reply)));
    };
    let mut elements = elements.iter();
    let (seconds, micros) = (next_number(&mut elements)?, next_number(&mut elements)?);
    Ok(Timestamp::from_millis(
        seconds.saturating_mul(1000).saturating_add(micros / 1000),
    ))
}

fn next_number(elements: &mut std::slice::Iter<'_, Value>) -> Result<u64, StoreError> {
    let element = elements
        .next()
        .ok_or_else(|| not_understood("it ends early", None))?;
    number(element).ok_or_else(|| not_understood("no number", Some(element)))
}

/// A number, as an integer or, from proxies and older servers, as text.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => text(value)?.parse().ok(),
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn not_understood(what: &str, found: Option<&Value>) -> StoreError {
    StoreError::Reply(match found {
        Some(value) => format!("{what}: {value:?}"),
        None => what.to_owned(),
    })
}
