//! The pictures of the page: what each shows, and how it is read.

use super::{
    Figure,
    chart::{Axis, Chart, round_steps},
};
use crate::{
    cli::replay::table::{moment, percent},
    ratelimit::Algorithm,
    replay::{LimitReport, Near, Peaks, Report, RuleReport, Timeline},
};

/// How many identifiers were how busy in their busiest window.
pub(super) fn peaks(peaks: &[Peaks], limit: &LimitReport) -> Figure {
    let title = "How busy identifiers were at their busiest";
    let window = limit.of.window();
    let most = peaks.iter().map(|bar| bar.identifiers).max();
    // A single one is to be seen, so the lowest line is below 1.
    let height =
        |many: f64| (many.log10() + LIFT) / ((most.unwrap_or(1) as f64).log10() + HEADROOM);
    let place = |bar: f64| bar / peaks.len() as f64;
    let from = |bar: usize| bar.checked_sub(1).map_or(0, |before| peaks[before].up_to);
    let named = |bar: usize| match (from(bar) + 1, peaks[bar].up_to) {
        (first, last) if first == last => last.to_string(),
        (first, last) => format!("{first}–{last}"),
    };
    let across = Axis {
        label: format!("units in the busiest {window}, wherever it begins"),
        ticks: (0..peaks.len())
            .map(|bar| (place(bar as f64 + 0.5), named(bar)))
            .collect(),
    };
    let powers = (0..9).map(|power| 10_u64.pow(power));
    let powers = powers.take_while(|many| *many <= most.unwrap_or(1) as u64);
    let up = Axis {
        label: "identifiers (logarithmic)".to_owned(),
        ticks: powers
            .map(|many| (height(many as f64), many.to_string()))
            .collect(),
    };
    let mut chart = Chart::new(
        300.0,
        title,
        "Bars: identifiers by the units of their busiest window.",
        &across,
        &up,
    );
    for (bar, Peaks { identifiers, .. }) in peaks
        .iter()
        .enumerate()
        .filter(|(_, bar)| bar.identifiers > 0)
    {
        let (left, right, top) = (
            bar as f64 + 0.1,
            bar as f64 + 0.9,
            height(*identifiers as f64),
        );
        let said = format!("{} units: {identifiers} identifiers", named(bar));
        chart.cell((place(left), 0.0), (place(right), top), "one", 1.0, &said);
        chart.words(
            (place(bar as f64 + 0.5), top),
            (0.0, -5.0),
            "middle",
            &identifiers.to_string(),
        );
    }
    let quota = limit.of.quota();
    if let Some(bar) = peaks.iter().position(|bar| quota <= bar.up_to) {
        let within = (quota - from(bar)) as f64 / (peaks[bar].up_to - from(bar)) as f64;
        let x = place(bar as f64 + within);
        chart.mark((x, 0.0), (x, 1.0));
        let (anchor, moved) = if x > 0.5 {
            ("end", -6.0)
        } else {
            ("start", 6.0)
        };
        chart.words(
            (x, 1.0),
            (moved, 2.0),
            anchor,
            &format!("limit {}", limit.limit),
        );
    }
    Figure {
        title,
        read: "Whoever is right of the limit would have met it. A limit stands well where there is a gap.".to_owned(),
        key: &[],
        svg: chart.svg(),
    }
}

/// Requests over time, and those denied.
pub(super) fn over_time(timeline: &Timeline) -> Figure {
    let title = "Denied over time";
    let slices = &timeline.slices;
    let first = slices.keys().next().copied().unwrap_or_default();
    let place =
        |number: u64, more: f64| ((number - first) as f64 + more) / timeline.length().max(1) as f64;
    let most = slices.values().map(|slice| slice.requests).max();
    let (numbers, end) = round_steps(most.unwrap_or(1).max(1) as f64);
    let length = crate::cli::report::span(std::time::Duration::from_millis(timeline.slice_ms));
    let up = Axis {
        label: format!("requests in {length}"),
        ticks: numbers
            .iter()
            .map(|number| (number / end, number.to_string()))
            .collect(),
    };
    let across = Axis {
        label: format!("time (UTC), from {}", moment(first * timeline.slice_ms)),
        ticks: times(timeline, first),
    };
    let mut chart = Chart::new(
        280.0,
        title,
        "Bars: requests, and of them those denied, by when they came.",
        &across,
        &up,
    );
    for (number, slice) in slices {
        let (denied, all) = (slice.denied as f64 / end, slice.requests as f64 / end);
        let (left, right) = (place(*number, 0.04), place(*number, 0.96));
        let when = moment(number * timeline.slice_ms);
        let said = format!(
            "{when}: {} requests, {} denied",
            slice.requests, slice.denied
        );
        chart.cell((left, denied), (right, all), "one", 1.0, &said);
        if slice.denied > 0 {
            chart.cell((left, 0.0), (right, denied), "two", 1.0, &said);
        }
    }
    Figure {
        title,
        read: "By the rule in force, all limits together.".to_owned(),
        key: &[("one", "not denied"), ("two", "denied")],
        svg: chart.svg(),
    }
}

/// Times that divide what is shown, as they are said.
fn times(timeline: &Timeline, first: u64) -> Vec<(f64, String)> {
    let (from, span) = (
        first * timeline.slice_ms,
        timeline.length() * timeline.slice_ms,
    );
    let step = STEPS
        .into_iter()
        .map(|seconds| seconds * 1_000)
        .find(|step| span / step <= 7);
    let step = step.unwrap_or_else(|| (span / 7).max(1));
    let said = |at: u64| {
        let text = moment(at);
        let part = match step {
            0..60_000 => text.get(11..19),
            60_000..86_400_000 => text.get(11..16),
            _ => text.get(..10),
        };
        part.unwrap_or(&text).to_owned()
    };
    let begin = from.next_multiple_of(step);
    let times = (begin..=from + span).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    times
        .map(|at| ((at - from) as f64 / span.max(1) as f64, said(at)))
        .collect()
}

/// What was estimated around the limit, beside what was so.
pub(super) fn near(near: &Near, in_force: &str) -> Figure {
    let title = "Estimate against exact count";
    let place = |percent: f64| (percent - Near::FROM as f64) / (Near::TO - Near::FROM) as f64;
    let ticks = || {
        let ticks = (Near::FROM..=Near::TO).step_by(10);
        ticks
            .map(|percent| (place(percent as f64), format!("{percent} %")))
            .collect()
    };
    let across = Axis {
        label: "exact count of what was admitted in the window before, in percent of the limit"
            .to_owned(),
        ticks: ticks(),
    };
    let up = Axis {
        label: format!("what {in_force} went by, in percent of the limit"),
        ticks: ticks(),
    };
    let mut chart = Chart::new(
        460.0,
        title,
        "Squares: decisions by both counts; on the line both are alike.",
        &across,
        &up,
    );
    let limit = place(100.0);
    chart.cell((limit, 0.0), (1.0, limit), "wash", 1.0, "false allows");
    chart.cell((0.0, limit), (limit, 1.0), "wash", 1.0, "false denials");
    chart.mark((0.0, 0.0), (1.0, 1.0));
    let most = near.cells.values().max().copied().unwrap_or(1) as f64;
    for ((exact, estimate), many) in &near.cells {
        let percent = |cell: u64| (cell * Near::CELL) as f64;
        let (x, y) = (percent(*exact), percent(*estimate));
        let side = Near::CELL as f64;
        let class = if (x >= 100.0) == (y >= 100.0) {
            "one"
        } else {
            "two"
        };
        let strength = 0.35 + 0.65 * (*many as f64).ln_1p() / most.ln_1p();
        let said = format!("exact from {x} %, estimate from {y} %: {many} decisions");
        let (left, right) = (place(x + 0.3), place(x + side - 0.3));
        let (bottom, top) = (place(y + 0.3), place(y + side - 0.3));
        chart.cell((left, bottom), (right, top), class, strength, &said);
    }
    chart.words((1.0, 0.0), (-8.0, -10.0), "end", "false allows");
    chart.words((0.0, 1.0), (8.0, 18.0), "start", "false denials");
    Figure {
        title,
        read: "Each square is decisions of this limit; the stronger, the more. Counts below half of it are left out, those above its \
               one and a half are at the edge. With costs above 1 a denial may be right below 100 %."
            .to_owned(),
        key: &[("one", "decided as an exact log would"), ("two", "decided otherwise")],
        svg: chart.svg(),
    }
}

/// How often each algorithm is wrong, had the limit been another: the same limit out of several reports.
pub(super) fn by_limit(limits: &[&LimitReport]) -> Figure {
    let title = "How often it would be wrong by another limit";
    let shares =
        |algorithm: Algorithm, wrong: fn(&RuleReport) -> u64| -> Vec<(f64, &LimitReport)> {
            let shares = limits.iter().filter_map(|limit| {
                let did = limit.algorithms.get(algorithm.name())?;
                Some((
                    wrong(did) as f64 * 100.0 / limit.requests.max(1) as f64,
                    *limit,
                ))
            });
            shares.collect()
        };
    let allows: fn(&RuleReport) -> u64 = |did| did.false_allows;
    let denials: fn(&RuleReport) -> u64 = |did| did.false_denials;
    let lines = [
        (
            Algorithm::SlidingWindowCounter,
            allows,
            "one",
            "false allows",
        ),
        (
            Algorithm::SlidingWindowCounter,
            denials,
            "one dashed",
            "false denials",
        ),
        (Algorithm::FixedWindow, allows, "two", "false allows"),
        (
            Algorithm::FixedWindow,
            denials,
            "two dashed",
            "false denials",
        ),
    ];
    let all = lines
        .iter()
        .flat_map(|(algorithm, wrong, ..)| shares(*algorithm, *wrong));
    let most = all.map(|(share, _)| share).fold(0.0, f64::max);
    let (numbers, end) = round_steps(if most > 0.0 { most } else { 1.0 });
    let place = |limit: usize| (limit as f64 + 0.5) / limits.len() as f64;
    let across = Axis {
        label: "limit".to_owned(),
        ticks: limits
            .iter()
            .enumerate()
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
    let mut chart = Chart::new(
        300.0,
        title,
        "Lines: the share of wrong decisions, by limit.",
        &across,
        &up,
    );
    for (algorithm, wrong, class, what) in lines {
        let points =
            shares(algorithm, wrong)
                .into_iter()
                .enumerate()
                .map(|(at, (share, limit))| {
                    let said = format!(
                        "{} by {}: {} {what}",
                        limit.limit,
                        algorithm.name(),
                        percent(share / 100.0)
                    );
                    (place(at), share / end, said)
                });
        chart.line(&points.collect::<Vec<_>>(), class);
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

/// The limit at this place of each report, the lowest first.
pub(super) fn same_limit<'r>(
    reports: impl IntoIterator<Item = &'r Report>,
    limit: &LimitReport,
) -> Vec<&'r LimitReport> {
    let same = |other: &&LimitReport| {
        (&other.name, &other.policy, &other.plan) == (&limit.name, &limit.policy, &limit.plan)
    };
    let mut limits: Vec<_> = reports
        .into_iter()
        .flat_map(|report| report.limits.iter().filter(same))
        .collect();
    limits.sort_by_key(|limit| limit.of.quota());
    limits.dedup_by_key(|limit| limit.of.quota());
    limits
}

/// How far above the ground a single identifier stands, in powers of ten.
const LIFT: f64 = 0.25;

/// Room above the highest bar for its number and the name of the limit, in powers of ten.
const HEADROOM: f64 = 0.65;

/// In seconds.
const STEPS: [u64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 2_592_000, 7_776_000,
];
