//! Log lines that repeat, bounded so that they can not become the load: those that clients can cause, and those of what fails
//! again and again.

mod folded;
mod news;

use std::sync::atomic::{AtomicU64, Ordering};

pub use folded::{Event, FOLDED_SECONDS, FoldedLog, KeptBack, Kind, MOST_KINDS};
pub use news::News;

use crate::clock::Clock;

/// Grants so many lines in any second of its clock, and counts the others.
#[derive(Debug)]
pub struct BoundedLog {
    clock: Clock,
    lines: u64,
    /// The second in the upper half, its lines so far in the lower.
    state: AtomicU64,
    suppressed: AtomicU64,
}

impl BoundedLog {
    /// [`LINES_PER_SECOND`] by the seconds of `clock`.
    pub fn new(clock: Clock) -> Self {
        Self::with(clock, LINES_PER_SECOND)
    }

    /// So many lines a second.
    pub fn with(clock: Clock, lines: u64) -> Self {
        Self {
            clock,
            lines,
            state: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Asks for a line: how many were suppressed since the last one, or `None` if this one is to be.
    pub fn line(&self) -> Option<u64> {
        if self.grant() {
            Some(self.take_suppressed())
        } else {
            self.suppress(1);
            None
        }
    }

    /// Whether there is a line to be had, which is then taken.
    fn grant(&self) -> bool {
        self.grant_in(self.clock.now().as_seconds())
    }

    /// The same in this second, which is now.
    fn grant_in(&self, second: u64) -> bool {
        let second = second & LOWER_HALF;
        let next = |state: u64| {
            let lines = if state >> 32 == second {
                state & LOWER_HALF
            } else {
                0
            };
            (lines < self.lines).then_some((second << 32) | (lines + 1))
        };
        self.state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok()
    }

    /// How many were suppressed since this was last asked.
    fn take_suppressed(&self) -> u64 {
        self.suppressed.swap(0, Ordering::Relaxed)
    }

    fn is_any_suppressed(&self) -> bool {
        self.suppressed.load(Ordering::Relaxed) > 0
    }

    /// Whether it ever grants a line.
    const fn is_open(&self) -> bool {
        self.lines > 0
    }

    /// Counts lines that were not asked for.
    fn suppress(&self, lines: u64) {
        if lines > 0 {
            self.suppressed.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

/// Enough to see that it happens and to whom; too few to matter.
pub const LINES_PER_SECOND: u64 = 10;

const LOWER_HALF: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratelimit::Timestamp;

    #[test]
    fn no_second_grants_more_lines_than_the_bound_and_the_next_line_tells_how_many_were_kept_back()
    {
        let clock = Clock::manual(Timestamp::from_seconds(1_000));
        let log = BoundedLog::new(clock.clone());
        let granted = (0..1_000).filter_map(|_| log.line()).count();
        assert_eq!(granted, 10);
        clock.set(Timestamp::from_seconds(1_001));
        assert_eq!(log.line(), Some(990));
        assert_eq!(log.line(), Some(0));
    }
}
