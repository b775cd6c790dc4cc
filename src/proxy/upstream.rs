//! Upstreams as they run: their addresses are found and checked in the background, and what requests see of them is
//! remembered. Which address is next is [`crate::upstream`]'s to say.

mod failure;
mod peer;
mod probe;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use futures_util::future::{join, join_all};
use http::{StatusCode, request::Parts};
use parking_lot::Mutex;
use pingora::{Error, ErrorType, upstreams::peer::HttpPeer};
use tokio::{runtime::Handle, time::timeout};
use tokio_util::task::AbortOnDropHandle;

pub use failure::Failure;

use self::peer::PeerIdentity;
pub(super) use self::peer::connect_anew;
use crate::{
    bounded_log::News,
    clock,
    metrics::{Metrics, UpstreamMetrics},
    policy::{Routed, Routes},
    upstream::{Address, Http, Member, Rotation, Target, UpstreamSettings},
};

/// The upstreams of a configuration, and which requests go to which.
#[derive(Debug)]
pub struct Upstreams {
    all: Vec<Arc<Kept>>,
    routes: Routes,
}

/// An upstream, and what runs for it as long as anybody has it.
#[derive(Debug)]
struct Kept {
    upstream: Arc<Upstream>,
    running: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// One upstream.
#[derive(Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    /// What its addresses led to when that was asked last, one after another.
    found: Mutex<Vec<Vec<Target>>>,
    rotation: ArcSwap<Rotation>,
    next: AtomicUsize,
    identity: PeerIdentity,
    /// From when its members' times count.
    started: Instant,
    metrics: UpstreamMetrics,
    /// Held while what the metrics tell of its addresses is counted and set.
    telling: Mutex<Telling>,
}

/// Whether the metrics of a name tell of this upstream, and not of one that has taken its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Telling {
    #[default]
    Yes,
    No,
}

impl Upstreams {
    /// These, to be started. One that `before` has with the same settings is that one, connections and all.
    pub fn new(
        settings: Vec<UpstreamSettings>,
        routes: Routes,
        before: Option<&Self>,
        metrics: &Metrics,
    ) -> Self {
        let all = settings.into_iter().map(|settings| {
            let mut known = before.iter().flat_map(|before| &before.all);
            let known = known.find(|kept| kept.upstream.settings == settings);
            known.cloned().unwrap_or_else(|| {
                Arc::new(Kept {
                    upstream: Arc::new(Upstream::new(settings, metrics)),
                    running: Mutex::default(),
                })
            })
        });
        let all: Vec<_> = all.collect();
        let gone = before.iter().flat_map(|before| &before.all);
        let gone = gone.filter(|kept| !all.iter().any(|one| Arc::ptr_eq(one, kept)));
        gone.for_each(|kept| kept.retire());
        let names: Vec<&str> = all.iter().map(|kept| kept.upstream.name()).collect();
        metrics.keep_upstreams(&names);
        for kept in &all {
            kept.upstream.tell_standing();
        }
        Self { all, routes }
    }

    /// Where a request with this head goes: `Ok(None)` if no route is for it.
    ///
    /// # Errors
    /// If its path can be read in several ways that lead to different upstreams.
    pub fn route(&self, head: &Parts) -> Result<Option<&Arc<Upstream>>, AmbiguousRoute> {
        match self.routes.route(head) {
            Routed::To(place) => Ok(self.all.get(place).map(|kept| &kept.upstream)),
            Routed::Nowhere => Ok(None),
            Routed::Ambiguous => Err(AmbiguousRoute),
        }
    }

    /// Finds the addresses of those that are new, waiting no longer than `patience`.
    pub async fn resolve_within(&self, patience: Duration) {
        let all = self.all.iter();
        let new = all.filter(|kept| kept.running.lock().is_none());
        join_all(new.map(|kept| kept.upstream.resolve_within(patience))).await;
    }

    /// Keeps addresses found and checked, on `runtime`, as long as anybody has the upstream.
    pub fn start(&self, runtime: &Handle) {
        for kept in &self.all {
            kept.running.lock().get_or_insert_with(|| {
                let keeping = kept.upstream.clone().keep();
                AbortOnDropHandle::new(runtime.spawn(keeping))
            });
        }
    }
}

impl Kept {
    /// Requests that are on their way there end there; nobody else comes.
    fn retire(&self) {
        drop(self.running.lock().take());
        *self.upstream.telling.lock() = Telling::No;
    }
}

/// A path can be read in several ways that lead to different upstreams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmbiguousRoute;

impl Upstream {
    fn new(settings: UpstreamSettings, metrics: &Metrics) -> Self {
        let found = settings.addresses.iter();
        let found: Vec<Vec<Target>> = found
            .map(|address| address.target().into_iter().collect())
            .collect();
        let rotation = Rotation::new(found.iter().flatten().cloned(), &Rotation::default());
        Self {
            identity: PeerIdentity::new(settings.tls.as_ref()),
            metrics: metrics.upstream(&settings.name),
            settings,
            found: Mutex::new(found),
            rotation: ArcSwap::from_pointee(rotation),
            next: AtomicUsize::new(0),
            started: clock::instant(),
            telling: Mutex::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// How many addresses it has.
    pub(super) fn addresses(&self) -> usize {
        self.rotation.load().members().len()
    }

    /// What is counted of it.
    pub(super) fn metrics(&self) -> &UpstreamMetrics {
        &self.metrics
    }

    /// A request's place in the turn that the addresses take.
    pub(super) fn turn(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Where the next attempt of a request goes that has been at `tried`, and `repeats` itself elsewhere if need be.
    ///
    /// # Errors
    /// If no address is known: its names were never resolved.
    pub(super) fn choose(
        &self,
        turn: usize,
        tried: &[Arc<Member>],
        repeats: bool,
    ) -> pingora::Result<Arc<Member>> {
        let rotation = self.rotation.load();
        let eject = self.settings.eject.as_ref();
        let now = clock::elapsed(self.started);
        let chosen = rotation.choose(turn, tried, repeats, eject, now);
        chosen.ok_or_else(|| {
            let (name, addresses) = (self.name(), self.settings.told());
            let reason = format!("no address of upstream {name} is known: {addresses}");
            Error::explain(ErrorType::ConnectError, reason).into_up()
        })
    }

    /// How a member is connected to.
    ///
    /// # Errors
    /// None in practice: what a configuration holds can be connected to.
    pub(super) fn peer(&self, member: &Member, upgrade: bool) -> pingora::Result<Box<HttpPeer>> {
        let mut peer = self.identity.peer(&self.settings, &member.target)?;
        if upgrade {
            // A connection that was upgraded may be silent for long.
            peer.options.read_timeout = None;
        }
        Ok(peer)
    }

    /// Whether a response of this version is what it was asked for: where HTTP/2 is not offered in TLS, Pingora
    /// speaks HTTP/1.1.
    pub(super) fn expects(&self, version: http::Version) -> bool {
        match self.settings.http {
            Http::One => version != http::Version::HTTP_2,
            Http::Two => version == http::Version::HTTP_2,
        }
    }

    /// A request was not answered there.
    pub(super) fn failed_at(&self, member: &Member) {
        let Some(rule) = &self.settings.eject else {
            return;
        };
        if member.standing.failed(rule, clock::elapsed(self.started)) {
            self.metrics.ejected();
            self.tell_standing();
            // Where there is but one it is asked all the same.
            if self.addresses() > 1 {
                tracing::warn!(
                    upstream = self.name(),
                    address = %member.target.socket,
                    "Requests fail there: the address is left out, and tried again in a while."
                );
            }
        }
    }

    /// A request was answered there.
    pub(super) fn answered_at(&self, member: &Member) {
        if member.standing.answered() {
            self.tell_standing();
            if self.addresses() > 1 {
                tracing::info!(
                    upstream = self.name(),
                    address = %member.target.socket,
                    "A request was answered there: the address is in rotation again."
                );
            }
        }
    }

    /// That a request failed on its way there, to be told.
    pub(super) fn failure(
        &self,
        member: Option<&Member>,
        status: StatusCode,
        error: &Error,
    ) -> Failure {
        let address = match member {
            Some(member) => member.target.socket.to_string(),
            None => self.settings.told(),
        };
        Failure::new(self.name(), &address, status, error)
    }

    fn tell_standing(&self) {
        let telling = self.telling.lock();
        if *telling == Telling::Yes {
            self.metrics.stand(self.rotation.load().counts());
        }
    }

    /// Keeps its addresses found and checked, for ever.
    async fn keep(self: Arc<Self>) {
        let names = self.settings.addresses.iter().enumerate();
        let resolving = names.map(|(place, address)| self.keep_resolving(place, address));
        let telling = async {
            self.tell_if_unreachable().await;
            self.keep_checking().await;
        };
        join(join_all(resolving), telling).await;
    }

    async fn resolve_within(&self, patience: Duration) {
        let addresses = self.settings.addresses.iter().enumerate();
        let resolving = addresses.map(|(place, address)| async move {
            let mut news = News::default();
            let resolving = self.resolve(place, address, &mut news);
            if timeout(patience, resolving).await.is_err() {
                let upstream = self.name();
                tracing::warn!(upstream, %address, "The upstream's name was not resolved in time.");
            }
        });
        join_all(resolving).await;
    }

    /// Resolves a name again and again, for ever; ends at once for what is none.
    ///
    /// What was found stays until something else is: a name server that is away changes nothing.
    async fn keep_resolving(&self, place: usize, address: &Address) {
        let mut news = News::default();
        while let Address::Name { .. } = address {
            let pause = match self.found.lock()[place].len() {
                0 => UNRESOLVED_PAUSE.min(self.settings.resolve_interval),
                _ => self.settings.resolve_interval,
            };
            tokio::time::sleep(pause).await;
            self.resolve(place, address, &mut news).await;
        }
    }

    /// Resolves a name once. `news` is of this name.
    async fn resolve(&self, place: usize, address: &Address, news: &mut News<String>) {
        let Address::Name { host, port } = address else {
            return;
        };
        let upstream = self.name();
        match tokio::net::lookup_host((&**host, *port)).await {
            Ok(found) => {
                news.went_well();
                let found = found.take(MOST_ADDRESSES);
                let mut found: Vec<_> = found.map(|socket| address.found(socket)).collect();
                found.sort_unstable_by_key(|target| target.socket.clone());
                found.dedup();
                self.found(place, found);
            }
            Err(error) => {
                if let Some(error) = news.failed(error.to_string()) {
                    tracing::warn!(upstream, %address, error, "The upstream's name was not resolved.");
                }
            }
        }
    }

    /// An address leads to these.
    fn found(&self, place: usize, targets: Vec<Target>) {
        let mut found = self.found.lock();
        if targets.is_empty() || found[place] == targets {
            return;
        }
        found[place] = targets;
        let rotation = Rotation::new(found.iter().flatten().cloned(), &self.rotation.load());
        let sockets = rotation.members().iter();
        let sockets: Vec<_> = sockets
            .map(|member| member.target.socket.to_string())
            .collect();
        tracing::info!(
            upstream = self.name(),
            addresses = ?sockets,
            "The upstream's addresses changed."
        );
        self.rotation.store(Arc::new(rotation));
        drop(found);
        self.tell_standing();
    }
}

/// Between two attempts while no address is known at all.
const UNRESOLVED_PAUSE: Duration = Duration::from_secs(1);

/// More than any service announces; an answer is not trusted to be short.
const MOST_ADDRESSES: usize = 64;
