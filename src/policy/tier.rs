//! The limits of a policy, and for whom: its own, those of a plan, those of one identifier.

use std::{collections::HashMap, num::NonZeroU64, sync::Arc};

use super::{Identifier, NamedLimit};
use crate::ratelimit::{Algorithm, Limit};

/// The limits of a policy, set by set. Which one an identifier meets follows from it alone, by what is
/// configured.
#[derive(Debug)]
pub struct Tiers {
    /// The policy's own first.
    tiers: Vec<Tier>,
    plans: HashMap<Arc<str>, usize>,
    overrides: HashMap<Identifier, usize>,
}

/// A set of limits.
#[derive(Debug)]
pub struct Tier {
    /// The plan whose limits they are, if they are one's.
    pub plan: Option<Arc<str>>,
    /// No two with the same window. None at all is unlimited.
    pub limits: Vec<NamedLimit>,
}

impl Tiers {
    /// The place of the policy's own limits.
    pub const OWN: usize = 0;

    /// The same limits for everybody.
    pub fn of(limits: Vec<NamedLimit>) -> Self {
        Self {
            tiers: vec![Tier { plan: None, limits }],
            plans: HashMap::new(),
            overrides: HashMap::new(),
        }
    }

    /// The same limits, all decided by `algorithm`.
    #[must_use]
    pub fn deciding_by(mut self, algorithm: Algorithm) -> Self {
        let limits = self.tiers.iter_mut().flat_map(|tier| &mut tier.limits);
        limits.for_each(|named| named.algorithm = algorithm);
        self
    }

    /// The same, each limit multiplied and divided by as much. What was not 0 is 1 at the least, and what can not be so large
    /// stays.
    #[must_use]
    pub fn scaled(mut self, multiplied: u64, divided: NonZeroU64) -> Self {
        let limits = self.tiers.iter_mut().flat_map(|tier| &mut tier.limits);
        for named in limits {
            let quota = named.limit.quota();
            let scaled = quota.saturating_mul(multiplied) / divided;
            let scaled = Limit::new(scaled.max(quota.min(1)), named.limit.window());
            named.limit = scaled.unwrap_or(named.limit);
        }
        self
    }

    /// Adds the limits of a plan.
    pub fn add_plan(&mut self, plan: Arc<str>, limits: Vec<NamedLimit>) {
        self.plans.insert(plan.clone(), self.tiers.len());
        self.tiers.push(Tier {
            plan: Some(plan),
            limits,
        });
    }

    /// Adds the limits of single identifiers, whatever their plan.
    pub fn add_override(
        &mut self,
        identifiers: impl IntoIterator<Item = Identifier>,
        limits: Vec<NamedLimit>,
    ) {
        let tier = self.tiers.len();
        let identifiers = identifiers.into_iter();
        self.overrides
            .extend(identifiers.map(|identifier| (identifier, tier)));
        self.tiers.push(Tier { plan: None, limits });
    }

    /// The place of the limits that an identifier meets: its own, else its plan's, else the policy's.
    pub fn of_identifier(&self, identifier: Identifier, plan: Option<&str>) -> usize {
        if let Some(tier) = self.overrides.get(&identifier) {
            return *tier;
        }
        let plan = plan.and_then(|plan| self.plans.get(plan));
        plan.copied().unwrap_or(Self::OWN)
    }

    /// The limits at a place.
    pub fn limits(&self, tier: usize) -> &[NamedLimit] {
        &self.tiers[tier].limits
    }

    /// The policy's own limits.
    pub fn own(&self) -> &[NamedLimit] {
        self.limits(Self::OWN)
    }

    /// Every set of limits, the policy's own first.
    pub fn all(&self) -> &[Tier] {
        &self.tiers
    }

    /// Every plan that has limits of its own.
    pub fn plans(&self) -> impl Iterator<Item = &Arc<str>> {
        self.tiers.iter().filter_map(|tier| tier.plan.as_ref())
    }

    /// Every identifier that has limits of its own, and their place.
    pub fn overrides(&self) -> impl Iterator<Item = (Identifier, usize)> {
        self.overrides
            .iter()
            .map(|(identifier, tier)| (*identifier, *tier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_scaled_is_0_only_if_it_was_and_never_too_large() {
        // Four times as much in a minute would pass what is exact.
        let large = 1 << 36;
        for (quota, multiplied, divided, expected) in [
            (0, 4, 1, 0),
            (1, 1, 4, 1),
            (10, 1, 4, 2),
            (10, 2, 1, 20),
            (large, 4, 1, large),
            (large, 1, 2, large / 2),
        ] {
            let limit = Limit::new(quota, "1m".parse().expect("a window")).expect("a limit");
            let named = NamedLimit {
                name: "one".into(),
                limit,
                algorithm: Algorithm::default(),
            };
            let divided = NonZeroU64::new(divided).expect("it is not 0");
            let scaled = Tiers::of(vec![named]).scaled(multiplied, divided);
            assert_eq!(scaled.own()[0].limit.quota(), expected, "{quota}");
        }
    }
}
