//! Which policies ask about a request, and who is counted. Pure: no clock, no waiting, no store.
//!
//! A [`PolicySet`] is built once from the configuration. For each request, [`PolicySet::asked`] says which
//! policies ask about a [`RequestView`], and the identifier each of them counts: `gate` tells whom none is
//! asked about, `matching` which are for it, by `path` among others, and `identifier` whom they count. The
//! limiter makes the groups of demands from it.

mod audit;
mod cidr;
mod client;
mod consumers;
mod cost;
mod gate;
mod identifier;
mod matching;
mod path;
mod tier;

use std::{num::NonZeroU64, sync::Arc};

use smallvec::SmallVec;

pub use audit::AuditSample;
pub use cidr::{Cidr, CidrSet, ParseCidrError};
pub use client::{Client, ClientHeader, ClientRule, TrustedProxies};
pub use consumers::{Consumer, Consumers};
pub use cost::{CostHeader, CostRule};
pub use gate::Gate;
pub use identifier::{
    Counted, Identifier, IdentifierEntry, IdentifierHasher, IdentifierPart, IdentifierRule,
    IdentifierSource, KeyTooLong, MAX_IDENTIFYING_VALUE, MAX_PARTS, MissingIdentifier,
    ParseIdentifierError, ParseIdentifierSourceError, Refusal,
};
pub use matching::route::{Routed, Routes};
pub use matching::{
    Apply, Conditions, HeaderPattern, HostPattern, MatchRule, ParseHeaderPatternError,
    ParseHostPatternError,
};
pub use path::{MAX_SEGMENTS, ParsePathPatternError, PathPattern, PathSegment, Readings};
pub use tier::{Tier, Tiers};

use self::matching::{Facts, Wanted, index::Index};

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
    consumers: Consumers,
    gate: Gate,
    apply: Apply,
    wanted: Wanted,
    /// `None` where every policy is for every request.
    index: Option<Index>,
    /// Whether a path that cannot be told by is refused: some enforced policy goes by paths.
    refuses_paths: bool,
}

/// A named rule: which requests it is for, how requests are identified, which limits they meet, and what a
/// denial does.
#[derive(Debug)]
pub struct Policy {
    /// Matches `[a-z0-9_-]{1,32}`, so that it can stand in a Redis key and a metric label as it is.
    pub name: Arc<str>,
    /// Which requests it is for.
    pub matches: MatchRule,
    /// Who is counted.
    pub identifier: IdentifierRule,
    /// How much each may take.
    pub tiers: Tiers,
    /// What a request takes from each limit.
    pub cost: CostRule,
    /// When a request is charged.
    pub charge: Charge,
    /// Whether a denial stops the request.
    pub mode: Mode,
    /// What decides when the store cannot.
    pub failure_mode: FailureMode,
}

impl Policy {
    /// The policy `name` that counts each client's address by these limits.
    pub fn of_addresses(name: &str, limits: &[Limit]) -> Self {
        let named = limits.iter().map(|limit| NamedLimit {
            name: NamedLimit::name_of(name, *limit, limits.len()),
            limit: *limit,
            algorithm: Algorithm::default(),
        });
        Self {
            name: name.into(),
            matches: MatchRule::default(),
            identifier: IdentifierRule {
                entries: vec![IdentifierEntry::One(IdentifierSource::ClientIp)],
                missing: MissingIdentifier::default(),
            },
            tiers: Tiers::of(named.collect()),
            cost: CostRule::default(),
            charge: Charge::default(),
            mode: Mode::default(),
            failure_mode: FailureMode::default(),
        }
    }

    /// The same policy, all its limits decided by `algorithm`.
    #[must_use]
    pub fn deciding_by(self, algorithm: Algorithm) -> Self {
        let tiers = self.tiers.deciding_by(algorithm);
        Self { tiers, ..self }
    }

    /// The same policy, its limits [scaled](Tiers::scaled).
    #[must_use]
    pub fn scaled(self, multiplied: u64, divided: NonZeroU64) -> Self {
        let tiers = self.tiers.scaled(multiplied, divided);
        Self { tiers, ..self }
    }
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

impl NamedLimit {
    /// What a limit is called, of so many that its policy has.
    pub fn name_of(policy: &str, limit: Limit, many: usize) -> Arc<str> {
        match many {
            1 => policy.into(),
            _ => format!("{policy}-{}", limit.window()).into(),
        }
    }
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

impl FailureMode {
    /// The word in YAML.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// A policy that asks about a request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its place in [`PolicySet::policies`].
    pub policy: usize,
    /// Which of its [`Tiers`] applies.
    pub tier: usize,
    /// Which entry of its [`IdentifierRule`] told who is counted; one past the last for want of any.
    pub entry: usize,
    /// Who is counted.
    pub identifier: Identifier,
    /// What the request takes.
    pub cost: Cost,
}

/// What a policy makes of a request.
#[derive(Clone, Debug)]
pub enum Standing {
    /// It is for others.
    DoesNotMatch,
    /// Of those that match only the first enforced one applies, and this is another.
    IsBehind,
    /// The request has none of its sources, and it lets such pass.
    CountsNobody,
    /// There is no limit for who is counted.
    IsUnlimited {
        /// Who is counted.
        identifier: Identifier,
        /// Which of its [`Tiers`] has none.
        tier: usize,
    },
    /// It asks by its limits.
    Asks(Asked),
    /// It can not take the request as sent. An enforced policy refuses it; a shadow policy is left out.
    Refuses(Refusal),
}

impl PolicySet {
    /// A set of `policies`, all of which apply where they match, and whose identifiers are hashed by `hasher`.
    pub fn new(policies: Vec<Policy>, hasher: IdentifierHasher) -> Self {
        let rules = policies.iter().map(|policy| &policy.matches);
        let for_all = rules.clone().all(MatchRule::is_everything);
        let by_path = |policy: &Policy| policy.mode == Mode::Enforce && policy.matches.wants().path;
        let index = (!for_all).then(|| Index::new(rules));
        Self {
            wanted: index.as_ref().map(Index::wanted).unwrap_or_default(),
            index,
            consumers: Consumers::default(),
            gate: Gate::default(),
            refuses_paths: policies.iter().any(by_path),
            apply: Apply::All,
            policies,
            hasher,
        }
    }

    /// The same policies, with `apply` instead.
    #[must_use]
    pub fn applying(self, apply: Apply) -> Self {
        Self { apply, ..self }
    }

    /// The same policies, with keys that are known.
    #[must_use]
    pub fn knowing(self, consumers: Consumers) -> Self {
        Self { consumers, ..self }
    }

    /// The same policies, asked only about whom `gate` leaves to them.
    #[must_use]
    pub fn behind(mut self, gate: Gate) -> Self {
        self.wanted.path |= !gate.exempt_paths.is_empty();
        Self { gate, ..self }
    }

    /// Whose keys are known.
    pub fn consumers(&self) -> &Consumers {
        &self.consumers
    }

    /// Every policy, in configuration order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Which policies ask about this request, in configuration order, and whom each counts.
    ///
    /// Under [`Apply::First`] the first enforced policy that matches is the only enforced one, also if it then
    /// counts nobody.
    ///
    /// # Errors
    /// A [`Refusal`] if the client is blocked, or an enforced policy cannot take the path or the identity as
    /// sent; the request is then answered without asking any store. A shadow policy that cannot is left out.
    pub fn asked(&self, view: &RequestView<'_>) -> Result<SmallVec<[Asked; 2]>, Refusal> {
        if self.gate.blocks(view.client) {
            return Err(Refusal::Blocked);
        }
        let facts = Facts::new(view, self.wanted);
        if self.is_exempt(&facts, view) {
            return Ok(SmallVec::new());
        }
        let Some(index) = &self.index else {
            return self.asked_of(0..self.policies.len(), view);
        };
        if self.refuses_paths && facts.path_is_ambiguous() {
            return Err(Refusal::AmbiguousPath);
        }
        let candidates = index.candidates(&facts).into_iter();
        let matching = candidates.filter(|place| self.policies[*place].matches.matches(&facts));
        self.asked_of(matching, view)
    }

    /// Whether no policy is asked about the request: by what the gate sees of it, or by whose key it has.
    fn is_exempt(&self, facts: &Facts<'_>, view: &RequestView<'_>) -> bool {
        let consumers = &self.gate.exempt_consumers;
        let has_exempt_key = || {
            let consumer = self.consumers.of_request(view.head, &self.hasher);
            consumer.is_some_and(|consumer| consumers.contains(&consumer.identifier))
        };
        self.gate.exempts(facts) || (!consumers.is_empty() && has_exempt_key())
    }

    /// Who is counted by those of the policies in these places that apply.
    fn asked_of(
        &self,
        places: impl Iterator<Item = usize>,
        view: &RequestView<'_>,
    ) -> Result<SmallVec<[Asked; 2]>, Refusal> {
        let mut asked = SmallVec::new();
        let mut enforced = 0_usize;
        for place in places {
            let mode = self.policies[place].mode;
            if mode == Mode::Enforce {
                enforced += 1;
            }
            if self.is_behind(mode, enforced) {
                continue;
            }
            match self.standing(place, view) {
                Standing::Asks(one) => asked.push(one),
                Standing::Refuses(refusal) if mode == Mode::Enforce => return Err(refusal),
                _ => {}
            }
        }
        Ok(asked)
    }

    /// What each policy makes of a request, in configuration order: as [`Self::asked`], with the reasons.
    ///
    /// Whom the gate turns away or lets through, and a path that is refused, no policy is asked about.
    pub fn standings(&self, view: &RequestView<'_>) -> Vec<Standing> {
        let facts = Facts::new(view, self.wanted);
        let mut enforced = 0;
        let places = 0..self.policies.len();
        let standings = places.map(|place| {
            let policy = &self.policies[place];
            if !policy.matches.matches(&facts) {
                return Standing::DoesNotMatch;
            }
            enforced += usize::from(policy.mode == Mode::Enforce);
            if self.is_behind(policy.mode, enforced) {
                return Standing::IsBehind;
            }
            self.standing(place, view)
        });
        standings.collect()
    }

    /// Whether no policy is asked about the request, since something is exempt.
    pub fn exempts(&self, view: &RequestView<'_>) -> bool {
        self.is_exempt(&Facts::new(view, self.wanted), view)
    }

    /// Whether an enforced policy came before, so that a policy which matches does not apply; `enforced` is how many
    /// have matched so far, this one included.
    fn is_behind(&self, mode: Mode, enforced: usize) -> bool {
        self.apply == Apply::First && mode == Mode::Enforce && enforced > 1
    }

    /// What the policy in this place, which applies, makes of a request.
    fn standing(&self, place: usize, view: &RequestView<'_>) -> Standing {
        let policy = &self.policies[place];
        let counted = policy
            .identifier
            .identify(view, &self.hasher, &self.consumers);
        let counted = match counted {
            Ok(Some(counted)) => counted,
            Ok(None) => return Standing::CountsNobody,
            Err(refusal) => return Standing::Refuses(refusal),
        };
        let identifier = counted.identifier;
        let tier = policy.tiers.of_identifier(identifier, counted.plan);
        if policy.tiers.limits(tier).is_empty() {
            return Standing::IsUnlimited { identifier, tier };
        }
        match policy.cost.of(view) {
            Ok(cost) => Standing::Asks(Asked {
                policy: place,
                tier,
                entry: counted.entry,
                identifier,
                cost,
            }),
            Err(refusal) => Standing::Refuses(refusal),
        }
    }

    /// What a policy would ask about an identifier, for a request of its ordinary cost.
    pub fn asked_about(&self, policy: usize, identifier: Identifier) -> Asked {
        let Policy {
            identifier: rule,
            tiers,
            cost,
            ..
        } = &self.policies[policy];
        let consumer = self.consumers.counted_as(identifier);
        let plan = consumer.and_then(|consumer| consumer.plan.as_deref());
        Asked {
            policy,
            tier: tiers.of_identifier(identifier, plan),
            entry: rule.entries.len(),
            identifier,
            cost: cost.fixed,
        }
    }

    /// As whom the client is counted that has this identifier: an address stands for its group.
    pub fn grouped(&self, identifier: Identifier) -> Identifier {
        match identifier {
            Identifier::Address(address) => self.hasher.client(Client::Address(address)),
            Identifier::Hash(_) | Identifier::Unix => identifier,
        }
    }

    /// The limits that a policy asks by.
    pub fn limits(&self, asked: &Asked) -> &[NamedLimit] {
        self.policies[asked.policy].tiers.limits(asked.tier)
    }
}
