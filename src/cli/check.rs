//! `slidegate check`: tell every fault of a configuration, or what it means.

use std::{io::Write, path::Path, process::ExitCode};

use super::CommandError;
use crate::config::Config;

/// Reads the configuration at `path` and says that it is fine.
pub(super) fn check(path: &Path, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    Config::load(path, &|name| std::env::var(name).ok())?;
    writeln!(out, "{}: ok", path.display())?;
    Ok(ExitCode::SUCCESS)
}
