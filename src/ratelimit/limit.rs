//! A limit: so many units per window.

use std::{fmt, str::FromStr};

use super::{ParseWindowError, Window};

/// So many units per window, `100/1m`; 0 units bans.
///
/// Quota × window, in the window's time unit, is below 2^53: Lua's numbers are doubles, and up to
/// there they are exact, so the script decides as this module does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    quota: u64,
    window: Window,
}

impl Limit {
    /// A limit of `quota` units per `window`.
    ///
    /// # Errors
    /// [`ParseLimitError::TooLarge`] if quota × window would pass 2^53.
    pub fn new(quota: u64, window: Window) -> Result<Self, ParseLimitError> {
        match quota.checked_mul(window.length()) {
            Some(product) if product < EXACT => Ok(Self { quota, window }),
            _ => Err(ParseLimitError::TooLarge {
                largest: (EXACT - 1) / window.length(),
                window,
            }),
        }
    }

    /// Units per window.
    pub const fn quota(self) -> u64 {
        self.quota
    }

    /// The window that the quota is for.
    pub const fn window(self) -> Window {
        self.window
    }

    /// The share of this limit that one of `replicas` proxies enforces alone, for a request of
    /// `cost` units: `max(ceil(quota / replicas), cost)` as long as the cost fits the whole limit.
    /// A ban stays a ban.
    pub fn share(self, replicas: u32, cost: u64) -> Self {
        let share = self.quota.div_ceil(u64::from(replicas.max(1)));
        let quota = if cost <= self.quota {
            share.max(cost)
        } else {
            share
        };
        Self { quota, ..self }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.quota, self.window)
    }
}

/// `100/1m`: digits without a leading zero, a slash, a window.
impl FromStr for Limit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (digits, window) = text.split_once('/').ok_or(ParseLimitError::Syntax)?;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !plain || (digits.len() > 1 && digits.starts_with('0')) {
            return Err(ParseLimitError::Syntax);
        }
        let window = window.parse().map_err(ParseLimitError::Window)?;
        Self::new(digits.parse().unwrap_or(u64::MAX), window)
    }
}

/// The text is not a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseLimitError {
    /// Not `<units>/<window>`.
    #[error("a limit is units, a slash and a window, as in 100/1m, 10/1s, 1000/1h")]
    Syntax,
    /// The part after the slash is not a window.
    #[error(transparent)]
    Window(ParseWindowError),
    /// Decisions would no longer be exact in Redis.
    #[error(
        "at most {largest} units fit a window of {window}: units × window stays below 2^53, where Lua is exact"
    )]
    TooLarge {
        /// The largest quota for this window.
        largest: u64,
        /// The window asked for.
        window: Window,
    },
}

/// Doubles hold every integer below this.
const EXACT: u64 = 1 << 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_reads_and_prints_the_same_words() {
        for word in ["100/1m", "10/1s", "1000/1h", "5/30s", "0/1m"] {
            assert_eq!(word.parse::<Limit>().expect(word).to_string(), word);
        }
    }

    #[test]
    fn a_limit_that_surprises_is_refused() {
        for word in [
            "", "100", "/1m", "0100/1m", "+1/1m", "1e3/1m", "1_000/1m", "0x10/1m", "-1/1m",
            " 1/1m", "1.5/1m",
        ] {
            assert_eq!(
                word.parse::<Limit>(),
                Err(ParseLimitError::Syntax),
                "{word}"
            );
        }
        for word in ["100/", "100/minute", "100/1m/1m", "100/60"] {
            let expected = ParseLimitError::Window(ParseWindowError::Syntax);
            assert_eq!(word.parse::<Limit>(), Err(expected), "{word}");
        }
    }

    #[test]
    fn a_limit_is_refused_where_lua_would_no_longer_be_exact() {
        let largest = (EXACT - 1) / 60_000;
        assert!(format!("{largest}/1m").parse::<Limit>().is_ok());
        let refused = format!("{}/1m", largest + 1).parse::<Limit>();
        assert!(
            matches!(refused, Err(ParseLimitError::TooLarge { largest: told, .. }) if told == largest)
        );
        assert!("99999999999999999999999/1s".parse::<Limit>().is_err());
    }

    #[test]
    fn a_share_is_rounded_up_fits_the_cost_and_never_lifts_a_ban() {
        let share = |limit: &str, replicas, cost| {
            limit
                .parse::<Limit>()
                .expect(limit)
                .share(replicas, cost)
                .quota()
        };
        assert_eq!(share("100/1m", 3, 1), 34);
        assert_eq!(
            share("10/1m", 4, 8),
            8,
            "a request that fits the limit fits the share"
        );
        assert_eq!(
            share("10/1m", 4, 11),
            3,
            "one that never fits the limit does not raise it"
        );
        assert_eq!(share("0/1m", 3, 1), 0);
    }
}
