//! Parses the command line and hands over to the library.

use std::process::ExitCode;

use clap::Parser;

/// A request asks for memory some hundred times, most of them in Pingora, once for 13 KB and twice for 4 KB: glibc's allocator is what it
/// waits for most. This one keeps what is given back at hand up to 32 KB, and of an idle process little.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    slidegate::cli::Cli::parse().execute()
}
