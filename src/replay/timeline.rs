//! When requests came, and when they were denied: by slices of time that grow as the span does.

use std::collections::BTreeMap;

use crate::ratelimit::Timestamp;

/// Requests by when they came.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// How long a slice is, in milliseconds.
    pub slice_ms: u64,
    /// By its number: the time since the epoch, in slices. Those without requests are left out.
    pub slices: BTreeMap<u64, Slice>,
}

/// What came in one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Requests.
    pub requests: u64,
    /// Of which the rule in force denied so many.
    pub denied: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            slice_ms: 1_000,
            slices: BTreeMap::new(),
        }
    }
}

impl Timeline {
    /// One more request.
    pub(super) fn add(&mut self, at: Timestamp, denied: bool) {
        let slice = self
            .slices
            .entry(at.as_millis() / self.slice_ms)
            .or_default();
        slice.requests += 1;
        slice.denied += u64::from(denied);
        while self.length() > Self::MOST_SLICES {
            self.double();
        }
    }

    /// How many slices there are from the first to the last, empty ones included.
    pub fn length(&self) -> u64 {
        let (first, last) = (self.slices.keys().next(), self.slices.keys().next_back());
        first.zip(last).map_or(0, |(first, last)| last - first + 1)
    }

    fn double(&mut self) {
        self.slice_ms *= 2;
        for (number, slice) in std::mem::take(&mut self.slices) {
            let doubled = self.slices.entry(number / 2).or_default();
            doubled.requests += slice.requests;
            doubled.denied += slice.denied;
        }
    }

    /// As many as can be told apart in a picture.
    pub const MOST_SLICES: u64 = 150;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_with_the_span_and_lose_nothing() {
        let mut timeline = Timeline::default();
        for second in 0..10_000 {
            timeline.add(
                Timestamp::from_seconds(1_000_000 + second),
                second % 10 == 0,
            );
        }
        assert_eq!(timeline.slice_ms, 128_000);
        assert!(timeline.length() <= Timeline::MOST_SLICES);
        timeline.add(Timestamp::from_seconds(0), false);
        let slices = timeline.slices.values();
        let total = slices.fold((0, 0), |(requests, denied), slice| {
            (requests + slice.requests, denied + slice.denied)
        });
        assert_eq!(total, (10_001, 1_000));
        assert!(timeline.length() <= Timeline::MOST_SLICES);
    }
}
