//! Verdicts and errors as HTTP: the only place with statuses and headers.

/// How responses are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseSettings {
    /// Whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are sent. Default true.
    pub x_ratelimit: bool,
    /// Whether `RateLimit-Policy` and `RateLimit` are sent. Default true.
    pub ratelimit: bool,
    /// What `X-RateLimit-Reset` holds. Default [`ResetFormat::Epoch`].
    pub x_ratelimit_reset: ResetFormat,
    /// What the body of a denial is. Default [`DenialBody::ProblemJson`].
    pub denial_body: DenialBody,
}

/// What `X-RateLimit-Reset` holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetFormat {
    /// The start of the next window in epoch seconds, as GitHub does.
    #[default]
    Epoch,
    /// Seconds from now until then.
    Seconds,
}

/// What the body of a denial is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenialBody {
    /// `application/problem+json` (RFC 9457).
    #[default]
    ProblemJson,
    /// One line of `text/plain`.
    Text,
}
