//! Whom no policy is asked about: who is turned away, and who is let through. Comes before all policies.

use std::collections::HashSet;

use super::{
    Identifier,
    cidr::CidrSet,
    client::Client,
    matching::Facts,
    path::{PathPattern, Readings},
};

/// What is decided without any policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Clients that are answered 403.
    pub blocked: CidrSet,
    /// Clients that no policy asks about.
    pub exempt_clients: CidrSet,
    /// Consumers that no policy asks about, by whom they are counted as.
    pub exempt_consumers: HashSet<Identifier>,
    /// Paths that no policy asks about. One that has two readings is exempt if both are: else a request could be
    /// exempt here and something else to its upstream.
    pub exempt_paths: Vec<PathPattern>,
    /// Whether no policy asks about what browsers send before a request from a page of another origin.
    pub exempt_cors_preflights: bool,
}

impl Gate {
    pub(super) fn blocks(&self, client: Client) -> bool {
        client.is_in(&self.blocked)
    }

    pub(super) fn exempts(&self, facts: &Facts<'_>) -> bool {
        if facts.client.is_in(&self.exempt_clients)
            || (self.exempt_cors_preflights && facts.is_cors_preflight())
        {
            return true;
        }
        let is_exempt = |path: &[u8]| self.exempt_paths.iter().any(|exempt| exempt.matches(path));
        let by_path =
            |readings: &Readings<'_>| !readings.is_ambiguous() && readings.iter().all(is_exempt);
        facts.paths.as_ref().is_some_and(by_path)
    }
}
