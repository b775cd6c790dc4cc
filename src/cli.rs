//! The command line: one file per command, and the exit codes.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | fine: stopped when told to, or nothing wrong found |
//! | 1 | failed at run time: a port in use, no more threads; counters that cannot be reached |
//! | 2 | wrong usage, or a configuration with faults; a policy, key or identifier that cannot be |
//! | 3 | stopped at once: the grace was over, or a second signal came; what was still in flight was cut off |

pub mod check;
mod client;
mod explain;
mod forget;
mod hash_key;
mod inspect;
mod report;
mod run;
mod schema;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use self::{
    check::CheckError,
    client::{ClientError, Selection},
    explain::{Asked, ExplainError},
    hash_key::Entry,
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
        asked: Asked,
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
    #[error("writing the schema: {0}")]
    Schema(std::io::Error),
    #[error(transparent)]
    Explain(#[from] ExplainError),
}

impl CommandError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_) | Self::Check(CheckError::Config(_)) => ExitCode::from(2),
            Self::Explain(ExplainError::Config(_) | ExplainError::Question(_)) => ExitCode::from(2),
            Self::Explain(ExplainError::Io(_)) => ExitCode::FAILURE,
            Self::Client(error) if error.is_usage() => ExitCode::from(2),
            Self::App(_)
            | Self::Check(CheckError::Output(_))
            | Self::Client(_)
            | Self::Schema(_) => ExitCode::FAILURE,
        }
    }
}

impl Cli {
    /// Carries out the command; what failed is told on standard error.
    pub fn execute(self) -> ExitCode {
        let environment = |name: &str| std::env::var(name).ok();
        let out = &mut std::io::stdout();
        let succeeded = |()| ExitCode::SUCCESS;
        let done = match self.command {
            Command::Run { config } => run::run(&config, &environment),
            Command::Check { config } => {
                let checked = check::check(&config, &environment, out);
                checked.map(succeeded).map_err(CommandError::from)
            }
            Command::Schema => schema::schema(out)
                .map(succeeded)
                .map_err(CommandError::Schema),
            Command::Explain { asked } => {
                let explained = explain::explain(&asked, &environment, out);
                explained.map(succeeded).map_err(CommandError::from)
            }
            Command::HashKey { entry } => {
                let printed = hash_key::hash_key(&entry, &environment, out);
                printed.map(succeeded).map_err(CommandError::from)
            }
            Command::Inspect { selection, json } => {
                let inspected = inspect::inspect(&selection, &environment, json, out);
                inspected.map(succeeded).map_err(CommandError::from)
            }
            Command::Forget { selection, json } => {
                let forgotten = forget::forget(&selection, &environment, json, out);
                forgotten.map(succeeded).map_err(CommandError::from)
            }
        };
        match done {
            Ok(code) => code,
            Err(error) => {
                eprintln!("{error}");
                error.exit_code()
            }
        }
    }
}
