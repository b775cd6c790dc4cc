//! How fast `slidegate replay` reads and decides on a log, against goaccess, which reads and counts it.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    Scale,
    cores::{self, Role},
    peers,
    report::{Bound, Report, median},
    stamp::stamp,
    support::{binary::program, random::Random},
};

/// Adds both, each alone on the same core, by turns. What counts is processor time, since other things may run on that core.
pub fn replay(scale: &Scale, report: &mut Report) {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("access.log");
    write(&log, scale.log_lines);
    let mut replay = cores::command(Role::Proxy);
    replay.arg(program());
    replay.args(["replay", "--limit", "30/1m"]).arg(&log);
    let mut goaccess = peers::installed("goaccess").map(|program| {
        let mut goaccess = cores::command(Role::Proxy);
        goaccess.arg(program).arg(&log);
        goaccess.args([
            "--no-global-config",
            "--no-progress",
            "--log-format=COMBINED",
            "-o",
        ]);
        goaccess.arg(folder.path().join("report.json"));
        goaccess
    });

    let (mut own, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        let took = seconds(&mut replay);
        own.push(scale.log_lines as f64 / took);
        ratios.extend(goaccess.iter_mut().map(|goaccess| seconds(goaccess) / took));
    }
    let mut add = |what: &str, value, unit, bound| report.add("replay", what, value, unit, bound);
    let lines = format!(
        "lines of {} decided three ways, on one core",
        scale.log_lines
    );
    add(&lines, median(&mut own), "/s", Bound::None);
    if ratios.is_empty() {
        println!("replay, against goaccess is not measured: there is no goaccess");
        return;
    }
    let bound = Bound::AboutAtLeast(2.0);
    add(
        "  against goaccess (hoped for: 5)",
        median(&mut ratios),
        "",
        bound,
    );
}

/// The processor time that it takes from its start to its end, by the kernel's account of ended children: to 10 ms.
fn seconds(command: &mut Command) -> f64 {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let before = of_ended_children();
    let ended = command.stderr(Stdio::null()).status();
    assert!(ended.expect("taskset runs").success(), "{command:?}");
    of_ended_children() - before
}

fn of_ended_children() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").expect("the kernel tells");
    // A name may hold spaces. The state follows it; thirteen and fourteen after that is what ended children took.
    let (_, fields) = text.rsplit_once(") ").expect("a name");
    let fields: Vec<_> = fields.split(' ').collect();
    let ticks = fields[13..15]
        .iter()
        .map(|ticks| -> f64 { ticks.parse().expect("a number") });
    ticks.sum::<f64>() / TICKS
}

/// Recorded lines of the combined format, fifty of them a second: those of one second follow each other as they were
/// recorded, so that clients come in bursts as they do.
fn write(path: &Path, lines: u64) {
    let recorded = ["blog_may15", "noise", "shop_jan19"].map(|name| {
        let log = format!("tests/logs/{name}.combined.log");
        let log = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(log);
        fs::read(log).expect("a recorded log")
    });
    let recorded = recorded
        .iter()
        .flat_map(|log| log.split(|byte| *byte == b'\n'));
    let recorded: Vec<_> = recorded.filter_map(around_stamp).collect();
    let (mut random, mut first) = (Random::new(1), 0);
    let mut file = BufWriter::new(File::create(path).expect("a file"));
    for number in 0..lines {
        let place = (number % A_SECOND) as usize;
        if place == 0 {
            first = random.below(recorded.len() as u64 - A_SECOND) as usize;
        }
        let (before, after) = recorded[first + place];
        let stamp = stamp(number / A_SECOND);
        let written = file
            .write_all(before)
            .and_then(|()| file.write_all(stamp.as_bytes()))
            .and_then(|()| file.write_all(after))
            .and_then(|()| file.write_all(b"\n"));
        written.expect("there is room");
    }
    file.flush().expect("there is room");
}

/// What stands before a line's time, and after it.
fn around_stamp(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let begin = line.iter().position(|byte| *byte == b'[')? + 1;
    let end = begin + line[begin..].iter().position(|byte| *byte == b']')?;
    Some((&line[..begin], &line[end..]))
}

/// Lines.
const A_SECOND: u64 = 50;

/// Of the kernel's accounts, on all that Linux runs on today.
const TICKS: f64 = 100.0;
