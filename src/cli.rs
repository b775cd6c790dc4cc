//! The command line: one file per command, and the exit codes.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | fine: stopped when told to, or nothing wrong found |
//! | 1 | failed at run time: a port in use, no more threads; counters that cannot be reached; a log that breaks off |
//! | 2 | wrong usage, or a configuration with faults; a policy, key, identifier, request or log that cannot be |
//! | 3 | stopped at once: the grace was over, or a second signal came; what was still in flight was cut off |

pub mod check;
mod client;
mod explain;
mod forget;
mod hash_key;
mod healthcheck;
mod inspect;
mod log;
mod output;
mod replay;
mod report;
mod run;
mod schema;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use self::{
    check::CheckError,
    client::{ClientError, Selection},
    explain::{ExplainError, Scenario},
    hash_key::Entry,
    healthcheck::{Check, HealthError},
    output::Output,
    replay::ReplayError,
};
use crate::{app::AppError, config::ConfigError};

/// A rate-limiting reverse proxy: sliding window counters in Redis, in front of any HTTP service.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM or SIGINT; a second signal stops at once.
    Run {
        /// The configuration.
        #[arg(long, short, default_value = "config.yaml")]
        config: PathBuf,
    },
    /// Tell every fault of a configuration, or what it means.
    Check {
        /// The configuration.
        #[arg(long, short, default_value = "config.yaml")]
        config: PathBuf,
    },
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
    /// Tell what would become of a request, and why, on empty counters. Connects to nothing.
    Explain {
        #[command(flatten)]
        scenario: Scenario,
    },
    /// Tell what limits would have done to the traffic that access logs tell of. Connects to nothing.
    ///
    /// Beside what the proxy would have decided stand other algorithms, and how often each is wrong. Read are the common and
    /// the combined log format, and what nginx, traefik, caddy, envoy and slidegate write.
    Replay {
        #[command(flatten)]
        scenario: replay::Scenario,
    },
    /// Tell whether the proxy on this machine is alive: 0, or else 1.
    Healthcheck {
        #[command(flatten)]
        check: Check,
    },
    /// Print an entry for the file of consumers (identity.consumers) of an API key.
    ///
    /// The key is read from standard input or a file, never from the command line.
    HashKey {
        #[command(flatten)]
        entry: Entry,
    },
    /// Tell what Redis holds of one client, and what a request of it would meet now. Charges nothing.
    ///
    /// An API key is read from standard input or a file, never from the command line.
    Inspect {
        #[command(flatten)]
        selection: Selection,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delete what Redis holds of one client, so that it starts afresh.
    ///
    /// An API key is read from standard input or a file, never from the command line.
    Forget {
        #[command(flatten)]
        selection: Selection,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    App(#[from] AppError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Health(#[from] HealthError),
    #[error("writing the schema: {0}")]
    Schema(std::io::Error),
    #[error(transparent)]
    Explain(#[from] ExplainError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

impl CommandError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_) | Self::Check(CheckError::Config(_)) => ExitCode::from(2),
            Self::Explain(ExplainError::Config(_) | ExplainError::Question(_)) => ExitCode::from(2),
            Self::Client(error) if error.is_usage() => ExitCode::from(2),
            Self::Replay(error) if error.is_usage() => ExitCode::from(2),
            // Docker knows no other code.
            Self::App(_)
            | Self::Health(_)
            | Self::Check(CheckError::Output(_))
            | Self::Explain(ExplainError::Resources(_) | ExplainError::Output(_))
            | Self::Client(_)
            | Self::Replay(_)
            | Self::Schema(_) => ExitCode::FAILURE,
        }
    }
}

impl Cli {
    /// Carries out the command; what failed is told on standard error.
    pub fn execute(self) -> ExitCode {
        self.command.execute().unwrap_or_else(|error| {
            // Nobody may be there to read it, and the exit code tells too.
            drop(writeln!(io::stderr(), "{error}"));
            error.exit_code()
        })
    }
}

impl Command {
    fn execute(self) -> Result<ExitCode, CommandError> {
        let env = &environment;
        let out = &mut Output::new();
        match self {
            Self::Run { config } => return run::run(&config, env),
            Self::Check { config } => check::check(&config, env, out)?,
            Self::Schema => schema::schema(out).map_err(CommandError::Schema)?,
            Self::Explain { scenario } => explain::explain(&scenario, env, out)?,
            Self::Replay { scenario } => replay::replay(&scenario, env, out)?,
            Self::Healthcheck { check } => healthcheck::healthcheck(&check, env)?,
            Self::HashKey { entry } => hash_key::hash_key(&entry, env, out)?,
            Self::Inspect { selection, json } => inspect::inspect(&selection, env, json, out)?,
            Self::Forget { selection, json } => forget::forget(&selection, env, json, out)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// This process's own, which nothing else reads.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
