//! Which requests are logged: an exact share of them, evenly spaced.

use std::sync::atomic::{AtomicU64, Ordering};

/// A share of all requests, the first among them. Not by chance: of any million in a row exactly so many are taken, and
/// of fewer as many as the share says, give or take one.
#[derive(Debug)]
pub struct Sample {
    per_million: u64,
    seen: AtomicU64,
}

impl Sample {
    /// So many of a million; more are all.
    pub fn new(per_million: u32) -> Self {
        Self {
            per_million: u64::from(per_million).min(MILLION),
            seen: AtomicU64::new(0),
        }
    }

    /// Whether the next one is taken. Workers may ask at the same time.
    pub fn takes_next(&self) -> bool {
        if self.per_million == MILLION {
            return true;
        }
        let place = self.seen.fetch_add(1, Ordering::Relaxed) % MILLION;
        let taken_before = |place: u64| (place * self.per_million).div_ceil(MILLION);
        taken_before(place + 1) > taken_before(place)
    }
}

const MILLION: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sample: &Sample, of: usize) -> usize {
        (0..of).filter(|_| sample.takes_next()).count()
    }

    #[test]
    fn of_a_hundred_requests_a_tenth_is_ten_and_of_the_next_hundred_too() {
        let sample = Sample::new(100_000);
        assert_eq!([taken(&sample, 100), taken(&sample, 100)], [10, 10]);
    }

    #[test]
    fn the_first_is_taken_however_small_the_share() {
        for per_million in [1, 100, 333_333, 999_999] {
            assert!(Sample::new(per_million).takes_next(), "{per_million}");
        }
    }

    #[test]
    fn of_a_million_exactly_so_many_are_taken_wherever_one_begins_to_count() {
        for per_million in [1, 7, 333_333, 999_999] {
            let sample = Sample::new(per_million);
            taken(&sample, 1234);
            let expected = usize::try_from(per_million).expect("it is small");
            assert_eq!(taken(&sample, 1_000_000), expected);
        }
    }

    #[test]
    fn all_are_all_and_none_is_none() {
        assert_eq!(taken(&Sample::new(1_000_000), 1000), 1000);
        assert_eq!(taken(&Sample::new(2_000_000), 1000), 1000);
        assert_eq!(taken(&Sample::new(0), 1000), 0);
    }

    #[test]
    fn workers_that_ask_at_the_same_time_take_no_more_together() {
        let sample = Sample::new(250_000);
        let together: usize = std::thread::scope(|scope| {
            let workers = [(); 4].map(|()| scope.spawn(|| taken(&sample, 10_000)));
            let workers = workers.into_iter();
            workers.map(|worker| worker.join().expect("it ends")).sum()
        });
        assert_eq!(together, 10_000);
    }
}
