//! A moment, as both stores tell it.

use std::time::Duration;

/// A moment in whole milliseconds since the Unix epoch.
///
/// It is always the store's time: Redis `TIME` or the memory store's clock. Moments of two stores
/// are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `millis` milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// The moment `seconds` seconds after the epoch.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn as_seconds(self) -> u64 {
        self.0 / 1000
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The moment `by` after this one, rounded down.
    pub fn later(self, by: Duration) -> Self {
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// This moment moved by `offset_ms` milliseconds, which may be negative.
    pub const fn offset_by(self, offset_ms: i64) -> Self {
        Self(self.0.saturating_add_signed(offset_ms))
    }
}
