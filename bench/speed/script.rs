//! How many decisions a second one core of Redis takes, against calls of a script that does nothing.

use redis::{Cmd, Connection};
use slidegate::clock::Clock;

use super::{
    Scale,
    cores::{Role, pin},
    report::{Bound, Report, median},
    subjects::process_of,
    support::redis::RedisServer,
    system::processor,
    take::{self, TAKE},
};

/// Adds both, by the processor time that Redis takes for them: its clients have another core.
pub fn decisions(scale: &Scale, report: &mut Report) {
    let server = RedisServer::start();
    let store = process_of(&server);
    pin(store, Role::Proxy);
    let mut client = server.client();
    let [nothing, take] = ["return 1", TAKE].map(|text| take::load(text, &mut client));
    let (mut floor, mut decisions) = (Vec::new(), Vec::new());
    for round in 0..=scale.rounds {
        let costs = [(&nothing, 1), (&take, BATCH)].map(|(script, batch)| {
            let before = processor(store);
            ask(script, batch, &mut client);
            (processor(store) - before).as_secs_f64() / REQUESTS as f64
        });
        // The first round creates the counters.
        if round > 0 {
            floor.push(costs[0]);
            decisions.push(costs[1]);
        }
    }
    let (floor, decision) = (median(&mut floor), median(&mut decisions));
    let mut add = |what: &str, value, unit, bound| report.add("script", what, value, unit, bound);
    add(
        "EVALSHA of `return 1`, on one core",
        1.0 / floor,
        "/s",
        Bound::None,
    );
    add(
        "decisions in batches of 16",
        1.0 / decision,
        "/s",
        Bound::None,
    );
    add(
        "  against it",
        floor / decision,
        "",
        Bound::AboutAtLeast(0.5),
    );
}

/// As many decisions in either case, sixteen calls in one packet.
fn ask(script: &str, batch: u64, client: &mut Connection) {
    let number = Clock::system().now().as_seconds() / WINDOW;
    for first in (0..REQUESTS).step_by((BATCH * 16) as usize) {
        let mut calls = redis::pipe();
        for first in (first..first + BATCH * 16).step_by(batch as usize) {
            calls.add_command(call(script, first..first + batch, number));
        }
        calls.ignore().exec(client).expect("Redis answers");
    }
}

/// Requests by one policy with one limit: lua/README.md.
fn call(script: &str, requests: std::ops::Range<u64>, number: u64) -> Cmd {
    let mut call = redis::cmd("EVALSHA");
    let count = requests.end - requests.start;
    call.arg(script).arg(2 * count);
    for request in requests {
        // As long as those of a proxy.
        let identifier = format!("{:022}", request % IDENTIFIERS);
        for number in [number, number - 1] {
            call.arg(format!(
                "rl:{{bench:per-key:{identifier}}}:{WINDOW}:{number}"
            ));
        }
    }
    call.arg("").arg("");
    call.arg("1").arg("sliding_window_counter").arg("take");
    call.arg("1000000000").arg(WINDOW).arg("1").arg(number);
    for _ in 1..count {
        call.arg("=");
    }
    call
}

const IDENTIFIERS: u64 = 10_000;
const REQUESTS: u64 = 102_400;
const BATCH: u64 = 16;
/// One for the whole run.
const WINDOW: u64 = 86_400;
