//! Lines that tell of no request, by reason.

use std::fmt::{self, Write as _};

/// Why a line tells of no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It is in none of the formats.
    Format,
    /// It begins as JSON does, and is none.
    Json,
    /// It is JSON, and of none of the kinds that tell of a request.
    NoRequest,
    /// It has no time that can be read.
    Stamp,
    /// It has no address of a client.
    Client,
    /// Nothing stands in it.
    Empty,
    /// It is longer than [`LONGEST_LINE`](super::LONGEST_LINE).
    TooLong,
    /// Compressed data begins with it, in the middle of a log.
    Compressed,
    /// The compressed data that it is in is broken: what follows is lost.
    BrokenGzip,
    /// A container's runtime cut it, and the rest never came.
    Cut,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::Format,
        Self::Json,
        Self::NoRequest,
        Self::Stamp,
        Self::Client,
        Self::Empty,
        Self::TooLong,
        Self::Compressed,
        Self::BrokenGzip,
        Self::Cut,
    ];

    /// The word in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Json => "json",
            Self::NoRequest => "no_request",
            Self::Stamp => "stamp",
            Self::Client => "client",
            Self::Empty => "empty",
            Self::TooLong => "too_long",
            Self::Compressed => "compressed",
            Self::BrokenGzip => "broken_gzip",
            Self::Cut => "cut",
        }
    }
}

/// For people.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "in no known format",
            Self::Json => "broken JSON",
            Self::NoRequest => "JSON that tells of no request",
            Self::Stamp => "no time that can be read",
            Self::Client => "no client address",
            Self::Empty => "empty",
            Self::TooLong => "longer than 64 KiB",
            Self::Compressed => "compressed data in the middle of the log",
            Self::BrokenGzip => "broken gzip, the rest is lost",
            Self::Cut => "cut by a container runtime, the rest is missing",
        })
    }
}

/// A line that tells of no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The log.
    pub file: String,
    /// Which line of it, from 1.
    pub line: u64,
    /// Why.
    pub reason: Reason,
    /// How it begins, in printable ASCII.
    pub begins: String,
}

/// How a line begins, in printable ASCII: whatever is in it, it cannot write to a terminal but what is seen.
pub(super) fn beginning(line: &[u8]) -> String {
    let mut text = String::new();
    for byte in line.iter().take(LONGEST_BEGINNING) {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => write!(text, "\\x{byte:02x}").expect("a string takes everything"),
        }
    }
    if line.len() > LONGEST_BEGINNING {
        text.push_str("...");
    }
    text
}

/// In bytes: about what fits a line of a terminal.
const LONGEST_BEGINNING: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_printable_and_short() {
        assert_eq!(beginning(b"a\x1b[31m\\\xff\n"), "a\\x1b[31m\\\\\\xff\\x0a");
        let long = beginning(&[0; 70_000]);
        assert_eq!(long.len(), 4 * LONGEST_BEGINNING + 3);
        assert!(long.ends_with("\\x00..."));
    }
}
