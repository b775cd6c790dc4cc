//! `slidegate hash-key`: an entry for the file of consumers, made of a key that is then known by its hash alone.

use std::{ffi::OsString, io::Write, path::PathBuf};

use clap::Args;

use super::client::{ClientError, KeyError, given_key};
use crate::config::{Config, Environment, consumer_name, name};

/// Whose key it is.
#[derive(Debug, Args)]
pub(super) struct Entry {
    /// The configuration of the proxies, with the secret that they use.
    #[arg(long, short, default_value = "config.yaml")]
    config: PathBuf,
    /// The consumer's name. Left out: NAME, to be written over.
    #[arg(long, default_value = "NAME")]
    name: String,
    /// The consumer's plan.
    #[arg(long)]
    plan: Option<String>,
    /// Read the key from this file, `-` for standard input, which is also the default.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Taken only to be refused without being repeated: it may be a key.
    #[arg(hide = true)]
    mistaken: Vec<OsString>,
}

/// Prints the entry to `out`; what is worth a word of warning goes to standard error.
pub(super) fn hash_key(
    entry: &Entry,
    env: &Environment<'_>,
    out: &mut dyn Write,
) -> Result<(), ClientError> {
    if !entry.mistaken.is_empty() {
        return Err(KeyError::Typed.into());
    }
    let usage = |option: &str, found: &str, accepted: String| {
        ClientError::Usage(format!("{option}: found {found:?}; {accepted}"))
    };
    consumer_name(&entry.name).map_err(|why| usage("--name", &entry.name, why.accepted))?;
    if let Some(plan) = &entry.plan {
        name(plan).map_err(|why| usage("--plan", plan, why.accepted))?;
    }
    let config = Config::load_without_consumers(&entry.config, env)?;
    let key = given_key(entry.key_file.as_deref(), &config.hasher)?;
    writeln!(out, "- name: {}", entry.name)?;
    if let Some(plan) = &entry.plan {
        writeln!(out, "  plan: {plan}")?;
    }
    // In quotes, since it may begin with a hyphen.
    writeln!(out, "  keys: [\"{key}\"]")?;
    if !config.hasher.is_keyed() {
        eprintln!("{NO_SECRET}");
    }
    Ok(())
}

const NO_SECRET: &str = "warning: identity.secret is not set, so this is the hash under a fixed key, by which whoever \
     reads the file can guess keys; under a secret that is set later it is another";
