//! What a replay found, for people.

use std::{
    fmt::Write as _,
    io::{self, Write},
    time::Duration,
};

use crate::{
    cli::report::span,
    replay::{ASSUMPTIONS, LimitReport, LogsReport, Outcome, Reading, Report, Suggestion},
};

/// What was read, and what was not.
pub(super) fn reading(
    reading: &Reading,
    logs: Option<&LogsReport>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let formats = reading.formats.iter();
    let formats: Vec<_> = formats
        .map(|(format, lines)| format!("{lines} {format}"))
        .collect();
    let wrappers = reading.wrappers.iter();
    let wrappers =
        wrappers.map(|(wrapper, lines)| format!("; {lines} wrapped ({})", wrapper.name()));
    let how: String = [formats.join(", ")].into_iter().chain(wrappers).collect();
    let requests = reading.requests;
    if requests == 0 {
        return writeln!(out, "0 requests");
    }
    writeln!(out, "{requests} requests: {how}")?;
    if let Some((first, last)) = logs.and_then(|logs| logs.span_ms) {
        let length = span(Duration::from_millis(last - first));
        writeln!(out, "from {} to {}: {length}", moment(first), moment(last))?;
    }
    if reading.not_http > 0 {
        let many = reading.not_http;
        writeln!(
            out,
            "{many} of them are not as HTTP wants them, and count as GET /"
        )?;
    }
    if let Some(logs) = logs.filter(|logs| logs.out_of_order > 0) {
        let (many, by) = (logs.out_of_order, logs.out_of_order_by_ms);
        let by = span(Duration::from_millis(by));
        writeln!(
            out,
            "{many} of them are older than one before, by up to {by}"
        )?;
    }
    if reading.unread() > 0 {
        writeln!(out, "{} lines tell of no request:", reading.unread())?;
        write!(out, "{}", unreadable(reading))?;
    }
    Ok(())
}

/// A line for each reason, and the first lines.
pub(super) fn unreadable(reading: &Reading) -> String {
    let mut text = String::new();
    for (reason, lines) in &reading.unreadable {
        writeln!(text, "  {lines} {reason}").expect("a string takes everything");
    }
    for shown in &reading.shown {
        let (file, line, reason, begins) = (&shown.file, shown.line, shown.reason, &shown.begins);
        writeln!(text, "    {file}:{line}: {reason}: {begins}").expect("a string takes everything");
    }
    text
}

/// What the limits did.
pub(super) fn report(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let had_a_say = |outcome: &&Outcome| !report.limits.is_empty() || outcome.refused > 0;
    let outcome = report.requests.get(report.in_force);
    if let Some(outcome) = outcome.filter(had_a_say) {
        let (passed, denied, refused) = (outcome.passed, outcome.denied, outcome.refused);
        let rule = report.in_force;
        write!(out, "\n{passed} pass and {denied} are denied by {rule}")?;
        match refused {
            0 => writeln!(out)?,
            _ => writeln!(
                out,
                "; {refused} are refused for what they are: blocked, or without the identifier that a policy wants"
            )?,
        }
    } else if report.logs.requests > 0 {
        writeln!(out, "\nno limit was asked about any of them")?;
    }
    if let Some(warning) = forgetful(report) {
        writeln!(out, "{warning}")?;
    }
    for limit in &report.limits {
        one_limit(limit, report.in_force, out)?;
    }
    Ok(())
}

/// What is to be known where memory was short.
pub(super) fn forgetful(report: &Report) -> Option<String> {
    let rules = report.forgetful.join(" and ");
    (!rules.is_empty()).then(|| {
        format!(
            "memory was full: what was counted first is forgotten, so decisions by {rules} may differ from a proxy's\n  \
             hint: replay a shorter log, or one in the order of time"
        )
    })
}

fn one_limit(limit: &LimitReport, in_force: &str, out: &mut dyn Write) -> io::Result<()> {
    let LimitReport {
        policy,
        name,
        requests,
        identifiers,
        ..
    } = limit;
    let plan = limit.plan.iter().map(|plan| format!(", plan {plan}"));
    let shadow = (limit.mode == "shadow").then(|| ", shadow".to_owned());
    let more: String = plan.chain(shadow).collect();
    let (quota, share) = (&limit.limit, percent(limit.share));
    writeln!(out, "\npolicy {policy}{more}: limit {quota} as {name}")?;
    writeln!(
        out,
        "asked about {requests} requests ({share}) of {identifiers} identifiers"
    )?;
    columns(&rules(limit, in_force), out)?;
    for (name, did) in &limit.algorithms {
        if let Some(largest) = did.beyond_max_quota {
            writeln!(
                out,
                "  no configuration takes {name} above {largest} units: its row tells what would be exact"
            )?;
        }
    }
    if limit.worst.is_empty() {
        return Ok(());
    }
    columns(&worst(limit), out)
}

/// What the limit did by each rule, the one in force first, below what the columns are.
pub(super) fn rules(limit: &LimitReport, in_force: &str) -> Vec<Vec<String>> {
    let mut rows = vec![RULES.map(str::to_owned).to_vec()];
    let mut rules: Vec<_> = limit.algorithms.iter().collect();
    rules.sort_by_key(|(name, _)| **name != in_force);
    rows.extend(rules.into_iter().map(|(name, did)| {
        vec![
            (*name).to_owned(),
            did.denied.to_string(),
            percent(did.denied_share),
            did.denied_identifiers.to_string(),
            did.false_allows.to_string(),
            did.false_denials.to_string(),
            did.max_excess.to_string(),
            bytes(did.redis_bytes),
        ]
    }));
    rows
}

/// Whom the limit denied most, below what the columns are.
pub(super) fn worst(limit: &LimitReport) -> Vec<Vec<String>> {
    let mut rows = vec![WORST.map(str::to_owned).to_vec()];
    rows.extend(limit.worst.iter().map(|worst| {
        let (denied, requests) = (worst.denied.to_string(), worst.requests.to_string());
        vec![worst.identifier.clone(), denied, requests]
    }));
    rows
}

const RULES: [&str; 8] = [
    "by",
    "denied",
    "share",
    "identifiers denied",
    "false allows",
    "false denials",
    "largest excess",
    "in Redis",
];

const WORST: [&str; 3] = ["most denied", "denied", "of requests"];

/// What limits would have cost.
pub(super) fn suggestions(suggestions: &[Suggestion], out: &mut dyn Write) -> io::Result<()> {
    for suggestion in suggestions {
        let Suggestion {
            policy,
            window,
            requests,
            identifiers,
            busiest,
            peak,
            ..
        } = suggestion;
        writeln!(
            out,
            "\npolicy {policy}, in {window}: {requests} requests of {identifiers} identifiers"
        )?;
        let (p50, p90, p99, p999, max) = (
            busiest.p50,
            busiest.p90,
            busiest.p99,
            busiest.p999,
            busiest.max,
        );
        writeln!(
            out,
            "busiest {window} of an identifier: half up to {p50}, 90 % up to {p90}, 99 % up to {p99}, 99.9 % up to {p999}, \
             all up to {max}"
        )?;
        writeln!(out, "busiest {window} of all together: {peak}")?;
        let mut rows = vec![CANDIDATES.map(str::to_owned).to_vec()];
        for candidate in &suggestion.candidates {
            let identifiers = u64::try_from(*identifiers).unwrap_or(u64::MAX);
            rows.push(vec![
                candidate.limit.clone(),
                candidate.denied_identifiers.to_string(),
                percent(part(candidate.denied_identifiers, identifiers)),
                candidate.denied.to_string(),
                percent(part(candidate.denied, *requests)),
                candidate.peak.to_string(),
                percent(part(peak - candidate.peak, *peak)),
            ]);
        }
        columns(&rows, out)?;
    }
    if !suggestions.is_empty() {
        writeln!(out, "\nassumed is that")?;
        for assumption in ASSUMPTIONS {
            writeln!(out, "  {assumption}")?;
        }
    }
    Ok(())
}

const CANDIDATES: [&str; 7] = [
    "limit",
    "identifiers denied",
    "share",
    "requests denied",
    "share",
    "busiest of all",
    "cut by",
];

#[expect(
    clippy::cast_precision_loss,
    reason = "a share is told to a few digits"
)]
fn part(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The first column is words.
fn columns(rows: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<usize> = (0..rows[0].len()).filter_map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  "))?;
    }
    Ok(())
}

/// As closely as it is known.
#[expect(
    clippy::cast_precision_loss,
    reason = "three digits are more than is known"
)]
fn bytes(bytes: u64) -> String {
    let (mut size, mut units) = (bytes as f64, ["B", "KB", "MB", "GB"].iter().peekable());
    while let Some(unit) = units.next() {
        if size < 1_000.0 || units.peek().is_none() {
            let digits = usize::from(size < 10.0 && *unit != "B");
            return format!("{size:.digits$} {unit}");
        }
        size /= 1_000.0;
    }
    unreachable!("the last unit takes what is left")
}

/// Neither all nor nothing where it is only nearly so.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.1 {
        return "< 0.1 %".to_owned();
    }
    if percent > 99.9 && percent < 100.0 {
        return "> 99.9 %".to_owned();
    }
    format!("{percent:.1} %")
}

/// As text, in UTC.
pub(super) fn moment(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).map_or_else(|_| "?".to_owned(), |at| at.to_string())
}
