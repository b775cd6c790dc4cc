//! The closed set of rules; each variant is one file here and one file in `lua/`.

mod fixed_window;
mod sliding_log;
mod sliding_window_counter;

pub use sliding_log::{Leaving, Log};

use super::{Cost, Limit, Position, Wait};

/// How units counted so far become an admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Two counters per identifier: this window's, and the previous one's weighted by the share of it
    /// that the trailing window still covers.
    #[default]
    SlidingWindowCounter,
    /// This window's counter alone.
    FixedWindow,
    /// Every unit of the trailing window, exactly.
    SlidingLog,
}

/// What a store holds for one identifier under one limit, as found before the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units admitted in the window in which the request falls; of a log, in the trailing one.
    pub current: u64,
    /// Units admitted in the window before; of a log, none.
    pub previous: u64,
}

impl Algorithm {
    /// Every algorithm, for tests and documents that walk the list.
    pub const ALL: [Self; 3] = [
        Self::SlidingWindowCounter,
        Self::FixedWindow,
        Self::SlidingLog,
    ];

    /// Its name in YAML, Lua and the docs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::FixedWindow => "fixed_window",
            Self::SlidingLog => "sliding_log",
        }
    }

    /// Whether it is decided by a [`Log`], and not by counters. Those that count in the same way go on with what the
    /// others have counted.
    pub const fn keeps_a_log(self) -> bool {
        matches!(self, Self::SlidingLog)
    }

    /// The largest quota that it can keep, in units; `None` where none is too large.
    pub const fn max_quota(self) -> Option<u64> {
        match self {
            Self::SlidingWindowCounter | Self::FixedWindow => None,
            Self::SlidingLog => Some(sliding_log::MAX_QUOTA),
        }
    }

    /// What counts have become `windows` later, at the least, if nothing is taken back meanwhile; `None`
    /// where nothing follows from them any more.
    pub const fn counts_later(self, counts: Counts, windows: u64) -> Option<Counts> {
        match self {
            Self::SlidingWindowCounter => sliding_window_counter::counts_later(counts, windows),
            Self::FixedWindow => fixed_window::counts_later(counts, windows),
            // Units leave at any time: when, is told with the decision.
            Self::SlidingLog => None,
        }
    }

    /// Whether a request of `cost` is admitted.
    pub(super) fn admits(self, limit: Limit, counts: Counts, cost: Cost, at: Position) -> bool {
        match self {
            Self::SlidingWindowCounter => sliding_window_counter::admits(limit, counts, cost, at),
            Self::FixedWindow => fixed_window::admits(limit, counts, cost),
            Self::SlidingLog => sliding_log::admits(limit, counts, cost),
        }
    }

    /// The estimate times [`super::Window::length`], so that it stays an integer.
    pub(super) fn scaled_estimate(self, limit: Limit, counts: Counts, at: Position) -> u128 {
        match self {
            Self::SlidingWindowCounter => {
                sliding_window_counter::scaled_estimate(limit, counts, at)
            }
            Self::FixedWindow => fixed_window::scaled_estimate(limit, counts),
            Self::SlidingLog => sliding_log::scaled_estimate(limit, counts),
        }
    }

    /// How long a request of `units` that is not admitted at `at` waits if nobody else comes; by a log, until the unit
    /// of the moment `leaves` does.
    pub(super) fn wait(
        self,
        limit: Limit,
        counts: Counts,
        units: u64,
        at: Position,
        leaves: u64,
    ) -> Wait<u64> {
        match self {
            Self::SlidingWindowCounter => sliding_window_counter::wait(limit, counts, units, at),
            Self::FixedWindow => fixed_window::wait(limit, units, at),
            Self::SlidingLog => sliding_log::wait(limit, units, at, leaves),
        }
    }
}
