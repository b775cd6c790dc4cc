//! One client under some policies: what `inspect` and `forget` share. Which client, by which of its
//! policies, and how the store is asked about it by somebody who has more time than a request.
//!
//! A key comes from standard input or a file, since others can read a command line. What is said of it
//! here, errors included, never holds a byte of it.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal as _, Read},
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use crate::{
    app, clock,
    config::{Config, ConfigError, Environment},
    held::{self, Held},
    limiter::Limiter,
    policy::{
        Client, Consumers, Identifier, IdentifierHasher, IdentifierRule, KeyTooLong,
        MAX_IDENTIFYING_VALUE, ParseIdentifierError, Policy,
    },
    store::StoreError,
};

/// Which client, and by which policies.
#[derive(Debug, Args)]
pub(super) struct Selection {
    /// The configuration of the proxies, with the secret that they use.
    #[arg(long, short, default_value = "config.yaml")]
    config: PathBuf,
    /// The policy. Left out: every policy that counts clients of this kind.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    #[command(flatten)]
    who: Who,
    /// Taken only to be refused without being repeated: it may be a key.
    #[arg(hide = true)]
    mistaken: Vec<OsString>,
}

/// Without any of these, a key is read from standard input.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Who {
    /// Read the API key from this file, `-` for standard input, which is also the default.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The client's address, as it connects; grouped as the configuration says.
    #[arg(long)]
    address: Option<IpAddr>,
    /// The consumer of this name.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// The identifier as it stands in logs and in Redis. Not a key.
    // One in 64 begins with a hyphen.
    #[arg(long, allow_hyphen_values = true)]
    identifier: Option<String>,
}

/// What a client is looked up by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    /// A key, which is the value of one header.
    Key,
    /// A consumer, by its name or one of its keys.
    Consumer,
    Address,
    /// The hash of a key, or of anything else that policies count.
    Hash,
}

impl Given {
    fn is_counted_by(self, rule: &IdentifierRule) -> bool {
        match self {
            Self::Key => rule.counts_keys(),
            Self::Consumer => rule.counts_lone_consumers(),
            Self::Address => rule.counts_addresses(),
            Self::Hash => rule.counts_hashes(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Consumer => "consumer",
            Self::Address => "address",
            Self::Hash => "hash",
        }
    }

    /// How to give it.
    fn how(self) -> &'static str {
        match self {
            Self::Key => "give the key on standard input or by --key-file",
            Self::Consumer => {
                "give --consumer, or one of its keys; identity.consumers knows no other"
            }
            Self::Address => "give --address",
            Self::Hash => "give --identifier, as it stands in logs and in Redis",
        }
    }
}

/// Why a client was not looked up, or not forgotten.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("--identifier: {ParseIdentifierError}\n  hint: --address takes an address in any form")]
    Identifier,
    #[error(
        "store.url: by this configuration counters are in memory: they live in the process of each proxy, and cannot be \
         reached from here\n  \
         hint: if the proxies take store.url from their environment, this command needs it too; else a restart of a \
         proxy clears its counters"
    )]
    InMemory,
    #[error("{error}\n  hint: {hint}", hint = hint(.error))]
    Store {
        #[from]
        error: StoreError,
    },
    #[error(
        "{0}\n  hint: what Redis holds of the client may be deleted or not; try again, which does no harm"
    )]
    HalfForgotten(StoreError),
    #[error("the system grants no more resources: {0}")]
    Resources(io::Error),
    #[error("writing the result: {0}")]
    Output(#[from] io::Error),
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    #[error(
        "a key is not typed here, since a terminal shows it\n  \
         hint: read -rs KEY; slidegate … <<< \"$KEY\", or --key-file FILE, --address or --identifier"
    )]
    Terminal,
    #[error(
        "nothing is given without an option, least of all a key: others can read a command line, and shells keep it\n  \
         hint: a key comes from standard input or --key-file; if this was one, take it for known"
    )]
    Typed,
    #[error("{from}: cannot be read: {error}")]
    Unreadable { from: String, error: io::Error },
    #[error("{from}: holds no key")]
    Empty { from: String },
    #[error("{from}: {KeyTooLong}")]
    TooLong { from: String },
    #[error("{from}: holds what no header can, such as a second line; a key is one line")]
    NotAHeader { from: String },
}

impl ClientError {
    /// Of a deletion that the store did not confirm.
    fn of_forgetting(error: StoreError) -> Self {
        match error {
            StoreError::Timeout | StoreError::Io(_) | StoreError::Reply(_) => {
                Self::HalfForgotten(error)
            }
            StoreError::Disconnected
            | StoreError::Overloaded
            | StoreError::Refused(_)
            | StoreError::WindowTurned => error.into(),
        }
    }

    /// Whether what was asked for cannot be, whatever the world is like.
    pub(super) fn is_usage(&self) -> bool {
        match self {
            Self::Config(_) | Self::Usage(_) | Self::Key(_) | Self::Identifier => true,
            Self::InMemory
            | Self::Store { .. }
            | Self::HalfForgotten(_)
            | Self::Resources(_)
            | Self::Output(_) => false,
        }
    }
}

/// A client whose counters can be reached.
pub(super) struct OneClient {
    limiter: Limiter,
    /// Places of the policies.
    policies: Vec<usize>,
    /// Who is counted.
    pub(super) identifier: Identifier,
    /// How long a proxy may go on denying a client whose counters are gone.
    pub(super) denial_cache: Duration,
}

/// Does what `ask` does with the client selected, on a runtime of its own.
pub(super) fn with<T>(
    selection: &Selection,
    env: &Environment<'_>,
    ask: impl AsyncFnOnce(&OneClient) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    if !selection.mistaken.is_empty() {
        return Err(KeyError::Typed.into());
    }
    let config = Config::load(&selection.config, env)?;
    if config.redis.is_none() {
        return Err(ClientError::InMemory);
    }
    // Before a key is read: who has mistyped the policy is not asked for one first.
    if let Some(name) = &selection.policy {
        known(name, &config.policies)?;
    }
    let (identifier, given) = selection.who.identifier(&config)?;
    let policies = selection.policies(given, &config.policies)?;
    warn_on_standard_error();

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClientError::Resources)?;
    let denial_cache = config.limiter.denial_cache;
    let client = OneClient {
        limiter: app::limiter(config, PATIENCE, runtime.handle()),
        policies,
        identifier,
        denial_cache,
    };
    runtime.block_on(ask(&client))
}

impl OneClient {
    /// What the store holds of it now, limit by limit; nothing is charged.
    pub(super) async fn held(&self) -> Result<Vec<Held<'_>>, ClientError> {
        let ask = || held::inspect(&self.limiter, &self.policies, self.identifier);
        Ok(patiently(ask).await?)
    }

    /// Deletes what the store holds of it.
    pub(super) async fn forget(&self) -> Result<(), ClientError> {
        let ask = || held::forget(&self.limiter, &self.policies, self.identifier);
        patiently(ask).await.map_err(ClientError::of_forgetting)
    }
}

/// Asks until there is a connection, since a proxy's first attempt is a short one. What was sent is not
/// sent again.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let started = clock::instant();
    loop {
        match ask().await {
            Err(StoreError::Disconnected) if clock::elapsed(started) < PATIENCE => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

impl Selection {
    /// The places of the policies that count clients of this kind, or the one asked for.
    fn policies(&self, given: Given, policies: &[Policy]) -> Result<Vec<usize>, ClientError> {
        let places = match &self.policy {
            Some(name) => vec![known(name, policies)?],
            None => (0..policies.len()).collect(),
        };
        let counting: Vec<_> = places
            .iter()
            .copied()
            .filter(|place| given.is_counted_by(&policies[*place].identifier))
            .collect();
        if !counting.is_empty() {
            return Ok(counting);
        }
        let whose = match &self.policy {
            Some(name) => format!("--policy: {name} counts"),
            None => "every policy counts".to_owned(),
        };
        let others = [Given::Key, Given::Consumer, Given::Address, Given::Hash];
        let fits = |other: &Given| {
            let mut rules = places.iter().map(|place| &policies[*place].identifier);
            rules.any(|rule| other.is_counted_by(rule))
        };
        // Every policy counts something, and what was given is nothing of it.
        let other = others.into_iter().find(fits).unwrap_or(Given::Hash);
        let (kind, only, give) = (given.name(), other.name(), other.how());
        Err(ClientError::Usage(format!(
            "{whose} nobody by {kind}, by {only} only\n  hint: {give}"
        )))
    }
}

/// The place of the policy of this name.
fn known(name: &str, policies: &[Policy]) -> Result<usize, ClientError> {
    let found = policies.iter().position(|policy| &*policy.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = policies.iter().map(|policy| &*policy.name).collect();
        let names = names.join(", ");
        ClientError::Usage(format!(
            "--policy: found {name:?}, and the configuration has {names}"
        ))
    })
}

impl Who {
    fn identifier(&self, config: &Config) -> Result<(Identifier, Given), ClientError> {
        let hasher = &config.hasher;
        if let Some(name) = &self.consumer {
            return Ok((consumer(name, &config.consumers)?, Given::Consumer));
        }
        if let Some(address) = self.address {
            let identifier = hasher.client(Client::Address(address));
            return Ok((identifier, Given::Address));
        }
        if let Some(text) = &self.identifier {
            let identifier = text
                .parse()
                .map_err(|ParseIdentifierError| ClientError::Identifier)?;
            return Ok(match identifier {
                Identifier::Hash(_) => (identifier, Given::Hash),
                Identifier::Unix => (identifier, Given::Address),
                // One of an IPv6 group stands for the group.
                Identifier::Address(address) => {
                    (hasher.client(Client::Address(address)), Given::Address)
                }
            });
        }
        let key = given_key(self.key_file.as_deref(), hasher)?;
        Ok(match config.consumers.with_key(key) {
            Some(consumer) => (consumer.identifier, Given::Consumer),
            None => (key, Given::Key),
        })
    }
}

/// As whom the consumer of this name is counted.
fn consumer(name: &str, consumers: &Consumers) -> Result<Identifier, ClientError> {
    let mut all = consumers.all().iter();
    let found = all.find(|consumer| &*consumer.name == name);
    found.map(|consumer| consumer.identifier).ok_or_else(|| {
        let many = consumers.all().len();
        ClientError::Usage(format!(
            "--consumer: found {name:?}, which is none of the {many} consumers of identity.consumers"
        ))
    })
}

/// The hash of the key in this file, or on standard input.
pub(super) fn given_key(
    file: Option<&Path>,
    hasher: &IdentifierHasher,
) -> Result<Identifier, KeyError> {
    match file {
        Some(file) if file != Path::new("-") => {
            let from = format!("--key-file {}", file.display());
            read_key(File::open(file), from, hasher)
        }
        Some(_) | None => {
            let stdin = io::stdin().lock();
            if stdin.is_terminal() {
                return Err(KeyError::Terminal);
            }
            read_key(Ok(stdin), "standard input".to_owned(), hasher)
        }
    }
}

/// The identifier of the key that `source` holds, whose last line may be ended.
fn read_key(
    source: io::Result<impl Read>,
    from: String,
    hasher: &IdentifierHasher,
) -> Result<Identifier, KeyError> {
    let mut held = Vec::new();
    let most = MAX_IDENTIFYING_VALUE + b"\r\n".len() + 1;
    let read = source.and_then(|source| source.take(most as u64).read_to_end(&mut held));
    if let Err(error) = read {
        return Err(KeyError::Unreadable { from, error });
    }
    let key = held.strip_suffix(b"\n").unwrap_or(&held);
    let key = key.strip_suffix(b"\r").unwrap_or(key);
    match hasher.api_key(key) {
        Err(KeyTooLong) => Err(KeyError::TooLong { from }),
        Ok(None) => Err(KeyError::Empty { from }),
        Ok(Some(_)) if http::HeaderValue::from_bytes(key).is_err() => {
            Err(KeyError::NotAHeader { from })
        }
        Ok(Some(identifier)) => Ok(identifier),
    }
}

fn hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::Disconnected => {
            "the lines above say where it is looked for, and why it was not reached"
        }
        StoreError::Refused(text) if text.starts_with("TRYAGAIN") => {
            "the client's slot is being moved to another server of the cluster; try again when it has"
        }
        StoreError::Refused(text) if text.starts_with("CLUSTERDOWN") => {
            "no server of the cluster has the client's slot just now; try again when it is whole"
        }
        StoreError::Refused(_) => {
            "docs/redis.md and lua/README.md list the rights that its user needs"
        }
        StoreError::Overloaded
        | StoreError::Timeout
        | StoreError::Io(_)
        | StoreError::Reply(_)
        | StoreError::WindowTurned => "nothing was charged; try again",
    }
}

/// Why the store is not reached is told where its connection is made.
fn warn_on_standard_error() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .init();
}

/// How long a person waits rather than be told to try again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks whether there is a connection.
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_that_may_have_been_done_is_not_told_as_none() {
        let told = |error| ClientError::of_forgetting(error).to_string();
        let lost = [
            StoreError::Timeout,
            StoreError::Io(String::new()),
            StoreError::Reply(String::new()),
        ];
        for error in lost {
            let told = told(error);
            assert!(told.contains("may be deleted or not"), "{told}");
            assert!(!told.contains("nothing was"), "{told}");
        }
        assert!(told(StoreError::Disconnected).contains("the lines above say where"));
    }
}
