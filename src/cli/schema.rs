//! `slidegate schema`: what editors complete a configuration from. Reads nothing.

use std::io::{self, Write};

use crate::config::SCHEMA;

/// Prints the JSON Schema of `config.yaml` to `out`.
///
/// # Errors
/// If nobody reads it.
pub fn schema(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(SCHEMA.as_bytes())?;
    out.flush()
}
