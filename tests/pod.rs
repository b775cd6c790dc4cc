//! The pod of `k8s/sidecar`, acted out: app and proxy on one machine, Redis on another, the kubelet and the clients on a
//! third. Probes, ports and the configuration are those of the manifests; only the limits are raised.
//!
//! What only a kubelet can show (that it starts and stops containers in this order) is not in here.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use serde::Deserialize as _;
use serde_yaml::Value;
use tokio::task::JoinSet;

use crate::support::{
    app::metric,
    binary::{program, text},
    host::{Host, Plug},
    namespace::{in_a_namespace, replace},
    redis::eventually,
};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const POD: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const POD_TO_REDIS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
const REDIS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

const APPLIED: &str = "slidegate_config_reloads_total{result=\"applied\"}";
const TRIPPED: &str = "slidegate_store_breaker_tripped";

#[test]
fn the_proxy_is_ready_before_the_app_starts_and_passes_requests_once_it_has() {
    in_a_namespace(async {
        let mut pod = Pod::new();
        pod.start_proxy();
        pod.startup().await;
        assert_eq!(pod.get("/").await.0, 502, "there is no app yet");
        pod.start_app();
        eventually("the app is asked", async || pod.get("/").await.0 == 200).await;
    });
}

#[test]
fn the_probes_hold_whatever_redis_does() {
    in_a_namespace(async {
        let mut pod = Pod::new();
        pod.redis.pull();
        pod.start_proxy();
        pod.startup().await;
        for probe in ["readinessProbe", "livenessProbe"] {
            assert_eq!(pod.probe(probe).await, Some(200), "{probe}");
        }
        pod.redis.put_back();
        pod.metric_becomes(TRIPPED, 0.0).await;
        pod.redis.pull();
        pod.start_app();
        eventually("it is known", async || {
            assert_eq!(pod.get("/").await.0, 200);
            pod.metric(TRIPPED).await == 1.0
        })
        .await;
        for probe in ["readinessProbe", "livenessProbe"] {
            assert_eq!(pod.probe(probe).await, Some(200), "{probe}");
        }
    });
}

/// As a container without a shell is asked: on its own machine.
#[test]
fn healthcheck_tells_the_same_on_the_pod_s_own_machine() {
    in_a_namespace(async {
        let mut pod = Pod::new();
        let config = pod.volume.path().join("config.yaml");
        let check = |pod: &Pod| {
            let mut command = pod.host.command(&program());
            command.args(["healthcheck", "--config", text(&config)]);
            command.env("SLIDEGATE_SECRET", "hush");
            command.output().expect("it runs").status.code()
        };
        assert_eq!(check(&pod), Some(1));
        pod.start_proxy();
        pod.startup().await;
        assert_eq!(check(&pod), Some(0));
    });
}

#[test]
fn nobody_gets_past_the_proxy_and_the_app_and_redis_are_told_who_asks() {
    in_a_namespace(async {
        let mut pod = Pod::new();
        pod.start_proxy();
        pod.start_app();
        pod.startup().await;
        let past = std::net::TcpStream::connect((POD, 3000));
        assert_eq!(
            past.expect_err("it listens on loopback only").kind(),
            std::io::ErrorKind::ConnectionRefused
        );
        pod.redis_decides().await;
        let (_, body) = pod.get("/").await;
        assert!(
            body.contains(&format!("x-forwarded-for: {CLIENT}\n")),
            "{body}"
        );
        let keys = pod.redis_cli(&["KEYS", "rl:*per-ip*"]);
        let counted = format!("rl:{{default:per-ip:{CLIENT}}}:");
        assert!(keys.starts_with(&counted), "{keys}");
    });
}

#[test]
fn a_configmap_that_is_swapped_under_load_is_in_force_and_fails_no_request() {
    in_a_namespace(async {
        let mut pod = Pod::new();
        pod.start_proxy();
        pod.start_app();
        pod.startup().await;
        eventually("the app is asked", async || pod.get("/").await.0 == 200).await;
        let load = Load::start();
        let configured = config();
        for times in 1..=3 {
            let renamed = configured.replace("per-client", &format!("per-client-{times}"));
            pod.swap(&renamed);
            pod.metric_becomes(APPLIED, f64::from(times)).await;
        }
        load.ends_without_a_failure().await;
        let (status, metrics) = pod.observed("/metrics").await;
        assert_eq!(status, Some(200));
        assert!(metrics.contains("policy=\"per-client-3\""));
        assert!(!metrics.contains("policy=\"per-client\""));
    });
}

/// The endpoint is taken away first; the app ends when its hook is over, and the proxy behind it.
#[test]
fn a_pod_that_is_deleted_under_load_fails_no_request_and_the_proxy_ends_well_after_the_app() {
    in_a_namespace(async {
        let mut pod = Pod::new();
        pod.start_proxy();
        pod.start_app();
        pod.startup().await;
        eventually("the app is asked", async || pod.get("/").await.0 == 200).await;
        let load = Load::start();
        let slow = tokio::spawn(get("/slow?ms=300".to_owned()));
        load.is_beside_another(&pod).await;
        // The app's hook: until no new requests come.
        load.ends_without_a_failure().await;
        assert_eq!(slow.await.expect("it ends").0, 200);
        pod.stop_app();
        pod.tell_proxy();
        assert_eq!(pod.proxy_ended(), Some(0));
    });
}

/// Before 1.29 both are told at once, and the app's hook keeps it until the proxy is through.
#[test]
fn a_pod_whose_proxy_is_told_first_fails_no_request() {
    in_a_namespace(async {
        let mut pod = Pod::new();
        pod.start_proxy();
        pod.start_app();
        pod.startup().await;
        eventually("the app is asked", async || pod.get("/").await.0 == 200).await;
        let load = Load::start();
        let slow = tokio::spawn(get("/slow?ms=1000".to_owned()));
        load.is_beside_another(&pod).await;
        pod.tell_proxy();
        eventually("it is not ready any more", async || {
            pod.probe("readinessProbe").await == Some(503)
        })
        .await;
        load.ends_without_a_failure().await;
        assert_eq!(slow.await.expect("it ends").0, 200);
        assert_eq!(pod.proxy_ended(), Some(0));
        pod.stop_app();
    });
}

#[test]
fn a_cut_to_redis_fails_no_request_and_redis_decides_again_when_it_is_healed() {
    in_a_namespace(async {
        let mut pod = Pod::new();
        pod.start_proxy();
        pod.start_app();
        pod.startup().await;
        pod.redis_decides().await;
        let load = Load::start();
        for _ in 0..2 {
            pod.redis.pull();
            pod.metric_becomes(TRIPPED, 1.0).await;
            let local = pod.decided_by("local").await;
            eventually("the proxy decides", async || {
                pod.decided_by("local").await > local + 100.0
            })
            .await;
            pod.redis.put_back();
            pod.metric_becomes(TRIPPED, 0.0).await;
            let store = pod.decided_by("store").await;
            eventually("Redis decides", async || {
                pod.decided_by("store").await > store + 100.0
            })
            .await;
        }
        load.ends_without_a_failure().await;
    });
}

/// The machines, wired. In the pod nothing runs until it is started; Redis does.
struct Pod {
    host: Host,
    redis_host: Host,
    /// The wire to Redis.
    redis: Plug,
    redis_server: Child,
    /// Of the ConfigMap, as the kubelet writes one.
    volume: tempfile::TempDir,
    swaps: u32,
    proxy: Option<Child>,
    app: Option<Child>,
}

impl Pod {
    fn new() -> Self {
        replace(
            "/etc/hosts",
            &format!("127.0.0.1 localhost\n{REDIS} redis\n"),
        );
        let (host, redis_host) = (Host::start(), Host::start());
        host.wire_to(None, [POD, CLIENT]);
        let redis = redis_host.wire_to(Some(&host), [REDIS, POD_TO_REDIS]);
        let redis_server = redis_host
            .command("redis-server")
            .args([
                "--bind",
                "0.0.0.0",
                "--protected-mode",
                "no",
                "--save",
                "",
                "--dir",
                "/tmp",
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server runs");
        let mut pod = Self {
            host,
            redis_host,
            redis,
            redis_server,
            volume: tempfile::tempdir().expect("a directory"),
            swaps: 0,
            proxy: None,
            app: None,
        };
        let link = pod.volume.path().join("config.yaml");
        symlink("..data/config.yaml", link).expect("a link");
        pod.swap(&config());
        pod
    }

    /// Puts another configuration in place: a new directory, and one link that is replaced.
    fn swap(&mut self, yaml: &str) {
        self.swaps += 1;
        let (volume, version) = (self.volume.path(), format!("..{}", self.swaps));
        fs::create_dir(volume.join(&version)).expect("a directory");
        fs::write(volume.join(&version).join("config.yaml"), yaml).expect("written");
        symlink(&version, volume.join("..data_tmp")).expect("a link");
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("replaced");
    }

    fn start_proxy(&mut self) {
        let config = self.volume.path().join("config.yaml");
        let mut command = self.host.command(&program());
        command.args(["run", "--config", text(&config)]);
        command
            .env("SLIDEGATE_SECRET", "hush")
            .stderr(Stdio::null());
        self.proxy = Some(command.spawn().expect("it runs"));
    }

    /// As the app of `k8s/sidecar` is told to listen.
    fn start_app(&mut self) {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_demo_upstream"));
        command.arg("127.0.0.1:3000").stdout(Stdio::null());
        self.app = Some(command.spawn().expect("it runs"));
    }

    fn stop_app(&mut self) {
        let mut app = self.app.take().expect("it runs");
        app.kill().expect("it is our child");
        app.wait().expect("it is our child");
    }

    /// Sends SIGTERM, as the kubelet does.
    fn tell_proxy(&self) {
        let process = self.proxy.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args(["-TERM", &process]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn proxy_ended(&mut self) -> Option<i32> {
        let mut proxy = self.proxy.take().expect("it runs");
        proxy.wait().expect("it is our child").code()
    }

    /// What the kubelet asks before it starts the app.
    async fn startup(&self) {
        eventually("the startup probe succeeds", async || {
            self.probe("startupProbe").await == Some(200)
        })
        .await;
    }

    /// The status that a probe of the manifest meets.
    async fn probe(&self, name: &str) -> Option<u16> {
        let probe = &sidecar()[name]["httpGet"];
        assert_eq!(probe["port"], "proxy-metrics");
        self.observed(probe["path"].as_str().expect("a path"))
            .await
            .0
    }

    /// A path at the port for metrics, which the kubelet and Prometheus reach from outside.
    async fn observed(&self, path: &str) -> (Option<u16>, String) {
        let port = port("proxy-metrics");
        match reqwest::get(format!("http://{POD}:{port}{path}")).await {
            Ok(response) => {
                let status = response.status().as_u16();
                (Some(status), response.text().await.expect("text"))
            }
            Err(_) => (None, String::new()),
        }
    }

    async fn metric(&self, series: &str) -> f64 {
        metric(&self.observed("/metrics").await.1, series)
    }

    async fn metric_becomes(&self, series: &str, value: f64) {
        let what = format!("{series} becomes {value}");
        eventually(&what, async || self.metric(series).await == value).await;
    }

    /// How many decisions of the policy for addresses have been made by whom.
    async fn decided_by(&self, whom: &str) -> f64 {
        let series = format!(
            "slidegate_decisions_total{{decided_by=\"{whom}\",decision=\"allow\",mode=\"enforce\",plan=\"\",policy=\"per-ip\"}}"
        );
        self.metric(&series).await
    }

    async fn redis_decides(&self) {
        eventually("Redis decides", async || {
            let before = self.decided_by("store").await;
            assert!(get("/".to_owned()).await.0 != 0);
            self.decided_by("store").await > before
        })
        .await;
    }

    fn redis_cli(&self, arguments: &[&str]) -> String {
        let mut command = self.redis_host.command("redis-cli");
        let output = command.args(arguments).output().expect("it runs");
        String::from_utf8(output.stdout).expect("text")
    }

    /// As a client does.
    async fn get(&self, path: &str) -> (u16, String) {
        get(path.to_owned()).await
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let all = [
            self.proxy.as_mut(),
            self.app.as_mut(),
            Some(&mut self.redis_server),
        ];
        for child in all.into_iter().flatten() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

const CLIENTS: u8 = 8;

/// Clients that ask without end, each over a connection that it keeps.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: JoinSet<Result<(), String>>,
}

impl Load {
    fn start() -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            clients.spawn(async move {
                let client = reqwest::Client::new();
                while !stop.load(Ordering::Relaxed) {
                    let response = client.get(url("/")).send().await;
                    let response = response.map_err(|error| format!("{error:?}"))?;
                    if response.status() != 200 {
                        return Err(response.status().to_string());
                    }
                    response
                        .bytes()
                        .await
                        .map_err(|error| format!("{error:?}"))?;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        Self {
            stop,
            answered,
            clients,
        }
    }

    /// Waits until its clients have been answered, and one more is connected.
    async fn is_beside_another(&self, pod: &Pod) {
        eventually("another is connected", async || {
            let connections = pod.metric("slidegate_connections ").await;
            self.answered.load(Ordering::Relaxed) > 100 && connections > f64::from(CLIENTS)
        })
        .await;
    }

    async fn ends_without_a_failure(self) {
        self.stop.store(true, Ordering::Relaxed);
        for ended in self.clients.join_all().await {
            assert_eq!(ended, Ok(()));
        }
        assert!(self.answered.load(Ordering::Relaxed) > 0);
    }
}

/// The status, and the body; by a connection of its own.
async fn get(path: String) -> (u16, String) {
    let response = reqwest::get(url(&path)).await.expect("an answer");
    let status = response.status().as_u16();
    (status, response.text().await.expect("text"))
}

fn url(path: &str) -> String {
    format!("http://{POD}:{}{path}", port("proxy"))
}

/// The configuration of the ConfigMap, with limits that nobody here reaches.
fn config() -> String {
    let documents = rendering();
    let map = documents
        .iter()
        .find(|document| document["kind"] == "ConfigMap");
    let yaml = map.expect("there is one")["data"]["config.yaml"].as_str();
    let yaml = yaml.expect("text");
    let raised = yaml
        .replace("[100/1m]", "[1000000/1h]")
        .replace("[1000/1m]", "[1000000/1h]");
    assert_eq!(raised.matches("1000000/1h").count(), 2, "{yaml}");
    raised
}

/// The port of this name, as the Service and the probes find it.
fn port(name: &str) -> u64 {
    let sidecar = sidecar();
    let mut ports = sidecar["ports"].as_sequence().expect("a list").iter();
    let port = ports.find(|port| port["name"] == name).expect(name);
    port["containerPort"].as_u64().expect("a number")
}

fn sidecar() -> Value {
    let documents = rendering();
    let mut deployments = documents.iter();
    let deployment = deployments.find(|document| document["kind"] == "Deployment");
    let spec = &deployment.expect("there is one")["spec"]["template"]["spec"];
    spec["initContainers"][0].clone()
}

fn rendering() -> Vec<Value> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/snapshots/k8s/sidecar.yaml"
    );
    let text = fs::read_to_string(path).expect("it is committed");
    let documents = serde_yaml::Deserializer::from_str(&text);
    documents
        .map(|document| Value::deserialize(document).expect("YAML"))
        .collect()
}
