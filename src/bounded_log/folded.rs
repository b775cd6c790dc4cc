//! What happened lately, told without repetition: the first of its kind at once, those like it as a number.

use parking_lot::Mutex;

use super::BoundedLog;
use crate::clock::Clock;

/// Something that is told, and may happen again in the same way.
pub trait Event: Clone {
    /// Whether a line about one says what a line about the other would.
    fn is_like(&self, other: &Self) -> bool;

    /// Writes a line about it.
    fn tell(&self, kept_back: KeptBack);
}

/// What a line stands for beside the event that it tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBack {
    /// So many like it have come since the last line about one, this one among them. 0: it is the first.
    pub more: u64,
    /// So many of any kind have not been told since the last line, by the bound of lines.
    pub suppressed: u64,
}

/// Remembers the last events, and tells of each kind at most once in [`FOLDED_SECONDS`].
///
/// An event never waits: one that comes while another is being put down is counted as suppressed, and no more.
#[derive(Debug)]
pub struct FoldedLog<E> {
    clock: Clock,
    bound: BoundedLog,
    recent: Mutex<Recent<E>>,
}

/// An event of some kind, and what is known of its kind.
#[derive(Clone, Debug)]
pub struct Kind<E> {
    /// The last of its kind.
    pub last: E,
    /// How many have come, as far as they are remembered.
    pub times: u64,
    /// Goes up from event to event.
    at: u64,
    /// The second in which it was last told, and how many have come since.
    told: Option<u64>,
    more: u64,
}

#[derive(Debug)]
struct Recent<E> {
    kinds: Vec<Kind<E>>,
    /// Where the last event stands: the next is often like it.
    last: usize,
    events: u64,
}

impl<E: Event> FoldedLog<E> {
    /// Tells at most `lines` a second, by the seconds of `clock`; 0 tells none, and remembers all the same.
    pub fn new(clock: Clock, lines: u64) -> Self {
        Self {
            bound: BoundedLog::with(clock.clone(), lines),
            clock,
            recent: Mutex::new(Recent {
                kinds: Vec::new(),
                last: 0,
                events: 0,
            }),
        }
    }

    /// Puts an event down, and tells it unless one like it was told a moment ago.
    pub fn add(&self, event: E) {
        let Some(mut recent) = self.recent.try_lock() else {
            self.bound.suppress(1);
            return;
        };
        let (kind, lost) = recent.put(event);
        let is_told = kind.told.is_some();
        if is_told {
            kind.more += 1;
        }
        self.bound.suppress(lost);
        if is_told {
            return;
        }
        let Some(suppressed) = self.bound.line() else {
            return;
        };
        kind.told = Some(self.second());
        let event = kind.last.clone();
        drop(recent);
        event.tell(KeptBack {
            more: 0,
            suppressed,
        });
    }

    /// Tells how many have come of the kinds whose last line is some time ago. To be called about once a second.
    pub fn fold(&self) {
        let now = self.second();
        self.tell_those(|told| now >= told + FOLDED_SECONDS);
    }

    /// Tells how many have come of each kind that has not been told to the end.
    pub fn finish(&self) {
        self.tell_those(|_| true);
    }

    /// The last events, one of each kind, the newest first.
    pub fn recent(&self) -> Vec<Kind<E>> {
        let mut kinds = self.recent.lock().kinds.clone();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.at));
        kinds
    }

    fn tell_those(&self, is_due: impl Fn(u64) -> bool) {
        let mut lines = Vec::new();
        let now = self.second();
        for kind in &mut self.recent.lock().kinds {
            if !kind.told.is_some_and(&is_due) {
                continue;
            }
            if kind.more == 0 {
                // It has ended: should it begin again, that is news.
                kind.told = None;
            } else if let Some(suppressed) = self.bound.line() {
                let more = std::mem::take(&mut kind.more);
                kind.told = Some(now);
                lines.push((kind.last.clone(), KeptBack { more, suppressed }));
            }
        }
        for (event, kept_back) in lines {
            event.tell(kept_back);
        }
    }

    fn second(&self) -> u64 {
        self.clock.now().as_seconds()
    }
}

impl<E: Event> Recent<E> {
    /// Its kind; and how many of another kind, which had to go for it, have not been told.
    fn put(&mut self, event: E) -> (&mut Kind<E>, u64) {
        self.events += 1;
        let (place, lost) = self.place(&event);
        self.last = place;
        let kind = &mut self.kinds[place];
        kind.last = event;
        kind.times += 1;
        kind.at = self.events;
        (kind, lost)
    }

    fn place(&mut self, event: &E) -> (usize, u64) {
        let is_like = |kind: &Kind<E>| kind.last.is_like(event);
        if self.kinds.get(self.last).is_some_and(is_like) {
            return (self.last, 0);
        }
        if let Some(place) = self.kinds.iter().position(is_like) {
            return (place, 0);
        }
        let kind = Kind {
            last: event.clone(),
            times: 0,
            at: 0,
            told: None,
            more: 0,
        };
        if self.kinds.len() < MOST_KINDS {
            self.kinds.push(kind);
            return (self.kinds.len() - 1, 0);
        }
        let oldest = (0..self.kinds.len()).min_by_key(|place| self.kinds[*place].at);
        let oldest = oldest.unwrap_or_default();
        let gone = std::mem::replace(&mut self.kinds[oldest], kind);
        (oldest, gone.more)
    }
}

/// How long those like one that was told are only counted: long enough that what goes on for hours is a few lines a
/// minute, and short enough to see that it does.
pub const FOLDED_SECONDS: u64 = 10;

/// Kinds that are remembered; beyond, the one whose last event is the oldest goes.
pub const MOST_KINDS: usize = 128;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ratelimit::Timestamp;

    /// A kind, a number, and where lines go.
    #[derive(Clone, Debug)]
    struct Told(u32, u32, Arc<Mutex<Vec<(u32, u32, KeptBack)>>>);

    impl Event for Told {
        fn is_like(&self, other: &Self) -> bool {
            self.0 == other.0
        }

        fn tell(&self, kept_back: KeptBack) {
            self.2.lock().push((self.0, self.1, kept_back));
        }
    }

    struct Bench {
        clock: Clock,
        log: FoldedLog<Told>,
        lines: Arc<Mutex<Vec<(u32, u32, KeptBack)>>>,
    }

    impl Bench {
        fn new(lines: u64) -> Self {
            let clock = Clock::manual(Timestamp::from_seconds(1_000));
            Self {
                log: FoldedLog::new(clock.clone(), lines),
                clock,
                lines: Arc::default(),
            }
        }

        fn add(&self, kind: u32, number: u32) {
            self.log.add(Told(kind, number, self.lines.clone()));
        }

        fn fold_at(&self, second: u64) {
            self.clock.set(Timestamp::from_seconds(second));
            self.log.fold();
        }

        /// The lines since the last look: kind, number, more, suppressed.
        fn lines(&self) -> Vec<(u32, u32, u64, u64)> {
            let lines = std::mem::take(&mut *self.lines.lock());
            let line = |(kind, number, kept): (u32, u32, KeptBack)| {
                (kind, number, kept.more, kept.suppressed)
            };
            lines.into_iter().map(line).collect()
        }
    }

    #[test]
    fn the_first_of_a_kind_is_told_at_once_and_those_like_it_as_a_number_every_ten_seconds() {
        let bench = Bench::new(10);
        for number in 0..100 {
            bench.add(1, number);
            bench.add(2, number);
        }
        assert_eq!(bench.lines(), [(1, 0, 0, 0), (2, 0, 0, 0)]);
        bench.fold_at(1_009);
        assert_eq!(bench.lines(), []);
        bench.fold_at(1_010);
        assert_eq!(bench.lines(), [(1, 99, 99, 0), (2, 99, 99, 0)]);
        bench.add(1, 100);
        assert_eq!(bench.lines(), []);
        bench.fold_at(1_020);
        assert_eq!(bench.lines(), [(1, 100, 1, 0)]);
        // Kind 2 has ended: one more is news.
        bench.add(2, 100);
        assert_eq!(bench.lines(), [(2, 100, 0, 0)]);
    }

    #[test]
    fn at_the_end_what_was_only_counted_is_told() {
        let bench = Bench::new(10);
        for number in 0..3 {
            bench.add(1, number);
        }
        bench.log.finish();
        assert_eq!(bench.lines(), [(1, 0, 0, 0), (1, 2, 2, 0)]);
        bench.log.finish();
        assert_eq!(bench.lines(), []);
    }

    #[test]
    fn many_kinds_write_no_more_lines_than_the_bound_and_the_next_line_tells_how_many_it_kept_back()
    {
        let bench = Bench::new(3);
        for kind in 0..50 {
            bench.add(kind, 0);
        }
        assert_eq!(bench.lines().len(), 3);
        bench.clock.set(Timestamp::from_seconds(1_001));
        bench.add(40, 1);
        assert_eq!(bench.lines(), [(40, 1, 0, 47)]);
    }

    #[test]
    fn a_bound_of_none_writes_nothing_and_remembers_all_the_same() {
        let bench = Bench::new(0);
        for number in 0..3 {
            bench.add(number, 0);
        }
        bench.log.finish();
        assert_eq!(bench.lines(), []);
        let recent: Vec<u32> = bench.log.recent().iter().map(|kind| kind.last.0).collect();
        assert_eq!(recent, [2, 1, 0]);
    }

    #[test]
    fn the_oldest_kind_goes_where_there_are_too_many_and_its_number_is_not_lost() {
        let bench = Bench::new(1_000);
        bench.add(0, 0);
        bench.add(0, 1);
        let most = u32::try_from(MOST_KINDS).expect("few");
        for kind in 1..=most {
            bench.add(kind, 0);
        }
        let recent = bench.log.recent();
        assert_eq!(recent.len(), MOST_KINDS);
        assert!(recent.iter().all(|kind| kind.last.0 != 0));
        assert_eq!(bench.lines().last(), Some(&(most, 0, 0, 1)));
        for number in 1..5 {
            bench.add(7, number);
        }
        let recent = bench.log.recent();
        assert_eq!(
            (recent[0].last.0, recent[0].last.1, recent[0].times),
            (7, 4, 5)
        );
    }
}
