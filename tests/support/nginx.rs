//! A real nginx of one's own: a web server to stand in front of.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use slidegate::clock;
use tempfile::TempDir;

use super::redis::PATIENT;

const PROGRAM: &str = "nginx";

/// An nginx that answers every request with a small body; killed when dropped.
pub struct Nginx {
    pub address: SocketAddr,
    process: Child,
    _directory: TempDir,
}

impl Nginx {
    /// One that answers.
    pub fn start() -> Self {
        // Between choosing the port and using it, somebody else may take it.
        (0..10)
            .find_map(|_| Self::try_start())
            .expect("nginx starts on one of ten ports")
    }

    fn try_start() -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("a bound listener");
        drop(free);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = directory.path().display();
        let configuration = format!(
            "daemon off; master_process off; pid {folder}/pid; error_log {folder}/log;\n\
             events {{}}\n\
             http {{\n\
               access_log off; keepalive_requests 1000000;\n\
               client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
               fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
               server {{ listen {address}; location / {{ return 200 'hello from nginx'; }} }}\n\
             }}\n"
        );
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, configuration).expect("the configuration is written");
        let process = Command::new(PROGRAM)
            .arg("-p")
            .arg(directory.path())
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg(directory.path().join("log"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{PROGRAM} does not start ({error}): `make test` installs it")
            });
        let mut nginx = Self {
            address,
            process,
            _directory: directory,
        };
        nginx.answers().then_some(nginx)
    }

    /// Whether it came to answer; if not, the port was taken.
    fn answers(&mut self) -> bool {
        let started = clock::instant();
        while clock::elapsed(started) < PATIENT {
            if self.process.try_wait().expect("it is our child").is_some() {
                return false;
            }
            if TcpStream::connect(self.address).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
