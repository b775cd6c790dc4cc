//! A real nginx of one's own: a web server to stand in front of.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use slidegate::clock;
use tempfile::TempDir;

use super::redis::PATIENT;

const PROGRAM: &str = "nginx";

/// An nginx that answers every request with a small body; killed when dropped.
pub struct Nginx {
    pub address: SocketAddr,
    pub process: Child,
    directory: TempDir,
}

impl Nginx {
    /// One that answers.
    pub fn start() -> Self {
        Self::start_with("", "location / { return 200 'hello from nginx'; }")
    }

    /// One that answers its name.
    pub fn named(name: &str) -> Self {
        Self::start_with("", &format!("location / {{ return 200 '{name}'; }}"))
    }

    /// One that listens with these words, such as `ssl http2`, and has these lines in its server. In them `FOLDER` is
    /// [`Self::folder`].
    ///
    /// It listens at an address of its own, so that nobody takes its port while it is stopped.
    pub fn start_with(listen: &str, server: &str) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let [.., high, low] = std::process::id().to_be_bytes();
        let host = [127, high | 0x80, low, NEXT.fetch_add(1, Ordering::Relaxed)];
        let free = TcpListener::bind(SocketAddr::from((host, 0))).expect("a free port");
        let address = free.local_addr().expect("a bound listener");
        drop(free);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = directory.path().display().to_string();
        let server = server.replace("FOLDER", &folder);
        let configuration = format!(
            "daemon off; master_process off; pid {folder}/pid; error_log {folder}/log;\n\
             events {{}}\n\
             http {{\n\
               access_log off; keepalive_requests 1000000;\n\
               client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
               fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
               server {{ listen {address} {listen}; listen unix:{folder}/socket; root {folder}; {server} }}\n\
             }}\n"
        );
        fs::write(directory.path().join("nginx.conf"), configuration)
            .expect("the configuration is written");
        let process = launch(&directory);
        let mut nginx = Self {
            address,
            process,
            directory,
        };
        nginx.wait();
        nginx
    }

    /// Where its files are, and its unix socket, `socket`.
    pub fn folder(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Ends it at once, as a machine that fails does.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
        // Else it would not start again.
        drop(fs::remove_file(self.directory.path().join("socket")));
    }

    /// Starts it again where it was.
    pub fn restart(&mut self) {
        self.kill();
        self.process = launch(&self.directory);
        self.wait();
    }

    fn wait(&mut self) {
        let started = clock::instant();
        let socket = self.directory.path().join("socket");
        while TcpStream::connect(self.address).is_err() || UnixStream::connect(&socket).is_err() {
            let ended = self.process.try_wait().expect("it is our child");
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(ended.is_none(), "nginx ended: {log}");
            assert!(
                clock::elapsed(started) < PATIENT,
                "nginx does not answer: {log}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn launch(directory: &TempDir) -> Child {
    Command::new(PROGRAM)
        .arg("-p")
        .arg(directory.path())
        .arg("-c")
        .arg(directory.path().join("nginx.conf"))
        .arg("-e")
        .arg(directory.path().join("log"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{PROGRAM} does not start ({error}): `make test` installs it")
        })
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.kill();
    }
}
