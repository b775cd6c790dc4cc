//! Which process has which core, so that what one takes is not what another lacks.

use std::{process::Command, thread};

/// What a core is for.
#[derive(Clone, Copy)]
pub enum Role {
    /// The proxy that is measured, and a Redis that shares its core.
    Proxy,
    /// A Redis beside the proxy's core.
    Redis,
    Upstream,
    Client,
}

impl Role {
    /// With two cores all but the proxy share one; with four each has its own.
    fn core(self) -> usize {
        let others = match self {
            Self::Proxy => return 0,
            Self::Redis => 1,
            Self::Upstream => 2,
            Self::Client => 3,
        };
        match cores() {
            0 | 1 => 0,
            2 | 3 => 1,
            _ => others,
        }
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Keeps a process, with the threads that it has, on the core of its role.
pub fn pin(process: u32, role: Role) {
    let (core, process) = (role.core().to_string(), process.to_string());
    let mut command = Command::new("taskset");
    command.args(["-a", "-c", "-p", &core, &process]);
    let pinned = command.output().is_ok_and(|output| output.status.success());
    if !pinned {
        eprintln!("taskset can not keep process {process} on core {core}: the figures will wobble");
    }
}

/// The words before a command that starts it on the core of its role.
pub fn command(role: Role) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &role.core().to_string()]);
    command
}
