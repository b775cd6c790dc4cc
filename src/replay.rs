//! Access logs, read back and decided on again: what would these limits have done to this traffic?
//!
//! `reader` makes records of bytes: `lines` bounds and unzips them, `wrapper` takes off what a container runtime put
//! around them, and `format` says what a line tells of a request. What cannot be read is counted in a [`Reading`],
//! by reason.
//!
//! A [`Replay`] decides on the requests: `run` by the limiter of the proxy, by each algorithm on counters of its own,
//! each at its own stamp and in the order of the log. `tally` counts what came of it, limit by limit, and judges each
//! decision by an exact `log` of what was admitted, and its `footprint` is what Redis would have held. A [`Timeline`] and
//! what is [`Near`] a limit are for pictures; a [`Report`] tells it all. Where nobody knows a limit yet, `suggest` tells what
//! each would have cost.
//!
//! Nothing here knows a file or a terminal; those are the command's.

mod footprint;
mod format;
mod lines;
mod log;
mod near;
mod reader;
mod record;
mod report;
mod run;
mod stamp;
mod suggest;
mod tally;
mod timeline;
mod unreadable;
mod wrapper;

pub use format::Format;
pub use lines::LONGEST_LINE;
pub use near::Near;
pub use reader::{Reading, read};
pub use record::Record;
pub use report::{
    Identifiers, LimitReport, LogsReport, Outcome, Report, RuleReport, UnreadableLine, Worst,
};
pub use run::{Replay, Rule};
pub use suggest::{ASSUMPTIONS, Busiest, Candidate, Peaks, Suggesting, Suggestion};
pub use timeline::{Slice, Timeline};
pub use unreadable::{Reason, Unreadable};
pub use wrapper::Wrapper;
