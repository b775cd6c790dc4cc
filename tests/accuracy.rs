//! The figures of docs/accuracy.md are those that the script makes, of this version.

use std::process::Command;

use crate::support::{binary::program, snapshot::agrees};

fn accuracy(logs: &[&str]) -> String {
    let output = Command::new("python3")
        .arg("scripts/accuracy.py")
        .args(logs)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("SLIDEGATE", program())
        .output()
        .expect("python3 runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_page_tells_what_the_algorithms_do_on_its_logs_and_on_what_it_says_is_generated() {
    agrees("docs/accuracy.md", &accuracy(&[]));
}

#[test]
fn users_get_the_tables_of_their_own_logs() {
    let tables = accuracy(&["tests/logs/shop_jan19.combined.log"]);
    let rows = tables
        .lines()
        .filter(|row| row.starts_with("| shop_jan19 |"));
    assert_eq!(rows.count(), 3 + 4, "{tables}");
    let page = std::fs::read_to_string("docs/accuracy.md").expect("the page");
    for row in tables.lines() {
        assert!(page.contains(row), "{row}");
    }
}
