//! From `config.yaml` to the settings of every component, at the start and whenever it changes; nothing past
//! this module sees YAML.
//!
//! In reading order: `tree` keeps the place of every word and `agree` has serde_yaml confirm it, `substitute`
//! puts variables and files in, `section` and `field` read settings and collect every fault, `leaf` and
//! `duration` say what words mean, `build` makes the settings, and [`ConfigError`] is what a person sees. What a setting does
//! is its component's: each owns its `Settings`. `watch` sees when files change. Nothing here reads the environment.

mod agree;
mod build;
mod duration;
mod error;
mod field;
mod leaf;
mod section;
mod substitute;
mod tree;
mod values;
pub mod watch;

use std::{fs::File, io::Read as _, path};

pub use error::{ConfigError, Fault, Path, Place, Problem};
pub use leaf::Choice;
pub use substitute::{Environment, Files, VariableError};
pub use values::{Values, needs_restart};

use self::section::NamedFiles;
use crate::{
    limiter::LimiterSettings,
    policy::{Apply, ClientRule, Gate, IdentifierHasher, Policy},
    proxy::{response::ResponseSettings, upstream::UpstreamSettings},
    server::ServerSettings,
    store::{MemorySettings, RedisSettings},
};

/// Everything that `config.yaml` says.
#[derive(Debug)]
pub struct Config {
    /// Listeners, threads, shutdown.
    pub server: ServerSettings,
    /// Where requests go.
    pub upstream: UpstreamSettings,
    /// Where counters live; `None` is this process's own memory.
    pub redis: Option<RedisSettings>,
    /// The memory store: the only one without Redis, else the one behind failure mode `local`.
    pub memory: MemorySettings,
    /// How verdicts are made.
    pub limiter: LimiterSettings,
    /// How responses are written.
    pub responses: ResponseSettings,
    /// Whom no policy is asked about.
    pub gate: Gate,
    /// Which of the policies that match apply.
    pub apply: Apply,
    /// In configuration order; at least one.
    pub policies: Vec<Policy>,
    /// How the client is found behind other proxies.
    pub clients: ClientRule,
    /// How identifiers are made.
    pub hasher: IdentifierHasher,
    /// How log lines are written.
    pub log: LogSettings,
    /// The files whose text was put into values by `${file:…}`, each once, as they are written there.
    pub files: Vec<path::PathBuf>,
    /// What is allowed and still worth a word: printed by `check`, logged by `run`.
    pub warnings: Vec<String>,
    /// What it was read from.
    pub values: Values,
}

/// How log lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// As JSON objects, one a line, or for people. Default for people.
    pub json: bool,
    /// A `tracing` filter such as `info` or `slidegate=debug,info`. Default `info`.
    pub level: String,
}

impl Config {
    /// The configuration in the file at `path`; `env` tells the value of an environment variable.
    ///
    /// # Errors
    /// Every fault of the file, one of no use that it names included, or that it cannot be read, is larger
    /// than [`MAX_BYTES`], or no UTF-8.
    pub fn load(path: &path::Path, env: &Environment<'_>) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        match read(path, MAX_BYTES) {
            Ok(text) => {
                let files = |path: &path::Path| read(path, MAX_SECRET_BYTES);
                parse(&text, &name, env, &files, NamedFiles::Read)
            }
            Err(problem) => Err(whole_file(&name, problem)),
        }
    }

    /// The configuration in `text`, which faults call `file`; `env` as in [`Self::load`]. The files that it
    /// names are not looked into: in the place of `${file:…}` stands [`PLACEHOLDER`].
    ///
    /// # Errors
    /// Every fault of the text.
    pub fn parse(text: &str, file: &str, env: &Environment<'_>) -> Result<Self, ConfigError> {
        let files = |_: &path::Path| Ok(PLACEHOLDER.to_owned());
        parse(text, file, env, &files, NamedFiles::Elsewhere)
    }
}

fn parse(
    text: &str,
    file: &str,
    env: &Environment<'_>,
    files: &Files<'_>,
    named_files: NamedFiles,
) -> Result<Config, ConfigError> {
    if text.len() > MAX_BYTES {
        return Err(whole_file(file, Problem::TooLarge { limit: MAX_BYTES }));
    }
    // The byte order mark that some editors write; YAML parsers disagree about it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let failed = |faults| ConfigError {
        file: file.to_owned(),
        faults,
    };
    let mut faults = Vec::new();
    let tree = match tree::read(text, &mut faults) {
        Ok(tree) => tree,
        Err(fault) => {
            faults.push(fault);
            return Err(failed(faults));
        }
    };
    if faults.is_empty() {
        faults.extend(agree::agree(text, &tree).err());
    }
    let reading = section::Reading::new(env, files, named_files, faults);
    let config = reading.root(&tree, build::build).flatten();
    let (faults, values, files) = reading.finish();
    match config {
        Some(config) if faults.is_empty() => Ok(Config {
            values,
            files,
            ..config
        }),
        _ => Err(failed(faults)),
    }
}

/// The text at `path`, of at most `limit` bytes.
fn read(path: &path::Path, limit: usize) -> Result<String, Problem> {
    let unreadable = |error: std::io::Error| Problem::Unreadable(error.to_string());
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() > limit {
        return Err(Problem::TooLarge { limit });
    }
    String::from_utf8(bytes).map_err(|_| Problem::Encoding)
}

fn whole_file(file: &str, problem: Problem) -> ConfigError {
    let fault = Fault {
        place: None,
        path: Path::default(),
        problem,
        hint: None,
    };
    ConfigError {
        file: file.to_owned(),
        faults: vec![fault],
    }
}

/// The JSON Schema of the configuration, for editors; nothing is read by it.
///
/// In draft-07: every release of the YAML language server knows it, later drafts only the newest do, and
/// nothing here needs more. Written by hand: what a setting is for, and the words that it takes, are nowhere
/// else as data. Tests hold it against what reads the settings.
pub const SCHEMA: &str = include_str!("config/schema.json");

/// The largest file that is read: as much as a Kubernetes ConfigMap can hold.
pub const MAX_BYTES: usize = 1 << 20;

/// The largest file that `${file:…}` puts into a value: far more than a password, a key or a URL.
pub const MAX_SECRET_BYTES: usize = 64 << 10;

/// What stands in for a file that is not looked into: a word that is a number, a name and a password.
pub const PLACEHOLDER: &str = "1";
