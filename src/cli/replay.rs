//! `slidegate replay`: what limits would have done to the traffic that access logs tell of. Connects to nothing.

mod page;
mod progress;
mod table;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    num::NonZeroU64,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{ArgGroup, Args};

use self::{page::Page, progress::Progress};

use crate::{
    app,
    config::{Config, ConfigError, Environment},
    policy::{ClientRule, IdentifierHasher, Policy, PolicySet},
    ratelimit::{Limit, Window},
    replay::{self, Identifiers, Reading, Record, Replay, Report, Rule, Suggesting},
};

/// Which logs, and which limits.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("by").required(true).multiple(true).args(["config", "limits", "suggest"])))]
pub(super) struct Scenario {
    /// Access logs, the oldest first, gzipped or not; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// By the policies of this configuration.
    #[arg(long, short)]
    config: Option<PathBuf>,
    /// By this limit for each client address, as in 100/1m; may be given several times, for different windows.
    #[arg(long = "limit", value_name = "LIMIT", conflicts_with = "config")]
    limits: Vec<Limit>,
    /// Tell what limits would have cost that nobody has chosen yet: for whom the policies of --config count, in the
    /// windows of their limits; without one for each client address.
    #[arg(long, conflicts_with = "limits")]
    suggest: bool,
    /// The window to suggest limits for; may be given several times.
    #[arg(
        long = "window",
        value_name = "WINDOW",
        default_value = "1m",
        requires = "suggest",
        conflicts_with_all = ["config", "limits"]
    )]
    windows: Vec<Window>,
    /// Show the addresses that were denied most as they are, not as hashes.
    #[arg(long, conflicts_with = "suggest")]
    show: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// Also as one page with pictures, in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "suggest")]
    html: Option<PathBuf>,
}

/// Why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplayError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(
        "--limit: found {0} and {1}, and one window has one limit\n  hint: replay each by itself"
    )]
    SameWindow(Limit, Limit),
    #[error("{file}: cannot be opened: {error}")]
    Closed { file: String, error: io::Error },
    #[error("{file}: cannot be read on: {error}")]
    Read { file: String, error: io::Error },
    #[error(
        "{file}: none of its lines tells of a request\n{lines}  \
         hint: accepted are the common and the combined format, what envoy writes by default, and JSON of nginx, traefik, \
         caddy, envoy and slidegate; each may be gzipped, and as a container's runtime keeps it"
    )]
    NoRequest { file: String, lines: String },
    #[error("--html: {file}: cannot be written: {error}")]
    ClosedPage { file: String, error: io::Error },
    #[error("--html: {file}: the page was not written: {error}")]
    Page { file: String, error: io::Error },
    #[error(
        "--html: {file}: is read here, and the page would take its place\n  hint: name another file"
    )]
    PageIsInput { file: String },
    #[error("writing the result: {0}")]
    Output(#[from] io::Error),
}

impl ReplayError {
    /// Whether what was asked for cannot be, whatever the world is like.
    pub(super) fn is_usage(&self) -> bool {
        match self {
            Self::Config(_) | Self::SameWindow(..) => true,
            Self::Closed { .. } | Self::NoRequest { .. } => true,
            Self::ClosedPage { .. } | Self::PageIsInput { .. } => true,
            Self::Read { .. } | Self::Page { .. } | Self::Output(_) => false,
        }
    }
}

/// Prints what the limits would have done to `out`.
pub(super) fn replay(
    scenario: &Scenario,
    env: &Environment<'_>,
    out: &mut dyn Write,
) -> Result<(), ReplayError> {
    if scenario.suggest {
        return suggest(scenario, env, out);
    }
    if let Some(page) = &scenario.html {
        may_be_written(page, scenario)?;
    }
    let (mut replay, hasher) = replay_of(scenario, env, AS_IT_IS)?;
    let mut pictures = match scenario.html {
        Some(_) => Some(Pictures::of(scenario, env)?),
        None => None,
    };
    let reading = read_all(&scenario.files, &mut |record| {
        replay.decide(record);
        if let Some(pictures) = &mut pictures {
            pictures.see(record);
        }
    })?;
    let identifiers = Identifiers {
        hasher: &hasher,
        show: scenario.show,
    };
    let report = Report::new(&reading, &replay, identifiers);
    if let (Some(path), Some(pictures)) = (&scenario.html, &pictures) {
        let others = pictures.others.iter();
        let others: Vec<_> = others
            .map(|other| Report::new(&reading, other, identifiers))
            .collect();
        let page = Page {
            report: &report,
            others: &others,
            suggestions: &pictures.suggesting.suggestions(),
        };
        fs::write(path, page.html()).map_err(|error| ReplayError::Page {
            file: path.display().to_string(),
            error,
        })?;
    }
    if scenario.json {
        let json = serde_json::to_string_pretty(&report).map_err(io::Error::from)?;
        writeln!(out, "{json}")?;
    } else {
        table::reading(&reading, Some(&report.logs), out)?;
        table::report(&report, out)?;
    }
    Ok(())
}

/// Says before anything is read that a page has no place, or would take that of what is read.
fn may_be_written(page: &Path, scenario: &Scenario) -> Result<(), ReplayError> {
    let file = page.display().to_string();
    let mut inputs = scenario.files.iter().chain(&scenario.config);
    if inputs.any(|input| is_same_file(input, page)) {
        return Err(ReplayError::PageIsInput { file });
    }
    if page.exists() && !page.is_file() && !page.is_dir() {
        // A pipe's other end would take this for the page.
        return Ok(());
    }
    let mut writing = OpenOptions::new();
    let opened = writing.append(true).create(true).open(page);
    opened.map_err(|error| ReplayError::ClosedPage { file, error })?;
    Ok(())
}

/// Whether both lead to one file, by whatever names.
fn is_same_file(input: &Path, other: &Path) -> bool {
    let file = |path: &Path| {
        let data = path.metadata().ok().filter(fs::Metadata::is_file);
        data.map(|data| (data.dev(), data.ino()))
    };
    let input = match input.as_os_str() == "-" {
        true => Path::new("/dev/stdin"),
        false => input,
    };
    file(input).is_some_and(|input| file(other) == Some(input))
}

/// Prints what limits would have cost.
fn suggest(
    scenario: &Scenario,
    env: &Environment<'_>,
    out: &mut dyn Write,
) -> Result<(), ReplayError> {
    let mut suggesting = suggesting(scenario, env)?;
    let reading = read_all(&scenario.files, &mut |record| suggesting.see(record))?;
    let suggestions = suggesting.suggestions();
    if scenario.json {
        let told = serde_json::json!({
            "assumptions": replay::ASSUMPTIONS,
            "requests": reading.requests,
            "suggestions": suggestions,
        });
        let json = serde_json::to_string_pretty(&told).map_err(io::Error::from)?;
        writeln!(out, "{json}")?;
    } else {
        table::reading(&reading, None, out)?;
        table::suggestions(&suggestions, out)?;
    }
    Ok(())
}

/// What is looked at beside the replay, for pictures.
struct Pictures {
    /// The same by other limits.
    others: Vec<Replay>,
    suggesting: Suggesting,
}

impl Pictures {
    fn of(scenario: &Scenario, env: &Environment<'_>) -> Result<Self, ReplayError> {
        let others = OTHERS.into_iter();
        let others = others.map(|scale| Ok(replay_of(scenario, env, scale)?.0));
        Ok(Self {
            others: others.collect::<Result<_, ReplayError>>()?,
            suggesting: suggesting(scenario, env)?,
        })
    }

    fn see(&mut self, record: &Record) {
        self.suggesting.see(record);
        for other in &mut self.others {
            other.decide(record);
        }
    }
}

/// By what a limit is multiplied, and by what it is divided.
type Scale = (u64, NonZeroU64);

const AS_IT_IS: Scale = (1, NonZeroU64::MIN);

const OTHERS: [Scale; 4] = [
    (1, NonZeroU64::new(4).expect("it is 4")),
    (1, NonZeroU64::new(2).expect("it is 2")),
    (2, NonZeroU64::MIN),
    (4, NonZeroU64::MIN),
];

/// By the limits that were asked for, scaled.
fn replay_of(
    scenario: &Scenario,
    env: &Environment<'_>,
    scale: Scale,
) -> Result<(Replay, IdentifierHasher), ReplayError> {
    match &scenario.config {
        Some(config) => by_configuration(config, env, scale),
        None => by_limits(&scenario.limits, scale),
    }
}

/// For whom the policies count, in the windows of their limits.
fn suggesting(scenario: &Scenario, env: &Environment<'_>) -> Result<Suggesting, ReplayError> {
    Ok(match &scenario.config {
        Some(path) => {
            let mut config = Config::load(path, env)?;
            let clients = std::mem::take(&mut config.clients);
            Suggesting::new(clients, app::policies(&mut config))
        }
        None => {
            let any = |window| Limit::new(1, window).expect("1 unit fits any window");
            let limits = match scenario.suggest {
                true => scenario.windows.iter().copied().map(any).collect(),
                false => scenario.limits.clone(),
            };
            let set = one_policy(&limits, &addresses(), Rule::Configured, AS_IT_IS)?;
            Suggesting::new(ClientRule::default(), set)
        }
    })
}

/// By the policies of a configuration, which is read anew for each rule: a set of policies belongs to one.
fn by_configuration(
    path: &Path,
    env: &Environment<'_>,
    scale: Scale,
) -> Result<(Replay, IdentifierHasher), ReplayError> {
    let mut config = Config::load(path, env)?;
    let (clients, hasher) = (config.clients.clone(), config.hasher.clone());
    let in_force = app::policies(&mut config);
    let mut rules = Vec::new();
    for rule in Rule::compared(&in_force) {
        let mut config = Config::load(path, env)?;
        let policies = std::mem::take(&mut config.policies).into_iter();
        let policies = policies.map(|policy| decided(policy, rule, scale));
        config.policies = policies.collect();
        rules.push((rule, app::policies(&mut config)));
    }
    Ok((Replay::new(clients, rules), hasher))
}

/// By one policy that counts addresses.
fn by_limits(limits: &[Limit], scale: Scale) -> Result<(Replay, IdentifierHasher), ReplayError> {
    let hasher = addresses();
    let in_force = one_policy(limits, &hasher, Rule::Configured, scale)?;
    let mut rules = Vec::new();
    for rule in Rule::compared(&in_force) {
        rules.push((rule, one_policy(limits, &hasher, rule, scale)?));
    }
    Ok((Replay::new(ClientRule::default(), rules), hasher))
}

fn one_policy(
    limits: &[Limit],
    hasher: &IdentifierHasher,
    rule: Rule,
    scale: Scale,
) -> Result<Arc<PolicySet>, ReplayError> {
    for (place, limit) in limits.iter().enumerate() {
        let mut before = limits[..place].iter();
        if let Some(other) = before.find(|other| other.window() == limit.window()) {
            return Err(ReplayError::SameWindow(*other, *limit));
        }
    }
    let policy = decided(Policy::of_addresses("client_ip", limits), rule, scale);
    Ok(Arc::new(PolicySet::new(vec![policy], hasher.clone())))
}

/// Groups addresses as is done by default.
fn addresses() -> IdentifierHasher {
    IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX)
}

fn decided(policy: Policy, rule: Rule, (multiplied, divided): Scale) -> Policy {
    let policy = policy.scaled(multiplied, divided);
    match rule {
        Rule::By(algorithm) => policy.deciding_by(algorithm),
        Rule::Configured => policy,
    }
}

/// Reads every log, and hands each request to `each`.
fn read_all(files: &[PathBuf], each: &mut dyn FnMut(&Record)) -> Result<Reading, ReplayError> {
    let size = |file: &PathBuf| {
        let data = file.metadata().ok().filter(fs::Metadata::is_file);
        data.map(|data| data.len())
    };
    let progress = Progress::of(files.iter().map(size).sum());
    let mut all = Reading::default();
    for path in files {
        let (file, bytes): (_, Box<dyn Read>) = match path.as_os_str() == "-" {
            true => ("standard input".to_owned(), Box::new(io::stdin().lock())),
            false => {
                let file = path.display().to_string();
                match File::open(path) {
                    Ok(opened) => (file, Box::new(opened)),
                    Err(error) => return Err(ReplayError::Closed { file, error }),
                }
            }
        };
        let mut reading = Reading::default();
        let bytes = progress.watched(bytes);
        let read = replay::read(&file, bytes, &mut reading, &mut |record| {
            each(record);
            progress.tell();
        });
        if let Err(error) = read {
            progress.clear();
            return Err(ReplayError::Read { file, error });
        }
        if reading.requests == 0 && reading.unread() > 0 {
            progress.clear();
            let lines = table::unreadable(&reading);
            return Err(ReplayError::NoRequest { file, lines });
        }
        all.add(reading);
    }
    progress.clear();
    Ok(all)
}
