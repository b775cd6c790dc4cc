//! A real Redis of one's own: started on a free port and a unix socket, killed when dropped.

use std::{
    fs::File,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use slidegate::{
    clock::{self, Clock},
    config::Config,
    store::{RedisSettings, RedisStore, Store},
};
use tempfile::TempDir;

/// The server that is started: `redis-server`, unless the environment names another in `REDIS_SERVER`.
pub fn program() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Longer than anything here takes on a busy machine: a budget, or a bound to polling.
pub const PATIENT: Duration = Duration::from_secs(30);

/// A `redis-server` without persistence.
pub struct RedisServer {
    directory: TempDir,
    port: u16,
    options: Vec<String>,
    process: Option<Child>,
}

impl RedisServer {
    /// One that answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// One that answers, with options such as `["--requirepass", "secret"]`.
    pub fn start_with(options: &[&str]) -> Self {
        // Between choosing the port and using it, somebody else may take it.
        for _ in 0..10 {
            let mut server = Self::absent_with(options);
            if server.try_start() {
                return server;
            }
        }
        panic!("{} did not start on any of ten ports", program());
    }

    /// One that may be a part of a cluster, and does not know of any other yet.
    pub fn start_for_cluster(options: &[&str]) -> Self {
        for _ in 0..10 {
            let bus = free_port().to_string();
            let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            let mut server = Self::absent_with(&[&cluster[..], options].concat());
            if server.try_start() {
                return server;
            }
        }
        panic!("{} did not start on any of ten ports", program());
    }

    /// One that is still to be started, by [`Self::restart`]; its addresses are known.
    pub fn absent() -> Self {
        Self::absent_with(&[])
    }

    fn absent_with(options: &[&str]) -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
            port: free_port(),
            options: options.iter().map(ToString::to_string).collect(),
            process: None,
        }
    }

    /// Its address over TCP.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its address over a unix socket.
    pub fn unix_url(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// Its TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port at which the others of a cluster speak to it.
    pub fn bus(&self) -> u16 {
        let mut options = self.options.iter();
        options.find(|option| *option == "--cluster-port");
        let port = options.next().expect("it is for a cluster");
        port.parse().expect("a port")
    }

    /// A connection to look at keys and change settings with.
    pub fn client(&self) -> redis::Connection {
        redis::Client::open(self.unix_url())
            .and_then(|client| client.get_connection())
            .expect("the server answers")
    }

    /// A store on it, over TCP, that is patient; it lives on the current runtime.
    pub fn store(&self) -> Store {
        self.store_with(PATIENT, Clock::system())
    }

    /// A store on it with a budget and a clock.
    pub fn store_with(&self, budget: Duration, clock: Clock) -> Store {
        open_store(&self.url(), budget, clock)
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it is our child");
            process.wait().expect("it is our child");
        }
    }

    /// Starts it, again or for the first time, on the same addresses, empty.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.try_start(), "port {} was taken meanwhile", self.port);
    }

    /// Stops it from answering: `SIGSTOP`.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it answer again, also what it was asked meanwhile: `SIGCONT`.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.process.as_ref().expect("it runs").id();
        let kill = format!("kill -{name} {id}");
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{kill}");
    }

    /// Whether it came to answer; if not, the port was taken.
    fn try_start(&mut self) -> bool {
        let log = File::create(self.directory.path().join("log")).expect("a log file");
        let process = Command::new(program())
            .args(["--bind", "127.0.0.1"])
            .args(self.listens())
            .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .arg("--unixsocket")
            .arg(self.socket())
            .arg("--dir")
            .arg(self.directory.path())
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{} does not start ({error}): `make test` installs redis",
                    program()
                )
            });
        let process = self.process.insert(process);

        let client = format!("unix:{}", self.directory.path().join("socket").display());
        let client = redis::Client::open(client).expect("a Redis URL");
        let started = clock::instant();
        while clock::elapsed(started) < PATIENT {
            if process.try_wait().expect("it is our child").is_some() {
                self.process = None;
                return false;
            }
            // It may want a password: any answer will do.
            match client.get_connection() {
                Err(error) if error.is_io_error() => thread::sleep(Duration::from_millis(2)),
                _ => return true,
            }
        }
        panic!("{} runs and does not answer", program());
    }

    /// On its port it speaks TLS if it has a certificate, and nothing else.
    fn listens(&self) -> Vec<String> {
        let port = self.port.to_string();
        let option = |name: &str, value: &str| [name.to_owned(), value.to_owned()];
        if self
            .options
            .iter()
            .any(|option| option == "--tls-cert-file")
        {
            [option("--port", "0"), option("--tls-port", &port)].concat()
        } else {
            option("--port", &port).to_vec()
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that nobody listened to a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound address").port()
}

/// A store at `url`, on the current runtime.
pub fn open_store(url: &str, budget: Duration, clock: Clock) -> Store {
    let settings = RedisSettings {
        budget,
        namespace: "test".to_owned(),
        ..RedisSettings::new(url.parse().expect("a Redis URL"))
    };
    let runtime = tokio::runtime::Handle::current();
    Store::Redis(RedisStore::open(settings, clock, &runtime))
}

/// A patient store with what the section `store` of a configuration says, on the current runtime.
pub fn configured_store(section: &str) -> Store {
    let settings = RedisSettings {
        budget: PATIENT,
        ..settings(section)
    };
    let runtime = tokio::runtime::Handle::current();
    Store::Redis(RedisStore::open(settings, Clock::system(), &runtime))
}

/// What the section `store` of a configuration says.
pub fn settings(section: &str) -> RedisSettings {
    let text = format!(
        "store: {section}\nupstream: {{address: '127.0.0.1:9'}}\n\
         policies: [{{name: per-ip, limits: [10/1m]}}]"
    );
    let config = Config::parse(&text, "test.yaml", &|_| None);
    config
        .unwrap_or_else(|error| panic!("{error}"))
        .redis
        .expect("a Redis")
}

/// Polls until `holds`, or fails.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = clock::instant();
    while !holds().await {
        assert!(clock::elapsed(started) < PATIENT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
