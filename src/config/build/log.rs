//! `log`: how log lines are written.

use crate::{
    config::{
        LogSettings,
        leaf::{Choice, Rejected, choice, integer, nearest},
        section::Section,
    },
    limiter::LineSettings,
};

pub fn read(section: &mut Section<'_>) -> LogSettings {
    let lines = LineSettings::default();
    LogSettings {
        json: section.word("format", LogFormat::Human, choice) == LogFormat::Json,
        level: section.word("level", "info".to_owned(), level),
        lines: LineSettings {
            near_limit: section.word("near_limit_lines", lines.near_limit, integer(0..=1000)),
            denied: section.word("denied_lines", lines.denied, integer(0..=1000)),
        },
    }
}

/// A level, or several `target=level` with commas: what `tracing` would take for a target with a slip in
/// it (`inof`) would silence everything else, so a lone word must be a level.
fn level(text: &str) -> Result<String, Rejected> {
    let target = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
        !text.is_empty() && text.bytes().all(plain)
    };
    let directive = |text: &str| match text.split_once('=') {
        Some((name, level)) => target(name) && LEVELS.contains(&level),
        None => LEVELS.contains(&text),
    };
    if text.split(',').all(directive) {
        return Ok(text.to_owned());
    }
    let accepted = format!(
        "a level is one of {}; targets have their own as in slidegate=debug,info",
        LEVELS.join(", ")
    );
    Err(Rejected::new(accepted).hint(nearest(text, LEVELS)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LogFormat {
    Human,
    Json,
}

impl Choice for LogFormat {
    const ALL: &'static [Self] = &[Self::Human, Self::Json];

    fn name(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
        }
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
