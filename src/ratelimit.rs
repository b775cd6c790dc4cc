//! The rule of rate limiting, as arithmetic: no clock, no I/O, no HTTP, no fractions.
//!
//! The words, the same everywhere in this repository:
//!
//! - **limit**: so many units per window, `100/1m`. Its number of units is the *quota*.
//! - **window**: a fixed slice of time aligned to the epoch; its *number* is `floor(now / window)`.
//! - **elapsed**: time since the window began, in the window's time unit.
//! - **current**, **previous**: units counted in this window and in the one before.
//! - **estimate**: `current + previous * (window - elapsed) / window`, before the request is charged.
//! - **cost**: the units one request takes.
//! - **decision**: allowed or denied, with everything a client may be told about it.
//!
//! [`decide`], and [`Log`] where units are kept one by one, are the specification; the scripts in `lua/` are tested against it. What a counter is
//! stored in, and what a decision looks like in HTTP, is deliberately absent.

mod algorithm;
mod cost;
mod decision;
mod limit;
mod timestamp;
mod window;

pub use algorithm::{Algorithm, Counts, Leaving, Log};
pub use cost::{Cost, ParseCostError};
pub use decision::{Decision, Judgement, Wait, decide};
pub use limit::{Limit, ParseLimitError};
pub use timestamp::Timestamp;
pub use window::{ParseWindowError, Position, TimeUnit, Window};
