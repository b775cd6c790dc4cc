//! What `slidegate replay` holds in memory of a log without end: as much as its identifiers take, however many lines it has.

use std::{
    fs,
    io::{BufWriter, Write},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use slidegate::clock;

use super::{
    report::{Bound, Report},
    scenarios::{Scale, mix},
    stamp::stamp,
    support::binary::program,
};

/// A log on standard input, and one with a tenth of its lines.
pub fn replay(scale: &Scale, report: &mut Report) {
    let started = clock::instant();
    let peak = peak(scale.replayed_lines);
    let took = clock::elapsed(started).as_secs_f64();
    let lines = scale.replayed_lines as f64;
    let mut add = |what: &str, value, unit, bound| report.add("replay", what, value, unit, bound);
    add("lines, of 10,000 addresses", lines, "", Bound::None);
    add(
        "  per second, each decided three ways",
        lines / took,
        "/s",
        Bound::None,
    );
    add("  most resident memory", peak, "MB", Bound::AtMost(300.0));
    if scale.replayed_lines < FULL_OF_COUNTERS * 10 {
        return;
    }
    let tenth = self::peak(scale.replayed_lines / 10);
    add("  … of a tenth of the lines", tenth, "MB", Bound::None);
    add("  … against it", peak / tenth, "", Bound::AtMost(1.5));
}

/// In MB, the most that it has held of so many lines.
fn peak(lines: u64) -> f64 {
    let mut command = Command::new(program());
    command.args(["replay", "--limit", "30/1m", "--json", "-"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().expect("the binary runs");
    let mut log = BufWriter::new(child.stdin.take().expect("it is piped"));
    for number in 0..lines {
        line(number, &mut log).expect("it reads");
    }
    drop(log);
    let mut peak = 0.0;
    while child.try_wait().expect("it is our child").is_none() {
        // Nothing, once it has ended and is not waited for.
        peak = resident(&child).unwrap_or(peak);
        thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().expect("it ends");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["logs"]["requests"], lines, "{told:#}");
    assert_eq!(told["limits"][0]["identifiers"], IDENTIFIERS);
    peak
}

/// Fifty a second, and one in a hundred of one address.
fn line(number: u64, log: &mut impl Write) -> std::io::Result<()> {
    let who = match number % 100 {
        0 => 0,
        _ => mix(number) % IDENTIFIERS,
    };
    let (high, low) = (who >> 8, who & 255);
    let stamp = stamp(number / 50);
    writeln!(
        log,
        "10.0.{high}.{low} - - [{stamp}] \"GET /orders/{number} HTTP/1.1\" 200 512 \"-\" \"curl/8.5.0\""
    )
}

/// In MB, the most it has held so far.
fn resident(child: &Child) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1.024 / 1e3)
}

const IDENTIFIERS: u64 = 10_000;

/// After so many lines counters are as many as are kept at most.
const FULL_OF_COUNTERS: u64 = 1_000_000;
