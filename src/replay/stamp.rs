//! When a request was, in the ways that logs write it.
//!
//! By jiff: it reads both forms from bytes and checks them; the crate `time` reads text, and by a description that
//! is slower to follow.

use jiff::fmt::{strtime, temporal::DateTimeParser};

use crate::ratelimit::Timestamp;

/// `22/Jan/2019:03:56:14 +0330`, as the Apache HTTP server writes it.
pub(super) fn common(text: &[u8]) -> Option<Timestamp> {
    let parsed = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    timestamp(parsed.to_timestamp().ok()?)
}

/// `2019-01-22T03:56:14.123+03:30`, with or without a fraction.
pub(super) fn rfc3339(text: &[u8]) -> Option<Timestamp> {
    timestamp(PARSER.parse_timestamp(text).ok()?)
}

/// Seconds since the epoch, with or without a fraction, of which milliseconds are read.
pub(super) fn epoch(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.is_empty() || !digits(seconds) || !digits(fraction) {
        return None;
    }
    let seconds: i64 = seconds.parse().ok()?;
    let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
    let millis = seconds.checked_mul(1000)?;
    let millis = millis.checked_add(fraction.parse().ok()?)?;
    // Before the year 10000, as all moments that can be written as such.
    timestamp(jiff::Timestamp::from_millisecond(millis).ok()?)
}

fn timestamp(moment: jiff::Timestamp) -> Option<Timestamp> {
    let millis = u64::try_from(moment.as_millisecond()).ok()?;
    Some(Timestamp::from_millis(millis))
}

static PARSER: DateTimeParser = DateTimeParser::new();

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(stamp: Option<Timestamp>) -> Option<u64> {
        stamp.map(Timestamp::as_millis)
    }

    #[test]
    fn a_stamp_is_read_in_its_zone() {
        let common = |text: &str| millis(common(text.as_bytes()));
        assert_eq!(common("01/Jan/1970:00:00:00 +0000"), Some(0));
        assert_eq!(common("01/Mar/2000:00:00:00 +0000"), Some(951_868_800_000));
        assert_eq!(
            common("22/Jan/2019:03:56:14 +0330"),
            Some(1_548_116_774_000)
        );
        assert_eq!(common("01/Aug/1995:00:00:01 -0400"), Some(807_249_601_000));
        for text in ["yesterday", "31/Feb/2019:00:00:00 +0000", "-", ""] {
            assert_eq!(common(text), None, "{text}");
        }
    }

    #[test]
    fn a_fraction_counts_to_the_millisecond() {
        let rfc3339 = |text: &str| millis(rfc3339(text.as_bytes()));
        let moment = 1_638_972_163_464;
        assert_eq!(rfc3339("2021-12-08T14:02:43.464763557Z"), Some(moment));
        assert_eq!(rfc3339("2021-12-08T15:02:43.464+01:00"), Some(moment));
        assert_eq!(
            rfc3339("2021-12-08T14:02:43Z"),
            Some(moment / 1000 * 1000),
            "whole seconds stay whole"
        );
        assert_eq!(rfc3339("2021-12-08"), None);
        assert_eq!(millis(epoch("1693840791.7564995")), Some(1_693_840_791_756));
        assert_eq!(millis(epoch("1693840791.5")), Some(1_693_840_791_500));
        assert_eq!(millis(epoch("1693840791")), Some(1_693_840_791_000));
        for text in [
            "",
            ".5",
            "-1",
            "1e9",
            "253402300800",
            "9223372036854775.999",
            "18446744073709551.999",
            "99999999999999999999",
        ] {
            assert_eq!(epoch(text), None, "{text}");
        }
    }
}
