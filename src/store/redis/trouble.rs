//! Why there is no connection to a server, in the words of the log.

use std::{fmt, path::PathBuf};

use crate::pem::UnusableFile;

/// Why a server is not asked. No password is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// What it says itself, or the client library of it.
    #[error("{0}")]
    Said(String),
    /// What is needed to connect.
    #[error("{}: {problem}", path.display())]
    File {
        /// Where it should be.
        path: PathBuf,
        /// What is wrong with it.
        problem: UnusableFile,
    },
    /// Within the time that it has.
    #[error("it does not answer")]
    Silent,
    /// Without a word.
    #[error("it closed the connection")]
    Closed,
    /// A sentinel that does not know the service of this name.
    #[error("it watches no {0}")]
    Unwatched(String),
    /// No member of a cluster, or not yet.
    #[error("it knows of no slots")]
    NoSlots,
    /// Nobody knows which of two servers has it.
    #[error("it tells a slot twice")]
    SlotTwice,
    /// One of several servers.
    #[error("{whom}: {trouble}")]
    With {
        /// Its address, or what it is besides.
        whom: String,
        /// Why it is not asked.
        trouble: Box<Self>,
    },
    /// All of several servers.
    #[error("{}", list(.0))]
    All(Vec<Self>),
}

impl Trouble {
    /// The same, of one among several.
    pub(super) fn with(self, whom: impl fmt::Display) -> Self {
        Self::With {
            whom: whom.to_string(),
            trouble: Box::new(self),
        }
    }
}

fn list(troubles: &[Trouble]) -> String {
    let troubles: Vec<String> = troubles.iter().map(Trouble::to_string).collect();
    troubles.join("; ")
}
