//! The client: wrk, which takes less of a processor than the proxies that it asks.

use std::{io::Write, net::SocketAddr, time::Duration};

use serde_json::Value;
use tempfile::NamedTempFile;

use super::cores::{self, Role};

/// Which identifiers ask, by a header.
#[derive(Clone, Copy)]
pub enum Identifiers {
    /// At random, of so many.
    Random(u64),
    /// One after the other, from the `first`, of so many.
    Each { first: u64, of: u64 },
}

/// What wrk counted.
pub struct Counted {
    pub requests: u64,
    /// With a status of 400 or more.
    pub refused: u64,
    /// Not answered.
    pub failed: u64,
    /// Of a request.
    pub p50: Duration,
    pub p99: Duration,
    pub took: Duration,
}

/// Asks a proxy by 64 kept connections.
pub fn ask(target: SocketAddr, identifiers: Identifiers, time: Duration) -> Counted {
    let script = script(identifiers);
    let output = cores::command(Role::Client)
        .args(["wrk", "-t1", "-c64", "--timeout", "10s", "-s"])
        .arg(script.path())
        .arg(format!("-d{}s", time.as_secs()))
        .arg(format!("http://{target}/orders/7"))
        .output()
        .expect("wrk runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{'));
    let line = line.unwrap_or_else(|| panic!("wrk counts: {text}"));
    let counted: Value = serde_json::from_str(line).expect("the script writes JSON");
    let number = |name: &str| counted[name].as_u64().expect(name);
    Counted {
        requests: number("requests"),
        refused: number("refused"),
        failed: number("failed"),
        p50: Duration::from_micros(number("p50")),
        p99: Duration::from_micros(number("p99")),
        took: Duration::from_micros(number("took")),
    }
}

/// Has a request of each of so many identifiers answered, and no others: the last run begins anew with the first ones.
pub fn ask_each(target: SocketAddr, identifiers: u64) {
    let mut asked = 0;
    // wrk ends by the clock alone, and each of its runs begins where the last one ended.
    while asked < identifiers {
        let each = Identifiers::Each {
            first: asked,
            of: identifiers,
        };
        let counted = ask(target, each, Duration::from_secs(5));
        assert_eq!(
            (counted.refused, counted.failed),
            (0, 0),
            "all are admitted"
        );
        asked += counted.requests;
    }
}

fn script(identifiers: Identifiers) -> NamedTempFile {
    let next = match identifiers {
        Identifiers::Random(count) => format!("math.random(0, {})", count - 1),
        Identifiers::Each { first, of } => format!("next({first}) % {of}"),
    };
    let mut file = tempfile::Builder::new()
        .suffix(".lua")
        .tempfile()
        .expect("a file");
    file.write_all(SCRIPT.replace("IDENTIFIER", &next).as_bytes())
        .expect("the script is written");
    file
}

const SCRIPT: &str = include_str!("wrk.lua");
