//! When requests were denied.

use crate::{
    cli::{
        replay::{
            page::{
                Figure,
                chart::{Axis, Chart, round_steps},
            },
            table::moment,
        },
        report::span,
    },
    replay::Timeline,
};

/// Requests over time, and those denied.
pub(in crate::cli::replay::page) fn over_time(timeline: &Timeline) -> Figure {
    let title = "Denied over time";
    let slices = &timeline.slices;
    let first = slices.keys().next().copied().unwrap_or_default();
    let place =
        |number: u64, more: f64| ((number - first) as f64 + more) / timeline.length().max(1) as f64;
    let most = slices.values().map(|slice| slice.requests).max();
    let (numbers, end) = round_steps(most.unwrap_or(0) as f64, 1.0);
    let length = span(std::time::Duration::from_millis(timeline.slice_ms));
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

/// In seconds.
const STEPS: [u64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 2_592_000, 7_776_000,
];
