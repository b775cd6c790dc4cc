//! Moments as logs of the common format have them.

/// So many seconds after the beginning of 2026, which is a January long.
pub fn stamp(seconds: u64) -> String {
    let (day, hour) = (1 + seconds / 86_400, seconds / 3_600 % 24);
    let (minute, second) = (seconds / 60 % 60, seconds % 60);
    format!("{day:02}/Jan/2026:{hour:02}:{minute:02}:{second:02} +0000")
}
