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
    /// Whether that had begun, and the upstream did not end it.
    is_cut_off: bool,
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
            is_cut_off: false,
            kind: error.etype().clone(),
            error: described(error).into(),
        }
    }

    /// Of one whose answer had begun, and ended before its end.
    pub(in crate::proxy) fn cut_off(self) -> Self {
        Self {
            is_cut_off: true,
            ..self
        }
    }
}

/// What is known of an error, within bounds: of a head that is none Pingora tells every byte, the cookies and keys in it too.
fn described(error: &Error) -> String {
    if matches!(error.etype(), ErrorType::InvalidHTTPHeader) {
        return format!("{} {}", error.esource().as_str(), error.etype().as_str());
    }
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

/// The most of an error that is told, in bytes.
const LONGEST: usize = 1_000;

impl Event for Failure {
    fn topic(&self) -> &str {
        &self.upstream
    }

    /// Details such as a descriptor's number differ each time.
    fn is_like(&self, other: &Self) -> bool {
        let what = |of: &Self| (of.status, of.is_cut_off);
        self.upstream == other.upstream && what(self) == what(other) && self.kind == other.kind
    }

    /// Where to look, and what to do.
    fn tell(&self, KeptBack { more, suppressed }: KeptBack) {
        let Self {
            upstream,
            address,
            status,
            is_cut_off,
            error,
            ..
        } = self;
        // What the client was answered is then the upstream's.
        let answered = (!is_cut_off).then(|| status.as_u16());
        let (address, what) = match *status {
            _ if *is_cut_off => (
                Some(&**address),
                "A response was cut off: the upstream began it and did not end it.",
            ),
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
            status = answered,
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
