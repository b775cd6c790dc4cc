//! The sliding log: every admitted unit with its moment, so that the trailing window is counted and not estimated.
//!
//! ```text
//!   |--x----x-[--x--xx----------x------x----]
//!             ^ now - W                     ^ now
//!
//!   units = those after now - W: 5
//! ```
//!
//! A unit counts until `W` after its moment, and no longer: in no trailing window more than the quota is admitted.
//! The price is a place for each unit. A unit whose moment lies ahead, since a clock was set back or stamps go
//! back, counts too.
//!
//! Whether a request is admitted follows from the newest units alone, as many as the quota: `cost` fits if and only
//! if of those the one in place `quota - cost + 1`, counted from the newest, has left or never was. So a log that
//! was charged beyond the quota is cut, and decides as if it were not.

use std::collections::VecDeque;

use crate::ratelimit::{Cost, Counts, Limit, Position, Timestamp, Wait, Window};

/// The largest quota, in units. A log has up to twice as many, at up to about 120 bytes each in Redis, and what is done
/// with all of them at once keeps others waiting.
pub(super) const MAX_QUOTA: u64 = 10_000;

/// The units admitted of one identifier under one limit, each with its moment in the window's time unit.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// How many at which moment, the oldest first; no moment twice, and none without units.
    moments: VecDeque<(u64, u64)>,
    units: u64,
}

/// When the units leave for which a client waits; 0 where there is none, and where no log decides.
///
/// Moments of their admission, in the window's time unit: each leaves a window later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Of the last that must leave until the same request is admitted.
    pub request: u64,
    /// Of the last that must leave until one more unit is to be had than now.
    pub unit: u64,
}

impl Log {
    /// Drops the units that no longer count at `now`.
    pub fn drop_left(&mut self, window: Window, now: Timestamp) {
        // Before the epoch there was nothing.
        let Some(from) = window.moment_of(now).checked_sub(window.length()) else {
            return;
        };
        while let Some((_, units)) = self.moments.pop_front_if(|(moment, _)| *moment <= from) {
            self.units -= units;
        }
    }

    /// What it holds; what counts, once [`Self::drop_left`] was called.
    pub fn counts(&self) -> Counts {
        Counts {
            current: self.units,
            previous: 0,
        }
    }

    /// Adds the units of a request. Beyond twice the quota the older ones go, and if all others are as new,
    /// those of the request are left out.
    pub fn charge(&mut self, limit: Limit, cost: Cost, now: Timestamp) {
        let moment = limit.window().moment_of(now);
        let most = 2 * limit.quota();
        let mut over = (self.units + cost.units()).saturating_sub(most);
        while over > 0
            && let Some((oldest, units)) = self.moments.front_mut()
            && *oldest < moment
        {
            let dropped = over.min(*units);
            *units -= dropped;
            self.units -= dropped;
            over -= dropped;
            if *units == 0 {
                self.moments.pop_front();
            }
        }
        self.add(moment, cost.units().saturating_sub(over));
    }

    /// Takes units back that were admitted at `then`, as many as are still here.
    pub fn give_back(&mut self, window: Window, cost: Cost, then: Timestamp) {
        let moment = window.moment_of(then);
        if let Ok(place) = self.place(moment) {
            let units = &mut self.moments[place].1;
            let taken = cost.units().min(*units);
            *units -= taken;
            self.units -= taken;
            if *units == 0 {
                self.moments.remove(place);
            }
        }
    }

    /// When those leave for which a client waits whose request of this cost is `allowed`, or not, and charged where it is.
    pub fn leaving(&self, limit: Limit, cost: Cost, allowed: bool) -> Leaving {
        let quota = limit.quota();
        let place = (quota + 1).checked_sub(cost.units());
        let request = place.filter(|_| !allowed);
        Leaving {
            request: request.map_or(0, |place| self.nth_newest(place)),
            unit: self.nth_newest(quota.min(self.units)),
        }
    }

    /// The newest moment.
    pub fn newest(&self) -> Option<u64> {
        self.moments.back().map(|(moment, _)| *moment)
    }

    /// How many moments it holds: what its size depends on.
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// The moment of the unit in this place, counted from the newest and from 1; 0 without one.
    fn nth_newest(&self, place: u64) -> u64 {
        // From the other end, where those are that somebody waits for.
        let Some(mut older) = self.units.checked_sub(place).filter(|_| place > 0) else {
            return 0;
        };
        for (moment, units) in &self.moments {
            match older.checked_sub(*units) {
                Some(left) => older = left,
                None => return *moment,
            }
        }
        0
    }

    fn add(&mut self, moment: u64, units: u64) {
        if units == 0 {
            return;
        }
        self.units += units;
        match self.place(moment) {
            Ok(place) => self.moments[place].1 += units,
            Err(place) => self.moments.insert(place, (moment, units)),
        }
    }

    /// Where a moment is, or belongs.
    fn place(&self, moment: u64) -> Result<usize, usize> {
        match self.newest() {
            Some(newest) if newest >= moment => {
                self.moments.binary_search_by_key(&moment, |(at, _)| *at)
            }
            _ => Err(self.moments.len()),
        }
    }
}

/// Admitted if and only if `units + cost <= quota`.
pub(super) fn admits(limit: Limit, counts: Counts, cost: Cost) -> bool {
    u128::from(counts.current) + u128::from(cost.units()) <= u128::from(limit.quota())
}

/// `units * W`.
pub(super) fn scaled_estimate(limit: Limit, counts: Counts) -> u128 {
    u128::from(counts.current) * u128::from(limit.window().length())
}

/// Until the unit of the moment `leaves` does, where the quota is large enough.
pub(super) fn wait(limit: Limit, units: u64, at: Position, leaves: u64) -> Wait<u64> {
    if units > limit.quota() {
        return Wait::Never;
    }
    let length = limit.window().length();
    let now = at.number.saturating_mul(length).saturating_add(at.elapsed);
    Wait::For(leaves.saturating_add(length).saturating_sub(now))
}
