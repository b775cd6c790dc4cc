//! The closed set of rules; each variant is one file here and one file in `lua/`.

mod fixed_window;
mod sliding_window_counter;

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
}

/// What a store holds for one identifier under one limit, as found before the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units admitted in the window in which the request falls.
    pub current: u64,
    /// Units admitted in the window before.
    pub previous: u64,
}

impl Algorithm {
    /// Every algorithm, for tests and documents that walk the list.
    pub const ALL: [Self; 2] = [Self::SlidingWindowCounter, Self::FixedWindow];

    /// Its name in YAML, Lua and the docs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::FixedWindow => "fixed_window",
        }
    }

    /// What counts have become `windows` later, at the least, if nothing is taken back meanwhile; `None`
    /// where nothing follows from them any more.
    pub const fn counts_later(self, counts: Counts, windows: u64) -> Option<Counts> {
        match self {
            Self::SlidingWindowCounter => sliding_window_counter::counts_later(counts, windows),
            Self::FixedWindow => fixed_window::counts_later(counts, windows),
        }
    }

    /// Whether a request of `cost` is admitted.
    pub(super) fn admits(self, limit: Limit, counts: Counts, cost: Cost, at: Position) -> bool {
        match self {
            Self::SlidingWindowCounter => sliding_window_counter::admits(limit, counts, cost, at),
            Self::FixedWindow => fixed_window::admits(limit, counts, cost),
        }
    }

    /// The estimate times [`super::Window::length`], so that it stays an integer.
    pub(super) fn scaled_estimate(self, limit: Limit, counts: Counts, at: Position) -> u128 {
        match self {
            Self::SlidingWindowCounter => {
                sliding_window_counter::scaled_estimate(limit, counts, at)
            }
            Self::FixedWindow => fixed_window::scaled_estimate(limit, counts),
        }
    }

    /// How long a request of `units` that is not admitted at `at` waits if nobody else comes.
    pub(super) fn wait(self, limit: Limit, counts: Counts, units: u64, at: Position) -> Wait<u64> {
        match self {
            Self::SlidingWindowCounter => sliding_window_counter::wait(limit, counts, units, at),
            Self::FixedWindow => fixed_window::wait(limit, units, at),
        }
    }
}
