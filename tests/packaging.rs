//! What is made for machines without containers: the unit for systemd; and what the binary is trained by that is shipped.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    process::{Command, Output},
};

use slidegate::config::Config;

use crate::support::{
    binary::{command, program},
    skip::skip,
};

fn unit() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/slidegate.service");
    fs::read_to_string(file).expect("the unit")
}

/// What `systemd-analyze` says of the unit, started by the binary that is tested. `None` where there is no such command.
fn analyze(arguments: &[&str]) -> Option<Output> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("slidegate.service");
    let unit = unit()
        .replace("/usr/local/bin/slidegate", &program())
        .replace(
            "file:/usr/local/share/doc/slidegate/README.md",
            "https://example.com",
        );
    fs::write(&file, unit).expect("written");
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .arg(&file)
        .output();
    if output.is_err() {
        skip("no systemd-analyze: nobody looked at the unit for systemd");
    }
    output.ok()
}

fn told(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn systemd_understands_the_unit() {
    let Some(output) = analyze(&["verify", "--recursive-errors=no"]) else {
        return;
    };
    let told = told(&output);
    // Other units of the machine are looked at on the way.
    let ours: Vec<_> = told
        .lines()
        .filter(|line| line.contains("slidegate.service"))
        .collect();
    assert!(output.status.success() && ours.is_empty(), "{told}");
}

#[test]
fn a_stop_that_cut_something_off_is_no_failure_and_a_faulty_configuration_is_not_tried_again() {
    let unit = unit();
    // The exit codes of docs/edge.md.
    for setting in ["SuccessExitStatus=3", "RestartPreventExitStatus=2"] {
        assert!(unit.lines().any(|line| line == setting), "{setting}");
    }
}

#[test]
fn the_unit_is_as_hardened_as_the_document_says() {
    let Some(output) = analyze(&["security", "--offline=yes", "--no-pager"]) else {
        return;
    };
    let told = told(&output);
    let line = told.lines().find(|line| line.contains("Overall exposure"));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    let figure = line
        .split_whitespace()
        .find_map(|word| word.parse::<f64>().ok());
    let figure = figure.expect("a figure");
    assert!(figure <= 1.8, "{told}");
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/edge.md");
    let document = fs::read_to_string(document).expect("the document");
    assert!(document.contains("`systemd-analyze security` gives it 1.6 of 10"));
}

#[test]
fn the_unit_starts_a_command_that_there_is_and_waits_for_its_end() {
    let unit = unit();
    let settings: HashMap<_, _> = unit
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let start: Vec<_> = settings["ExecStart"].split(' ').collect();
    let mut arguments = start[1..].to_vec();
    assert_eq!(arguments.pop(), Some("/etc/slidegate/config.yaml"));
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config.yaml");
    assert_eq!(arguments, ["run", "--config"]);
    let checked = command(&["check", "--config"]).arg(&shipped).output();
    assert!(checked.expect("the binary runs").status.success());
    let config = Config::load(&shipped, &|_| None).expect("accepted");
    let stop: u64 = settings["TimeoutStopSec"].parse().expect("seconds");
    let shutdown = &config.server;
    assert!(stop > (shutdown.drain_delay + shutdown.grace).as_secs());
    // That of a configuration with faults.
    assert_eq!(settings["RestartPreventExitStatus"], "2");
}

/// It asks a slidegate for all that it does, and fails where an answer is another one. The whole build that it is a part
/// of takes ten minutes: `make release`.
#[test]
fn the_training_comes_to_its_end() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("scripts/train.sh"))
        .arg(program())
        .env("TRAINING_SECONDS", "1")
        .output()
        .expect("bash runs");
    assert!(output.status.success(), "{}", told(&output));
}
