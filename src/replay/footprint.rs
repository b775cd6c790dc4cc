//! What one limit would have held in Redis, at its most.
//!
//! By a model, whose figures were measured of Redis 7.0 with hashed identifiers and names of usual length, a key's places
//! in its tables included. A key lasts two windows: of a counter from its first unit on, of a log from its last. What
//! is told is so within a quarter.

use std::collections::BTreeMap;

use crate::ratelimit::{Algorithm, Window};

/// What is held of all identifiers under one limit.
#[derive(Debug)]
pub(super) struct Footprint {
    algorithm: Algorithm,
    window: Window,
    /// How many bytes, by the slice of time in which their keys were last given an end.
    slices: BTreeMap<u64, u64>,
    /// Keys of the slices before it have ended. It never goes back, though stamps may.
    from: u64,
    held: u64,
    /// The most bytes at once.
    pub peak: u64,
}

/// What is held of one identifier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// The slice that its log was last given an end in, and its bytes.
    log: (u64, u64),
    /// The window of its newest counter.
    counter: Option<u64>,
}

impl Footprint {
    pub fn new(algorithm: Algorithm, window: Window) -> Self {
        Self {
            algorithm,
            window,
            slices: BTreeMap::new(),
            from: 0,
            held: 0,
            peak: 0,
        }
    }

    /// An identifier was charged at this moment, and has so many units in its trailing window.
    pub fn charged(&mut self, held: &mut Held, moment: u64, units: u64) {
        let length = self.window.length();
        let slice = moment / length.div_ceil(SLICES);
        self.end(slice);
        let slice = slice.max(self.from);
        if self.algorithm.keeps_a_log() {
            let (before, bytes) = held.log;
            if before >= self.from && bytes > 0 {
                *self.slices.entry(before).or_default() -= bytes;
                self.held -= bytes;
            }
            held.log = (slice.max(before), log_bytes(units));
            self.hold(held.log.0, held.log.1);
        } else if held.counter.is_none_or(|newest| newest < moment / length) {
            held.counter = Some(moment / length);
            self.hold(slice, COUNTER);
        }
        self.peak = self.peak.max(self.held);
    }

    fn hold(&mut self, slice: u64, bytes: u64) {
        *self.slices.entry(slice).or_default() += bytes;
        self.held += bytes;
    }

    /// Lets the keys end whose two windows are over.
    fn end(&mut self, now: u64) {
        self.from = self.from.max(now.saturating_sub(2 * SLICES));
        while let Some(oldest) = self.slices.first_entry()
            && *oldest.key() < self.from
        {
            self.held -= oldest.remove();
        }
    }
}

/// So many to a window: as finely are ends told.
const SLICES: u64 = 8;

/// Bytes of a counter's key.
const COUNTER: u64 = 150;

/// Bytes of a log: packed while it is short.
const fn log_bytes(units: u64) -> u64 {
    match units {
        0..=128 => 190 + 21 * units,
        _ => 125 * units,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(algorithm: Algorithm) -> Footprint {
        Footprint::new(algorithm, "1m".parse().expect("a window"))
    }

    #[test]
    fn counters_of_two_windows_are_held_at_once_and_no_longer() {
        let mut footprint = footprint(Algorithm::SlidingWindowCounter);
        let mut held = Held::default();
        for minute in 0..10 {
            for second in [0, 30] {
                footprint.charged(&mut held, minute * 60_000 + second * 1_000, 1);
            }
        }
        // The third before ends as the window turns, which is told to an eighth of a window.
        assert_eq!(footprint.peak, 3 * COUNTER);
        footprint.charged(&mut held, 3_600_000, 1);
        assert_eq!(footprint.held, COUNTER);
    }

    #[test]
    fn a_log_is_held_once_however_often_it_is_charged() {
        let mut footprint = footprint(Algorithm::SlidingLog);
        let (mut one, mut other) = (Held::default(), Held::default());
        for units in 1..=10 {
            footprint.charged(&mut one, units * 1_000, units);
        }
        footprint.charged(&mut other, 10_000, 200);
        assert_eq!(footprint.peak, log_bytes(10) + log_bytes(200));
        footprint.charged(&mut other, 3_600_000, 1);
        footprint.charged(&mut one, 3_600_000, 1);
        assert_eq!(footprint.held, 2 * log_bytes(1));
    }

    #[test]
    fn where_stamps_go_back_what_has_ended_stays_ended() {
        for algorithm in [Algorithm::SlidingLog, Algorithm::FixedWindow] {
            let mut footprint = footprint(algorithm);
            let (mut one, mut other) = (Held::default(), Held::default());
            footprint.charged(&mut one, 0, 3);
            for moment in [3_600_000, 0, 7_200_000, 60_000] {
                footprint.charged(&mut other, moment, 1);
                footprint.charged(&mut one, moment, 2);
            }
            assert!(
                footprint.held <= log_bytes(1) + log_bytes(2),
                "{footprint:?}"
            );
            assert!(footprint.peak >= 2 * COUNTER, "{footprint:?}");
        }
    }
}
