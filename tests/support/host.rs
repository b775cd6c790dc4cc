//! Other machines, each a network of its own, wired to one another. For tests that are [`in_a_namespace`], whose network is
//! one more of them.
//!
//! [`in_a_namespace`]: super::namespace::in_a_namespace

use std::{
    io::{BufRead as _, BufReader},
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// A machine with a loopback interface, until it is wired to others.
pub struct Host {
    /// Its network lasts as long as this process.
    holder: Child,
}

/// The end of a wire.
pub struct Plug {
    /// In whose network it is, and the name of its interface there.
    process: u32,
    name: String,
}

impl Host {
    pub fn start() -> Self {
        let mut holder = Command::new("unshare")
            // Should nobody end it, it ends by itself.
            .args(["--net", "sh", "-c"])
            .arg("ip link set lo up && echo up && exec sleep 900")
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let told = BufReader::new(holder.stdout.take().expect("it is piped"))
            .lines()
            .next();
        assert_eq!(told.expect("it has a network").expect("text"), "up");
        Self { holder }
    }

    /// A command to be run on it.
    pub fn command(&self, program: &str) -> Command {
        in_the_network_of(self.holder.id(), program)
    }

    /// Wires it to another, or to the machine of the test; the addresses are its own and the other's, two that a
    /// network of four holds.
    pub fn wire_to(&self, other: Option<&Self>, [here, there]: [Ipv4Addr; 2]) -> Plug {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (name, far) = (format!("near{number}"), format!("far{number}"));
        run(Command::new("ip").args(["link", "add", &name, "type", "veth", "peer", "name", &far]));
        self.plug_in(&name);
        set_up(|program| self.command(program), &name, here);
        match other {
            Some(other) => {
                other.plug_in(&far);
                set_up(|program| other.command(program), &far, there);
            }
            None => set_up(|program| Command::new(program), &far, there),
        }
        Plug {
            process: self.holder.id(),
            name,
        }
    }

    fn plug_in(&self, interface: &str) {
        let target = self.holder.id().to_string();
        run(Command::new("ip").args(["link", "set", interface, "netns", &target]));
    }
}

impl Plug {
    /// Nothing passes any more, and nobody is told.
    pub fn pull(&self) {
        self.set("down");
    }

    /// As before.
    pub fn put_back(&self) {
        self.set("up");
    }

    fn set(&self, state: &str) {
        let mut ip = in_the_network_of(self.process, "ip");
        run(ip.args(["link", "set", &self.name, state]));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

fn in_the_network_of(process: u32, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    let target = process.to_string();
    command.args(["--target", &target, "--net", "--", program]);
    command
}

fn set_up(command: impl Fn(&str) -> Command, interface: &str, address: Ipv4Addr) {
    let address = format!("{address}/30");
    run(command("ip").args(["address", "add", &address, "dev", interface]));
    run(command("ip").args(["link", "set", interface, "up"]));
}

fn run(command: &mut Command) {
    let output = command.output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
}
