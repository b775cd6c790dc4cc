//! From `config.yaml` to the settings of every component, at the start and whenever it changes; nothing past
//! this module sees YAML.
//!
//! In reading order: `tree` keeps the place of every word and `agree` has serde_yaml confirm it, `substitute`
//! puts variables and files in, `section` and `field` read settings and collect every fault, `leaf` and
//! `duration` say what words mean, `build` makes the settings and `consumers` reads the file of known keys, and
//! [`ConfigError`] is what a person sees of it, or [`ShownSettings`]. What a setting does is its component's: each owns its
//! `Settings`.
//!
//! For a reload, `watch` sees when files change and `values` keeps what was read, to tell what differs. Nothing
//! here reads the environment.

mod agree;
mod build;
mod consumers;
mod duration;
mod error;
mod field;
mod leaf;
mod section;
mod shown;
mod size;
mod substitute;
mod tree;
mod values;
mod watch;

use std::{collections::HashSet, fs::File, io::Read as _, path};

pub use consumers::{ConsumersSettings, consumer_name};
pub use error::{ConfigError, Fault, Path, Place, Problem};
pub use leaf::{Choice, name};
pub use shown::ShownSettings;
pub use substitute::{Environment, Files, VariableError};
pub use values::{Values, needs_restart};
pub use watch::Watch;

use self::{section::NamedFiles, tree::Node, values::Told};
use crate::{
    access_log::AccessLogSettings,
    admin::AdminToken,
    limiter::{LimiterSettings, LineSettings},
    policy::{Apply, ClientRule, Consumers, Gate, IdentifierHasher, Policy, Routes},
    proxy::{RequestBounds, forward::ForwardSettings, response::ResponseSettings},
    server::ServerSettings,
    store::{MemorySettings, RedisSettings},
    upstream::UpstreamSettings,
};

/// Everything that `config.yaml` says.
#[derive(Debug)]
pub struct Config {
    /// Listeners, threads, shutdown.
    pub server: ServerSettings,
    /// What a client's requests may take.
    pub requests: RequestBounds,
    /// What who asks the admin listener must show; `None` for nothing.
    pub admin_token: Option<AdminToken>,
    /// Where requests go; at least one.
    pub upstreams: Vec<UpstreamSettings>,
    /// Which go to which of them.
    pub routes: Routes,
    /// Where counters live; `None` is this process's own memory.
    pub redis: Option<RedisSettings>,
    /// The memory store: the only one without Redis, else the one behind failure mode `local`.
    pub memory: MemorySettings,
    /// How verdicts are made.
    pub limiter: LimiterSettings,
    /// What upstreams are told beside what clients send.
    pub forwarding: ForwardSettings,
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
    consumers_named: Vec<(String, String)>,
    /// Whose keys are known.
    pub consumers: Consumers,
    /// How log lines are written.
    pub log: LogSettings,
    /// Whether and how requests are logged; `None`, the default, logs none.
    pub access_log: Option<AccessLogSettings>,
    /// The other files that it was read from: of consumers, and those that `${file:…}` puts into values.
    pub files: Vec<path::PathBuf>,
    /// What is allowed and still worth a word: printed by `check`, logged by `run`.
    pub warnings: Vec<String>,
    /// What it was read from.
    pub values: Values,
    /// The same, as it may be shown.
    pub shown: ShownSettings,
}

/// How log lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// As JSON objects, one a line, or for people. Default for people.
    pub json: bool,
    /// A `tracing` filter such as `info` or `slidegate=debug,info`. Default `info`.
    pub level: String,
    /// How many are about single decisions.
    pub lines: LineSettings,
}

impl Config {
    /// The configuration in the file at `path`; `env` tells the value of an environment variable.
    ///
    /// # Errors
    /// Every fault of the file, those of files that it names included, or that it cannot be read, is larger
    /// than [`MAX_BYTES`], or no UTF-8.
    pub fn load(path: &path::Path, env: &Environment<'_>) -> Result<Self, ConfigError> {
        load(path, env, Consumed::Yes)
    }

    /// As [`Self::load`], without looking for consumers: who makes the first entry of their file has none yet.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn load_without_consumers(
        path: &path::Path,
        env: &Environment<'_>,
    ) -> Result<Self, ConfigError> {
        load(path, env, Consumed::No)
    }

    /// The configuration in `text`, which faults call `file`; `env` as in [`Self::load`]. The files that it
    /// names are not looked into: in the place of `${file:…}` stands [`PLACEHOLDER`], and nobody is a consumer.
    ///
    /// # Errors
    /// Every fault of the text.
    pub fn parse(text: &str, file: &str, env: &Environment<'_>) -> Result<Self, ConfigError> {
        let around = Around {
            env,
            files: &|_| Ok(PLACEHOLDER.to_owned()),
            named_files: NamedFiles::Elsewhere,
        };
        parse(text, file, &around, Consumed::No)
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
}

/// Whether the file of consumers is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Consumed {
    Yes,
    No,
}

/// What a text is read among.
#[derive(Clone, Copy)]
struct Around<'a> {
    env: &'a Environment<'a>,
    files: &'a Files<'a>,
    named_files: NamedFiles,
}

/// What one file holds, if it is a mapping, and what is wrong with it, which may be nothing.
struct Content<T> {
    /// What it says, unless it is no YAML.
    tree: Option<Node>,
    built: Option<T>,
    values: Values,
    error: ConfigError,
}

impl<T> Content<T> {
    /// Of a file that is no YAML at all, or was not read.
    fn failed(error: ConfigError) -> Self {
        Self {
            tree: None,
            built: None,
            values: Values::default(),
            error,
        }
    }
}

fn load(
    path: &path::Path,
    env: &Environment<'_>,
    consumed: Consumed,
) -> Result<Config, ConfigError> {
    let name = path.display().to_string();
    let text = read(path, MAX_BYTES).map_err(|problem| whole_file(&name, problem))?;
    let around = Around {
        env,
        files: &|path| read(path, MAX_SECRET_BYTES),
        named_files: NamedFiles::Read,
    };
    parse(&text, &name, &around, consumed)
}

fn parse(
    text: &str,
    file: &str,
    around: &Around<'_>,
    consumed: Consumed,
) -> Result<Config, ConfigError> {
    let content = parse_file(text, file, MAX_BYTES, around, build::build);
    let (mut values, mut error) = (content.values, content.error);
    let Some(mut config) = content.built.flatten() else {
        return Err(error);
    };
    if let Some(settings) = &config.consumers_settings {
        config.consumers = Consumers::new(settings.headers.clone());
        if consumed == Consumed::Yes {
            error.files.push(settings.file.clone());
            let list = load_consumers(&config, settings, around, &mut values);
            config.consumers = list.built.unwrap_or_default();
            error.files.extend_from_slice(&list.error.files);
            if !list.error.faults.is_empty() {
                error.named.push(list.error);
            }
            config.warnings.extend(config.unknown_consumers());
        }
    }
    if error.faults.is_empty() && error.named.is_empty() {
        let files = error.files;
        let shown = content.tree.map(|tree| ShownSettings::of(&tree, &values));
        Ok(Config {
            shown: shown.unwrap_or_default(),
            values,
            files,
            ..config
        })
    } else {
        Err(error)
    }
}

/// The consumers in the file that `settings` name. The whole of its text is one of the `values`, and what files put
/// into it another.
fn load_consumers(
    config: &Config,
    settings: &ConsumersSettings,
    around: &Around<'_>,
    values: &mut Values,
) -> Content<Consumers> {
    let name = settings.file.display().to_string();
    let limit = consumers::MAX_BYTES;
    let text = match read(&settings.file, limit) {
        Ok(text) => text,
        Err(problem) => {
            return Content::failed(whole_file(&name, problem));
        }
    };
    let path = Path::default().key("identity").key("consumers");
    values.add(&path.key("content"), &text, Told::Change);
    let plans = config.policies.iter();
    let plans = plans.flat_map(|policy| policy.tiers.plans()).cloned();
    let plans = plans.collect();
    let list = parse_file(&text, &name, limit, around, |root| {
        consumers::read(root, settings, &plans, &config.hasher)
    });
    if !list.error.files.is_empty() {
        values.add(&path.key("files"), &list.values.digest(), Told::Secret);
    }
    list
}

/// What `build` makes of one file.
fn parse_file<T>(
    text: &str,
    file: &str,
    limit: usize,
    around: &Around<'_>,
    build: impl FnOnce(&mut section::Section<'_>) -> T,
) -> Content<T> {
    if text.len() > limit {
        return Content::failed(whole_file(file, Problem::TooLarge { limit }));
    }
    // The byte order mark that some editors write; YAML parsers disagree about it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let with = |faults, files| ConfigError {
        file: file.to_owned(),
        faults,
        named: Vec::new(),
        files,
    };
    let mut faults = Vec::new();
    let tree = match tree::read(text, &mut faults) {
        Ok(tree) => tree,
        Err(fault) => {
            faults.push(fault);
            faults.sort_by_key(|fault| fault.place);
            return Content::failed(with(faults, Vec::new()));
        }
    };
    if faults.is_empty() {
        faults.extend(agree::agree(text, &tree).err());
    }
    let Around {
        env,
        files,
        named_files,
    } = *around;
    let reading = section::Reading::new(env, files, named_files, faults);
    let built = reading.root(&tree, build);
    let (faults, values, files) = reading.finish();
    Content {
        tree: Some(tree),
        built,
        values,
        error: with(faults, files),
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
        named: Vec::new(),
        files: Vec::new(),
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
