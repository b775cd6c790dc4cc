//! Sizes as words: `512B`, `64KiB`, `1MiB`, `1GiB`.

use std::{fmt, ops::RangeInclusive};

use super::leaf::{Rejected, is_plain_integer};

/// A number of bytes in `range`.
pub fn size(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, Rejected> {
    move |text| {
        let found = parse(text).filter(|size| range.contains(size));
        found.ok_or_else(|| {
            let (low, high) = (Shown(*range.start()), Shown(*range.end()));
            let accepted = format!(
                "a size from {low} to {high}: digits and one of B, KiB, MiB, GiB, as in 64KiB, 1GiB"
            );
            Rejected::new(accepted).hint(hint(text))
        })
    }
}

/// Digits without a leading zero, then one of the units.
fn parse(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let (_, bytes) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    if !is_plain_integer(digits) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(bytes)
}

/// `64k` and `64KB` are thousands to some and 1,024 to others.
fn hint(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].chars().next()?.to_ascii_uppercase();
    let plain = is_plain_integer(digits);
    let meant = UNITS.into_iter().find(|(name, _)| name.starts_with(unit));
    let meant = meant
        .map(|(name, _)| format!("{digits}{name}"))
        .filter(|_| plain)?;
    (meant != text).then(|| format!("write {meant}"))
}

/// A size in the largest unit that divides it.
struct Shown(u64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, bytes): &(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*bytes);
        let (unit, bytes) = UNITS.into_iter().rev().find(fits).unwrap_or(UNITS[0]);
        write!(f, "{}{unit}", self.0 / bytes)
    }
}

/// Each with its bytes, ascending.
const UNITS: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_digits_and_a_unit() {
        for (word, bytes) in [("0B", 0), ("64KiB", 65_536), ("1GiB", 1 << 30)] {
            assert_eq!(parse(word), Some(bytes), "{word}");
        }
    }

    #[test]
    fn a_size_that_surprises_is_refused() {
        for word in [
            "", "1", "KiB", "64k", "64KB", "064KiB", "1.5MiB", "-1B", "1 KiB", "64kib",
        ] {
            assert_eq!(parse(word), None, "{word}");
        }
        assert_eq!(parse("18446744073709551615GiB"), None, "more than there is");
    }

    #[test]
    fn what_was_meant_is_told() {
        for (word, meant) in [("64k", Some("64KiB")), ("1GB", Some("1GiB")), ("1", None)] {
            assert_eq!(
                hint(word),
                meant.map(|meant| format!("write {meant}")),
                "{word}"
            );
        }
    }
}
