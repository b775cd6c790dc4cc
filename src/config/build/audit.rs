//! `audit`: for whom decisions are compared with an exact log.

use super::store::Store;
use crate::{
    config::{
        leaf::{Decimals, decimal},
        section::Section,
    },
    policy::{AuditSample, IdentifierHasher},
};

/// Who is audited; `None` is nobody, the default.
pub fn read(
    section: &mut Section<'_>,
    store: Option<&Store>,
    hasher: &IdentifierHasher,
) -> Option<AuditSample> {
    let share = section.word("sample", 0.0, decimal(0.0..=1.0, Decimals::Four));
    if share == 0.0 {
        return None;
    }
    if store.is_some_and(|store| store.redis.is_none()) {
        section.conflict(
            "sample",
            "the logs are kept in Redis, and store.url is memory:",
            Some("give a Redis in store.url, or leave audit out"),
        );
    }
    Some(AuditSample::new(share, hasher.clone()))
}
