//! How far a replay is: told on a terminal, now and then.

use std::{
    cell::Cell,
    io::{self, IsTerminal as _, Read},
    time::{Duration, Instant},
};

use crate::clock;

/// How much was read, and of what.
pub(super) struct Progress {
    /// Of all logs in bytes; `None` where one is a pipe.
    size: Option<u64>,
    read: Cell<u64>,
    requests: Cell<u64>,
    /// When it was told.
    told: Cell<Instant>,
    is_shown: bool,
}

impl Progress {
    /// Shown where standard error is a terminal.
    pub fn of(size: Option<u64>) -> Self {
        Self {
            size,
            read: Cell::new(0),
            requests: Cell::new(0),
            told: Cell::new(clock::instant()),
            is_shown: io::stderr().is_terminal(),
        }
    }

    /// The same bytes, which count as read once they are.
    pub fn watched<R: Read>(&self, bytes: R) -> Watched<'_, R> {
        Watched {
            bytes,
            read: &self.read,
        }
    }

    /// Tells of one more request, if it is time to.
    pub fn tell(&self) {
        let requests = self.requests.get() + 1;
        self.requests.set(requests);
        if self.is_shown
            && requests.is_multiple_of(Self::STRIDE)
            && let Some(line) = self.line(clock::instant())
        {
            eprint!("\r{line}");
        }
    }

    /// What is told at this moment, if anything is.
    fn line(&self, now: Instant) -> Option<String> {
        if now.duration_since(self.told.get()) <= Self::PAUSE {
            return None;
        }
        self.told.set(now);
        let share = self
            .size
            .and_then(|size| (self.read.get() * 100).checked_div(size));
        let share = share.map(|share| format!("{:>3} %, ", share.min(100)));
        let requests = self.requests.get();
        Some(format!("{}{requests} requests ", share.unwrap_or_default()))
    }

    /// Leaves an empty line.
    pub fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }

    /// Between two tellings.
    const PAUSE: Duration = Duration::from_millis(100);
    /// How many requests are not worth a look at the clock.
    const STRIDE: u64 = 1_024;
}

/// Counts what is read.
pub(super) struct Watched<'p, R> {
    bytes: R,
    read: &'p Cell<u64>,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told, every 60 ms while 400 bytes and 4 requests are read.
    fn told(size: Option<u64>) -> Vec<String> {
        let progress = Progress::of(size);
        let begun = progress.told.get();
        let mut bytes = progress.watched(&[0; 400][..]);
        let told = (1..=4).filter_map(|step| {
            bytes.read_exact(&mut [0; 100]).expect("there are as many");
            progress.tell();
            progress.line(begun + step * Duration::from_millis(60))
        });
        told.collect()
    }

    #[test]
    fn it_is_told_every_tenth_of_a_second_as_a_share_where_the_size_is_known() {
        let shares = told(Some(399));
        assert_eq!(shares, [" 50 %, 2 requests ", "100 %, 4 requests "]);
        assert_eq!(told(None), ["2 requests ", "4 requests "]);
        assert_eq!(told(Some(0)), told(None));
    }
}
