//! Which policies ask about a request, who is counted, and which demands follow. Pure: no clock, no
//! waiting, no store.
//!
//! A [`PolicySet`] is built once from the configuration. For each request, [`PolicySet::asked`] says which policies
//! ask about a [`RequestView`], and the identifier each of them counts. The
//! limiter makes the groups of demands from it.

mod cidr;
mod client;
mod identifier;

use std::sync::Arc;

use smallvec::SmallVec;

pub use cidr::{Cidr, CidrSet, ParseCidrError};
pub use client::{Client, ClientHeader, ClientRule, TrustedProxies};
pub use identifier::{
    Identifier, IdentifierHasher, IdentifierRule, IdentifierSource, KeyTooLong, MAX_HEADER_VALUE,
    MissingIdentifier, ParseIdentifierError, ParseIdentifierSourceError, Refusal,
};

use crate::ratelimit::{Algorithm, Cost, Limit};

/// What policies may see of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Method, target and headers as received.
    pub head: &'a http::request::Parts,
    /// Who sent it, as a [`ClientRule`] found it.
    pub client: Client,
    /// Whether the peer that handed it over is a trusted proxy, so that what it adds counts.
    pub peer_is_trusted: bool,
}

/// Every policy, in configuration order.
#[derive(Debug)]
pub struct PolicySet {
    policies: Vec<Policy>,
    hasher: IdentifierHasher,
}

/// A named rule: how requests are identified, which limits they meet, and what a denial does.
#[derive(Debug)]
pub struct Policy {
    /// Matches `[a-z0-9_-]{1,32}`, so that it can stand in a Redis key and a metric label as it is.
    pub name: Arc<str>,
    /// Who is counted.
    pub identifier: IdentifierRule,
    /// At least one; no two with the same window.
    pub limits: Vec<NamedLimit>,
    /// What a request takes from each limit.
    pub cost: Cost,
    /// When a request is charged.
    pub charge: Charge,
    /// Whether a denial stops the request.
    pub mode: Mode,
    /// What decides when the store cannot.
    pub failure_mode: FailureMode,
}

/// A limit with the name that clients see.
#[derive(Clone, Debug)]
pub struct NamedLimit {
    /// The policy's name, or `<policy>-<window>` where the policy has several limits.
    pub name: Arc<str>,
    /// So many units per window.
    pub limit: Limit,
    /// The rule that decides.
    pub algorithm: Algorithm,
}

/// When a request is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Charge {
    /// When it is admitted.
    AtRequest {
        /// Whether a response of 500 or above, our own 502 and 504 included, takes the charge back.
        take_back_5xx: bool,
    },
    /// When its response's status is one of these; at the request the limit is only asked. Requests in
    /// flight at the same moment may overshoot the limit by as many as they are.
    AtResponse {
        /// Status codes that count, 401 and 403 for failed logins.
        statuses: Vec<http::StatusCode>,
    },
}

impl Charge {
    /// Whether what is counted is known when the request is admitted: then it only ever grows, unless the
    /// store can not charge several policies in one step.
    pub const fn is_final_at_request(&self) -> bool {
        match self {
            Self::AtRequest { take_back_5xx } => !*take_back_5xx,
            Self::AtResponse { .. } => false,
        }
    }
}

impl Default for Charge {
    fn default() -> Self {
        Self::AtRequest {
            take_back_5xx: false,
        }
    }
}

/// Whether a policy's denial stops the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It is counted and shown in metrics, as if it alone decided; the client never notices.
    Shadow,
}

impl Mode {
    /// The word in YAML, labels and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

/// What decides when the store cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureMode {
    /// This proxy's own memory store, at its share of each limit: the default, since it neither stops
    /// the service nor leaves it unprotected.
    #[default]
    Local,
    /// Nobody: the request passes.
    Allow,
    /// Nobody: the request is answered 503.
    Deny,
}

/// A policy that asks about a request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its place in [`PolicySet::policies`].
    pub policy: usize,
    /// Who is counted.
    pub identifier: Identifier,
}

impl PolicySet {
    /// A set of `policies` whose identifiers are hashed by `hasher`.
    pub fn new(policies: Vec<Policy>, hasher: IdentifierHasher) -> Self {
        Self { policies, hasher }
    }

    /// Every policy, in configuration order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Which policies ask about this request, in configuration order, and whom each counts.
    ///
    /// # Errors
    /// A [`Refusal`] if an enforced policy cannot take the identity as sent; the request is then
    /// answered without asking any store. A shadow policy that cannot is left out.
    pub fn asked(&self, view: &RequestView<'_>) -> Result<SmallVec<[Asked; 2]>, Refusal> {
        let mut asked = SmallVec::new();
        for (index, policy) in self.policies.iter().enumerate() {
            match policy.identifier.identify(view, &self.hasher) {
                Ok(Some(identifier)) => asked.push(Asked {
                    policy: index,
                    identifier,
                }),
                Ok(None) => {}
                Err(_) if policy.mode == Mode::Shadow => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(asked)
    }
}
