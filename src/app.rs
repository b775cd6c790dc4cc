//! The only place that names every part: it builds them from the configuration, starts them, stops them.

mod reload;

use std::{net::TcpListener, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use pingora::{
    apps::{HttpServerOptions, ServerApp, http_app::HttpServer},
    protocols::http::v2::server::H2Options,
    server::configuration::ServerConf,
};
use pingora_proxy::http_proxy;
use tokio::sync::watch;

use crate::{
    access_log::AccessLog,
    admin::Admin,
    bounded_log::{BoundedLog, FoldedLog, LINES_PER_SECOND},
    clock::Clock,
    config::Config,
    limiter::{Limiter, LimiterLogs},
    metrics::Metrics,
    observe::{Observatory, ReloadStatus},
    pem,
    policy::PolicySet,
    proxy::{
        Gateway, Origin, RequestBounds, Rules,
        response::Responder,
        upstream::{Failure, Upstreams},
    },
    server::{
        self, BindError, Bound, Bounds, Census, Guests, Listener, Opening, Readiness,
        RunningWorker, ServerSettings, Stop, Worker,
    },
    store::{MemoryStore, RedisStore, Store},
};

pub use reload::Configs;

use self::reload::Reloader;

/// What a running slidegate needs of the world.
pub struct World {
    /// Where it can be reached.
    pub listeners: Listeners,
    /// The time.
    pub clock: Clock,
    /// When to stop.
    pub stop: watch::Receiver<Stop>,
    /// What the configuration says from now on.
    pub configs: Configs,
}

/// Where it can be reached.
#[derive(Debug)]
pub struct Listeners {
    /// By clients, as many as the configuration has.
    pub proxy: Vec<Bound>,
    /// By Prometheus and probes.
    pub metrics: TcpListener,
    /// By operators, if at all.
    pub admin: Option<TcpListener>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Everything that was accepted was answered.
    Drained,
    /// What was still in flight was cut off: the grace was over, or a second signal came.
    Cut,
}

/// Why it did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// An address could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system grants no thread, descriptor or runtime.
    #[error("the system grants no more resources: {0}")]
    Resources(#[from] std::io::Error),
    /// A worker panicked; the log says why.
    #[error("a worker stopped unexpectedly")]
    WorkerDied,
    /// Metrics and health are no longer served; the log says why.
    #[error("the listener for metrics and health stopped unexpectedly")]
    ObservatoryDied,
}

/// Binds the listeners that the configuration names.
///
/// # Errors
/// If one of them is taken, foreign or not permitted.
pub fn bind(settings: &ServerSettings) -> Result<Listeners, BindError> {
    let admin = settings.admin_listen;
    let proxy = settings.listen.iter();
    let proxy = proxy.map(|listener| server::bind("listen", &listener.address));
    Ok(Listeners {
        proxy: proxy.collect::<Result<_, _>>()?,
        metrics: server::bind_tcp("metrics_listen", settings.metrics_listen)?,
        admin: admin
            .map(|address| server::bind_tcp("admin_listen", address))
            .transpose()?,
    })
}

/// Serves until told to stop, then finishes what is in flight.
///
/// Readiness goes off at once, new requests are served for the drain delay, then nothing new is accepted,
/// and it returns as soon as the last request has ended or the grace is over. It builds its own runtimes:
/// it is not to be called from within one.
///
/// # Errors
/// If it could not start, or a worker died.
pub fn run(config: Config, world: World) -> Result<RunEnd, AppError> {
    install_cryptography();
    let control = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let settings = config.server.clone();
    let workers = (0..settings.threads)
        .map(Worker::new)
        .collect::<Result<Vec<_>, _>>()?;
    let background = workers[0].handle();

    let parts = Parts::assemble(config, &world.clock, background, &control);
    background.spawn(parts.logs.clone().keep_folding());
    let listeners = world.listeners.proxy.into_iter().zip(parts.openings);
    let listeners = listeners.map(|(bound, opening)| Listener { bound, opening });
    // They are bound: what arrives from here on is served.
    let readiness = parts.gateway.readiness.clone();
    readiness.set(true);
    let (close, closing) = watch::channel(false);
    let running = start_workers(
        workers,
        listeners.collect(),
        &parts.gateway,
        &parts.guests,
        &closing,
    )?;

    let (observatory, admin) = (parts.observatory, parts.admin);
    let (metrics_listener, admin_listener) = (world.listeners.metrics, world.listeners.admin);
    let ended = control.block_on(async move {
        let observing = tokio::spawn(serve_to_the_end(metrics_listener, observatory));
        if let Some(listener) = admin_listener {
            tokio::spawn(serve_to_the_end(listener, admin));
        }
        tokio::select! {
            ended = supervise(&settings, running, readiness, close, world.stop) => ended,
            _ = observing => Err(AppError::ObservatoryDied),
            never = parts.reloader.keep_taking(world.configs) => match never {},
        }
    });
    parts.logs.finish();
    ended
}

/// What a configuration is made into, before any of it serves.
struct Parts {
    gateway: Gateway,
    guests: Guests,
    /// One for each listener of clients.
    openings: Vec<Opening>,
    observatory: HttpServer<Observatory>,
    admin: HttpServer<Admin>,
    reloader: Reloader,
    logs: Logs,
}

impl Parts {
    /// Makes them; what they do besides requests is done on `background`. Waits a while for the names of upstreams.
    fn assemble(
        mut config: Config,
        clock: &Clock,
        background: &tokio::runtime::Handle,
        control: &tokio::runtime::Runtime,
    ) -> Self {
        let (limiter, metrics) = open_limiter(&mut config, clock.clone(), background);
        let store = limiter.store_status();
        let failures = Arc::new(FoldedLog::new(clock.clone(), LINES_PER_SECOND));
        let logs = Logs {
            limiter: limiter.logs(),
            failures: failures.clone(),
        };
        let upstreams = upstreams(&mut config, None, &metrics);
        // So that the first requests find them. A name server that is away delays the start, and no more.
        control.block_on(upstreams.resolve_within(FIRST_RESOLUTION));
        upstreams.start(background);

        let listen = config.server.listen.clone();
        let guests = guests(&config, metrics.clone());
        let openings: Vec<Opening> = listen.iter().map(Opening::new).collect();
        let (values, bounds) = (config.values.clone(), config.requests);
        let admin_token = config.admin_token.take();
        let rules = rules(config, Arc::new(limiter), upstreams);
        let rules = Arc::new(ArcSwap::from_pointee(rules));
        let reloads = ReloadStatus::default();
        let mut reloader = Reloader::new(
            rules.clone(),
            values,
            metrics.clone(),
            reloads.clone(),
            background.clone(),
        );
        reloader.keeps_identities(&listen, &openings);
        let readiness = Readiness::default();
        Self {
            observatory: HttpServer::new_app(Observatory {
                metrics: metrics.clone(),
                store: store.clone(),
                reloads: reloads.clone(),
                readiness: readiness.clone(),
            }),
            admin: HttpServer::new_app(Admin {
                rules: rules.clone(),
                store,
                reloads,
                token: admin_token,
                refused_log: BoundedLog::new(clock.clone()),
            }),
            gateway: Gateway {
                rules,
                metrics,
                readiness,
                failures,
                bounds,
                clock: clock.clone(),
            },
            guests,
            openings,
            reloader,
            logs,
        }
    }
}

/// How connections of clients are bounded.
fn guests(config: &Config, metrics: Arc<Metrics>) -> Guests {
    Guests {
        bounds: config.server.bounds,
        census: Arc::new(Census::new(
            config.server.census.clone(),
            config.hasher.clone(),
            config.clients.clone(),
            Some(metrics),
        )),
    }
}

/// Has each of the workers serve the gateway at all of the listeners, which nobody else holds then: they are closed with
/// the last worker's.
fn start_workers(
    workers: Vec<Worker>,
    listeners: Vec<Listener>,
    gateway: &Gateway,
    guests: &Guests,
    closing: &watch::Receiver<bool>,
) -> Result<Vec<RunningWorker>, AppError> {
    let conf = Arc::new(pingora_settings());
    let start = |worker: Worker| {
        let listeners = listeners.iter().map(Listener::try_clone);
        let mut proxy = http_proxy(&conf, gateway.clone());
        proxy.server_options = Some(server_options(&gateway.bounds));
        proxy.h2_options = Some(h2_options(&guests.bounds));
        let listeners = listeners.collect::<Result<_, _>>()?;
        Ok(worker.start(listeners, proxy, guests.clone(), closing.clone())?)
    };
    workers.into_iter().map(start).collect()
}

/// What is told now and then rather than each time.
#[derive(Clone)]
struct Logs {
    limiter: LimiterLogs,
    failures: Arc<FoldedLog<Failure>>,
}

impl Logs {
    async fn keep_folding(self) {
        loop {
            tokio::time::sleep(BETWEEN_FOLDS).await;
            self.limiter.fold();
            self.failures.fold();
        }
    }

    fn finish(&self) {
        self.limiter.finish();
        self.failures.finish();
    }
}

/// The limiter of a configuration without a proxy before it, for a person who looks at counters: it waits
/// for Redis as long as `patience`. Its connection lives on `runtime`.
pub fn limiter(
    mut config: Config,
    patience: Duration,
    runtime: &tokio::runtime::Handle,
) -> Limiter {
    install_cryptography();
    if let Some(redis) = &mut config.redis {
        redis.budget = patience;
    }
    let (limiter, _) = open_limiter(&mut config, Clock::system(), runtime);
    limiter
}

/// What a configuration says about requests, on counters that are new and nobody else's. Connects to nothing.
pub fn rules_on_empty_counters(mut config: Config) -> Rules {
    let clock = Clock::system();
    let metrics = Arc::new(Metrics::new());
    let upstreams = upstreams(&mut config, None, &metrics);
    let limiter = Limiter::new(
        policies(&mut config),
        Store::Memory(MemoryStore::new(config.memory, clock.clone())),
        MemoryStore::new(config.memory, clock.clone()),
        &config.limiter,
        metrics,
        clock,
    );
    rules(config, Arc::new(limiter), upstreams)
}

/// What a configuration says about requests, decided on by `limiter` and sent to `upstreams`.
fn rules(config: Config, limiter: Arc<Limiter>, upstreams: Upstreams) -> Rules {
    let origin = Origin {
        fingerprint: config.values.fingerprint(),
        settings: config.shown.0,
    };
    Rules {
        origin,
        clients: config.clients,
        forwarding: config.forwarding,
        responder: Responder::new(config.responses, limiter.policies()),
        access_log: config.access_log.map(AccessLog::new),
        limiter,
        upstreams,
    }
}

/// Takes the upstreams out of a configuration, to be started; those that are as they were `before` go on.
fn upstreams(config: &mut Config, before: Option<&Upstreams>, metrics: &Metrics) -> Upstreams {
    let settings = std::mem::take(&mut config.upstreams);
    let routes = std::mem::take(&mut config.routes);
    Upstreams::new(settings, routes, before, metrics)
}

/// Takes the policies out of a configuration.
pub fn policies(config: &mut Config) -> Arc<PolicySet> {
    let policies = std::mem::take(&mut config.policies);
    let policies = PolicySet::new(policies, config.hasher.clone())
        .applying(config.apply)
        .knowing(std::mem::take(&mut config.consumers))
        .behind(std::mem::take(&mut config.gate));
    Arc::new(policies)
}

/// Opens the store and the limiter over it; takes the policies out of the configuration.
fn open_limiter(
    config: &mut Config,
    clock: Clock,
    runtime: &tokio::runtime::Handle,
) -> (Limiter, Arc<Metrics>) {
    let policies = policies(config);
    let metrics = Arc::new(Metrics::new());
    let local = MemoryStore::new(config.memory, clock.clone());
    let store = match config.redis.take() {
        Some(settings) => Store::Redis(RedisStore::open(settings, clock.clone(), runtime)),
        None => Store::Memory(MemoryStore::new(config.memory, clock.clone())),
    };
    let limiter = Limiter::new(
        policies,
        store,
        local,
        &config.limiter,
        metrics.clone(),
        clock,
    );
    (limiter, metrics)
}

/// Chooses what TLS computes with, for the whole process. A second run in one finds it chosen.
fn install_cryptography() {
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// Serves as long as the control runtime runs, whatever happens to the workers.
async fn serve_to_the_end(listener: TcpListener, app: impl ServerApp + Send + Sync + 'static) {
    let (_open, never_closing) = watch::channel(false);
    let guests = Guests::of_operators();
    server::serve(vec![listener.into()], Arc::new(app), guests, never_closing).await;
}

/// Waits for the word to stop, or for a worker that stops by itself; then drains.
async fn supervise(
    settings: &ServerSettings,
    mut workers: Vec<RunningWorker>,
    readiness: Readiness,
    close: watch::Sender<bool>,
    mut stop: watch::Receiver<Stop>,
) -> Result<RunEnd, AppError> {
    let mut told = stop.clone();
    tokio::select! {
        _ = told.wait_for(|stop| *stop > Stop::No) => {}
        () = any_ended(&mut workers) => return Err(AppError::WorkerDied),
    }
    readiness.set(false);
    tracing::info!("Stopping: new requests are still served for the drain delay.");

    let drain = async {
        tokio::time::sleep(settings.drain_delay).await;
        tracing::info!("No new connections are accepted; requests in flight finish.");
        close.send_replace(true);
        for worker in &mut workers {
            worker.ended().await;
        }
    };
    tokio::select! {
        () = drain => {}
        _ = stop.wait_for(|stop| *stop == Stop::Now) => return Ok(RunEnd::Cut),
        () = tokio::time::sleep(settings.drain_delay + settings.grace) => return Ok(RunEnd::Cut),
    }
    if workers.into_iter().any(RunningWorker::panicked) {
        return Err(AppError::WorkerDied);
    }
    Ok(RunEnd::Drained)
}

async fn any_ended(workers: &mut [RunningWorker]) {
    std::future::poll_fn(|context| {
        let ended = workers.iter_mut().any(|worker| {
            std::pin::pin!(worker.ended())
                .as_mut()
                .poll(context)
                .is_ready()
        });
        if ended {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// What Pingora's server of HTTP is told about connections.
fn server_options(bounds: &RequestBounds) -> HttpServerOptions {
    let mut options = HttpServerOptions::default();
    // It is how often a connection is used again.
    options.keepalive_request_limit = Some(bounds.requests_per_connection - 1);
    options
}

/// What a client of HTTP/2 may take.
fn h2_options(bounds: &Bounds) -> H2Options {
    let mut options = H2Options::new();
    options
        .max_header_list_size(u32::try_from(bounds.max_header_size).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS_PER_CONNECTION);
    options
}

/// What Pingora's proxy takes from its server's settings; the server itself is ours.
fn pingora_settings() -> ServerConf {
    ServerConf {
        upstream_keepalive_pool_size: UPSTREAM_POOL,
        max_retries: MOST_ATTEMPTS,
        ca_file: Some(pem::NO_AUTHORITIES.to_owned()),
        ..ServerConf::default()
    }
}

/// Between two looks at what has only been counted.
const BETWEEN_FOLDS: Duration = Duration::from_secs(1);

/// Requests of HTTP/2 in flight on one connection: what RFC 9113 (6.5.2) has as the least to recommend.
const STREAMS_PER_CONNECTION: u32 = 100;

/// How long a start, or a reload, waits for the names of upstreams to be resolved.
const FIRST_RESOLUTION: Duration = Duration::from_secs(1);

/// Idle upstream connections a worker keeps: a pool smaller than the concurrency costs a handshake per
/// request.
const UPSTREAM_POOL: usize = 1024;

/// Attempts to reach the upstream with one request, over all its addresses.
const MOST_ATTEMPTS: usize = 3;
