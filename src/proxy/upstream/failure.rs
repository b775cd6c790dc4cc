//! A request that an upstream did not answer, to be told: once, where many fail alike.

use http::StatusCode;
use pingora::{Error, ErrorType};

use crate::bounded_log::{Event, KeptBack};

/// A request that the upstream did not answer, or could not be sent to it.
#[derive(Clone, Debug)]
pub struct Failure {
    upstream: Box<str>,
    /// Where it went last, or where the upstream is said to be.
    address: Box<str>,
    /// What the client was answered.
    status: StatusCode,
    /// What sort of error it was.
    kind: ErrorType,
    /// All that is known of it.
    error: Box<str>,
}

impl Failure {
    /// Of a request that was not on its way to an upstream yet.
    pub(in crate::proxy) fn before_any(status: StatusCode, error: &Error) -> Self {
        Self::new("", "", status, error)
    }

    pub(super) fn new(upstream: &str, address: &str, status: StatusCode, error: &Error) -> Self {
        Self {
            upstream: upstream.into(),
            address: address.into(),
            status,
            kind: error.etype().clone(),
            error: error.to_string().into(),
        }
    }
}

impl Event for Failure {
    fn topic(&self) -> &str {
        &self.upstream
    }

    /// Details such as a descriptor's number differ each time.
    fn is_like(&self, other: &Self) -> bool {
        self.upstream == other.upstream && self.status == other.status && self.kind == other.kind
    }

    /// Where to look, and what to do.
    fn tell(&self, KeptBack { more, suppressed }: KeptBack) {
        let Self {
            upstream,
            address,
            status,
            error,
            ..
        } = self;
        let (address, what) = match *status {
            StatusCode::BAD_GATEWAY => (
                Some(&**address),
                "A request failed: the upstream did not answer it. Does it run, and does its address name it?",
            ),
            StatusCode::GATEWAY_TIMEOUT => (
                Some(&**address),
                "A request failed: the upstream was too slow. Its connect_timeout, read_timeout and write_timeout bound it.",
            ),
            _ => (None, "A request failed."),
        };
        tracing::warn!(
            upstream,
            address,
            status = status.as_u16(),
            error,
            more,
            suppressed,
            "{what}"
        );
    }

    fn tell_number(suppressed: u64) {
        tracing::warn!(suppressed, "Requests failed, of which no line tells.");
    }
}
