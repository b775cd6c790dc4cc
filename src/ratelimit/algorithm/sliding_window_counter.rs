//! The sliding window counter: the trailing window is estimated from two fixed ones.
//!
//! ```text
//!            previous window              current window
//!   |-------------------------------|-------------------------------|
//!                  [======== the trailing window ========]
//!                   W - E of previous   E elapsed        ^ now
//!
//!   estimate = current + previous * (W - E) / W
//! ```
//!
//! It assumes that the previous window's units were spread evenly. Where they were not, it errs: up to
//! twice the quota may be admitted in a trailing window (the quota at the end of one window, the quota
//! spread over the next), and a client whose units all came early in the previous window is denied
//! though its exact count is lower. That is the price of two integers per identifier.

use crate::ratelimit::{Cost, Counts, Limit, Position, Wait};

/// Admitted if and only if `floor(estimate) + cost <= quota`, without the division.
pub(super) fn admits(limit: Limit, counts: Counts, cost: Cost, at: Position) -> bool {
    let length = u128::from(limit.window().length());
    let others = u128::from(cost.units() - 1) * length;
    scaled_estimate(limit, counts, at) + others < u128::from(limit.quota()) * length
}

/// `current * W + previous * (W - E)`.
pub(super) fn scaled_estimate(limit: Limit, counts: Counts, at: Position) -> u128 {
    let length = limit.window().length();
    let remaining_share = length - at.elapsed;
    u128::from(counts.current) * u128::from(length)
        + u128::from(counts.previous) * u128::from(remaining_share)
}

/// Within a window both counts only grow. When it turns, what was current is at least the new previous.
pub(super) const fn counts_later(counts: Counts, windows: u64) -> Option<Counts> {
    match windows {
        0 => Some(counts),
        1 => Some(Counts {
            current: 0,
            previous: counts.current,
        }),
        _ => None,
    }
}

/// The first time unit at which `units` are admitted if nobody else comes.
///
/// Within this window the previous one's weight falls until it is gone; if the current count alone
/// leaves no room, the request waits for the next window, where the current count is the previous.
/// One that is larger than the quota waits for ever.
pub(super) fn wait(limit: Limit, counts: Counts, units: u64, at: Position) -> Wait<u64> {
    let (quota, units) = (u128::from(limit.quota()), u128::from(units));
    let (current, previous) = (u128::from(counts.current), u128::from(counts.previous));
    let length = u128::from(limit.window().length());
    let elapsed = u128::from(at.elapsed);

    let wait = if units > quota {
        return Wait::Never;
    } else if current + units <= quota {
        let excess = current + previous + units - 1 - quota;
        excess * length / previous + 1 - elapsed
    } else {
        let excess = current + units - 1 - quota;
        (length - elapsed) + excess * length / current + 1
    };
    Wait::For(u64::try_from(wait).expect("a wait ends with the next window, which is in range"))
}
