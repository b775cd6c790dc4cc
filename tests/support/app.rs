//! A slidegate in this process, on free ports, stopped on drop.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    path::Path,
    thread::JoinHandle,
};

use slidegate::{
    app::{self, AppError, Listeners, RunEnd, World},
    clock::Clock,
    config::{Config, ConfigError, Environment},
    server::{Bound, Stop},
};
use tokio::sync::{mpsc, watch};

use super::{redis::eventually, upstream::Upstream};

/// A running slidegate.
pub struct App {
    /// Its first listener for clients.
    pub proxy: SocketAddr,
    /// All of them that have an address.
    pub listeners: Vec<SocketAddr>,
    pub metrics: SocketAddr,
    pub admin: SocketAddr,
    stop: watch::Sender<Stop>,
    reload: mpsc::Sender<Result<Config, ConfigError>>,
    thread: Option<JoinHandle<Result<RunEnd, AppError>>>,
}

impl App {
    /// Starts it with this configuration; `metrics_listen` and `admin_listen` are not to be in it, and in `listen` ports are 0.
    pub fn start(yaml: &str) -> Self {
        Self::start_at(yaml, Clock::system())
    }

    /// Starts it with the rest of a configuration, in front of an upstream that lives as long as it is held.
    pub fn with_upstream(rest: &str) -> (Self, Upstream) {
        let upstream = Upstream::start();
        let address = upstream.address;
        let app = Self::start(&format!("upstream: {{address: \"{address}\"}}\n{rest}"));
        (app, upstream)
    }

    /// Starts it with a clock of its own.
    pub fn start_at(yaml: &str, clock: Clock) -> Self {
        let config =
            Config::parse(yaml, "test.yaml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
        Self::start_with(config, clock)
    }

    /// Starts it with this configuration, and with the files that it names.
    pub fn start_with_files(yaml: &str) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(&file, yaml).expect("written");
        Self::start_file(file.path())
    }

    /// Starts it with the configuration in a file, and the files that this one names.
    pub fn start_file(path: &Path) -> Self {
        Self::start_file_at(path, &|_| None, Clock::system())
    }

    /// The same, with variables and a clock of its own.
    pub fn start_file_at(path: &Path, env: &Environment<'_>, clock: Clock) -> Self {
        let config = Config::load(path, env).unwrap_or_else(|error| panic!("{error}"));
        Self::start_with(config, clock)
    }

    /// Starts it on every address of the machine, as `[::]` means them; `None` where there is no IPv6. It is asked
    /// by IPv4.
    pub fn start_on_ipv6(yaml: &str) -> Option<Self> {
        let config =
            Config::parse(yaml, "test.yaml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let proxy = slidegate::server::bind_tcp("listen", every).ok()?;
        let mut app = Self::start_bound(config, Clock::system(), vec![proxy.into()]);
        app.proxy.set_ip(Ipv4Addr::LOCALHOST.into());
        Some(app)
    }

    /// Starts it with a configuration that was read.
    pub fn start_config(config: Config) -> Self {
        Self::start_with(config, Clock::system())
    }

    fn start_with(config: Config, clock: Clock) -> Self {
        let proxy = match &config.server.listen[..] {
            [alone] if alone.address == DEFAULT.into() => vec![free_listener().into()],
            several => several
                .iter()
                .map(|listener| slidegate::server::bind("listen", &listener.address))
                .collect::<Result<_, _>>()
                .expect("bound"),
        };
        Self::start_bound(config, clock, proxy)
    }

    fn start_bound(config: Config, clock: Clock, proxy: Vec<Bound>) -> Self {
        let (metrics, admin) = (free_listener(), free_listener());
        let listeners = proxy.iter().filter_map(|bound| match bound {
            Bound::Tcp(listener) => Some(local(listener)),
            Bound::Unix(_) => None,
        });
        let listeners: Vec<_> = listeners.collect();
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let first = listeners.first().copied().unwrap_or(nowhere);
        let addresses = (first, local(&metrics), local(&admin));
        let (tell, stop) = watch::channel(Stop::No);
        let (reload, configs) = mpsc::channel(1);
        let world = World {
            listeners: Listeners {
                proxy,
                metrics,
                admin: Some(admin),
            },
            clock,
            stop,
            configs,
        };
        let thread = std::thread::spawn(move || app::run(config, world));
        Self {
            proxy: addresses.0,
            listeners,
            metrics: addresses.1,
            admin: addresses.2,
            stop: tell,
            reload,
            thread: Some(thread),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy)
    }

    /// The status of a request with these headers, and what remains afterwards.
    pub async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> (u16, Option<u64>) {
        let mut request = reqwest::Client::new().get(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.expect("answered");
        let remaining = response.headers().get("x-ratelimit-remaining");
        let remaining = remaining.and_then(|value| value.to_str().ok()?.parse().ok());
        (response.status().as_u16(), remaining)
    }

    /// Gives it another configuration, and waits until it has taken it.
    pub async fn reload(&self, yaml: &str) {
        self.take(Config::parse(yaml, "test.yaml", &|_| None)).await;
    }

    /// The same, with the configuration in a file.
    pub async fn reload_file(&self, path: &Path) {
        self.take(Config::load(path, &|_| None)).await;
    }

    /// Gives it what was read of a configuration, and waits until it has taken it.
    pub async fn take(&self, read: Result<Config, ConfigError>) {
        let taken = async || {
            let exposition = self.metrics().await;
            ["applied", "unchanged", "refused"]
                .map(|result| format!("slidegate_config_reloads_total{{result=\"{result}\"}}"))
                .map(|series| metric(&exposition, &series))
                .iter()
                .sum::<f64>()
        };
        let before = taken().await;
        let sent = self.reload.send(read).await;
        sent.expect("it runs");
        eventually("the configuration is taken", async || {
            taken().await > before
        })
        .await;
    }

    /// Tells it to stop, without waiting.
    pub fn tell(&self, stop: Stop) {
        self.stop.send_replace(stop);
    }

    /// Waits until it has stopped.
    pub fn ended(mut self) -> RunEnd {
        let thread = self.thread.take().expect("it runs until it is waited for");
        thread
            .join()
            .expect("it does not panic")
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The exposition as text.
    pub async fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.metrics);
        let response = reqwest::get(url).await.expect("metrics are served");
        response.text().await.expect("metrics are text")
    }

    /// The value of the one series that begins with `series`.
    pub async fn metric(&self, series: &str) -> f64 {
        metric(&self.metrics().await, series)
    }
}

impl App {
    /// Waits until the store decides: a Redis may be connected to a moment after the start.
    pub async fn store_decides(&self) {
        self.metric_becomes("slidegate_store_breaker_tripped", 0.0)
            .await;
    }

    /// Waits until a series has this value: a request is counted when it has ended, which a client may see
    /// a moment earlier.
    pub async fn metric_becomes(&self, series: &str, value: f64) {
        let what = format!("{series} becomes {value}");
        eventually(&what, async || self.metric(series).await == value).await;
    }
}

/// The value of the one series in `exposition` that begins with `series`.
pub fn metric(exposition: &str, series: &str) -> f64 {
    let found: Vec<&str> = exposition
        .lines()
        .filter(|line| line.starts_with(series))
        .collect();
    match found[..] {
        [line] => line
            .rsplit(' ')
            .next()
            .and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("not a value: {line}")),
        _ => panic!("{} series begin with {series}:\n{exposition}", found.len()),
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.tell(Stop::Now);
        if let Some(thread) = self.thread.take() {
            // A panic of its own has been printed; a second one here would hide the test's.
            drop(thread.join());
        }
    }
}

fn free_listener() -> TcpListener {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    slidegate::server::bind_tcp("listen", any).expect("a free port")
}

fn local(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a bound listener")
}

/// Where a configuration that says nothing has it listen: tests take a free port instead.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8000);
