//! An exact log: what of one identifier was admitted in the time that still counts.

use std::collections::VecDeque;

/// Units, and the moment at which they were admitted, in the window's time unit.
///
/// Where stamps go back, those that are later count, and what has once left the log does not come back: as
/// `sliding_log` decides.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// By moment. Units of one moment are one entry, so that a log of whole seconds has no more entries than seconds.
    entries: VecDeque<(u64, u64)>,
    units: u64,
}

impl Log {
    /// How many units count at `now`, in a window of this length; what does not count any more is forgotten.
    pub fn units(&mut self, now: u64, window: u64) -> u64 {
        while let Some(&(moment, units)) = self.entries.front()
            && moment.saturating_add(window) <= now
        {
            self.units -= units;
            self.entries.pop_front();
        }
        self.units
    }

    /// Adds units that were admitted at `now`.
    pub fn add(&mut self, now: u64, units: u64) {
        self.units = self.units.saturating_add(units);
        let place = self.entries.partition_point(|(moment, _)| *moment < now);
        match self.entries.get_mut(place) {
            Some((moment, there)) if *moment == now => *there = there.saturating_add(units),
            _ => self.entries.insert(place, (now, units)),
        }
    }

    /// The most units in any window of this length that `now` lies in, each ending at an entry.
    pub fn peak_around(&self, now: u64, window: u64) -> u64 {
        match self.entries.back() {
            Some((last, _)) if *last > now => {}
            _ => return self.units,
        }
        let ends = self.entries.iter().enumerate();
        let ends = ends.filter(|(_, (end, _))| (now..now.saturating_add(window)).contains(end));
        let within = ends.map(|(place, (end, _))| -> u64 {
            let entries = self.entries.iter().take(place + 1).rev();
            let counts = |(moment, _): &&(u64, u64)| moment.saturating_add(window) > *end;
            entries.take_while(counts).map(|(_, units)| units).sum()
        });
        within.max().unwrap_or_default()
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_counts_for_one_window_and_no_longer() {
        let mut log = Log::default();
        log.add(100, 2);
        assert_eq!(log.units(159, 60), 2);
        log.add(159, 1);
        assert_eq!(log.units(160, 60), 1, "100 has left");
        assert_eq!(log.units(219, 60), 0);
        assert_eq!(log.len(), 0);
    }

    #[test]
    fn where_time_goes_back_later_units_count_but_are_in_no_window_with_those_long_before() {
        let mut log = Log::default();
        log.add(1_000, 5);
        assert_eq!(log.units(100, 60), 5);
        log.add(100, 3);
        assert_eq!(log.peak_around(100, 60), 3, "1,000 is far away");
        log.add(130, 1);
        log.add(120, 1);
        assert_eq!(log.peak_around(120, 60), 5, "100, 120 and 130");
        assert_eq!(log.units(170, 60), 7, "all but 100");
    }
}
