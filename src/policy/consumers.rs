//! The API keys that are known, and whose they are.
//!
//! A consumer is counted by its name, so that a rotated key keeps its counters; its keys are known by their hash
//! alone. A key of nobody is no identity: whoever invents keys gets no quota by them.

use std::{collections::HashMap, sync::Arc};

use http::{HeaderName, request::Parts};

use super::{Identifier, IdentifierHasher, identifier::stays_behind};

/// Whose keys are known, and in which headers keys are looked for.
#[derive(Debug, Default)]
pub struct Consumers {
    headers: Vec<HeaderName>,
    consumers: Vec<Consumer>,
    /// By the hash of a key, the place of the consumer that has it.
    keys: HashMap<Identifier, usize>,
}

/// A known client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: Box<str>,
    /// The plan by whose limits it is counted, where a policy has limits for it.
    pub plan: Option<Arc<str>>,
    /// As whom it is counted: its hashed name.
    pub identifier: Identifier,
}

impl Consumers {
    /// Nobody yet, whose keys are sent in these headers.
    pub fn new(headers: Vec<HeaderName>) -> Self {
        Self {
            headers,
            ..Self::default()
        }
    }

    /// Adds a consumer that has these keys, by their hashes. A key belongs to the last one that has it.
    pub fn add(
        &mut self,
        name: &str,
        plan: Option<Arc<str>>,
        keys: impl IntoIterator<Item = Identifier>,
        hasher: &IdentifierHasher,
    ) {
        let place = self.consumers.len();
        self.consumers.push(Consumer {
            name: name.into(),
            plan,
            identifier: hasher.consumer(name),
        });
        self.keys.extend(keys.into_iter().map(|key| (key, place)));
    }

    /// Whose key this is, by its hash.
    pub fn with_key(&self, key: Identifier) -> Option<&Consumer> {
        self.keys.get(&key).map(|place| &self.consumers[*place])
    }

    /// Whose key a request holds: in the first header that has one, unless any of them was sent twice, or would
    /// not reach the upstream.
    pub fn of_request(&self, head: &Parts, hasher: &IdentifierHasher) -> Option<&Consumer> {
        let mut found = None;
        for header in &self.headers {
            let mut lines = head.headers.get_all(header).iter();
            let line = lines.next();
            if lines.next().is_some() || (line.is_some() && stays_behind(header, head)) {
                return None;
            }
            let key = line.and_then(|line| hasher.api_key(line.as_bytes()).ok()?);
            found = found.or_else(|| self.with_key(key?));
        }
        found
    }

    /// Who is counted as `identifier`. It looks at each of them.
    pub fn counted_as(&self, identifier: Identifier) -> Option<&Consumer> {
        let mut consumers = self.consumers.iter();
        consumers.find(|consumer| consumer.identifier == identifier)
    }

    /// Every consumer.
    pub fn all(&self) -> &[Consumer] {
        &self.consumers
    }
}
