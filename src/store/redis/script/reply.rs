//! What the scripts answer, read without trust: a reply that is not understood is an error, never a panic.

use redis::Value;
use smallvec::SmallVec;

use crate::{
    ratelimit::{Counts, Leaving, Timestamp},
    store::StoreError,
};

/// What the script says about one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Answer {
    /// It decided.
    Decided {
        /// Whether the group was charged, as far as its demands charge.
        admitted: bool,
        /// What it found, by demand.
        counted: SmallVec<[Counted; 2]>,
    },
    /// The guess was wrong for one of its demands; nothing is charged.
    OtherWindow,
    /// It could not be decided, or the answer is not understood.
    Failed(StoreError),
}

/// The answers to the groups of one request.
pub(in crate::store::redis) type Answers = SmallVec<[Answer; 2]>;

/// What the script found for one demand, before the charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Counted {
    /// Whether its limit has room.
    pub allowed: bool,
    /// The counts.
    pub counts: Counts,
    /// What a log that decides tells of waits, after the charge.
    pub leaving: Leaving,
    /// What the log of an audited identifier says.
    pub logged: Logged,
}

/// What a log says of the units admitted in the trailing window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Logged {
    /// So many.
    Exactly(u64),
    /// Nothing: there is none, or it began too late to tell.
    Nothing,
    /// It could not be read or written; what was decided and charged stands.
    Failed(String),
}

/// Reads the reply of [`super::Script::take`] to requests whose groups have so many demands each: the store's time,
/// and for each request an answer per group.
///
/// # Errors
/// [`StoreError::Reply`] if it has no time. What else is not understood concerns the group where that
/// happens, and those after it.
pub(in crate::store::redis) fn read_take(
    reply: Value,
    requests: impl Iterator<Item = impl Iterator<Item = usize>>,
) -> Result<(Timestamp, Vec<Answers>), StoreError> {
    let Value::Array(elements) = reply else {
        return Err(not_understood("not an array", Some(&reply)));
    };
    let mut elements = elements.iter();
    let now = Timestamp::from_millis(next_number(&mut elements)?);
    let answers = requests
        .map(|groups| {
            let answer =
                |demands| read_group(&mut elements, demands).unwrap_or_else(Answer::Failed);
            groups.map(answer).collect()
        })
        .collect();
    Ok((now, answers))
}

fn read_group(
    elements: &mut std::slice::Iter<'_, Value>,
    demands: usize,
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
    let mut counted = SmallVec::new();
    for _ in 0..demands {
        counted.push(next_counted(elements)?);
    }
    Ok(Answer::Decided { admitted, counted })
}

fn next_counted(elements: &mut std::slice::Iter<'_, Value>) -> Result<Counted, StoreError> {
    let (flags, current) = (next_number(elements)?, next_number(elements)?);
    let allowed = flags & ALLOWED != 0;
    if flags & IS_LOG != 0 {
        return Ok(Counted {
            allowed,
            counts: Counts {
                current,
                previous: 0,
            },
            leaving: Leaving {
                request: next_number(elements)?,
                unit: next_number(elements)?,
            },
            logged: Logged::Nothing,
        });
    }
    Ok(Counted {
        allowed,
        counts: Counts {
            current,
            previous: next_number(elements)?,
        },
        leaving: Leaving::default(),
        logged: match flags & LOGGED {
            0 => Logged::Nothing,
            _ => next_logged(elements)?,
        },
    })
}

const DENIED: u64 = 0;
const ADMITTED: u64 = 1;
const OTHER_WINDOW: u64 = 2;

const ALLOWED: u64 = 1;
const LOGGED: u64 = 2;
const IS_LOG: u64 = 4;

/// Reads the reply of [`super::Script::give_back`].
///
/// # Errors
/// [`StoreError::Refused`] with the first counter's error, if any has one.
pub(in crate::store::redis) fn read_give_back(reply: &Value) -> Result<(), StoreError> {
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
pub(in crate::store::redis) fn read_time(reply: Value) -> Result<Timestamp, StoreError> {
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

fn next_logged(elements: &mut std::slice::Iter<'_, Value>) -> Result<Logged, StoreError> {
    let element = elements
        .next()
        .ok_or_else(|| not_understood("it ends early", None))?;
    match (number(element), element, text(element)) {
        (Some(units), ..) => Ok(Logged::Exactly(units)),
        (None, Value::Int(-1), _) | (None, _, Some("-1")) => Ok(Logged::Nothing),
        (None, _, Some(text)) => Ok(Logged::Failed(text.to_owned())),
        (None, _, None) => Err(not_understood("nothing about a log", Some(element))),
    }
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

#[cfg(test)]
mod tests {
    use Value::{Array, BulkString, Int, Nil};

    use super::*;

    /// Two requests with a group of one demand each.
    fn read(elements: Vec<Value>) -> Result<Vec<Answer>, StoreError> {
        let requests = [[1], [1]].map(<[usize; 1]>::into_iter);
        let (_, answers) = read_take(Array(elements), requests.into_iter())?;
        Ok(answers.into_iter().flatten().collect())
    }

    fn text(text: &str) -> Value {
        BulkString(text.into())
    }

    fn is_reply_error(answer: &Answer) -> bool {
        matches!(answer, Answer::Failed(StoreError::Reply(_)))
    }

    #[test]
    fn numbers_may_come_as_integers_or_as_text() {
        let integers = read([9, 1, 1, 2, 3, 0, 0, 2, 3].map(Int).to_vec());
        let texts = read(
            ["9", "1", "1", "2", "3", "0", "0", "2", "3"]
                .map(text)
                .to_vec(),
        );
        assert_eq!(integers, texts);
        let answers = integers.expect("a time");
        let counts = Counts {
            current: 2,
            previous: 3,
        };
        let decided = |admitted| Answer::Decided {
            admitted,
            counted: [Counted {
                allowed: admitted,
                counts,
                leaving: Leaving::default(),
                logged: Logged::Nothing,
            }]
            .into_iter()
            .collect(),
        };
        assert_eq!(answers, [decided(true), decided(false)]);
    }

    #[test]
    fn a_group_that_is_not_decided_leaves_the_next_one_in_its_place() {
        let refused = text("WRONGTYPE no number");
        for (status, expected) in [
            (Int(2), Answer::OtherWindow),
            (
                refused,
                Answer::Failed(StoreError::Refused("WRONGTYPE no number".to_owned())),
            ),
        ] {
            let answers = read(vec![Int(9), status, Int(1), Int(1), Int(0), Int(0)]);
            let answers = answers.expect("a time");
            assert_eq!(answers[0], expected);
            assert!(matches!(answers[1], Answer::Decided { .. }));
        }
    }

    #[test]
    fn a_reply_that_ends_early_or_makes_no_sense_is_an_error_and_not_a_panic() {
        for elements in [vec![], vec![Nil], vec![Int(-1)], vec![text("now")]] {
            assert!(matches!(read(elements), Err(StoreError::Reply(_))));
        }
        assert!(matches!(
            read_take(Nil, std::iter::empty::<std::iter::Empty<usize>>()),
            Err(StoreError::Reply(_))
        ));
        let whole = [9, 1, 1, 2, 3, 1, 1, 2, 3].map(Int);
        for length in 1..whole.len() {
            let answers = read(whole[..length].to_vec()).expect("a time");
            assert_eq!(answers.len(), 2, "an answer for each group");
            assert_eq!(is_reply_error(&answers[0]), length < 5);
            assert!(is_reply_error(&answers[1]));
        }
        for wrong in [Int(7), Int(-1), Nil, Array(vec![]), BulkString(vec![0xff])] {
            let answers = read(vec![Int(9), wrong]).expect("a time");
            assert!(is_reply_error(&answers[0]), "{answers:?}");
        }
    }

    #[test]
    fn a_counter_that_could_not_be_given_back_to_is_told() {
        assert_eq!(read_give_back(&Array(vec![Int(1), text("0")])), Ok(()));
        let refused = read_give_back(&Array(vec![Int(1), text("OOM")]));
        assert_eq!(refused, Err(StoreError::Refused("OOM".to_owned())));
        assert!(matches!(read_give_back(&Nil), Err(StoreError::Reply(_))));
    }

    #[test]
    fn time_is_seconds_and_microseconds() {
        let time = read_time(Array(vec![text("1700000000"), text("123999")]));
        assert_eq!(time, Ok(Timestamp::from_millis(1_700_000_000_123)));
        assert!(matches!(
            read_time(Array(vec![Int(1)])),
            Err(StoreError::Reply(_))
        ));
    }
}
