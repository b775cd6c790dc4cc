//! Who is audited: a share of the identifiers, chosen by hash.

use super::{Identifier, IdentifierHasher};

/// A share of the identifiers, the same in all proxies that share a secret. Nobody who does not know the secret
/// can tell who is in it.
#[derive(Clone, Debug)]
pub struct AuditSample {
    hasher: IdentifierHasher,
    /// Of all values of a hash, those up to it.
    most: u64,
}

impl AuditSample {
    /// The share `of` all identifiers, above 0 and up to 1.
    pub fn new(of: f64, hasher: IdentifierHasher) -> Self {
        // A cast keeps to the bounds of what it makes.
        let most = (of * u64::MAX as f64) as u64;
        Self { hasher, most }
    }

    /// Whether this identifier is among them.
    pub fn includes(&self, identifier: Identifier) -> bool {
        let hash = self.hasher.hash_of(identifier);
        let (first, _) = hash.split_first_chunk().expect("a hash has 16 bytes");
        u64::from_be_bytes(*first) <= self.most
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn hasher(secret: &str) -> IdentifierHasher {
        IdentifierHasher::new(Some(secret), IdentifierHasher::DEFAULT_IPV6_PREFIX)
    }

    fn addresses() -> impl Iterator<Item = Identifier> {
        (0..20_000).map(|number| Identifier::Address(Ipv4Addr::from_bits(number).into()))
    }

    fn consumers(hasher: &IdentifierHasher) -> impl Iterator<Item = Identifier> {
        (0..20_000).map(|number| hasher.consumer(&format!("consumer-{number}")))
    }

    #[test]
    fn a_sample_is_about_as_large_as_its_share_of_addresses_and_of_hashes() {
        let hasher = hasher("a secret");
        let sample = AuditSample::new(0.1, hasher.clone());
        let of = |identifiers: &mut dyn Iterator<Item = Identifier>| {
            identifiers.filter(|one| sample.includes(*one)).count()
        };
        // Five times the deviation that chance has.
        assert!((1_788..=2_212).contains(&of(&mut addresses())));
        assert!((1_788..=2_212).contains(&of(&mut consumers(&hasher))));
    }

    #[test]
    fn a_sample_of_all_leaves_nobody_out() {
        let hasher = hasher("a secret");
        let sample = AuditSample::new(1.0, hasher.clone());
        assert!(
            addresses()
                .chain(consumers(&hasher))
                .all(|one| sample.includes(one))
        );
        assert!(sample.includes(Identifier::Unix));
        assert!(sample.includes(Identifier::Hash([0xff; 16])));
    }

    #[test]
    fn proxies_of_one_secret_audit_the_same_addresses_and_those_of_another_do_not() {
        let chosen = |secret: &str| -> Vec<bool> {
            let sample = AuditSample::new(0.5, hasher(secret));
            addresses().map(|one| sample.includes(one)).collect()
        };
        assert_eq!(chosen("a secret"), chosen("a secret"));
        assert_ne!(chosen("a secret"), chosen("another"));
    }

    #[test]
    fn a_larger_share_holds_the_smaller_one() {
        let (small, large) = (
            AuditSample::new(0.01, hasher("s")),
            AuditSample::new(0.2, hasher("s")),
        );
        assert!(
            addresses()
                .filter(|one| small.includes(*one))
                .all(|one| large.includes(one))
        );
    }
}
