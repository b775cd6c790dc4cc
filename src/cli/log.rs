//! Where log lines go: to standard error, by threads of their own.

use std::io::{self, IsTerminal as _, Write as _};

use tracing::{Event, Subscriber, field};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{LevelFilter, Targets},
    fmt,
    layer::{Context, SubscriberExt as _},
    registry,
    util::SubscriberInitExt as _,
};

use crate::{access_log::ACCESS_TARGET, config::LogSettings};

/// Waits for the last lines when it is dropped, though not for long.
pub(super) type WrittenToTheEnd = [WorkerGuard; 2];

/// Pingora writes a line for every client that breaks off, without a bound: its lines are off unless the
/// level names them. What matters of them is counted, and told by our own.
///
/// Threads of their own write the lines: a reader of standard error that is gone, slow or full costs lines, never
/// requests. The access log has one for itself, since it may have many lines, and none of them is to cost one that
/// tells of trouble; nor has the level of others a say in it.
pub(super) fn start(settings: &LogSettings) -> WrittenToTheEnd {
    let (writer, guard) = self::writer("log");
    let (access_writer, access_guard) = self::writer("access-log");
    let lines = fmt::layer()
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false)
        .with_writer(writer);
    let access = Targets::new().with_target(ACCESS_TARGET, LevelFilter::INFO);
    let both = registry().with(AccessLines(access_writer).with_filter(access));
    let filter = filter(&settings.level);
    if settings.json {
        both.with(lines.json().with_filter(filter)).init();
    } else {
        both.with(lines.with_filter(filter)).init();
    }
    [guard, access_guard]
}

/// What is of all lines but those of the access log. The last directive for a target is the one that counts.
fn filter(level: &str) -> EnvFilter {
    EnvFilter::new(format!(
        "pingora_core=off,pingora_proxy=off,{level},{ACCESS_TARGET}=off"
    ))
}

fn writer(thread: &str) -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MOST_LINES_WAITING)
        .thread_name(thread)
        .finish(io::stderr())
}

/// Writes the lines of the access log as they are: the whole of a line is a field of its event.
struct AccessLines(NonBlocking);

impl<S: Subscriber> Layer<S> for AccessLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut AccessLine(self.0.clone()));
    }
}

struct AccessLine(NonBlocking);

impl field::Visit for AccessLine {
    fn record_str(&mut self, _: &field::Field, line: &str) {
        // It is the writer's to count a line that is lost.
        drop(self.0.write_all(line.as_bytes()));
    }

    fn record_debug(&mut self, _: &field::Field, _: &dyn std::fmt::Debug) {}
}

/// Lines that wait to be written, by each thread; more are dropped.
const MOST_LINES_WAITING: usize = 4096;
