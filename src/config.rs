//! From `config.yaml` to the settings of every component, at the start and whenever it changes; nothing past
//! this module sees YAML.
//!
//! In reading order: `tree` keeps the place of every word and `agree` has serde_yaml confirm it, `substitute`
//! puts variables in, `section` and `field` read settings and collect every fault, `leaf` and `duration` say what
//! words mean, `build` makes the settings, and [`ConfigError`] is what a person sees. What a setting does
//! is its component's: each owns its `Settings`. `watch` sees when files change. Nothing here reads the environment.

mod agree;
mod build;
mod consumers;
mod duration;
mod error;
mod field;
mod leaf;
mod section;
mod substitute;
mod tree;
mod values;
pub mod watch;

use std::{collections::HashSet, fs::File, io::Read as _, path};

pub use consumers::{ConsumersSettings, consumer_name};
pub use error::{ConfigError, Fault, Path, Place, Problem};
pub use leaf::{Choice, name};
pub use substitute::{Environment, VariableError};
pub use values::{Values, needs_restart};

use self::section::NamedFiles;
use crate::{
    limiter::LimiterSettings,
    policy::{Apply, ClientRule, Consumers, Gate, IdentifierHasher, Policy},
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
    /// Where known keys are listed; `None` if they are not.
    pub consumers_settings: Option<ConsumersSettings>,
    /// The consumers that settings name, after the settings' paths.
    pub consumers_named: Vec<(String, String)>,
    /// Whose keys are known.
    pub consumers: Consumers,
    /// How log lines are written.
    pub log: LogSettings,
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
            Ok(text) => parse(&text, &name, env, NamedFiles::Read, true),
            Err(problem) => Err(whole_file(&name, problem)),
        }
    }

    /// As [`Self::load`], without looking for consumers: who makes the first entry of their file has none yet.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn load_without_consumers(
        path: &path::Path,
        env: &Environment<'_>,
    ) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        match read(path, MAX_BYTES) {
            Ok(text) => parse(&text, &name, env, NamedFiles::Read, false),
            Err(problem) => Err(whole_file(&name, problem)),
        }
    }

    /// A warning for each consumer that a setting names and the list does not.
    fn unknown_consumers(&self) -> Vec<String> {
        let known: HashSet<&str> = self.consumers.all().iter().map(|one| &*one.name).collect();
        let named = self.consumers_named.iter();
        let unknown = named.filter(|(_, name)| !known.contains(name.as_str()));
        unknown
            .map(|(path, name)| format!("{path}: no consumer has the name {name}, so far"))
            .collect()
    }

    /// The other files that it was read from.
    pub fn files(&self) -> impl Iterator<Item = &path::Path> {
        let consumers = self.consumers_settings.iter();
        consumers.map(|settings| settings.file.as_path())
    }

    /// The configuration in `text`, which faults call `file`; `env` as in [`Self::load`]. The files that it
    /// names are not looked into.
    ///
    /// # Errors
    /// Every fault of the text.
    pub fn parse(text: &str, file: &str, env: &Environment<'_>) -> Result<Self, ConfigError> {
        parse(text, file, env, NamedFiles::Elsewhere, false)
    }
}

fn parse(
    text: &str,
    file: &str,
    env: &Environment<'_>,
    named_files: NamedFiles,
    with_consumers: bool,
) -> Result<Config, ConfigError> {
    let (config, mut error) = parse_file(text, file, MAX_BYTES, env, named_files, build::build);
    let Some((mut config, mut values)) =
        config.and_then(|(config, values)| Some((config?, values)))
    else {
        return Err(error);
    };
    if let Some(settings) = &config.consumers_settings {
        config.consumers = Consumers::new(settings.headers.clone());
        if with_consumers {
            let (consumers, its_error) = load_consumers(&config, settings, env, &mut values);
            config.consumers = consumers;
            if !its_error.faults.is_empty() {
                error.named.push(its_error);
            }
            config.warnings.extend(config.unknown_consumers());
        }
    }
    if error.faults.is_empty() && error.named.is_empty() {
        Ok(Config { values, ..config })
    } else {
        Err(error)
    }
}

/// The consumers in the file that `settings` name, and its faults, which may be none. The whole of it is one of
/// the `values`.
fn load_consumers(
    config: &Config,
    settings: &ConsumersSettings,
    env: &Environment<'_>,
    values: &mut Values,
) -> (Consumers, ConfigError) {
    let name = settings.file.display().to_string();
    let text = match read(&settings.file, consumers::MAX_BYTES) {
        Ok(text) => text,
        Err(problem) => return (Consumers::default(), whole_file(&name, problem)),
    };
    let path = Path::default().key("identity").key("consumers");
    values.add(&path.key("content"), &text, false);
    let plans = config.policies.iter();
    let plans = plans.flat_map(|policy| policy.tiers.plans()).cloned();
    let plans = plans.collect();
    let read =
        |root: &mut section::Section<'_>| consumers::read(root, settings, &plans, &config.hasher);
    let limit = consumers::MAX_BYTES;
    let (consumers, error) = parse_file(&text, &name, limit, env, NamedFiles::Read, read);
    let consumers = consumers.map(|(consumers, _)| consumers);
    (consumers.unwrap_or_default(), error)
}

/// What `build` makes of one file and the values read for it, if it is a mapping; and its faults, which may be none.
fn parse_file<T>(
    text: &str,
    file: &str,
    limit: usize,
    env: &Environment<'_>,
    named_files: NamedFiles,
    build: impl FnOnce(&mut section::Section<'_>) -> T,
) -> (Option<(T, Values)>, ConfigError) {
    if text.len() > limit {
        return (None, whole_file(file, Problem::TooLarge { limit }));
    }
    // The byte order mark that some editors write; YAML parsers disagree about it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let with = |faults| ConfigError {
        file: file.to_owned(),
        faults,
        named: Vec::new(),
    };
    let mut faults = Vec::new();
    let tree = match tree::read(text, &mut faults) {
        Ok(tree) => tree,
        Err(fault) => {
            faults.push(fault);
            return (None, with(faults));
        }
    };
    if faults.is_empty() {
        faults.extend(agree::agree(text, &tree).err());
    }
    let reading = section::Reading::new(env, named_files, faults);
    let built = reading.root(&tree, build);
    let (faults, values) = reading.finish();
    (built.map(|built| (built, values)), with(faults))
}

fn read(path: &path::Path, most: usize) -> Result<String, Problem> {
    let unreadable = |error: std::io::Error| Problem::Unreadable(error.to_string());
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    let limit = most as u64 + 1;
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() > most {
        return Err(Problem::TooLarge { limit: most });
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
        named: Vec::new(),
    }
}

/// The largest file that is read: as much as a Kubernetes ConfigMap can hold.
pub const MAX_BYTES: usize = 1 << 20;
