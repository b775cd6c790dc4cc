//! Durations as words: `250ms`, `10s`, `5m`, `1h`.
//!
//! Not the windows of limits, which are `ratelimit`'s own and count in whole seconds up to days.

use std::{fmt, ops::RangeInclusive, time::Duration};

use super::leaf::{Rejected, is_plain_integer};

/// A duration in `range`.
pub fn duration(range: RangeInclusive<Duration>) -> impl Fn(&str) -> Result<Duration, Rejected> {
    move |text| {
        let found = parse(text).filter(|duration| range.contains(duration));
        found.ok_or_else(|| {
            let (low, high) = (Shown(*range.start()), Shown(*range.end()));
            Rejected::new(format!(
                "a duration from {low} to {high}: digits and one of ms, s, m, h, as in 25ms, 2s, 1m"
            ))
        })
    }
}

/// Digits without a leading zero, then one of the units.
fn parse(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let unit = &text[digits.len()..];
    let (_, millis) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    if !is_plain_integer(digits) {
        return None;
    }
    let millis = digits.parse::<u64>().ok()?.checked_mul(millis)?;
    Some(Duration::from_millis(millis))
}

/// A duration in the largest unit that divides it.
struct Shown(Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let fits =
            |(_, size): &(&str, u64)| millis != 0 && millis.is_multiple_of(u128::from(*size));
        let (unit, size) = UNITS.into_iter().rev().find(fits).unwrap_or(UNITS[0]);
        write!(f, "{}{unit}", millis / u128::from(size))
    }
}

/// Each with its milliseconds, ascending.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_digits_and_a_unit() {
        for (word, millis) in [
            ("0s", 0),
            ("25ms", 25),
            ("2s", 2_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse(word), Some(Duration::from_millis(millis)), "{word}");
        }
    }

    #[test]
    fn a_duration_that_surprises_is_refused() {
        for word in [
            "",
            "5",
            "s",
            "05s",
            "+5s",
            "-5s",
            "1.5s",
            "1e3ms",
            "1_0s",
            "5 s",
            "5S",
            "5sec",
            "1d",
            "1m30s",
            "99999999999999999h",
            "٣s",
        ] {
            assert_eq!(parse(word), None, "{word}");
        }
    }

    #[test]
    fn a_range_is_told_in_the_words_that_are_accepted() {
        let read = duration(Duration::from_millis(1)..=Duration::from_secs(10));
        assert_eq!(read("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(read("10s"), Ok(Duration::from_secs(10)));
        for word in ["0ms", "11s"] {
            let accepted = read(word).expect_err(word).accepted;
            assert!(accepted.contains("from 1ms to 10s"), "{accepted}");
        }
    }
}
