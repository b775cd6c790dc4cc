//! Where a limit stands among the peaks of identifiers.

use crate::{
    cli::replay::page::{
        Figure,
        chart::{Axis, Chart},
    },
    replay::{LimitReport, Peaks},
};

/// How many identifiers were how busy in their busiest window.
pub(in crate::cli::replay::page) fn peaks(peaks: &[Peaks], limit: &LimitReport) -> Figure {
    let title = "How busy identifiers were at their busiest";
    let bars = Bars::new(peaks);
    let across = Axis {
        label: format!(
            "units in the busiest {}, wherever it begins",
            limit.of.window()
        ),
        ticks: bars.names(),
    };
    let up = Axis {
        label: "identifiers (logarithmic)".to_owned(),
        ticks: bars.powers(),
    };
    let told = "Bars: identifiers by the units of their busiest window.";
    let mut chart = Chart::new(300.0, title, told, &across, &up);
    bars.draw(&mut chart);
    if let Some(x) = bars.place_of(limit.of.quota()) {
        chart.mark((x, 0.0), (x, 1.0));
        let (anchor, moved) = if x > 0.5 {
            ("end", -6.0)
        } else {
            ("start", 6.0)
        };
        let name = format!("limit {}", limit.limit);
        chart.words((x, 1.0), (moved, 2.0), anchor, &name);
    }
    Figure {
        title,
        read: "Whoever is right of the limit would have met it. A limit stands well where there is a gap.".to_owned(),
        key: &[],
        svg: chart.svg(),
    }
}

/// Bars beside each other, and where what stands in the chart.
struct Bars<'p> {
    peaks: &'p [Peaks],
    /// Identifiers of the highest one.
    most: usize,
}

impl<'p> Bars<'p> {
    fn new(peaks: &'p [Peaks]) -> Self {
        let most = peaks.iter().map(|bar| bar.identifiers).max();
        Self {
            peaks,
            most: most.unwrap_or(1),
        }
    }

    /// From left to right, where one bar is 1 wide.
    fn place(&self, bar: f64) -> f64 {
        bar / self.peaks.len() as f64
    }

    /// A single one is to be seen, so the lowest line is below 1.
    fn height(&self, many: f64) -> f64 {
        (many.log10() + LIFT) / ((self.most as f64).log10() + HEADROOM)
    }

    /// The most units of the bar before.
    fn from(&self, bar: usize) -> u64 {
        bar.checked_sub(1)
            .map_or(0, |before| self.peaks[before].up_to)
    }

    fn name(&self, bar: usize) -> String {
        match (self.from(bar) + 1, self.peaks[bar].up_to) {
            (first, last) if first == last => last.to_string(),
            (first, last) => format!("{first}–{last}"),
        }
    }

    fn names(&self) -> Vec<(f64, String)> {
        let bars = 0..self.peaks.len();
        bars.map(|bar| (self.place(bar as f64 + 0.5), self.name(bar)))
            .collect()
    }

    fn powers(&self) -> Vec<(f64, String)> {
        let powers = (0..9).map(|power| 10_u64.pow(power));
        powers
            .take_while(|many| *many <= self.most as u64)
            .map(|many| (self.height(many as f64), many.to_string()))
            .collect()
    }

    fn draw(&self, chart: &mut Chart) {
        let bars = self.peaks.iter().enumerate();
        for (bar, Peaks { identifiers, .. }) in bars.filter(|(_, bar)| bar.identifiers > 0) {
            let at = bar as f64;
            let top = self.height(*identifiers as f64);
            let (left, right) = (self.place(at + 0.1), self.place(at + 0.9));
            let said = format!("{} units: {identifiers} identifiers", self.name(bar));
            chart.cell((left, 0.0), (right, top), "one", 1.0, &said);
            let above = (self.place(at + 0.5), top);
            chart.words(above, (0.0, -5.0), "middle", &identifiers.to_string());
        }
    }

    /// Where this many units are within their bar, if any has them.
    fn place_of(&self, units: u64) -> Option<f64> {
        let bar = self.peaks.iter().position(|bar| units <= bar.up_to)?;
        let from = self.from(bar);
        let within = (units - from) as f64 / (self.peaks[bar].up_to - from) as f64;
        Some(self.place(bar as f64 + within))
    }
}

/// How far above the ground a single identifier stands, in powers of ten.
const LIFT: f64 = 0.25;

/// Room above the highest bar for its number and the name of the limit, in powers of ten.
const HEADROOM: f64 = 0.65;
