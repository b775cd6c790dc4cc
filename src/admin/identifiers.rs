//! `/identifiers/<identifier>`: what the store holds of one client, and its deletion. JSON as of the commands `inspect`
//! and `forget`.

use http::{StatusCode, Uri};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::{
    held,
    limiter::Limiter,
    policy::{Identifier, ParseIdentifierError},
    store::StoreError,
};

/// A client under some policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    identifier: Identifier,
    /// Their places.
    policies: Vec<usize>,
}

/// Why there is no such client, or nothing can be told of it. What was asked for is not repeated: it may be a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectionError {
    #[error("{ParseIdentifierError}")]
    Identifier,
    #[error("expected ?policy=<name>, once, or nothing after the identifier")]
    Query,
    #[error("there is no policy of this name; there are {0}")]
    NoSuchPolicy(String),
    #[error("no client is counted by {0}")]
    Uncounted(&'static str),
    #[error("{0}: try again")]
    Store(StoreError),
    #[error(
        "{0}: what this proxy has counted by itself is deleted, what the store holds may not be; try again"
    )]
    HalfForgotten(StoreError),
}

impl SelectionError {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Identifier | Self::Query => StatusCode::BAD_REQUEST,
            Self::NoSuchPolicy(_) | Self::Uncounted(_) => StatusCode::NOT_FOUND,
            Self::Store(_) | Self::HalfForgotten(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Selection {
    /// The client that a target names, under the policies that may count it.
    pub fn of(uri: &Uri, limiter: &Limiter) -> Result<Self, SelectionError> {
        let text = uri.path().strip_prefix(super::IDENTIFIERS);
        let text = percent_decode_str(text.unwrap_or_default());
        let text = text.decode_utf8().map_err(|_| SelectionError::Identifier)?;
        let identifier = text.parse();
        let identifier = identifier.map_err(|ParseIdentifierError| SelectionError::Identifier)?;
        let identifier = limiter.policies().grouped(identifier);

        let policies = limiter.policies().policies();
        let places = match wanted_policy(uri.query())? {
            None => 0..policies.len(),
            Some(name) => {
                let found = policies.iter().position(|policy| *policy.name == *name);
                let found = found.ok_or_else(|| {
                    let names: Vec<&str> = policies.iter().map(|policy| &*policy.name).collect();
                    SelectionError::NoSuchPolicy(names.join(", "))
                })?;
                found..found + 1
            }
        };
        let counting = places.filter(|place| policies[*place].identifier.counts(identifier));
        let policies: Vec<usize> = counting.collect();
        match (policies.is_empty(), identifier) {
            (false, _) => Ok(Self {
                identifier,
                policies,
            }),
            (true, Identifier::Hash(_)) => Err(SelectionError::Uncounted("a hash")),
            (true, _) => Err(SelectionError::Uncounted("an address")),
        }
    }

    /// What the store holds of it.
    pub async fn inspect(&self, limiter: &Limiter) -> Result<Value, SelectionError> {
        let held = held::inspect(limiter, &self.policies, self.identifier).await;
        let held = held.map_err(SelectionError::Store)?;
        Ok(held::inspected(self.identifier, &held))
    }

    /// Deletes it, and tells what it was.
    pub async fn forget(&self, limiter: &Limiter) -> Result<Value, SelectionError> {
        let held = held::inspect(limiter, &self.policies, self.identifier).await;
        // Whatever the store says: this proxy's own memory can be cleared.
        let forgotten = held::forget(limiter, &self.policies, self.identifier).await;
        forgotten.map_err(SelectionError::HalfForgotten)?;
        let held = held.map_err(SelectionError::HalfForgotten)?;
        tracing::info!(identifier = %self.identifier, "The counters of a client were deleted at admin_listen.");
        let denial_cache = limiter.denial_cache();
        Ok(held::forgotten(self.identifier, &held, denial_cache))
    }
}

fn wanted_policy(query: Option<&str>) -> Result<Option<String>, SelectionError> {
    let mut fields = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    match (fields.next(), fields.next()) {
        (None, _) => Ok(None),
        (Some((key, name)), None) if key == "policy" => Ok(Some(name.into_owned())),
        _ => Err(SelectionError::Query),
    }
}
