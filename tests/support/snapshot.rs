//! Files of this repository that are made from others, or from what slidegate says.

use std::{fs, path::Path};

/// Compares what was found with a file, which is written anew where `BLESS` is set.
pub fn agrees(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, found).expect("it is written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, expected,
        "{file}: BLESS=1 accepts it; then read the diff"
    );
}
