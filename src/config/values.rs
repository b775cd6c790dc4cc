//! Which values a configuration was read from: whether another one differs, and in which settings.

use std::collections::BTreeMap;

use super::{error::Path, shown::HIDDEN};

/// Every value that was read, variables put in, by its path; of one that is secret only a hash is kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<String, Value>);

#[derive(Clone, PartialEq, Eq)]
struct Value {
    hash: [u8; 16],
    told: Told,
}

/// What is told of a value.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// This text, which may be less than the whole.
    Text(Box<str>),
    /// Whether it is another: it has a part in the fingerprint.
    Change,
    /// Nothing.
    Secret,
}

impl Values {
    /// Adds the value of a setting.
    pub(super) fn add(&mut self, path: &Path, text: &str, told: Told) {
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
        self.0.insert(path.to_string(), Value { hash, told });
    }

    /// The value at a path as it may be shown; `None` if the setting was left out.
    pub fn shown(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(|value| match &value.told {
            Told::Text(text) => text,
            Told::Change | Told::Secret => HIDDEN,
        })
    }

    /// The settings whose value is another in `other`, or that only one of the two has.
    pub fn changed<'v>(&'v self, other: &'v Self) -> Vec<&'v str> {
        let differs = |(path, value): &(&'v String, &'v Value)| other.0.get(*path) != Some(*value);
        let here = self.0.iter().filter(differs).map(|(path, _)| path);
        let only_there = other.0.keys().filter(|path| !self.0.contains_key(*path));
        let mut changed: Vec<&str> = here.chain(only_there).map(String::as_str).collect();
        changed.sort_unstable();
        changed
    }

    /// The same for the same values, in every process: 8 hexadecimal digits. Secrets have no part in it, so
    /// that none can be guessed from it.
    pub fn fingerprint(&self) -> String {
        let mut text = self.hash_of(|value| value.told != Told::Secret);
        text.truncate(8);
        text
    }

    /// The same for the same values, secrets included: itself to be kept like one.
    pub(super) fn digest(&self) -> String {
        self.hash_of(|_| true)
    }

    fn hash_of(&self, is_part: impl Fn(&Value) -> bool) -> String {
        let mut hash = blake3::Hasher::new();
        for (path, value) in self.0.iter().filter(|(_, value)| is_part(value)) {
            hash.update(&(path.len() as u64).to_le_bytes());
            hash.update(path.as_bytes());
            hash.update(&value.hash);
        }
        hash.finalize().to_hex().to_string()
    }
}

/// Neither values nor their hashes are shown.
impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Values(***)")
    }
}

/// Whether a setting is read at the start of the process only: what sockets, threads and connections are made
/// of.
pub fn needs_restart(path: &str) -> bool {
    let within = |root: &str| {
        let rest = path.strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let certificates = path.starts_with("listen[") && path.contains("].tls.");
    AT_START.iter().any(|root| within(root))
        && !AT_ONCE.iter().any(|root| within(root))
        && !certificates
}

const AT_START: [&str; 9] = [
    "admin_listen",
    "admin_token",
    "bounds",
    "listen",
    "log",
    "metrics_listen",
    "shutdown",
    "store",
    "threads",
];

/// Of those, what is about decisions and not about the store.
const AT_ONCE: [&str; 2] = ["store.denial_cache", "store.expected_replicas"];

#[cfg(test)]
mod tests {
    use super::*;

    fn values(entries: &[(&str, &str, bool)]) -> Values {
        let mut values = Values::default();
        for (path, text, secret) in entries {
            let told = match secret {
                true => Told::Secret,
                false => Told::Text((*text).into()),
            };
            values.add(&Path::default().key(path), text, told);
        }
        values
    }

    #[test]
    fn what_differs_is_told_by_the_path_of_each_setting_on_either_side() {
        let one = values(&[("a", "1", false), ("b", "2", false), ("c", "3", true)]);
        let other = values(&[("a", "1", false), ("c", "4", true), ("d", "5", false)]);
        assert_eq!(one.changed(&other), ["b", "c", "d"]);
        assert_eq!(one.changed(&one), [""; 0]);
    }

    #[test]
    fn the_fingerprint_tells_other_values_apart_and_has_no_part_of_a_secret() {
        let one = values(&[("a", "1", false), ("c", "3", true)]);
        let other_secret = values(&[("a", "1", false), ("c", "4", true)]);
        let other_value = values(&[("a", "2", false), ("c", "3", true)]);
        assert_eq!(one.fingerprint(), other_secret.fingerprint());
        assert_ne!(one.fingerprint(), other_value.fingerprint());
        assert_eq!(one.fingerprint().len(), 8);
    }

    #[test]
    fn sockets_threads_and_connections_need_a_restart_and_decisions_do_not() {
        for path in ["listen", "store.url", "store.cluster.addresses[0]"] {
            assert!(needs_restart(path), "{path}");
        }
        for path in [
            "access_log.format",
            "policies[0].limits[0]",
            "store.denial_cache",
            "listener",
            "identity.secret",
            "upstream.address",
            "upstreams.web.address",
            "routes[0].path",
        ] {
            assert!(!needs_restart(path), "{path}");
        }
    }

    #[test]
    fn the_document_names_what_needs_a_restart_and_nothing_else() {
        let document = include_str!("../../docs/configuration.md");
        let mut entries = document.split("\n- ");
        let entry = entries.find(|entry| entry.contains("need a restart."));
        let (settings, _) = entry
            .and_then(|entry| entry.split_once("need a restart."))
            .expect("it says so");
        let mut named: Vec<_> = settings.split('`').skip(1).step_by(2).collect();
        let at_once = AT_ONCE.map(|path| path.rsplit('.').next().expect("a name"));
        let mut expected = [&AT_START[..], &at_once, &["tls"]].concat();
        named.sort_unstable();
        expected.sort_unstable();
        assert_eq!(named, expected);
    }
}
