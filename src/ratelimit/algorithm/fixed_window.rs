//! The fixed window: so many units from one turn of the window to the next, and none of the one before counts.
//!
//! It is what most limiters do, and here to be compared with: around a turn up to twice the quota is admitted
//! in any time, however short.

use crate::ratelimit::{Cost, Counts, Limit, Position, Wait};

/// Admitted if and only if `current + cost <= quota`.
pub(super) fn admits(limit: Limit, counts: Counts, cost: Cost) -> bool {
    u128::from(counts.current) + u128::from(cost.units()) <= u128::from(limit.quota())
}

/// `current * W`.
pub(super) fn scaled_estimate(limit: Limit, counts: Counts) -> u128 {
    u128::from(counts.current) * u128::from(limit.window().length())
}

/// Within a window counts only grow. When it turns, nothing follows from them.
pub(super) const fn counts_later(counts: Counts, windows: u64) -> Option<Counts> {
    match windows {
        0 => Some(counts),
        _ => None,
    }
}

/// The rest of the window, where the quota is large enough.
pub(super) fn wait(limit: Limit, units: u64, at: Position) -> Wait<u64> {
    if units > limit.quota() {
        Wait::Never
    } else {
        Wait::For(limit.window().length() - at.elapsed)
    }
}
