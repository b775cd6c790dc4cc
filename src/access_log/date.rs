//! A moment as logs write it, in UTC.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::ratelimit::Timestamp;

/// `2026-12-02T16:57:26.123Z` (RFC 3339).
#[derive(Clone, Copy, Debug)]
pub struct Rfc3339(pub Timestamp);

/// `02/Dec/2026:16:57:26 +0000`, as the Apache HTTP server has it.
#[derive(Clone, Copy, Debug)]
pub struct CommonDate(pub Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0);
        let (hour, minute, second) = time(self.0);
        let milli = self.0.as_millis() % 1000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
        )
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for CommonDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0);
        let (hour, minute, second) = time(self.0);
        let month = MONTHS[month - 1];
        write!(
            f,
            "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000"
        )
    }
}

/// Year, month from 1 to 12, and day, by the Gregorian calendar, whose years are taken to begin in March: then the
/// leap day is the last, and 400 years have 146,097 days (Hinnant, "chrono-compatible low-level date algorithms").
fn date(at: Timestamp) -> (u64, usize, u64) {
    let days = at.as_seconds() / SECONDS_A_DAY + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, later) = match month_from_march {
        10.. => (month_from_march - 9, 1),
        _ => (month_from_march + 3, 0),
    };
    let month = usize::try_from(month).expect("a month is at most 12");
    (era * 400 + year_of_era + later, month, day)
}

/// Hour, minute and second.
fn time(at: Timestamp) -> (u64, u64, u64) {
    let seconds = at.as_seconds() % SECONDS_A_DAY;
    (seconds / 3600, seconds / 60 % 60, seconds % 60)
}

const SECONDS_A_DAY: u64 = 86_400;

/// From the first of March of the year 0.
const DAYS_BEFORE_1970: u64 = 719_468;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// As `date -u -d @<seconds>` has them.
    #[test]
    fn days_are_those_of_the_calendar_leap_days_and_turns_of_the_year_among_them() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000Z"),
            (1_798_761_600, "2027-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            let at = Timestamp::from_seconds(seconds);
            assert_eq!(Rfc3339(at).to_string(), expected);
        }
    }

    #[test]
    fn every_day_of_four_hundred_years_follows_the_one_before() {
        let day = |number: u64| date(Timestamp::from_seconds(number * SECONDS_A_DAY));
        for number in 0..146_097 {
            let ((year, month, this), next) = (day(number), day(number + 1));
            let follows = next == (year, month, this + 1)
                || this >= 28 && next == (year, month + 1, 1)
                || this == 31 && month == 12 && next == (year + 1, 1, 1);
            assert!(follows, "{year}-{month}-{this}, then {next:?}");
        }
        assert_eq!(day(146_097), (2370, 1, 1));
    }

    #[test]
    fn the_common_form_names_the_month_and_leaves_out_milliseconds() {
        let at = Timestamp::from_millis(1_798_761_599_999);
        assert_eq!(CommonDate(at).to_string(), "31/Dec/2026:23:59:59 +0000");
        assert_eq!(Rfc3339(at).to_string(), "2026-12-31T23:59:59.999Z");
    }
}
