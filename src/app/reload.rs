//! A configuration that takes the place of the one in force: what can take effect at once does, all of it
//! together, and what needs a restart is told. One with faults changes nothing.

use std::{convert::Infallible, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::mpsc};

use super::{Config, FIRST_RESOLUTION, policies, rules, upstreams};
use crate::{
    config::{ConfigError, Values, needs_restart},
    metrics::{Metrics, Reload},
    observe::{Refused, ReloadStatus, Reloads},
    proxy::Rules,
    server::{ListenAddress, ListenerSettings, Opening, Tls},
};

/// What was read of the configuration, each time that somebody asked for it or a file changed.
pub type Configs = mpsc::Receiver<Result<Config, ConfigError>>;

/// Puts configurations in force.
pub(super) struct Reloader {
    rules: Arc<ArcSwap<Rules>>,
    /// What the process was started with.
    at_start: Values,
    in_force: Values,
    metrics: Arc<Metrics>,
    status: ReloadStatus,
    /// The listeners that show certificates.
    tls: Vec<(ListenAddress, Arc<Tls>)>,
    /// Where what runs beside requests does.
    background: Handle,
}

impl Reloader {
    /// Begins with `rules`, which were read from `values`.
    pub fn new(
        rules: Arc<ArcSwap<Rules>>,
        values: Values,
        metrics: Arc<Metrics>,
        status: ReloadStatus,
        background: Handle,
    ) -> Self {
        metrics.configured(&values.fingerprint());
        let reloader = Self {
            rules,
            at_start: values.clone(),
            in_force: values,
            metrics,
            status,
            tls: Vec::new(),
            background,
        };
        reloader.tell(None);
        reloader
    }

    /// Shows other certificates at these listeners when the configuration, or a file that it names, does.
    pub fn keeps_identities(&mut self, listeners: &[ListenerSettings], openings: &[Opening]) {
        for (listener, opening) in listeners.iter().zip(openings) {
            if let Some(tls) = &opening.tls {
                self.tls.push((listener.address.clone(), tls.clone()));
            }
        }
        self.count_certificates();
    }

    /// Takes every configuration that comes, for ever. Building one may take long, so a thread of its own does.
    pub async fn keep_taking(self, mut configs: Configs) -> Infallible {
        let reloader = Arc::new(Mutex::new(self));
        while let Some(read) = configs.recv().await {
            let reloader = reloader.clone();
            let taken = tokio::task::spawn_blocking(move || reloader.lock().take(read));
            if let Err(error) = taken.await {
                tracing::error!(%error, "A reload failed.");
            }
        }
        std::future::pending().await
    }

    /// Each outcome is counted last: who sees the count finds told what it stands for.
    fn take(&mut self, read: Result<Config, ConfigError>) {
        match read {
            Err(error) => self.refuse(&error),
            Ok(config) if config.values == self.in_force => {
                self.tell(None);
                tracing::info!("The configuration says what it said: nothing to change.");
                self.metrics.reloaded(Reload::Unchanged);
            }
            Ok(config) => self.apply(config),
        }
    }

    fn refuse(&self, error: &ConfigError) {
        self.tell(Some(error));
        let faults = error.all().count();
        tracing::error!(
            file = error.file,
            faults,
            "The configuration has faults: the one in force stays."
        );
        for (file, fault) in error.all().take(MOST_TOLD) {
            tracing::error!("{file}:{fault}");
        }
        self.metrics.reloaded(Reload::Refused);
    }

    fn apply(&mut self, mut config: Config) {
        let before = self.rules.load_full();
        let policies = policies(&mut config);
        let limiter = before.limiter.replaced(policies, &config.limiter);
        let values = config.values.clone();
        self.show_certificates(&config.server.listen);
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let upstreams = upstreams(&mut config, Some(&before.upstreams), &self.metrics);
        self.background
            .block_on(upstreams.resolve_within(FIRST_RESOLUTION));
        upstreams.start(&self.background);
        let rules = rules(config, Arc::new(limiter), upstreams);
        self.rules.store(Arc::new(rules));

        let mut changed = self.in_force.changed(&values);
        // Those are told of below.
        changed.retain(|path| !needs_restart(path));
        let changed = told(&changed);
        self.in_force = values;
        self.metrics.configured(&self.in_force.fingerprint());
        self.tell(None);
        tracing::info!(changed, "The configuration was reloaded.");
        let waiting = self.waiting();
        if !waiting.is_empty() {
            tracing::warn!(
                settings = told(&waiting),
                "These settings take effect at a restart only."
            );
        }
        self.metrics.reloaded(Reload::Applied);
        wait_for_last(before);
    }

    /// Shows the certificates that were read at the listeners there are; a listener that is not there yet needs a
    /// restart, and is told of.
    fn show_certificates(&self, listeners: &[ListenerSettings]) {
        for (address, tls) in &self.tls {
            let now = listeners
                .iter()
                .find(|listener| listener.address == *address);
            if let Some(settings) = now.and_then(|listener| listener.tls.as_ref()) {
                tls.replace(settings.identity().clone());
            }
        }
        self.count_certificates();
    }

    fn count_certificates(&self) {
        self.metrics.no_certificates();
        for (_, tls) in &self.tls {
            for certificate in tls.identity().certificates() {
                let file = certificate.file.display().to_string();
                self.metrics.certificate(&file, certificate.expires);
            }
        }
    }

    /// The settings that have changed and need a restart.
    fn waiting(&self) -> Vec<&str> {
        let mut changed = self.at_start.changed(&self.in_force);
        changed.retain(|path| needs_restart(path));
        changed
    }

    fn tell(&self, refused: Option<&ConfigError>) {
        let waiting = self.waiting().into_iter().map(|path| {
            let still = self.at_start.shown(path).map(str::to_owned);
            (path.to_owned(), still)
        });
        self.status.set(Reloads {
            fingerprint: self.in_force.fingerprint(),
            refused: refused.map(refusal),
            waiting: waiting.collect(),
        });
    }
}

fn refusal(error: &ConfigError) -> Refused {
    let (file, first) = error.all().next().unzip();
    let place = first.and_then(|fault| fault.place);
    let place = place.map(|place| format!(":{place}")).unwrap_or_default();
    let file = file.unwrap_or(&error.file);
    let told = error.all().take(MOST_TOLD);
    Refused {
        faults: error.all().count(),
        first_at: format!("{file}{place}"),
        told: told
            .map(|(file, fault)| format!("{file}:{fault}"))
            .collect(),
    }
}

/// The first of many, and how many more.
fn told(paths: &[&str]) -> String {
    let first = paths.iter().take(MOST_TOLD).copied();
    let mut told = first.collect::<Vec<_>>().join(", ");
    if paths.len() > MOST_TOLD {
        told.push_str(&format!(" and {} more", paths.len() - MOST_TOLD));
    }
    told
}

/// Holds what was in force until the requests that began under it have ended, so that no request pays for
/// taking it apart; a connection that lives for long is not waited for.
fn wait_for_last(rules: Arc<Rules>) {
    for _ in 0..MOST_LOOKS {
        if Arc::strong_count(&rules) == 1 {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Faults and settings that a reload tells of, at most.
const MOST_TOLD: usize = 20;

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

const MOST_LOOKS: usize = 50;
