//! The access log: what is told of a request, in one line. Pure: an [`AccessRecord`] is plain data, [`line()`] makes
//! text of it, and [`AccessLog`] says of which requests.
//!
//! What a client wrote is told in printable ASCII, without quotes, and cut where it is long
//! ([`Escaped`]): no request can end its line, or look like another. Queries and headers, where
//! keys are, have no place in a record but for the host. Collecting a record is `proxy`'s, and writing the line out
//! the command's.

mod date;
mod record;
mod sample;

pub use record::{AccessRecord, Escaped, Reported, RequestEnd, UpstreamPart, line};

use self::sample::Sample;

/// Whether and how requests are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// What a line looks like.
    pub format: AccessFormat,
    /// How many of a million requests are logged, from 1 to 1,000,000. Default all.
    pub per_million: u32,
}

/// What a line of the access log looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFormat {
    /// One flat JSON object.
    Json,
    /// The common log format of the Apache HTTP server, then what the limiter decided, and milliseconds.
    Common,
}

/// The access log of one configuration.
#[derive(Debug)]
pub struct AccessLog {
    format: AccessFormat,
    sample: Sample,
}

impl AccessLog {
    /// One that has logged nothing so far.
    pub fn new(settings: AccessLogSettings) -> Self {
        Self {
            format: settings.format,
            sample: Sample::new(settings.per_million),
        }
    }

    /// What a line looks like.
    pub fn format(&self) -> AccessFormat {
        self.format
    }

    /// Whether the next request is logged; each is to be asked about once.
    pub fn takes_next(&self) -> bool {
        self.sample.takes_next()
    }
}

/// The target under which lines are handed to `tracing`, whatever the level of other lines, in a field `line`.
pub const ACCESS_TARGET: &str = "slidegate::access";
