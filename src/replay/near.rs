//! How far estimates lie from exact counts where it matters: around the limit.

use std::collections::BTreeMap;

/// Decisions around a limit, by what was estimated and what an exact log had, both in percent of the quota.
#[derive(Clone, Debug, Default)]
pub struct Near {
    /// By exact count and estimate, each in cells of [`Self::CELL`] percent; those above [`Self::TO`] are in the last.
    pub cells: BTreeMap<(u64, u64), u64>,
}

impl Near {
    /// One more decision.
    pub(super) fn add(&mut self, exact: u64, estimate: f64, quota: u64) {
        let percent =
            |units: f64| (units * 100.0 / quota as f64).clamp(0.0, Self::TO as f64) as u64;
        let (exact, estimate) = (percent(exact as f64), percent(estimate));
        if quota > 0 && exact.max(estimate) >= Self::FROM {
            let cell = |percent: u64| percent.clamp(Self::FROM, Self::TO - 1) / Self::CELL;
            *self.cells.entry((cell(exact), cell(estimate))).or_default() += 1;
        }
    }

    /// What is below is far from the limit.
    pub const FROM: u64 = 50;
    /// What is above is as bad as this.
    pub const TO: u64 = 150;
    /// The side of a cell.
    pub const CELL: u64 = 5;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_the_limit_is_in_its_cell_and_what_is_far_in_none() {
        let mut near = Near::default();
        near.add(4, 4.9, 10);
        near.add(10, 9.99, 10);
        near.add(0, 30.0, 10);
        near.add(5, 5.0, 0);
        let cells: Vec<_> = near.cells.into_iter().collect();
        assert_eq!(cells, [((10, 29), 1), ((20, 19), 1)]);
    }
}
