//! What one request takes from a limit.

use std::{fmt, num::NonZeroU32, str::FromStr};

/// The units that one request takes: an integer from 1 to 4,294,967,295.
///
/// The default is 1, so that a limit counts requests unless a policy says otherwise. There is no cost
/// of 0: a request that costs nothing is one that no policy matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(NonZeroU32);

impl Cost {
    /// The cost of an ordinary request.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// A cost of `units`, or `None` for 0.
    pub const fn new(units: u32) -> Option<Self> {
        match NonZeroU32::new(units) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// How many units this is; at least 1.
    pub const fn units(self) -> u64 {
        self.0.get() as u64
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Cost {
    type Err = ParseCostError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let units = plain.then(|| text.parse().ok()).flatten();
        units.and_then(Self::new).ok_or(ParseCostError)
    }
}

/// The text is not a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cost is an integer from 1 to 4294967295, written in digits without a leading zero")]
pub struct ParseCostError;
