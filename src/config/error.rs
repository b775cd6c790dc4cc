//! What is wrong with a configuration, as a person reads it.
//!
//! A fault says where it is, what was found, what is accepted and, where that helps, what to write
//! instead. No fault holds a value of a key that may be secret: those are left out where faults are made.

use std::{fmt, path::PathBuf};

/// Every fault of a configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as it was named.
    pub file: String,
    /// Its own faults.
    pub faults: Vec<Fault>,
    /// Those of files that it names.
    pub named: Vec<Self>,
    /// Those files that it was read from, or was to be: should one of them change, it may do.
    pub files: Vec<PathBuf>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in the text, unless the whole file is at fault.
    pub place: Option<Place>,
    /// Which setting.
    pub path: Path,
    /// What is wrong with it, and what is accepted.
    pub problem: Problem,
    /// What to do, where that can be told.
    pub hint: Option<String>,
}

/// A place in the text; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// Which setting: `policies[2].limits[0]`; empty for the whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

/// What is wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The operating system's own words.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// Longer than a configuration can reasonably be.
    #[error("is larger than {limit} bytes")]
    TooLarge {
        /// The most that is read.
        limit: usize,
    },
    /// Bytes that are no text.
    #[error("not UTF-8")]
    Encoding,
    /// No YAML, in a parser's words.
    #[error("not YAML: {0}")]
    Syntax(String),
    /// YAML that the two parsers read differently.
    #[error("YAML readers disagree about what this says")]
    Ambiguous,
    /// YAML that a configuration does without.
    #[error("{0} not supported")]
    Unsupported(&'static str),
    /// No such key here.
    #[error("unknown key; known here: {}", known.join(", "))]
    UnknownKey {
        /// The keys that exist here.
        known: Vec<&'static str>,
    },
    /// The same key twice; the last one never silently wins.
    #[error("duplicate key; it was first given on line {first}")]
    DuplicateKey {
        /// The line of the first.
        first: usize,
    },
    /// A key without which nothing works.
    #[error("missing; write for instance {example}")]
    Missing {
        /// A line that would do.
        example: &'static str,
    },
    /// A value that is not accepted.
    #[error("found {found}; {accepted}")]
    Found {
        /// The value, quoted, or what kind of thing stands there.
        found: String,
        /// What is accepted.
        accepted: String,
    },
    /// A variable that cannot be put in.
    #[error(transparent)]
    Variable(#[from] super::substitute::VariableError),
    /// Two settings that are fine alone.
    #[error("{0}")]
    Conflict(String),
}

impl ConfigError {
    /// Every fault, and the file that it is in.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Fault)> {
        let files = std::iter::once(self).chain(&self.named);
        files.flat_map(|file| file.faults.iter().map(|fault| (&*file.file, fault)))
    }
}

impl Path {
    /// The path of the value of `key` in the mapping at this path.
    pub fn key(&self, key: &str) -> Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let key = if key.len() <= SHOWN && !key.is_empty() && key.bytes().all(plain) {
            key.to_owned()
        } else {
            quoted(key)
        };
        if self.0.is_empty() {
            Self(key)
        } else {
            Self(format!("{}.{key}", self.0))
        }
    }

    /// The path of an item of the list at this path; `index` counts from 0.
    pub fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }
}

/// A text as it stands in a message: quoted, control characters escaped, cut where it is long.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?} and {} more bytes", &text[..end], text.len() - end),
        None => format!("{text:?}"),
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Without the file, which [`ConfigError`] puts before it.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "{place}: ")?;
        } else {
            f.write_str(" ")?;
        }
        if self.path != Path::default() {
            write!(f, "{}: ", self.path)?;
        }
        self.problem.fmt(f)?;
        match &self.hint {
            Some(hint) => write!(f, "\n    hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// One fault after the other, each beginning `file:line:column: path: `.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (file, fault)) in self.all().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{file}:{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// The most characters of a value or key that are shown.
const SHOWN: usize = 60;
