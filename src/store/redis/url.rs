//! The URL of a Redis, as the configuration gives it.

use std::{fmt, str::FromStr};

use redis::{ConnectionInfo, IntoConnectionInfo as _};

/// `redis://user:password@host:6379/0` or `unix:/path`.
///
/// It may hold a password: its `Display` and `Debug` are the address alone.
#[derive(Clone)]
pub struct RedisUrl(ConnectionInfo);

impl RedisUrl {
    /// What a client connects with.
    pub(super) fn connection_info(&self) -> &ConnectionInfo {
        &self.0
    }
}

impl FromStr for RedisUrl {
    type Err = ParseRedisUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("rediss:") {
            return Err(ParseRedisUrlError::Tls);
        }
        if !text.starts_with("redis://") && !text.starts_with("unix:/") {
            return Err(ParseRedisUrlError::Scheme);
        }
        text.into_connection_info()
            .map(Self)
            .map_err(|_| ParseRedisUrlError::Syntax)
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.addr().fmt(f)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

/// The text is not the URL of a Redis. The text itself is in no variant: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRedisUrlError {
    /// TLS is asked for.
    #[error("rediss:// is not supported yet: this build has no TLS")]
    Tls,
    /// Another scheme, or none.
    #[error("a Redis is redis://user:password@host:6379/0 or unix:/path/to/socket")]
    Scheme,
    /// The scheme is right and something after it is not.
    #[error("after its scheme this is no Redis URL, as in redis://user:password@host:6379/0")]
    Syntax,
}
