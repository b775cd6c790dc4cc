//! What a store holds of a client, for people.

use std::{
    io::{self, Write},
    time::Duration,
};

use crate::{held::Held, limiter::LimitDecision, policy::Policy};

/// A row for each limit, in columns as wide as they need.
pub(super) fn table(held: &[Held<'_>], out: &mut dyn Write) -> io::Result<()> {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for held in held {
        rows.extend(held.limits.iter().map(|limit| row(held.policy, limit)));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<usize> = (0..HEAD.len()).filter_map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column {
            0..WORDS => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

const HEAD: [&str; 10] = [
    "policy",
    "name",
    "limit",
    "current",
    "previous",
    "estimate",
    "remaining",
    "by this limit",
    "next unit in",
    "window turns in",
];

/// So many columns, from the left, are words.
const WORDS: usize = 3;

fn row(policy: &Policy, held: &LimitDecision) -> [String; HEAD.len()] {
    let decision = &held.decision;
    let named = &policy.tiers.limits(held.tier)[held.limit];
    // A log's window has no turn, and none before it: it ends now, whenever that is.
    let slides = decision.algorithm.keeps_a_log();
    let counted = |told: String| if slides { "-".to_owned() } else { told };
    [
        policy.name.to_string(),
        named.name.to_string(),
        named.limit.to_string(),
        decision.counts.current.to_string(),
        counted(decision.counts.previous.to_string()),
        format!("{:.2}", decision.estimate()),
        decision.remaining().to_string(),
        if decision.allowed {
            "admitted"
        } else {
            "denied"
        }
        .to_owned(),
        decision.next_unit().map_or_else(|| "-".to_owned(), span),
        counted(span(decision.reset().since(decision.now))),
    ]
}

/// `850ms`, `14s`, `2m 5s`, `29d 23h`: never shorter than it is, and in two units at most.
pub(super) fn span(length: Duration) -> String {
    let millis = length.as_millis();
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    const UNITS: [(u128, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let mut seconds = millis.div_ceil(1_000);
    let largest = UNITS.iter().position(|(size, _)| seconds >= *size);
    let smallest = (largest.unwrap_or_default() + 1).min(UNITS.len() - 1);
    seconds = seconds.next_multiple_of(UNITS[smallest].0);
    let mut words = Vec::new();
    for (size, suffix) in UNITS {
        if seconds >= size {
            words.push(format!("{}{suffix}", seconds / size));
            seconds %= size;
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_two_units_and_never_shorter_than_it_is() {
        let told = |millis| span(Duration::from_millis(millis));
        assert_eq!(told(0), "0ms");
        assert_eq!(told(850), "850ms");
        assert_eq!(told(13_001), "14s");
        assert_eq!(told(59_001), "1m");
        assert_eq!(told(125_000), "2m 5s");
        assert_eq!(told(3_600_000), "1h");
        assert_eq!(told(3_541_000), "59m 1s");
        assert_eq!(told(7_141_000), "2h");
        assert_eq!(told(30 * 86_400_000 - 3_600_000), "29d 23h");
    }
}
