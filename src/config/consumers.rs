//! The file of consumers: names, plans, and the hashes of keys as `slidegate hash-key` prints them.
//!
//! It is a file of its own since others write it, more often than the configuration. It is read by the same
//! rules, and its faults have their places in it.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
};

use http::HeaderName;

use super::{
    field::Field,
    leaf::{Rejected, nearest},
    section::Section,
};
use crate::policy::{Consumers, Identifier, IdentifierHasher};

/// What the configuration says about consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumersSettings {
    /// The file that lists them.
    pub file: PathBuf,
    /// The headers that hold their keys. Default `x-api-key` and `authorization`.
    pub headers: Vec<HeaderName>,
}

/// Reads the consumers that `root` lists; `plans` are those that policies have limits for.
pub(super) fn read(
    root: &mut Section<'_>,
    settings: &ConsumersSettings,
    plans: &BTreeSet<Arc<str>>,
    hasher: &IdentifierHasher,
) -> Consumers {
    let mut consumers = Consumers::new(settings.headers.clone());
    let mut taken = Taken::default();
    root.require("consumers", EXAMPLE);
    let Some(list) = root.field("consumers") else {
        return consumers;
    };
    // Everybody may have left.
    if !list.is_empty_list() {
        list.list(EXAMPLE, |item| {
            item.section(|section| consumer(section, plans, hasher, &mut taken, &mut consumers))
        });
    }
    consumers
}

/// What may stand once, and where it did.
#[derive(Default)]
struct Taken {
    names: HashMap<String, String>,
    keys: HashMap<Identifier, String>,
}

fn consumer(
    section: &mut Section<'_>,
    plans: &BTreeSet<Arc<str>>,
    hasher: &IdentifierHasher,
    taken: &mut Taken,
    consumers: &mut Consumers,
) {
    let path = section.path().to_string();
    section.require("name", "name: acme");
    let name = section.optional("name", |text| {
        let name = consumer_name(text)?;
        match taken.names.insert(name.to_owned(), path.clone()) {
            None => Ok(name.to_owned()),
            Some(by) => Err(Rejected::new(format!(
                "names are unique, and {by} has this one"
            ))),
        }
    });
    let plan = section.optional("plan", |text| known(text, plans));
    section.require("keys", "keys: [0jNS3U2sIFZAFWrfXgW2jA]");
    let keys = section
        .field("keys")
        .and_then(|keys| keys.secrets("[0jNS3U2sIFZAFWrfXgW2jA]", |item| key(item, &path, taken)));
    if let (Some(name), Some(keys)) = (name, keys) {
        consumers.add(&name, plan, keys, hasher);
    }
}

/// Never shown: it may be a key that somebody forgot to hash.
fn key(item: Field<'_>, path: &str, taken: &mut Taken) -> Option<Identifier> {
    item.secret(|text| {
        let key = text.parse().ok();
        let key = key.filter(|key| matches!(key, Identifier::Hash(_)));
        let key = key.ok_or_else(|| {
            Rejected::new("the hash of a key is 22 characters")
                .hint(Some("slidegate hash-key prints it".to_owned()))
        })?;
        match taken.keys.insert(key, path.to_owned()) {
            None => Ok(key),
            Some(by) => Err(Rejected::new(format!(
                "each key belongs to one consumer, and {by} has this one"
            ))),
        }
    })
}

fn known(text: &str, plans: &BTreeSet<Arc<str>>) -> Result<Arc<str>, Rejected> {
    plans.get(text).cloned().ok_or_else(|| {
        let names: Vec<&str> = plans.iter().map(|plan| &**plan).collect();
        let known = match names.is_empty() {
            true => "no policy has plans".to_owned(),
            false => format!("policies have limits for {}", names.join(", ")),
        };
        Rejected::new(known).hint(nearest(text, names))
    })
}

/// The name of a consumer.
///
/// # Errors
/// If it is not 1 to 64 letters, digits and `.`, `_`, `@`, `-`.
pub fn consumer_name(text: &str) -> Result<&str, Rejected> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    match (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        true => Ok(text),
        false => Err(Rejected::new(
            "a consumer's name is 1 to 64 letters, digits and . _ @ -",
        )),
    }
}

/// As much as a hundred thousand consumers take, several times.
pub(super) const MAX_BYTES: usize = 64 << 20;

const EXAMPLE: &str = "- {name: acme, plan: gold, keys: [0jNS3U2sIFZAFWrfXgW2jA]}";
