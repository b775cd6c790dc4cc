//! The built binary as a child process.

use std::{
    env,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use slidegate::clock;

use super::redis::PATIENT;

/// Where slidegate is.
pub fn program() -> String {
    shipped(env!("CARGO_BIN_EXE_slidegate"))
}

/// The binary of this name as it is shipped, where `SHIPPED` names the folder of those (`target/pgo/release`); else the
/// one that was built with these tests.
pub fn shipped(built: &str) -> String {
    let (_, name) = built.rsplit_once('/').expect("a path");
    match env::var("SHIPPED") {
        Ok(folder) if !folder.is_empty() => format!("{folder}/{name}"),
        _ => built.to_owned(),
    }
}

/// A command that runs the binary, with no environment but what is given.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn output(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary runs")
}

/// A configuration in a file that lives as long as the value.
pub fn file(yaml: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new()
        .suffix(".yaml")
        .tempfile()
        .expect("a temporary file");
    std::fs::write(file.path(), yaml).expect("the file is written");
    file
}

/// A running slidegate, killed on drop.
pub struct Binary {
    pub proxy: SocketAddr,
    pub metrics: SocketAddr,
    /// Where operators ask, if anywhere.
    pub admin: Option<SocketAddr>,
    h2c: bool,
    pub child: Child,
    /// What it writes to standard error.
    log: tempfile::NamedTempFile,
    config: tempfile::TempDir,
}

impl Binary {
    /// Starts it with this configuration on free ports, and waits until it is ready.
    pub fn start(yaml: &str) -> Self {
        // Another process may take a port between its choice and its use: then choose again.
        (0..10)
            .find_map(|_| Self::try_start(yaml, None, None, false))
            .expect("it becomes ready")
    }

    /// The same, for clients that begin with HTTP/2 as well.
    pub fn start_h2c(yaml: &str) -> Self {
        (0..10)
            .find_map(|_| Self::try_start(yaml, None, None, true))
            .expect("it becomes ready")
    }

    /// The same, with a listener for operators.
    pub fn start_with_admin(yaml: &str) -> Self {
        (0..10)
            .find_map(|_| Self::try_start(yaml, None, Some(free_address()), false))
            .expect("it becomes ready")
    }

    /// The same, with a redirection as bash knows them.
    pub fn start_through_shell(yaml: &str, redirection: &str) -> Self {
        Self::start_by(yaml, &format!("exec \"$@\" {redirection}"))
    }

    /// The same by a script of bash, of which the command is the arguments.
    pub fn start_by(yaml: &str, script: &str) -> Self {
        (0..10)
            .find_map(|_| Self::try_start(yaml, Some(script), None, false))
            .expect("it becomes ready")
    }

    fn try_start(
        yaml: &str,
        script: Option<&str>,
        admin: Option<SocketAddr>,
        h2c: bool,
    ) -> Option<Self> {
        let (proxy, metrics) = (free_address(), free_address());
        let config = tempfile::tempdir().expect("a directory");
        let path = config.path().join("config.yaml");
        let listeners = listeners(proxy, metrics, admin, h2c);
        std::fs::write(&path, format!("{listeners}{yaml}")).expect("the file is written");
        let log = tempfile::NamedTempFile::new().expect("a temporary file");
        let arguments = ["run", "--config", text(&path)];
        let mut command = match script {
            None => command(&arguments),
            Some(script) => {
                let mut shell = Command::new("bash");
                shell.args(["-c", script, "bash", &program()]);
                shell.args(arguments).stdin(Stdio::null());
                shell
            }
        };
        let child = command
            .stderr(log.reopen().expect("a second handle"))
            .spawn()
            .expect("the binary runs");
        let mut binary = Self {
            proxy,
            metrics,
            admin,
            h2c,
            child,
            log,
            config,
        };
        binary.is_ready().then_some(binary)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy)
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).expect("the log is text")
    }

    /// The same, to be read when it has ended.
    pub fn log_file(&self) -> std::fs::File {
        self.log.reopen().expect("a second handle")
    }

    /// Writes its configuration anew, in place.
    pub fn rewrite(&self, yaml: &str) {
        let listeners = listeners(self.proxy, self.metrics, self.admin, self.h2c);
        let path = self.folder().join("config.yaml");
        std::fs::write(path, format!("{listeners}{yaml}")).expect("the file is written");
    }

    /// The folder of its configuration.
    pub fn folder(&self) -> &Path {
        self.config.path()
    }

    /// The text at a path of the listener for metrics.
    pub async fn observed(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.metrics);
        let response = reqwest::get(url).await.expect("it is served");
        response.text().await.expect("it is text")
    }

    /// Sends it a signal by name, `TERM` or `INT`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(sent.expect("kill runs").success());
    }

    /// Whether it has.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Its exit code, once it has ended.
    pub fn exit_code(mut self) -> Option<i32> {
        self.child.wait().expect("it is our child").code()
    }

    fn is_ready(&mut self) -> bool {
        let started = clock::instant();
        while clock::elapsed(started) < PATIENT {
            if std::net::TcpStream::connect(self.metrics).is_ok() {
                return true;
            }
            if self.child.try_wait().expect("it is our child").is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn listeners(
    proxy: SocketAddr,
    metrics: SocketAddr,
    admin: Option<SocketAddr>,
    h2c: bool,
) -> String {
    let admin = admin.map_or_else(|| "off".to_owned(), |admin| admin.to_string());
    format!(
        "listen: [{{address: \"{proxy}\", h2c: {h2c}}}]\nmetrics_listen: {metrics}\nadmin_listen: {admin}\n"
    )
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener")
}
