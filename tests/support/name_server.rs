//! `dnsmasq` as the only one who knows a name, in a network of a test's own.

use std::{
    fs,
    net::ToSocketAddrs,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use slidegate::clock;
use tempfile::NamedTempFile;

use super::{namespace, redis::PATIENT};

/// Answers for [`Self::NAME`], without leave to remember it; killed when dropped.
pub struct NameServer {
    hosts: NamedTempFile,
    process: Child,
}

/// A name that it knows at first.
const STARTED: &str = "started.test";

impl NameServer {
    pub const NAME: &str = "redis.test";

    /// One that knows no name yet. From now on it is asked, and nobody else.
    pub fn start() -> Self {
        // It is asked for as long as the C library can be told to: whoever waits for it, waits for long.
        let ask_here = "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n";
        namespace::replace("/etc/resolv.conf", ask_here);
        // A daemon of the machine may be asked instead, by a socket.
        const SOURCES: &str = "/etc/nsswitch.conf";
        if fs::exists(SOURCES).expect("it is known") {
            namespace::replace(SOURCES, "hosts: files dns\n");
        }
        let hosts = NamedTempFile::new().expect("a file");
        fs::write(hosts.path(), format!("127.0.0.1 {STARTED}\n")).expect("written");
        let process = Command::new("dnsmasq")
            // Without it, it would become another user.
            .arg("--no-daemon")
            .args(["--conf-file=/dev/null", "--no-resolv", "--no-hosts"])
            .args(["--local=/test/", "--cache-size=0"])
            .args(["--listen-address=127.0.0.1", "--bind-interfaces"])
            .arg(format!("--addn-hosts={}", hosts.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("`make test` installs it");
        let started = clock::instant();
        while (STARTED, 0).to_socket_addrs().is_err() {
            assert!(clock::elapsed(started) < PATIENT, "dnsmasq does not answer");
            thread::sleep(Duration::from_millis(2));
        }
        Self { hosts, process }
    }

    /// From now on the name leads to `address`.
    pub fn tell(&self, address: &str) {
        self.tell_all(&[address]);
    }

    /// From now on the name leads to all of these.
    pub fn tell_all(&self, addresses: &[&str]) {
        let lines = addresses
            .iter()
            .map(|address| format!("{address} {}\n", Self::NAME));
        fs::write(self.hosts.path(), lines.collect::<String>()).expect("written");
        self.signal("HUP");
    }

    /// Stops it from answering.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it answer again.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.process.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{kill}");
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
