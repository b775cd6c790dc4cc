//! `make soak`: what slidegate promises in milliseconds, megabytes and millions, measured on real servers.
//!
//! Each scenario starts its own Redis, nginx and slidegate, all on free ports. Every figure stands beside its
//! bound; one that does not hold makes the exit code 1. Outcomes that need no clock are `make test`'s.

#[path = "soak/audit.rs"]
mod audit;
#[path = "soak/bodies.rs"]
mod bodies;
#[path = "soak/compare.rs"]
mod compare;
#[path = "soak/counting.rs"]
mod counting;
#[path = "soak/crowd.rs"]
mod crowd;
#[path = "soak/load.rs"]
mod load;
#[path = "soak/replay.rs"]
mod replay;
#[expect(dead_code, reason = "`make bench` uses more of it")]
#[path = "common/report.rs"]
mod report;
#[path = "soak/scenarios.rs"]
mod scenarios;
#[path = "soak/script.rs"]
mod script;
#[path = "soak/slow_readers.rs"]
mod slow_readers;
#[path = "soak/slowloris.rs"]
mod slowloris;
#[path = "common/stamp.rs"]
mod stamp;
#[path = "soak/support.rs"]
mod support;
#[path = "common/system.rs"]
mod system;
#[path = "common/take.rs"]
mod take;

use std::{env, path::Path, process::ExitCode};

use self::{
    report::{Report, millis},
    scenarios::{ALL, Scale},
};

/// Names of scenarios as arguments run only those; `QUICK` in the environment makes all of them short.
fn main() -> ExitCode {
    let named: Vec<String> = env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let quick = env::var("QUICK").is_ok_and(|quick| !quick.is_empty());
    let scale = if quick { Scale::QUICK } else { Scale::FULL };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/results/soak.json");
    let started = slidegate::clock::instant();

    let mut report = Report::default();
    report.head();
    let mut ran = 0;
    for (name, scenario) in ALL {
        if named.is_empty() || named.iter().any(|named| named == name) {
            scenario(&scale, &mut report);
            report.write(&file, quick);
            ran += 1;
        }
    }
    if ran == 0 {
        eprintln!(
            "no such scenario: {named:?}; there are {:?}",
            ALL.map(|(name, _)| name)
        );
        return ExitCode::from(2);
    }

    let took = millis(slidegate::clock::elapsed(started)) / 1_000.0;
    println!(
        "{ran} scenarios took {took:.0} s; the figures are in {}",
        file.display()
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
