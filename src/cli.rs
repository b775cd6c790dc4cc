//! The command line: one file per command, and the exit codes.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | fine: stopped when told to, or nothing wrong found |
//! | 1 | failed at run time: a port in use, no more threads |
//! | 2 | wrong usage, or a configuration with faults |
//! | 3 | stopped at once: the grace was over, or a second signal came; what was still in flight was cut off |

pub mod check;
mod run;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use self::check::CheckError;
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
}

impl Cli {
    /// Carries out the command; what failed is told on standard error.
    pub fn execute(self) -> ExitCode {
        let environment = |name: &str| std::env::var(name).ok();
        let done = match self.command {
            Command::Run { config } => run::run(&config, &environment),
            Command::Check { config } => {
                check::check(&config, &environment, &mut std::io::stdout().lock())
                    .map(|()| ExitCode::SUCCESS)
                    .map_err(CommandError::from)
            }
        };
        match done {
            Ok(code) => code,
            Err(error) => {
                eprintln!("{error}");
                match error {
                    CommandError::Config(_) | CommandError::Check(CheckError::Config(_)) => {
                        ExitCode::from(2)
                    }
                    CommandError::App(_) | CommandError::Check(CheckError::Output(_)) => {
                        ExitCode::FAILURE
                    }
                }
            }
        }
    }
}
