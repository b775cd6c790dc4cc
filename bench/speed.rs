//! `make bench`: how fast slidegate is, as ratios to Pingora alone and to what else people use, measured in one run.
//!
//! All subjects run at the same time, and are asked by turns. Each takes one core at most; the client, the upstream and,
//! where a row says so, Redis have another. Only ratios travel from one machine to another.

#[path = "speed/cores.rs"]
mod cores;
#[path = "speed/figures.rs"]
mod figures;
#[path = "speed/latency.rs"]
mod latency;
#[path = "speed/logs.rs"]
mod logs;
#[path = "speed/memory.rs"]
mod memory;
#[path = "speed/peers.rs"]
mod peers;
#[path = "speed/plot.rs"]
mod plot;
#[expect(dead_code, reason = "the soak uses more of it")]
#[path = "common/report.rs"]
mod report;
#[path = "speed/rounds.rs"]
mod rounds;
#[path = "speed/script.rs"]
mod script;
#[path = "common/stamp.rs"]
mod stamp;
#[path = "speed/subjects.rs"]
mod subjects;
#[path = "speed/support.rs"]
mod support;
#[expect(dead_code, reason = "the soak uses more of it")]
#[path = "common/system.rs"]
mod system;
#[path = "common/take.rs"]
mod take;
#[path = "speed/wrk.rs"]
mod wrk;

use std::{env, path::Path, process::ExitCode, time::Duration};

use slidegate::clock;

use self::{
    report::{Report, millis},
    rounds::Rounds,
};

/// How long it all takes.
pub struct Scale {
    /// Rounds of each subject, of which the middle one counts.
    rounds: u32,
    /// Of a round.
    round: Duration,
    /// Where a table has a million. Redis's own tables are as full with either.
    million: u64,
    /// Of the log that is replayed.
    log_lines: u64,
}

const FULL: Scale = Scale {
    rounds: 7,
    round: Duration::from_secs(3),
    million: 1_000_000,
    log_lines: 300_000,
};
const QUICK: Scale = Scale {
    rounds: 3,
    round: Duration::from_secs(1),
    million: 125_000,
    log_lines: 100_000,
};

/// `QUICK` in the environment makes it short.
fn main() -> ExitCode {
    let quick = env::var("QUICK").is_ok_and(|quick| !quick.is_empty());
    let scale = if quick { QUICK } else { FULL };
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/results");
    let started = clock::instant();

    let mut report = Report::default();
    report.head();
    let throughput = Rounds::of_all(&scale);
    figures::compare(&throughput, &mut report);
    latency::added(&scale, &mut report);
    script::decisions(&scale, &mut report);
    memory::sizes(&scale, &mut report);
    logs::replay(&scale, &mut report);

    report.write(&results.join("speed.json"), quick);
    plot::write(&throughput, &results.join("speed.svg"));
    let took = millis(clock::elapsed(started)) / 1_000.0;
    println!(
        "It took {took:.0} s; speed.json and speed.svg are in {}",
        results.display()
    );
    for broken in report.broken() {
        println!("BROKEN {broken}");
    }
    if report.broken().is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
