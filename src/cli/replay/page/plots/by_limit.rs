//! How often other limits would have been misjudged.

use crate::{
    cli::replay::{
        page::{
            Figure,
            chart::{Axis, Chart, round_steps},
        },
        table::percent,
    },
    ratelimit::Algorithm,
    replay::{LimitReport, Report, RuleReport},
};

/// How often each algorithm is wrong, had the limit been another: the same limit out of several reports.
pub(in crate::cli::replay::page) fn by_limit(limits: &[&LimitReport]) -> Figure {
    let title = "How often it would be wrong by another limit";
    let all = LINES.iter().flat_map(|line| line.shares(limits));
    let most = all.map(|(share, _)| share).fold(0.0, f64::max);
    let (numbers, end) = round_steps(most, 0.0);
    let place = |limit: usize| (limit as f64 + 0.5) / limits.len() as f64;
    let names = limits.iter().enumerate();
    let across = Axis {
        label: "limit".to_owned(),
        ticks: names
            .map(|(at, limit)| (place(at), limit.limit.clone()))
            .collect(),
    };
    let digits = if end < 0.1 { 3 } else { usize::from(end < 5.0) };
    let up = Axis {
        label: "of the requests it was asked about".to_owned(),
        ticks: numbers
            .iter()
            .map(|number| (number / end, format!("{number:.digits$} %")))
            .collect(),
    };
    let told = "Lines: the share of wrong decisions, by limit.";
    let mut chart = Chart::new(300.0, title, told, &across, &up);
    for line in &LINES {
        let shares = line.shares(limits).into_iter().enumerate();
        let points = shares.map(|(at, (share, limit))| {
            let (by, what) = (line.algorithm.name(), line.what);
            let said = format!("{} by {by}: {} {what}", limit.limit, percent(share / 100.0));
            (place(at), share / end, said)
        });
        chart.line(&points.collect::<Vec<_>>(), line.class);
    }
    Figure {
        title,
        read: "All limits of the policies multiplied alike, over the same requests; sliding_log is never wrong.".to_owned(),
        key: &[
            ("one", "sliding_window_counter: false allows"),
            ("one dashed", "its false denials"),
            ("two", "fixed_window: false allows"),
            ("two dashed", "its false denials"),
        ],
        svg: chart.svg(),
    }
}

/// One way of an algorithm to be wrong.
struct Line {
    algorithm: Algorithm,
    wrong: fn(&RuleReport) -> u64,
    class: &'static str,
    what: &'static str,
}

impl Line {
    const fn of_allows(algorithm: Algorithm, class: &'static str) -> Self {
        Self {
            algorithm,
            wrong: |did| did.false_allows,
            class,
            what: "false allows",
        }
    }

    const fn of_denials(algorithm: Algorithm, class: &'static str) -> Self {
        Self {
            algorithm,
            wrong: |did| did.false_denials,
            class,
            what: "false denials",
        }
    }

    /// How often it was, in percent of what it decided, of those limits that it was tried for.
    fn shares<'r>(&self, limits: &[&'r LimitReport]) -> Vec<(f64, &'r LimitReport)> {
        let share = |limit: &&'r LimitReport| {
            let wrong = (self.wrong)(limit.algorithms.get(self.algorithm.name())?);
            let percent = wrong as f64 * 100.0 / limit.requests.max(1) as f64;
            Some((percent, *limit))
        };
        limits.iter().filter_map(share).collect()
    }
}

/// The same limit in each report, the lowest first.
pub(in crate::cli::replay::page) fn same_limit<'r>(
    reports: impl IntoIterator<Item = &'r Report>,
    limit: &LimitReport,
) -> Vec<&'r LimitReport> {
    let same = |other: &&LimitReport| other.slot == limit.slot;
    let mut limits: Vec<_> = reports
        .into_iter()
        .flat_map(|report| report.limits.iter().filter(same))
        .collect();
    limits.sort_by_key(|limit| limit.of.quota());
    limits.dedup_by_key(|limit| limit.of.quota());
    limits
}

const LINES: [Line; 4] = [
    Line::of_allows(Algorithm::SlidingWindowCounter, "one"),
    Line::of_denials(Algorithm::SlidingWindowCounter, "one dashed"),
    Line::of_allows(Algorithm::FixedWindow, "two"),
    Line::of_denials(Algorithm::FixedWindow, "two dashed"),
];
