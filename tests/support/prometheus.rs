//! Prometheus as an operator runs it, on a free port, with a past of its own, killed when dropped.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use slidegate::clock::Clock;

use super::redis::eventually;

/// A running Prometheus that scrapes five times a second.
pub struct Prometheus {
    address: SocketAddr,
    process: Child,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    /// One that scrapes these as the job `slidegate`, evaluates the rules in a file, and remembers of
    /// `past`, lines of a series and its value, that it was so up to ten minutes ago.
    pub async fn start(targets: &[SocketAddr], rules: &Path, past: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        remember(past, &at("past.txt"), &at("data"));
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs: [{{job_name: slidegate, static_configs: [{{targets: {targets:?}}}]}}]\n"
        );
        fs::write(at("prometheus.yml"), config).expect("written");
        let log = File::create(at("log")).expect("a log file");
        let process = Command::new("prometheus")
            .arg("--web.listen-address=127.0.0.1:0")
            .arg(format!("--config.file={}", at("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", at("data").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("`make test` installs prometheus");
        let mut prometheus = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            process,
            _directory: directory,
        };
        let log = prometheus._directory.path().join("log");
        eventually("Prometheus listens", async || {
            assert!(
                prometheus.process.try_wait().expect("our child").is_none(),
                "{}",
                fs::read_to_string(&log).expect("a log")
            );
            let log = fs::read_to_string(&log).expect("a log");
            let line = log.lines().find(|line| line.contains("\"Listening on\""));
            let address = line.and_then(|line| line.split("address=").nth(1)?.parse().ok());
            prometheus.address = address.unwrap_or(prometheus.address);
            address.is_some()
        })
        .await;
        eventually("Prometheus is ready", async || {
            let ready = reqwest::get(format!("http://{}/-/ready", prometheus.address)).await;
            ready.is_ok_and(|ready| ready.status() == 200)
        })
        .await;
        prometheus
    }

    /// The sum of what an expression gives now; `None` if that is nothing.
    pub async fn now(&self, expression: &str) -> Option<f64> {
        let found = self.get("query", &[("query", expression)]).await;
        let found: Vec<f64> = found["result"]
            .as_array()
            .expect("a vector")
            .iter()
            .map(|series| number(&series["value"]))
            .collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }

    /// Every value that an expression gives from a time on, in seconds since the epoch, at every scrape.
    pub async fn since(&self, start: u64, expression: &str) -> Vec<f64> {
        let (start, end) = (start.to_string(), (now() + 1).to_string());
        let (start, end) = (("start", start.as_str()), ("end", end.as_str()));
        let range = [("query", expression), start, end, ("step", "0.2")];
        let found = self.get("query_range", &range).await;
        let series = found["result"].as_array().expect("a matrix").iter();
        let samples = series.flat_map(|series| series["values"].as_array().expect("samples"));
        samples.map(number).collect()
    }

    /// Every rule, as it was evaluated last.
    pub async fn rules(&self) -> Vec<Value> {
        let groups = self.get("rules", &[]).await;
        let groups = groups["groups"].as_array().expect("groups").iter();
        groups
            .flat_map(|group| group["rules"].as_array().expect("rules").clone())
            .collect()
    }

    async fn get(&self, what: &str, parameters: &[(&str, &str)]) -> Value {
        let parameters: Vec<String> = parameters
            .iter()
            .map(|(name, value)| format!("{name}={}", escape(value)))
            .collect();
        let parameters = parameters.join("&");
        let url = format!("http://{}/api/v1/{what}?{parameters}", self.address);
        let answer = reqwest::get(url).await.expect("Prometheus answers");
        let answer = answer.bytes().await.expect("a body");
        let mut answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert_eq!(answer["status"], "success", "{parameters}: {answer}");
        answer["data"].take()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.process.kill().expect("it is our child");
        self.process.wait().expect("it is our child");
    }
}

/// What `promtool` makes of its arguments and its standard input.
pub fn promtool(arguments: &[&str], input: Stdio) -> Output {
    Command::new("promtool")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(input)
        .output()
        .expect("`make test` installs promtool")
}

/// Seconds since the epoch.
pub fn now() -> u64 {
    Clock::system().now().as_seconds()
}

/// Writes eight hours of samples, one a minute.
fn remember(past: &[&str], text: &Path, data: &Path) {
    let (minute, now) = (60, now());
    let minutes = (10..480).rev().map(|ago| now - ago * minute);
    let lines = minutes.flat_map(|at| past.iter().map(move |line| format!("{line} {at}\n")));
    fs::write(text, lines.collect::<String>() + "# EOF\n").expect("written");
    let [text, data] = [text, data].map(|path| path.to_str().expect("text"));
    let create = ["tsdb", "create-blocks-from", "openmetrics", text, data];
    let created = promtool(&create, Stdio::null());
    assert!(created.status.success(), "{created:?}");
}

/// Of a pair of a time and a value.
fn number(sample: &Value) -> f64 {
    let number = sample[1].as_str().and_then(|number| number.parse().ok());
    number.expect("a number")
}

/// For a query in a URL.
fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
