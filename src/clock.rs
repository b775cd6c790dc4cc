//! The only place that reads the time.
//!
//! Everything that decides takes the time as an argument; what has to ask for it holds a [`Clock`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::ratelimit::Timestamp;

/// Tells wall time that never goes back: the wall clock as it was at start, plus monotonic time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System {
        wall_at_start: Timestamp,
        started: Instant,
    },
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The system's time.
    pub fn system() -> Self {
        Self::skewed(0)
    }

    /// The system's time off by `offset_ms` milliseconds, for tests of proxies whose clocks disagree.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn skewed(offset_ms: i64) -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let millis = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Self(Source::System {
            wall_at_start: Timestamp::from_millis(millis).offset_by(offset_ms),
            started: Instant::now(),
        })
    }

    /// A clock that stands at `now` until it is set.
    pub fn manual(now: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(now.as_millis()))))
    }

    /// Sets a manual clock and all its clones.
    ///
    /// # Panics
    /// On a clock that follows the system.
    pub fn set(&self, now: Timestamp) {
        match &self.0 {
            Source::Manual(millis) => millis.store(now.as_millis(), Ordering::Relaxed),
            Source::System { .. } => panic!("only a manual clock is set"),
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System {
                wall_at_start,
                started,
            } => {
                let passed = u64::try_from(elapsed(*started).as_millis()).unwrap_or(u64::MAX);
                Timestamp::from_millis(wall_at_start.as_millis().saturating_add(passed))
            }
            Source::Manual(millis) => Timestamp::from_millis(millis.load(Ordering::Relaxed)),
        }
    }
}

/// A point to measure from, with [`elapsed`].
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn instant() -> Instant {
    Instant::now()
}

/// How long ago `since` was.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn elapsed(since: Instant) -> Duration {
    since.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_clock_tells_wall_time_and_a_skewed_one_is_off_by_its_offset() {
        let (system, ahead) = (Clock::system().now(), Clock::skewed(90_000).now());
        let off = ahead.as_millis() - system.as_millis();
        assert!(system > Timestamp::from_seconds(1_700_000_000));
        assert!((90_000..95_000).contains(&off), "{off}");
    }

    #[test]
    fn a_manual_clock_and_its_clones_stand_where_they_were_set() {
        let clock = Clock::manual(Timestamp::from_seconds(1));
        let clone = clock.clone();
        clock.set(Timestamp::from_seconds(7));
        assert_eq!(clone.now(), Timestamp::from_seconds(7));
    }
}
