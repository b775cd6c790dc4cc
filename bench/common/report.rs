//! What was measured, beside its bound: a table for people, and JSON.

use std::{fmt, fs, path::Path, thread, time::Duration};

use serde_json::{Value, json};

/// All figures so far. Each is printed as soon as it is known.
#[derive(Default)]
pub struct Report {
    rows: Vec<Value>,
    broken: Vec<String>,
}

/// What a figure must be.
#[derive(Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// At least so much, but for the part that runs of the same thing differ by.
    AboutAtLeast(f64),
    /// At most so much, but for that part.
    AboutAtMost(f64),
    Exactly(f64),
    /// Only told.
    None,
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
            Self::AboutAtLeast(bound) => value >= bound * (1.0 - NOISE),
            Self::AboutAtMost(bound) => value <= bound * (1.0 + NOISE),
            Self::Exactly(bound) => value == bound,
            Self::None => true,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) | Self::AboutAtMost(bound) => write!(f, "<= {bound}"),
            Self::AtLeast(bound) | Self::AboutAtLeast(bound) => write!(f, ">= {bound}"),
            Self::Exactly(bound) => write!(f, "= {bound}"),
            Self::None => f.write_str("-"),
        }
    }
}

impl Report {
    pub fn head(&self) {
        println!(
            "{:<12} {:<58} {:>12} {:<6} {:>10}  {:<6} load",
            "scenario", "what", "measured", "", "bound", ""
        );
    }

    /// Adds a figure.
    pub fn add(&mut self, scenario: &str, what: &str, value: f64, unit: &str, bound: Bound) {
        let value = (value * 100.0).round() / 100.0;
        let holds = bound.holds(value);
        let verdict = match bound {
            Bound::None => "",
            _ if holds => "ok",
            _ => "BROKEN",
        };
        let load = load_average();
        let bound = bound.to_string();
        println!(
            "{scenario:<12} {what:<58} {value:>12} {unit:<6} {bound:>10}  {verdict:<6} {load}"
        );
        if !holds {
            self.broken.push(format!("{scenario}: {what}"));
        }
        self.rows.push(json!({
            "scenario": scenario, "what": what, "measured": value, "unit": unit,
            "bound": bound, "holds": holds, "load_average": load,
        }));
    }

    /// Writes the file.
    pub fn write(&self, path: &Path, quick: bool) {
        let text = json!({
            "quick": quick,
            "cpus": thread::available_parallelism().map_or(0, usize::from),
            "rows": self.rows,
            "broken": self.broken,
        });
        let text = serde_json::to_string_pretty(&text).expect("it is JSON");
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
        fs::write(path, text).expect("the results are written");
    }

    /// The bounds that do not hold.
    pub fn broken(&self) -> &[String] {
        &self.broken
    }
}

/// Of the last minute; the machine may have other work.
fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|text| text.parse().ok());
    first.unwrap_or_default()
}

/// In milliseconds.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// The middle one.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What ratios of one run to the next differ by on a machine that has nothing else to do.
const NOISE: f64 = 0.03;
