//! Where commands write what they found.

use std::io::{self, ErrorKind, Stdout, Write};

/// Standard output. Who stops reading it, as `head` does, has what it wanted: that is no failure, and what the
/// command still has to do is done.
#[derive(Debug)]
pub(super) struct Output(Stdout);

impl Output {
    pub fn new() -> Self {
        Self(io::stdout())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_unread(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_unread(self.0.flush(), ())
    }
}

fn unless_unread<T>(written: io::Result<T>, all: T) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(all),
        written => written,
    }
}
