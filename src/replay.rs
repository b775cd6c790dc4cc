//! Access logs, read back and decided on again: what would these limits have done to this traffic?
//!
//! `reader` makes records of bytes: `lines` bounds and unzips them, `wrapper` takes off what a container runtime put
//! around them, and `format` says what a line tells of a request. What cannot be read is counted in a [`Reading`],
//! by reason.
//!
//! Nothing here knows a file or a terminal; those are the command's.

mod format;
mod lines;
mod reader;
mod record;
mod stamp;
mod unreadable;
mod wrapper;

pub use format::Format;
pub use lines::LONGEST_LINE;
pub use reader::{Reading, read};
pub use record::Record;
pub use unreadable::{Reason, Unreadable};
pub use wrapper::Wrapper;
