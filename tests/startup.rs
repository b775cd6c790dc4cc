//! What a person meets who starts it wrongly, and what the process returns.

use std::net::TcpListener;

use crate::support::{
    binary::{self, Binary, file, text},
    redis::eventually,
    upstream::Upstream,
};

const MINIMAL: &str = "upstream: {address: \"127.0.0.1:9\"}\n\
    policies: [{name: per-ip, identifier: [client_ip], limits: [10/1m]}]\n";

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

#[test]
fn a_port_in_use_is_told_with_its_setting_and_a_remedy_and_nothing_is_left_running() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound listener");
    for setting in ["listen", "metrics_listen"] {
        let other = if setting == "listen" {
            "metrics_listen"
        } else {
            "listen"
        };
        let config = file(&format!(
            "{setting}: {address}\n{other}: 127.0.0.1:0\n{MINIMAL}"
        ));
        let output = binary::output(&["run", "--config", text(config.path())]);
        assert_eq!(output.status.code(), Some(1));
        let told = stderr(&output);
        assert!(
            told.starts_with(&format!("{setting}: cannot listen on {address}: ")),
            "{told}"
        );
        assert!(
            told.contains("hint: another process listens there"),
            "{told}"
        );
        assert!(!told.contains("panicked"), "{told}");
    }
}

#[test]
fn a_faulty_configuration_is_told_by_run_and_check_alike_with_exit_code_2() {
    let config = file(
        "upstream: {adress: \"127.0.0.1:9\"}\n\
        policies: [{name: per-ip, identifier: [client_ip], limits: [100/minute]}]\n",
    );
    for command in ["run", "check"] {
        let output = binary::output(&[command, "--config", text(config.path())]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let told = stderr(&output);
        for part in [
            "upstream",
            "adress",
            "address",
            "policies[0].limits[0]",
            "100/minute",
            ":2:",
        ] {
            assert!(told.contains(part), "{part} is missing:\n{told}");
        }
        assert!(!told.contains("panicked"), "{told}");
    }
}

#[test]
fn a_file_that_the_configuration_names_and_that_is_not_there_is_told_by_run_and_check_alike() {
    let config = file(&format!(
        "store: {{url: 'rediss://redis', password_file: /nowhere/password}}\n{MINIMAL}"
    ));
    for command in ["run", "check"] {
        let output = binary::output(&[command, "--config", text(config.path())]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let told = stderr(&output);
        let expected =
            "1:47: store.password_file: found \"/nowhere/password\"; this file cannot be read";
        assert!(told.contains(expected), "{told}");
    }
}

/// Standard error may be full, or closed.
#[test]
fn faults_that_can_not_be_told_are_no_panic() {
    let config = file("upstream: nowhere\n");
    for redirection in ["2>/dev/full", "2>&-"] {
        let status = std::process::Command::new("bash")
            .args(["-c", &format!("exec \"$@\" {redirection}"), "bash"])
            .arg(binary::program())
            .args(["check", "--config", text(config.path())])
            .status();
        let code = status.expect("bash runs").code();
        assert_eq!(code, Some(2), "{redirection}");
    }
}

#[test]
fn a_configuration_that_is_not_there_is_told_by_its_name() {
    let output = binary::output(&["run", "--config", "/nowhere/config.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("/nowhere/config.yaml"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn wrong_usage_is_exit_code_2_and_help_is_0() {
    assert_eq!(binary::output(&["fly"]).status.code(), Some(2));
    assert_eq!(
        binary::output(&["run", "--confg", "x"]).status.code(),
        Some(2)
    );
    assert_eq!(binary::output(&["--help"]).status.code(), Some(0));
    assert_eq!(binary::output(&["--version"]).status.code(), Some(0));
}

#[test]
fn check_accepts_what_run_accepts() {
    let config = file(MINIMAL);
    let output = binary::output(&["check", "--config", text(config.path())]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[tokio::test]
async fn sigterm_and_sigint_stop_it_with_exit_code_0() {
    let upstream = Upstream::start();
    for signal in ["TERM", "INT"] {
        let binary = Binary::start(&format!(
            "upstream: {{address: \"{}\"}}\nshutdown: {{drain_delay: 0ms}}\n\
             policies: [{{name: per-ip, identifier: [client_ip], limits: [10/1m]}}]\n",
            upstream.address
        ));
        let response = reqwest::get(binary.url("/")).await.expect("a response");
        assert_eq!(response.status(), 200);
        binary.signal(signal);
        let code = tokio::task::spawn_blocking(|| binary.exit_code()).await;
        assert_eq!(code.expect("no panic"), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn a_second_signal_stops_it_at_once_with_exit_code_3() {
    let binary = Binary::start(&format!("shutdown: {{drain_delay: 1h}}\n{MINIMAL}"));
    binary.signal("TERM");
    let url = format!("http://{}/readyz", binary.metrics);
    eventually("it is stopping", async || {
        reqwest::get(&url).await.expect("health is served").status() == 503
    })
    .await;
    binary.signal("TERM");
    let code = tokio::task::spawn_blocking(|| binary.exit_code()).await;
    assert_eq!(code.expect("no panic"), Some(3));
}

/// What reads the log may be gone, or slow: that costs lines, never requests.
#[tokio::test]
async fn a_log_that_nobody_reads_or_that_is_full_costs_no_request_and_no_clean_end() {
    let upstream = Upstream::start();
    let yaml = format!(
        "upstream: {{address: \"{}\"}}\nshutdown: {{drain_delay: 0ms}}\n\
         policies: [{{name: per-ip, identifier: [client_ip], limits: [5/366d]}}]\n",
        upstream.address
    );
    for log in [
        "2>&-",
        "2>/dev/full",
        "2> >(exec sleep 0)",
        // It outlives the test, and must not hold what the test writes to.
        "2> >(exec sleep 60 >/dev/null)",
    ] {
        let binary = Binary::start_through_shell(&yaml, log);
        for number in 0..40 {
            let response = reqwest::get(binary.url("/")).await.expect("a response");
            let expected = if number < 5 { 200 } else { 429 };
            assert_eq!(response.status(), expected, "{log}: request {number}");
        }
        binary.signal("TERM");
        let code = tokio::task::spawn_blocking(|| binary.exit_code()).await;
        assert_eq!(code.expect("no panic"), Some(0), "{log}");
    }
}
