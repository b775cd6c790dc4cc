//! Parses the command line and hands over to the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    slidegate::cli::Cli::parse().execute()
}
