//! A network of a test's own, where packets may be dropped and names may lead elsewhere.
//!
//! The test's program runs itself again for this one test, by `unshare`. Whatever it starts there lives in
//! that network too: a loopback interface with nothing else on it, where any port is free. Its view of the
//! file system is its own as well.

use std::{
    any, env, fs,
    process::{Command, Output},
};

use super::skip::skip;

/// Tells the inner program which network not to be in. Without it rules would be made for the machine.
const OUTSIDE: &str = "SLIDEGATE_TEST_OUTSIDE";

const PROGRAMS: [&str; 5] = ["unshare", "ip", "iptables", "mount", "dnsmasq"];

/// What a kernel may refuse.
const SETUP: &str = "ip link set lo up && iptables -w -A INPUT -p tcp --dport 1 -j DROP && \
                     iptables -w -F && mount --bind /etc/hosts /etc/hosts && umount /etc/hosts";

/// Keeps the promise of the test that calls it in a network of its own; where the kernel has none to give,
/// says so.
pub fn in_a_namespace<F: Future<Output = ()>>(promise: F) {
    if is_inside() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(promise);
        return;
    }
    let test = name_of(&promise);
    match way_in() {
        Err(refusals) => skip(&format!(
            "{test} needs a network of its own, which was refused: {refusals}"
        )),
        Ok(flags) => run_inside(flags, &test),
    }
}

/// Drops packets until it is lifted.
pub struct BlackHole {
    which: [String; 2],
}

impl BlackHole {
    /// For packets to a TCP port.
    pub fn to(port: u16) -> Self {
        Self::open("--dport", port)
    }

    /// For packets from a TCP port.
    pub fn from(port: u16) -> Self {
        Self::open("--sport", port)
    }

    fn open(end: &str, port: u16) -> Self {
        let which = [end.to_owned(), port.to_string()];
        iptables("-A", &which);
        Self { which }
    }

    /// Lets them pass again.
    pub fn lift(self) {
        iptables("-D", &self.which);
    }
}

/// Puts a file with this text in the place of the one at `path`, for this test.
pub fn replace(path: &str, text: &str) {
    assert!(is_inside(), "not for the whole machine");
    // What is mounted stays when its name goes.
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), text).expect("written");
    let mut mount = Command::new("mount");
    succeed(mount.arg("--bind").arg(file.path()).arg(path));
}

fn iptables(action: &str, which: &[String; 2]) {
    assert!(is_inside(), "not for the whole machine");
    let mut iptables = Command::new("iptables");
    iptables.args(["-w", action, "INPUT", "-p", "tcp"]);
    succeed(iptables.args(which).args(["-j", "DROP"]));
}

/// Whether the network is another one than that of the program that was started first.
fn is_inside() -> bool {
    env::var(OUTSIDE).is_ok_and(|outside| outside != network())
}

fn network() -> String {
    let network = fs::read_link("/proc/self/ns/net").expect("Linux tells");
    network.display().to_string()
}

/// As the test program knows it: the path of the function whose future it is, without the crate.
fn name_of<F>(_: &F) -> String {
    let path = any::type_name::<F>().split("::").skip(1);
    let path: Vec<_> = path.take_while(|part| !part.starts_with('{')).collect();
    path.join("::")
}

/// How `unshare` succeeds: as root, else as the root of a user namespace.
fn way_in() -> Result<&'static [&'static str], String> {
    for program in PROGRAMS {
        let there = Command::new(program).arg("--version").output();
        there.unwrap_or_else(|error| panic!("{program}: {error}. `make test` installs it"));
    }
    let mut refusals = Vec::new();
    let ways: [&[&str]; 2] = [
        &["--net", "--mount"],
        &["--map-root-user", "--net", "--mount"],
    ];
    for flags in ways {
        let tried = unshare(flags).args(["sh", "-c", SETUP]).output();
        let tried = tried.expect("unshare runs");
        if tried.status.success() {
            return Ok(flags);
        }
        refusals.push(told(&tried).trim().replace('\n', "; "));
    }
    Err(refusals.join(", and: "))
}

fn run_inside(flags: &[&str], test: &str) {
    let program = env::current_exe().expect("this test has a program");
    let output = unshare(flags)
        .args(["sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env(OUTSIDE, network())
        .output()
        .expect("it runs again");
    let told = told(&output);
    assert!(output.status.success(), "inside: {told}");
    assert!(told.contains("1 passed"), "no test is named {test}: {told}");
}

fn unshare(flags: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(flags);
    command
}

fn succeed(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert!(
        output.status.success(),
        "{command:?}: {status}: {text}",
        status = output.status,
        text = told(&output)
    );
}

fn told(output: &Output) -> String {
    let (stdout, stderr) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(&[stdout.as_slice(), stderr].concat()).into_owned()
}
