//! How much memory the proxy and Redis take, and how large the binary is.

use std::{fs, process::Command};

use super::{
    Scale,
    report::{Bound, Report},
    subjects::configuration,
    support::{
        binary::{Binary, program},
        nginx::Nginx,
        redis::RedisServer,
    },
    system::{info, keys},
    wrk::{self, Identifiers},
};

/// Adds them.
pub fn sizes(scale: &Scale, report: &mut Report) {
    let nginx = Nginx::start();
    let start = |store: &str| {
        let policy =
            "  - {name: per-key, identifier: [header:x-api-key], limits: [100000000/366d]}\n";
        Binary::start(&configuration(nginx.address, store, policy, "default"))
    };
    let mut add = |what: &str, value, unit, bound| report.add("memory", what, value, unit, bound);

    let gate = start("memory:");
    add("proxy, idle", own(&gate), "MB", Bound::AtMost(15.0));
    wrk::ask(gate.proxy, Identifiers::Random(1), scale.round);
    add(
        "proxy, 64 connections",
        own(&gate),
        "MB",
        Bound::AtMost(30.0),
    );
    wrk::ask_each(gate.proxy, scale.million);
    let what = format!("proxy, {} identifiers in the memory store", scale.million);
    add(&what, own(&gate), "MB", Bound::AtMost(110.0));
    drop(gate);

    let server = RedisServer::start();
    let gate = start(&server.url());
    let empty = info(&server, "memory", "used_memory:");
    wrk::ask_each(gate.proxy, scale.million);
    let full = info(&server, "memory", "used_memory:");
    let counters: u64 = redis::cmd("DBSIZE")
        .query(&mut server.client())
        .expect("Redis counts");
    assert!(counters >= scale.million, "each has one: {counters}");
    let keys = keys(&server).into_iter().flatten();
    let longest = keys.map(|key| key.len()).max().unwrap_or(0);
    // As the previous one it is still there, so that an identifier has two at most.
    add(
        "Redis, of one identifier with both counters",
        2.0 * (full - empty) / counters as f64,
        "B",
        Bound::AtMost(300.0),
    );
    add(
        "  its longest key",
        longest as f64,
        "B",
        Bound::AtMost(60.0),
    );

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("slidegate");
    fs::copy(program(), &file).expect("the binary is there");
    let stripped = Command::new("strip").arg(&file).status();
    if stripped.is_ok_and(|status| status.success()) {
        let bytes = fs::metadata(&file).expect("a file").len() as f64;
        add("binary, stripped", bytes / 1e6, "MB", Bound::AtMost(20.0));
    } else {
        println!("the binary is not stripped: there is no strip");
    }
}

/// In MB, what the process has of memory by itself: without the pages of the binary's file, which all processes of it share
/// and the kernel may drop.
fn own(gate: &Binary) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gate.child.id())).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kilobytes.expect("the kernel tells") * 1.024 / 1e3
}
