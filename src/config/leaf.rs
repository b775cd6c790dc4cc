//! What single words mean: numbers, switches, names, one of several words.
//!
//! Strict on purpose. YAML readers disagree about `010`, `1_000`, `1e3`, `0x10`, `yes`; here a word is
//! either what every reader takes it for, or it is refused. Words that belong to a component, such as a
//! limit or an identifier source, are parsed by that component's own `FromStr`.

use std::{fmt, ops::RangeInclusive, str::FromStr};

/// Why a word is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// What is.
    pub accepted: String,
    /// What to write instead, where that can be told.
    pub hint: Option<String>,
}

impl Rejected {
    /// Without a hint.
    pub fn new(accepted: impl Into<String>) -> Self {
        Self {
            accepted: accepted.into(),
            hint: None,
        }
    }

    /// With a hint, if there is one.
    pub fn hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }
}

impl<E: std::error::Error> From<E> for Rejected {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// A setting that is one of several words.
pub trait Choice: Copy + 'static {
    /// Every one, in the order in which they are listed.
    const ALL: &'static [Self];

    /// Its word in YAML.
    fn name(self) -> &'static str;
}

/// One of the words of a [`Choice`].
///
/// # Errors
/// If it is none of them.
pub fn choice<C: Choice>(text: &str) -> Result<C, Rejected> {
    let names = || C::ALL.iter().map(|choice| choice.name());
    let found = C::ALL.iter().find(|choice| choice.name() == text);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = names().collect();
        Rejected::new(format!("accepted: {}", names.join(", "))).hint(nearest(text, names))
    })
}

/// An integer in `range`: digits without sign, leading zero, underscore, point or exponent.
pub fn integer<T: FromStr + PartialOrd + fmt::Display>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, Rejected> {
    move |text| {
        let value = is_plain_integer(text).then(|| text.parse().ok()).flatten();
        value.filter(|value| range.contains(value)).ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            Rejected::new(format!("an integer from {low} to {high}, in plain digits"))
                .hint(integer_hint(text))
        })
    }
}

/// A decimal number in `range`: digits, and perhaps a point and up to `decimals` digits.
pub fn decimal(
    range: RangeInclusive<f64>,
    decimals: Decimals,
) -> impl Fn(&str) -> Result<f64, Rejected> {
    move |text| {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = fraction.bytes().all(|byte| byte.is_ascii_digit());
        let plain =
            is_plain_integer(whole) && digits && (1..=decimals as usize).contains(&fraction.len());
        let value = plain.then(|| text.parse().ok()).flatten();
        value.filter(|value| range.contains(value)).ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            Rejected::new(format!(
                "a number from {low} to {high} with at most {}",
                match decimals {
                    Decimals::Two => "two decimals, as in 0.95",
                    Decimals::Four => "four decimals, as in 0.01",
                }
            ))
        })
    }
}

/// How many digits a decimal number has behind its point, at most.
#[derive(Clone, Copy, Debug)]
pub enum Decimals {
    Two = 2,
    Four = 4,
}

/// `true` or `false`.
///
/// # Errors
/// For every other word, `yes` and `True` included.
pub fn boolean(text: &str) -> Result<bool, Rejected> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            let meant = match text.to_ascii_lowercase().as_str() {
                "yes" | "y" | "on" | "true" | "1" => Some("write true"),
                "no" | "n" | "off" | "false" | "0" => Some("write false"),
                _ => None,
            };
            Err(Rejected::new("accepted: true, false").hint(meant.map(str::to_owned)))
        }
    }
}

/// A name that can stand in a Redis key and a metric label as it is.
///
/// # Errors
/// If it does not match `[a-z0-9_-]{1,32}`.
pub fn name(text: &str) -> Result<&str, Rejected> {
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
    };
    if (1..=32).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text)
    } else {
        Err(Rejected::new(
            "a name is 1 to 32 of the characters a-z, 0-9, _ and -",
        ))
    }
}

/// A hint that names the candidate most like `text`, if one is close enough to be a slip.
pub fn nearest<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    if text.len() > 64 {
        return None;
    }
    let distances = candidates
        .into_iter()
        .map(|candidate| (distance(text, candidate), candidate));
    let (distance, candidate) = distances.min()?;
    (distance <= 2 && distance < text.chars().count()).then(|| format!("did you mean {candidate}?"))
}

/// Digits without a leading zero.
pub fn is_plain_integer(text: &str) -> bool {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits && (text.len() == 1 || !text.starts_with('0'))
}

fn integer_hint(text: &str) -> Option<String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits && text.len() > 1 && text.starts_with('0') {
        return Some("a leading zero means octal to some YAML readers".to_owned());
    }
    let plain = text.replace('_', "");
    (plain != text && is_plain_integer(&plain)).then(|| format!("write {plain}"))
}

/// How many characters must be inserted, removed or replaced (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_what_every_reader_takes_it_for_or_it_is_refused() {
        let read = integer(0..=1000);
        for (word, value) in [("0", 0), ("7", 7), ("127", 127), ("1000", 1000)] {
            assert_eq!(read(word), Ok(value), "{word}");
        }
        for word in [
            "",
            "0127",
            "00",
            "+127",
            "-1",
            "0o17",
            "0x10",
            "0b1",
            "1_000",
            "1,000",
            "1e3",
            "10.0",
            "10.",
            " 10",
            "10 ",
            "yes",
            "true",
            "~",
            "null",
            ".inf",
            "1001",
            "٣",
            "99999999999999999999999",
        ] {
            assert!(read(word).is_err(), "{word}");
        }
    }

    #[test]
    fn a_number_has_digits_on_both_sides_of_its_point() {
        let read = decimal(0.0..=10.0, Decimals::Two);
        for (word, value) in [
            ("0", 0.0),
            ("0.90", 0.9),
            ("1", 1.0),
            ("1.05", 1.05),
            ("10", 10.0),
        ] {
            assert_eq!(read(word), Ok(value), "{word}");
        }
        for word in [
            "", ".9", "9.", "00.9", "1e0", "-0.9", "+0.9", "0.9.1", "0,9", "90%", ".nan", ".inf",
            "NaN", "inf", "10.01", "0.9_5", "0.901",
        ] {
            assert!(read(word).is_err(), "{word}");
        }
    }

    #[test]
    fn a_switch_is_true_or_false_and_nothing_that_some_readers_take_for_it() {
        assert_eq!((boolean("true"), boolean("false")), (Ok(true), Ok(false)));
        for word in [
            "yes", "no", "on", "off", "y", "n", "True", "FALSE", "1", "0", "", "t",
        ] {
            assert!(boolean(word).is_err(), "{word}");
        }
    }

    #[test]
    fn a_name_can_stand_in_a_redis_key_and_a_metric_label_as_it_is() {
        let longest = "a".repeat(32);
        for word in ["a", "per-client", "a_b", "0", &longest] {
            assert_eq!(name(word), Ok(word));
        }
        let too_long = "a".repeat(33);
        for word in [
            "", "A", "a:b", "{a}", "a}", "a b", "a\n", "é", "a\0", &too_long,
        ] {
            assert!(name(word).is_err(), "{word:?}");
        }
    }

    #[test]
    fn a_slip_of_two_characters_is_recognised_and_another_word_is_not() {
        let near = |text| nearest(text, ["listen", "limits", "log"]);
        for (slip, meant) in [("listn", "listen"), ("limt", "limits"), ("lgo", "log")] {
            let expected = format!("did you mean {meant}?");
            assert_eq!(near(slip).unwrap_or_default(), expected, "{slip}");
        }
        for word in ["", "x", "retries", "colour"] {
            assert_eq!(near(word), None, "{word}");
        }
    }
}
