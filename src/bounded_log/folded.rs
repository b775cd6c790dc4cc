//! What happened lately, told without repetition: the first of its kind at once, those like it as a number.

use std::time::Duration;

use parking_lot::Mutex;

use super::BoundedLog;
use crate::clock::Clock;

/// Something that is told, and may happen again in the same way.
pub trait Event: Clone {
    /// Whom it is about: however much happens about one, something is heard of the others.
    fn topic(&self) -> &str;

    /// Whether a line about one says what a line about the other would.
    fn is_like(&self, other: &Self) -> bool;

    /// The same of events that are alike, and mostly another of others: by it they are found among many. Where there are
    /// never many, one for all will do.
    fn mark(&self) -> u64 {
        0
    }

    /// Writes a line about it.
    fn tell(&self, kept_back: KeptBack);

    /// Writes a line about so many of any kind, of which no line tells.
    fn tell_number(suppressed: u64);
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
/// Half of the lines, rounded up, are only for topics that had none in that time. Where there are more kinds than
/// [`MOST_KINDS`], one of the topic that has the most of them goes. So no topic, however loud, hides another.
///
/// An event waits for others to be put down, and for nothing else; one that would wait for longer than 50 us
/// is counted as suppressed, and no more.
#[derive(Debug)]
pub struct FoldedLog<E> {
    clock: Clock,
    /// Lines for whoever asks, and how many events had none.
    shared: BoundedLog,
    /// Lines for topics of which none has told lately.
    reserved: BoundedLog,
    recent: Mutex<Recent<E>>,
}

/// An event of some kind, and what is known of its kind.
#[derive(Clone, Debug)]
pub struct Kind<E> {
    /// The last of its kind.
    pub last: E,
    /// How many have come, as far as they are remembered.
    pub times: u64,
    /// The second in which it was last told, and how many have come since.
    told: Option<u64>,
    more: u64,
}

/// What a kind is found by, apart from it: all of them are looked through at an event that is not like the last.
#[derive(Clone, Copy, Debug)]
struct Label {
    /// See [`Event::mark`].
    mark: u64,
    /// When it came last: goes up from event to event.
    at: u64,
    /// The place of its topic.
    topic: usize,
}

#[derive(Debug)]
struct Recent<E> {
    kinds: Vec<Kind<E>>,
    /// Of each kind, in the same place.
    labels: Vec<Label>,
    topics: Vec<Topic>,
    /// Where the last event stands: the next is often like it.
    last: usize,
    events: u64,
    /// The second of the last line about any.
    told: u64,
}

#[derive(Debug)]
struct Topic {
    name: Box<str>,
    /// How many kinds are of it; where there are none, its place is free.
    kinds: usize,
    /// The second in which one of it was last told.
    told: Option<u64>,
}

impl<E: Event> FoldedLog<E> {
    /// Tells at most `lines` a second, by the seconds of `clock`; 0 tells none, and remembers all the same.
    pub fn new(clock: Clock, lines: u64) -> Self {
        let reserved = lines.div_ceil(2);
        Self {
            shared: BoundedLog::with(clock.clone(), lines - reserved),
            reserved: BoundedLog::with(clock.clone(), reserved),
            clock,
            recent: Mutex::new(Recent {
                kinds: Vec::new(),
                labels: Vec::new(),
                topics: Vec::new(),
                last: 0,
                events: 0,
                told: 0,
            }),
        }
    }

    /// Puts an event down, and tells it unless one like it was told a moment ago.
    pub fn add(&self, event: E) {
        let Some(mut recent) = self.recent.try_lock_for(PATIENCE) else {
            self.shared.suppress(1);
            return;
        };
        let (place, lost) = recent.put(event);
        self.shared.suppress(lost);
        let kind = &mut recent.kinds[place];
        if kind.told.is_some() {
            kind.more += 1;
            return;
        }
        let Some(suppressed) = self.line(&mut recent, place) else {
            self.shared.suppress(1);
            return;
        };
        let event = recent.kinds[place].last.clone();
        drop(recent);
        event.tell(KeptBack {
            more: 0,
            suppressed,
        });
    }

    /// Tells how many have come of the kinds whose last line is some time ago, and how many of any kind have had no
    /// line for as long. To be called about once a second.
    pub fn fold(&self) {
        let now = self.second();
        self.tell_those(|told| is_past(told, now));
        let is_quiet = is_past(self.recent.lock().told, now);
        if is_quiet && self.shared.is_any_suppressed() && self.reserved.grant() {
            self.tell_suppressed();
        }
    }

    /// Tells how many have come of each kind that has not been told to the end; and of all for which there is no
    /// line, in one.
    pub fn finish(&self) {
        self.tell_those(|_| true);
        for kind in &mut self.recent.lock().kinds {
            self.shared.suppress(std::mem::take(&mut kind.more));
        }
        if self.reserved.is_open() {
            self.tell_suppressed();
        }
    }

    /// The last events, one of each kind, the newest first.
    pub fn recent(&self) -> Vec<Kind<E>> {
        let recent = self.recent.lock();
        let mut places: Vec<usize> = (0..recent.kinds.len()).collect();
        places.sort_by_key(|place| std::cmp::Reverse(recent.labels[*place].at));
        let kinds = places.into_iter().map(|place| recent.kinds[place].clone());
        kinds.collect()
    }

    fn tell_those(&self, is_due: impl Fn(u64) -> bool) {
        let mut lines = Vec::new();
        let mut recent = self.recent.lock();
        for kind in &mut recent.kinds {
            if kind.more == 0 && kind.told.is_some_and(&is_due) {
                // It has ended: should it begin again, that is news.
                kind.told = None;
            }
        }
        while let Some(place) = recent.longest_untold(&is_due)
            && let Some(suppressed) = self.line(&mut recent, place)
        {
            let kind = &mut recent.kinds[place];
            let more = std::mem::take(&mut kind.more);
            lines.push((kind.last.clone(), KeptBack { more, suppressed }));
        }
        drop(recent);
        for (event, kept_back) in lines {
            event.tell(kept_back);
        }
    }

    fn tell_suppressed(&self) {
        let suppressed = self.shared.take_suppressed();
        if suppressed > 0 {
            E::tell_number(suppressed);
        }
    }

    /// Asks for a line about a kind: how many were suppressed since the last one, or `None` if there is none to be had.
    fn line(&self, recent: &mut Recent<E>, place: usize) -> Option<u64> {
        let now = self.second();
        let kind = &mut recent.kinds[place];
        let topic = &mut recent.topics[recent.labels[place].topic];
        let is_news = topic.told.is_none_or(|told| is_past(told, now));
        let is_granted = is_news && self.reserved.grant_in(now) || self.shared.grant_in(now);
        if !is_granted {
            return None;
        }
        kind.told = Some(now);
        topic.told = Some(now);
        recent.told = now;
        Some(self.shared.take_suppressed())
    }

    fn second(&self) -> u64 {
        self.clock.now().as_seconds()
    }
}

impl<E: Event> Recent<E> {
    /// Where its kind is; and how many of another kind, which had to go for it, have not been told.
    fn put(&mut self, event: E) -> (usize, u64) {
        self.events += 1;
        let (place, lost) = self.place(&event);
        self.last = place;
        self.labels[place].at = self.events;
        let kind = &mut self.kinds[place];
        kind.last = event;
        kind.times += 1;
        (place, lost)
    }

    fn place(&mut self, event: &E) -> (usize, u64) {
        let is_like = |kind: &Kind<E>| kind.last.is_like(event);
        if self.kinds.get(self.last).is_some_and(is_like) {
            return (self.last, 0);
        }
        let mark = event.mark();
        let labels = self.labels.iter().enumerate();
        let mut marked = labels.filter(|(_, label)| label.mark == mark);
        if let Some((place, _)) = marked.find(|(place, _)| is_like(&self.kinds[*place])) {
            return (place, 0);
        }
        let kind = Kind {
            last: event.clone(),
            times: 0,
            told: None,
            more: 0,
        };
        let label = Label {
            mark,
            at: 0,
            topic: self.topic(event.topic()),
        };
        self.topics[label.topic].kinds += 1;
        if self.kinds.len() < MOST_KINDS {
            self.kinds.push(kind);
            self.labels.push(label);
            return (self.kinds.len() - 1, 0);
        }
        let place = self.oldest_of_the_largest_topic();
        let gone = std::mem::replace(&mut self.labels[place], label);
        self.topics[gone.topic].kinds -= 1;
        let gone = std::mem::replace(&mut self.kinds[place], kind);
        (place, gone.more)
    }

    /// The place of a topic, in which none of its kinds may be yet.
    fn topic(&mut self, name: &str) -> usize {
        let is_it = |topic: &Topic| topic.kinds > 0 && &*topic.name == name;
        if let Some(place) = self.topics.iter().position(is_it) {
            return place;
        }
        let topic = Topic {
            name: name.into(),
            kinds: 0,
            told: None,
        };
        match self.topics.iter().position(|topic| topic.kinds == 0) {
            Some(free) => {
                self.topics[free] = topic;
                free
            }
            None => {
                self.topics.push(topic);
                self.topics.len() - 1
            }
        }
    }

    /// The kind that has had no event for longest, of the topics that have the most kinds.
    fn oldest_of_the_largest_topic(&self) -> usize {
        let key = |label: &Label| (std::cmp::Reverse(self.topics[label.topic].kinds), label.at);
        let labels = self.labels.iter().enumerate();
        let oldest = labels.min_by_key(|(_, label)| key(label));
        oldest.map_or(0, |(place, _)| place)
    }

    /// The kind to be told next: of the topic whose last line is the longest ago.
    fn longest_untold(&self, is_due: &impl Fn(u64) -> bool) -> Option<usize> {
        let key = |place: &usize| {
            let label = &self.labels[*place];
            (self.topics[label.topic].told, label.at)
        };
        (0..self.kinds.len())
            .filter(|place| {
                let kind = &self.kinds[*place];
                kind.more > 0 && kind.told.is_some_and(is_due)
            })
            .min_by_key(key)
    }
}

const fn is_past(told: u64, now: u64) -> bool {
    now >= told + FOLDED_SECONDS
}

/// How long those like one that was told are only counted: long enough that what goes on for hours is a few lines a
/// minute, and short enough to see that it does.
pub const FOLDED_SECONDS: u64 = 10;

/// Kinds that are remembered.
pub const MOST_KINDS: usize = 128;

/// How long an event waits for others to be put down, each of which takes a microsecond: long enough unless one of
/// their threads is not running, and too short to be felt.
const PATIENCE: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, sync::Arc};

    use super::*;
    use crate::ratelimit::Timestamp;

    /// A kind, a number, and where lines go.
    #[derive(Clone, Debug)]
    struct Told(
        u32,
        u32,
        &'static str,
        Arc<Mutex<Vec<(u32, u32, KeptBack)>>>,
    );

    impl Event for Told {
        fn topic(&self) -> &str {
            self.2
        }

        fn is_like(&self, other: &Self) -> bool {
            self.0 == other.0
        }

        /// Some share it.
        fn mark(&self) -> u64 {
            u64::from(self.0 / 2)
        }

        fn tell(&self, kept_back: KeptBack) {
            self.3.lock().push((self.0, self.1, kept_back));
        }

        fn tell_number(suppressed: u64) {
            NUMBERS.with_borrow_mut(|numbers| numbers.push(suppressed));
        }
    }

    thread_local! {
        /// The lines that tell of no event.
        static NUMBERS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
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
            self.add_of("loud", kind, number);
        }

        fn add_of(&self, topic: &'static str, kind: u32, number: u32) {
            self.log.add(Told(kind, number, topic, self.lines.clone()));
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

        /// The lines since the last look that tell of no event.
        fn numbers() -> Vec<u64> {
            NUMBERS.take()
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
        // One of the lines for all, and one of the two for topics that had none.
        assert_eq!(bench.lines().len(), 2);
        bench.clock.set(Timestamp::from_seconds(1_001));
        bench.add(40, 1);
        assert_eq!(bench.lines(), [(40, 1, 0, 48)]);
    }

    #[test]
    fn what_no_event_comes_to_tell_is_told_as_a_number_after_ten_seconds_or_at_the_end() {
        let bench = Bench::new(1);
        for kind in 0..50 {
            bench.add(kind, 0);
        }
        assert_eq!(bench.lines().len(), 1);
        bench.fold_at(1_009);
        assert!(Bench::numbers().is_empty());
        bench.fold_at(1_010);
        assert_eq!(Bench::numbers(), [49]);
        for kind in 50..60 {
            bench.add(kind, 0);
            bench.add(kind, 1);
        }
        bench.log.finish();
        bench.log.finish();
        let told: u64 = bench
            .lines()
            .iter()
            .map(|(_, _, more, _)| (*more).max(1))
            .sum();
        assert_eq!(told + Bench::numbers().iter().sum::<u64>(), 20);
    }

    #[test]
    fn a_loud_topic_takes_neither_the_lines_nor_the_places_of_another() {
        let bench = Bench::new(4);
        let most = u32::try_from(MOST_KINDS).expect("few");
        for kind in 0..2 * most {
            bench.add(kind, 0);
        }
        assert_eq!(bench.lines().len(), 3);
        bench.add_of("quiet", 1_000, 1);
        assert_eq!(bench.lines(), [(1_000, 1, 0, 2 * u64::from(most) - 3)]);
        bench.add_of("quiet", 1_001, 1);
        assert_eq!(bench.lines(), []);
        for kind in 2 * most..4 * most {
            bench.add(kind, 0);
        }
        let recent: Vec<u32> = bench.log.recent().iter().map(|kind| kind.last.0).collect();
        assert_eq!(recent.len(), MOST_KINDS);
        assert_eq!(recent[MOST_KINDS - 2..], [1_001, 1_000]);
    }

    #[test]
    fn one_kind_of_each_topic_is_told_before_a_second_of_any() {
        let bench = Bench::new(2);
        bench.add(1, 0);
        bench.add(2, 0);
        bench.clock.set(Timestamp::from_seconds(1_001));
        bench.add_of("quiet", 9, 0);
        for kind in [1, 2] {
            bench.add(kind, 1);
        }
        bench.add_of("quiet", 9, 1);
        assert_eq!(bench.lines(), [(1, 0, 0, 0), (2, 0, 0, 0), (9, 0, 0, 0)]);
        bench.fold_at(1_011);
        assert_eq!(bench.lines(), [(1, 1, 1, 0), (9, 1, 1, 0)]);
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
