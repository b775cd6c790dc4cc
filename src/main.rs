//! Parses the command line and hands over to the library.

use std::process::ExitCode;

use clap::Parser;

/// A request allocates some forty times, most of them in Pingora; glibc's allocator is what it waits for most.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    slidegate::cli::Cli::parse().execute()
}
