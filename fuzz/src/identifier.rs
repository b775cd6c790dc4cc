//! Who is counted by a key: the same key is the same identifier, and another key another.
//!
//! An input's first line is one header value, what follows another.

use slidegate::policy::{Identifier, IdentifierHasher};

/// Panics if two values have one identifier and are not the same key, or are the same key and have two.
pub fn check(data: &[u8]) {
    let (one, other) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &b"k"[..]),
    };
    let hasher = IdentifierHasher::new(Some("a secret"), IdentifierHasher::DEFAULT_IPV6_PREFIX);
    let (first, second) = (identifier(&hasher, one), identifier(&hasher, other));
    assert_eq!(first == second, key(one) == key(other));
    for (value, found) in [(one, first), (other, second)] {
        let Some(identifier) = found else {
            assert!(key(value).is_none());
            continue;
        };
        let text = identifier.to_string();
        assert_eq!(text.len(), 22);
        assert_eq!(text.parse(), Ok(identifier), "it is read back");
        // Without its scheme it is the same key, unless a scheme comes to stand first.
        let bare = key(value).unwrap_or_default();
        if key(bare) == Some(bare) {
            assert_eq!(Some(identifier), self::identifier(&hasher, bare));
        }
        for scheme in ["Bearer ", "bearer\t ", " BEARER  "] {
            let with_scheme = [scheme.as_bytes(), bare].concat();
            if with_scheme.len() <= LONGEST {
                assert_eq!(Some(identifier), self::identifier(&hasher, &with_scheme));
            }
        }
        let unkeyed = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
        assert_ne!(Some(identifier), self::identifier(&unkeyed, value));
    }
}

/// `None` for a value that holds no key, or too long a one.
fn identifier(hasher: &IdentifierHasher, value: &[u8]) -> Option<Identifier> {
    let found = hasher.api_key(value);
    assert_eq!(found.is_err(), value.len() > LONGEST);
    found.ok().flatten()
}

/// The key in a header's value, told in other words than the library's.
fn key(value: &[u8]) -> Option<&[u8]> {
    if value.len() > LONGEST {
        return None;
    }
    let value = value.trim_ascii();
    let end = value.iter().position(|byte| b" \t".contains(byte));
    let (word, rest) = value.split_at(end.unwrap_or(value.len()));
    let key = match word.eq_ignore_ascii_case(b"bearer") {
        true => rest.trim_ascii(),
        false => value,
    };
    (!key.is_empty()).then_some(key)
}

/// The longest value that is taken, in bytes.
const LONGEST: usize = 8 * 1024;
