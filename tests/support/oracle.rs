//! The oracle: what Redis replied about one counter, decided again one after another by [`decide`].
//!
//! Every charge of a window found a different count, so the replies can be put in the order in which Redis
//! ran them.

use std::collections::BTreeMap;

use slidegate::ratelimit::{Algorithm, Cost, Counts, Decision, Leaving, Limit, Timestamp, decide};

/// The decisions in a reply to a call about groups of one demand each, if it is one: the time, and for each
/// group its status, allowed, C, P; of a group in another window, its status alone. All are of one limit.
pub fn take_replies(reply: &redis::Value, limit: Limit) -> Vec<Decision> {
    let redis::Value::Array(items) = reply else {
        return Vec::new();
    };
    let number = |item: &redis::Value| match item {
        redis::Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let mut numbers = items.iter().filter_map(number);
    let now = numbers.next().map(Timestamp::from_millis);
    let mut decisions = Vec::new();
    while let (Some(now), Some(status)) = (now, numbers.next()) {
        if status == 2 {
            continue;
        }
        let mut next = || numbers.next().expect("a decided group has three numbers");
        decisions.push(Decision {
            algorithm: Algorithm::default(),
            limit,
            cost: Cost::ONE,
            now,
            allowed: next() == 1,
            counts: Counts {
                current: next(),
                previous: next(),
            },
            charged: status == 1,
            exact: None,
            leaving: Leaving::default(),
        });
    }
    decisions
}

/// What is wrong with these replies, each at the place where it is.
pub fn faults(replies: Vec<Decision>) -> Vec<String> {
    let mut windows = BTreeMap::<u64, Vec<Decision>>::new();
    for reply in replies {
        windows
            .entry(reply.position().number)
            .or_default()
            .push(reply);
    }
    let mut faults = Vec::new();
    let mut charged_before = (0, 0);
    for (number, mut replies) in windows {
        // A denial saw the count that the charge after it found.
        replies.sort_by_key(|reply| (reply.counts.current, reply.charged));
        let (previous_number, previous_count) = charged_before;
        let previous = if previous_number + 1 == number {
            previous_count
        } else {
            0
        };
        let mut current = 0;
        for reply in replies {
            let counts = Counts { current, previous };
            let mut expected = decide(reply.algorithm, reply.limit, counts, reply.cost, reply.now);
            expected.charged = expected.allowed;
            if reply != expected {
                faults.push(format!(
                    "window {number}: {reply:?} instead of {expected:?}"
                ));
            }
            current += if reply.charged { reply.cost.units() } else { 0 };
        }
        charged_before = (number, current);
    }
    faults
}
