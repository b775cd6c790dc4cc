//! A window: how long it is, in which unit its time is counted, and where a moment lies in it.

use std::{fmt, str::FromStr, time::Duration};

use super::Timestamp;

/// The length of a fixed slice of time aligned to the epoch: whole seconds, from 1 s to 366 d.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    seconds: u32,
}

/// The unit in which time inside a window is counted.
///
/// Milliseconds up to a day; seconds above, so that limit × window stays below 2^53 for limits that
/// people use over months.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// For windows up to a day.
    Millisecond,
    /// For windows above a day.
    Second,
}

/// Where a moment lies: in which window, and how far into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// `floor(now / window)`.
    pub number: u64,
    /// Time units since the window began; less than [`Window::length`].
    pub elapsed: u64,
}

impl Window {
    /// The longest window, 366 days: a leap year.
    pub const MAX_SECONDS: u64 = 366 * DAY;

    /// A window of `seconds`, or `None` outside 1 to [`Self::MAX_SECONDS`].
    pub const fn from_seconds(seconds: u64) -> Option<Self> {
        if seconds == 0 || seconds > Self::MAX_SECONDS {
            return None;
        }
        Some(Self {
            seconds: seconds as u32,
        })
    }

    /// The length in seconds.
    pub const fn seconds(self) -> u64 {
        self.seconds as u64
    }

    /// The length as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.seconds())
    }

    /// The unit in which its time is counted.
    pub const fn unit(self) -> TimeUnit {
        if self.seconds() <= DAY {
            TimeUnit::Millisecond
        } else {
            TimeUnit::Second
        }
    }

    /// The length in time units: the W of the rule.
    pub const fn length(self) -> u64 {
        self.seconds() * self.unit().per_second()
    }

    /// Where `now` lies.
    pub const fn position(self, now: Timestamp) -> Position {
        let units = self.moment_of(now);
        Position {
            number: units / self.length(),
            elapsed: units % self.length(),
        }
    }

    /// `now` in time units since the epoch, rounded down.
    pub const fn moment_of(self, now: Timestamp) -> u64 {
        now.as_millis() / self.unit().millis()
    }

    /// The moment `elapsed` time units into the window `number`; `elapsed` may reach past its end.
    pub const fn moment(self, number: u64, elapsed: u64) -> Timestamp {
        let units = number.saturating_mul(self.length()).saturating_add(elapsed);
        Timestamp::from_millis(units.saturating_mul(self.unit().millis()))
    }
}

impl TimeUnit {
    const fn millis(self) -> u64 {
        match self {
            Self::Millisecond => 1,
            Self::Second => 1000,
        }
    }

    const fn per_second(self) -> u64 {
        1000 / self.millis()
    }
}

/// The largest unit that divides it: `1m`, `90s`, `30d`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (suffix, size) = SUFFIXES
            .into_iter()
            .rev()
            .find(|(_, size)| self.seconds().is_multiple_of(*size))
            .expect("every length is a multiple of one second");
        write!(f, "{}{suffix}", self.seconds() / size)
    }
}

/// `10s`, `1m`, `12h` or `30d`: digits without a leading zero, then one suffix.
impl FromStr for Window {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (suffix, size) = SUFFIXES
            .into_iter()
            .find(|(suffix, _)| text.ends_with(suffix))
            .ok_or(ParseWindowError::Syntax)?;
        let digits = &text[..text.len() - suffix.len()];
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !plain || (digits.len() > 1 && digits.starts_with('0')) {
            return Err(ParseWindowError::Syntax);
        }
        digits
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(size))
            .and_then(Self::from_seconds)
            .ok_or(ParseWindowError::OutOfRange)
    }
}

/// The text is not a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseWindowError {
    /// Not digits and a suffix.
    #[error("a window is digits and one of s, m, h, d, as in 10s, 1m, 12h, 30d")]
    Syntax,
    /// Shorter than a second or longer than 366 days.
    #[error("a window lasts from 1s to 366d")]
    OutOfRange,
}

const DAY: u64 = 86_400;
const SUFFIXES: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", DAY)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_reads_and_prints_the_same_words() {
        for word in ["1s", "10s", "90s", "1m", "15m", "1h", "1d", "30d", "366d"] {
            assert_eq!(word.parse::<Window>().expect(word).to_string(), word);
        }
        assert_eq!("60s".parse::<Window>().expect("60s").to_string(), "1m");
    }

    #[test]
    fn a_window_that_is_not_plain_digits_and_a_suffix_is_refused() {
        for word in [
            "", "s", "1", "1ms", "01s", "+1s", "1 s", "1.5h", "1e3s", "1_0s", "-1s", "1M", "٣s",
        ] {
            assert_eq!(
                word.parse::<Window>(),
                Err(ParseWindowError::Syntax),
                "{word}"
            );
        }
        for word in [
            "0s",
            "367d",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert_eq!(
                word.parse::<Window>(),
                Err(ParseWindowError::OutOfRange),
                "{word}"
            );
        }
    }

    #[test]
    fn time_is_counted_in_milliseconds_up_to_a_day_and_in_seconds_above() {
        let day = Window::from_seconds(DAY).expect("a day");
        assert_eq!(
            (day.unit(), day.length()),
            (TimeUnit::Millisecond, 86_400_000)
        );
        let longer = Window::from_seconds(DAY + 1).expect("a day and a second");
        assert_eq!(
            (longer.unit(), longer.length()),
            (TimeUnit::Second, DAY + 1)
        );
    }

    #[test]
    fn a_position_is_aligned_to_the_epoch_and_a_moment_undoes_it() {
        let minute = Window::from_seconds(60).expect("a minute");
        let at = minute.position(Timestamp::from_millis(119_999));
        assert_eq!(
            at,
            Position {
                number: 1,
                elapsed: 59_999
            }
        );
        assert_eq!(minute.moment(1, 59_999), Timestamp::from_millis(119_999));
        assert_eq!(minute.moment(1, 60_000), Timestamp::from_millis(120_000));
        let month = Window::from_seconds(30 * DAY).expect("thirty days");
        let at = month.position(Timestamp::from_millis(30 * DAY * 1000 + 1_999));
        assert_eq!(
            at,
            Position {
                number: 1,
                elapsed: 1
            }
        );
    }
}
