//! What `slidegate check` prints.

use std::fs;

use slidegate::cli::check::{CheckError, check};

use super::{env, root};

#[test]
fn check_prints_the_policies_in_force_the_warnings_and_ok() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.yaml");
    let text = "upstream: {address: app:3000}\n\
                store: {url: 'redis://:hunter2@redis'}\n\
                identity: {trusted_proxies: [10.0.0.0/9, 10.128.0.0/9]}\n\
                block: {client_ip: [192.0.2.0/25, 192.0.2.128/25]}\n\
                exempt: {client_ip: [203.0.113.7], path: [/live/, /probe/**]}\n\
                apply: first\n\
                policies:\n\
                - {name: fair, match: {path: [//v1//, /%61pi/**], host: [API.example.com], not: {method: [HEAD], client_ip: [10.0.0.0/8]}}, limits: [10/1s, 1000/1h], identifier: [[header:x-tenant, header:x-user], header:x-api-key], cost: 2}\n\
                - {name: logins, limits: [5/15m], charge_on: [401, 403], mode: shadow}\n\
                - {name: ceiling, limits: [100/1m], take_back_5xx: true, failure_mode: deny}";
    fs::write(&path, text).expect("written");
    let mut out = Vec::new();
    check(&path, &env, &mut out).expect("ok");
    let told = String::from_utf8(out).expect("text");
    let expected = "\
counters in Redis, namespace default
client_ip from x-forwarded-for, past trusted proxies at 10.0.0.0/8
block client_ip 192.0.2.0/24
exempt client_ip 203.0.113.7
exempt path /live, /probe/**
apply first: one enforced policy for a request, and all shadow policies
policy fair
    match         host api.example.com; path /v1, /api/**; not method HEAD; not client_ip 10.0.0.0/8
    identifier    header:x-tenant + header:x-user, else header:x-api-key, else client_ip
    limit         10/1s as fair-1s, sliding_window_counter
    limit         1000/1h as fair-1h, sliding_window_counter
    charge        2 when admitted
    mode          enforce
    failure mode  local
policy logins
    identifier    client_ip
    limit         5/15m as logins, sliding_window_counter
    charge        1 on a response of 401, 403
    mode          shadow
    failure mode  local
policy ceiling
    identifier    client_ip
    limit         100/1m as ceiling, sliding_window_counter
    charge        1 when admitted, taken back on a response of 500 or above
    mode          enforce
    failure mode  deny
warning: identity.secret is not set: a fixed key is used, so whoever reads Redis can guess API keys \
offline; set the same secret on every proxy that shares the Redis
warning: policy fair: a client that invents values for header:x-tenant + header:x-user gets a fresh quota with each; \
with apply: all a policy with identifier: [client_ip] could be a ceiling
config.yaml: ok
";
    assert_eq!(
        told.replace(&path.display().to_string(), "config.yaml"),
        expected
    );
}

/// It may be what lets a request in; `GET /config` hides it too.
#[test]
fn the_value_of_a_header_is_told_by_nobody() {
    let policy = |headers: &str| {
        format!(
            "upstream: {{address: \"127.0.0.1:9\"}}\n\
             policies: [{{name: p, limits: [1/1s], match: {{header: [{headers}]}}}}]\n"
        )
    };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let told = |headers: &str| {
        std::fs::write(file.path(), policy(headers)).expect("written");
        let mut out = Vec::new();
        let checked = check(file.path(), &env, &mut out);
        let faults = checked.err().map(|error| error.to_string());
        String::from_utf8(out).expect("text") + &faults.unwrap_or_default()
    };
    for (headers, expected) in [
        ("x-token=HUNTER2, x-debug", "header x-token=***, x-debug"),
        (
            "x-token=HUNTER2, x-token=HUNTER2",
            "\"x-token=***\"; each stands once",
        ),
        (
            "x-token, x-token=HUNTER2",
            "has no effect: x-token covers it",
        ),
        (
            "x-token=HUNTER2, x-token",
            "covers x-token=***, which then has no effect",
        ),
        ("\"x-token= HUNTER2\"", "\"x-token=***\""),
        ("host=HUNTER2", "\"host=***\""),
    ] {
        let told = told(headers);
        assert!(told.contains(expected), "{told}");
        assert!(!told.contains("HUNTER2"), "{told}");
    }
}

#[test]
fn lines_of_pingora_are_warned_of() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    for (level, is_warned_of) in [
        ("info,pingora_core=error", true),
        ("pingora_proxy=trace", true),
        ("trace", false),
        ("info,pingora_core=off", false),
    ] {
        let yaml = format!(
            "upstream: {{address: \"127.0.0.1:9\"}}\nlog: {{level: \"{level}\"}}\n\
             policies: [{{name: p, limits: [1/1s]}}]\n"
        );
        std::fs::write(file.path(), yaml).expect("written");
        let mut out = Vec::new();
        check(file.path(), &env, &mut out).expect("accepted");
        let told = String::from_utf8(out).expect("text");
        assert_eq!(told.contains("warning: log.level"), is_warned_of, "{told}");
    }
}

#[test]
fn check_prints_nothing_of_a_faulty_configuration_and_returns_its_faults() {
    let mut out = Vec::new();
    let file = root().join("tests/config/invalid/many_mistakes_at_once.yaml");
    let Err(CheckError::Config(error)) = check(&file, &env, &mut out) else {
        panic!("refused");
    };
    assert_eq!(error.faults.len(), 16);
    assert!(out.is_empty());
}

#[test]
fn check_tells_how_the_server_of_the_counters_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.yaml");
    for (section, expected) in [
        ("", "counters in Redis, namespace default"),
        (
            ", sentinel: {addresses: [s]}",
            "counters in Redis, found by Sentinel, namespace default",
        ),
        (
            ", cluster: {}",
            "counters in Redis Cluster, namespace default",
        ),
    ] {
        let text = format!(
            "upstream: {{address: app:3000}}\npolicies: [{{name: p, limits: [1/1s]}}]\n\
             store: {{url: 'redis://r'{section}}}"
        );
        fs::write(&path, text).expect("written");
        let mut out = Vec::new();
        check(&path, &env, &mut out).expect("ok");
        let told = String::from_utf8(out).expect("text");
        assert_eq!(told.lines().next(), Some(expected));
    }
}

#[test]
fn check_tells_upstreams_and_routes_and_nothing_of_a_lone_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.yaml");
    let told = |upstreams: &str| {
        let text = format!("{upstreams}\npolicies: [{{name: p, limits: [1/1s]}}]");
        fs::write(&path, text).expect("written");
        let mut out = Vec::new();
        check(&path, &env, &mut out).expect("ok");
        let told = String::from_utf8(out).expect("text");
        let upstreams = told.lines().take_while(|line| !line.starts_with("policy"));
        upstreams.skip(1).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(told("upstream: {address: app:3000}"), "");
    assert_eq!(
        told(
            "upstream: {addresses: [a:1, 'unix:/b'], tls: {server_name: c.test}, health_check: {}}"
        ),
        "upstream default: a:1, unix:/b; TLS for c.test by Mozilla's authorities; checked by connecting"
    );
    let several = "\
upstreams: {api: {address: '[::1]:1', http: 2, health_check: {path: /x}}, web: {address: a:2, tls: {}}}
routes: [{host: API.example.com, path: [/v1/**, /v2], upstream: api}, {upstream: web}]";
    let expected = "\
upstream api: [::1]:1; HTTP/2; checked by GET /x
upstream web: a:2; TLS for its host by Mozilla's authorities
route to api: host api.example.com; path /v1/**, /v2
route to web: everything else";
    assert_eq!(told(several), expected);
}
