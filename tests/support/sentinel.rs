//! Sentinels of one's own, that watch a primary under the name `mymaster`.

use std::{
    fs::{self, File},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use slidegate::clock;
use tempfile::TempDir;

use super::redis::{PATIENT, RedisServer, eventually, program};

/// A running sentinel, killed when dropped.
pub struct Sentinel {
    _directory: TempDir,
    port: u16,
    process: Child,
}

impl Sentinel {
    /// One that watches the primary at `port`, together with as many others as make `quorum`; with
    /// further lines of its configuration.
    pub fn start(primary: u16, quorum: usize, lines: &str) -> Self {
        (0..10)
            .find_map(|_| Self::try_start(primary, quorum, lines))
            .expect("a sentinel starts on one of ten ports")
    }

    fn try_start(primary: u16, quorum: usize, lines: &str) -> Option<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound address").port();
        drop(listener);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = directory.path().join("sentinel.conf");
        let lines = lines.replace("PORT", &port.to_string());
        // It writes what it learns into its file. A port in `lines` is the one that counts.
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {}\n{lines}\n\
             sentinel monitor mymaster 127.0.0.1 {primary} {quorum}\n\
             sentinel down-after-milliseconds mymaster 1000\n\
             sentinel failover-timeout mymaster 3000\n",
            directory.path().display()
        );
        fs::write(&config, text).expect("written");
        let log = File::create(directory.path().join("log")).expect("a log file");
        let process = Command::new(program())
            .arg(&config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .spawn()
            .expect("what starts as a server starts as a sentinel");
        let mut sentinel = Self {
            _directory: directory,
            port,
            process,
        };
        sentinel.is_ready().then_some(sentinel)
    }

    /// Whether it came to listen; if not, the port was taken.
    fn is_ready(&mut self) -> bool {
        let started = clock::instant();
        while clock::elapsed(started) < PATIENT {
            if self.process.try_wait().expect("it is our child").is_some() {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("a sentinel runs and does not answer");
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The answer to a `SENTINEL` command about `mymaster`.
    pub fn ask<T: redis::FromRedisValue>(&self, command: &str) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("redis://{}", self.address()))?;
        let mut connection = client.get_connection_with_timeout(PATIENT)?;
        redis::cmd("SENTINEL")
            .arg(command)
            .arg("mymaster")
            .query(&mut connection)
    }

    /// The port of the primary, as this one has it.
    pub fn primary(&self) -> u16 {
        let (_, port): (String, u16) = self
            .ask("GET-MASTER-ADDR-BY-NAME")
            .expect("it watches a primary");
        port
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A primary, a replica, and three sentinels that are ready for a fail-over.
pub struct Watched {
    pub servers: [RedisServer; 2],
    pub sentinels: [Sentinel; 3],
}

impl Watched {
    pub async fn start() -> Self {
        let primary = RedisServer::start();
        let of = primary.port().to_string();
        let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &of]);
        let sentinels = [(); 3].map(|()| Sentinel::start(primary.port(), 2, ""));
        let watched = Self {
            servers: [primary, replica],
            sentinels,
        };
        for sentinel in &watched.sentinels {
            eventually(
                "the sentinels know each other and the replica",
                async || {
                    let others: Vec<redis::Value> = sentinel.ask("SENTINELS").expect("a list");
                    let replicas: Vec<redis::Value> = sentinel.ask("REPLICAS").expect("a list");
                    others.len() == 2 && replicas.len() == 1
                },
            )
            .await;
        }
        eventually("the replica is in step", async || {
            let info: String = redis::cmd("INFO")
                .arg("replication")
                .query(&mut watched.servers[1].client())
                .expect("an answer");
            info.contains("master_link_status:up")
        })
        .await;
        watched
    }

    /// The addresses of the sentinels, as a list in YAML.
    pub fn addresses(&self) -> String {
        self.sentinels.each_ref().map(Sentinel::address).join(", ")
    }

    /// The server that is the primary by now, as all sentinels have it: its place among the servers.
    pub fn primary(&self) -> Option<usize> {
        let ports = self.sentinels.each_ref().map(Sentinel::primary);
        let place = self
            .servers
            .iter()
            .position(|server| server.port() == ports[0]);
        place.filter(|_| ports.iter().all(|port| *port == ports[0]))
    }
}
