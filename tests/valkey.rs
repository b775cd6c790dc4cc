//! Valkey keeps the promises too: the tests of the store, run once more over `valkey-server`.

use std::{
    env,
    io::{self, Write as _},
    process::Command,
};

/// The tests that start a server, but for those that start proxies before it.
const AREAS: [&str; 6] = [
    "atomicity::",
    "redis_credentials::",
    "redis_outage::",
    "redis_sentinel::",
    "redis_store::",
    "store_conformance::redis",
];

#[test]
fn the_tests_of_the_store_hold_over_valkey() {
    const SERVER: &str = "valkey-server";
    if env::var_os("REDIS_SERVER").is_some() {
        return;
    }
    if Command::new(SERVER).arg("--version").output().is_err() {
        // Not by a macro: the output of a test that passes is not shown.
        let skipped = format!("SKIPPED: {SERVER} is not installed; Valkey was not tested\n");
        io::stderr().write_all(skipped.as_bytes()).expect("written");
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
