//! How far estimates stray from what was so.

use crate::{
    cli::replay::page::{
        Figure,
        chart::{Axis, Chart},
    },
    replay::Near,
};

/// What was estimated around the limit, beside what was so.
pub(in crate::cli::replay::page) fn near(near: &Near, in_force: &str) -> Figure {
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
