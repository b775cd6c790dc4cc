//! Valkey keeps the promises too: the tests of the store, run once more over `valkey-server`.

use std::{env, process::Command};

use crate::support::skip::skip;

/// The tests that start a server, but for those that start proxies before it.
const AREAS: [&str; 10] = [
    "atomicity::",
    "audit::",
    "redis_cluster::",
    "redis_credentials::",
    "redis_outage::",
    "redis_sentinel::",
    "redis_store::",
    "redis_trouble::",
    "store_conformance::cluster",
    "store_conformance::redis",
];

#[test]
fn the_tests_of_the_store_hold_over_valkey() {
    const SERVER: &str = "valkey-server";
    if env::var_os("REDIS_SERVER").is_some() {
        return;
    }
    if Command::new(SERVER).arg("--version").output().is_err() {
        skip(&format!("{SERVER} is not installed; Valkey was not tested"));
        return;
    }
    let program = env::current_exe().expect("this test has a program");
    let output = Command::new(program)
        .args(AREAS)
        .env("REDIS_SERVER", SERVER)
        .output()
        .expect("it runs again");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(!told.contains("running 0 tests"), "{told}");
}
