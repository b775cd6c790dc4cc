//! `slidegate healthcheck`, as Docker and systemd run it.

use std::process::Output;

use slidegate::server::Stop;

use crate::support::{
    app::App,
    binary::{command, file},
    upstream::{Nobody, Upstream},
};

fn check(metrics_listen: &str, more: &[&str]) -> Output {
    let config = file(&format!(
        "upstream: {{address: \"app:3000\"}}\nmetrics_listen: \"{metrics_listen}\"\n\
         policies: [{{name: p, limits: [1/1s]}}]\n"
    ));
    let path = config.path().to_str().expect("a path");
    let output = command(&["healthcheck", "--config", path])
        .args(more)
        .output();
    output.expect("the binary runs")
}

fn told(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(text).expect("text")
}

#[test]
fn a_proxy_that_runs_is_well_wherever_it_listens() {
    let (app, _upstream) = App::with_upstream("policies: [{name: p, limits: [1/1s]}]\n");
    for listen in [
        app.metrics.to_string(),
        format!("0.0.0.0:{}", app.metrics.port()),
    ] {
        for more in [&[][..], &["--ready"]] {
            let output = check(&listen, more);
            assert!(output.status.success(), "{}", told(&output));
            assert_eq!(told(&output), "");
        }
    }
}

/// Its requests in flight still want it alive.
#[tokio::test]
async fn a_proxy_that_stops_is_alive_and_not_ready() {
    let upstream = Upstream::start();
    let app = App::start(&format!(
        "upstream: {{address: \"{}\"}}\nshutdown: {{drain_delay: 20s, grace: 5s}}\n\
         policies: [{{name: p, limits: [1/1s]}}]\n",
        upstream.address
    ));
    let listen = app.metrics.to_string();
    app.tell(Stop::Graceful);
    crate::support::redis::eventually("it is not ready", async || {
        let output = check(&listen, &["--ready"]);
        let expected = format!("{listen}: /readyz is answered 503\n");
        output.status.code() == Some(1) && told(&output) == expected
    })
    .await;
    assert!(check(&listen, &[]).status.success());
    app.tell(Stop::Now);
}

#[test]
fn where_nobody_listens_it_says_so() {
    let nobody = Nobody::new().address.to_string();
    let output = check(&nobody, &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = told(&output);
    assert!(told.starts_with(&format!("{nobody}: ")), "{told}");
    assert!(told.contains("refused"), "{told}");
}

/// Docker knows no other code than 1.
#[test]
fn a_configuration_with_faults_is_not_well() {
    let output = check("nowhere", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        told(&output).contains("metrics_listen"),
        "{}",
        told(&output)
    );
}
