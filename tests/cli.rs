//! What an on-call engineer gets from `inspect` and `forget`, and an editor from `schema`.

use std::{
    io::Write as _,
    process::{Output, Stdio},
};

use redis::Commands as _;
use serde_json::Value;

use crate::support::{
    binary::{self, Binary, file, text},
    certificates::Authority,
    cluster::{self, Cluster},
    demand::demand,
    redis::{RedisServer, eventually},
    upstream::Upstream,
};

const KEY: &str = "sk-live-4e5a92c0";
const POLICIES: &str = "policies:\n\
    - {name: per-key, identifier: [header:x-api-key], missing_identifier: deny, failure_mode: deny, limits: [5/366d, 100/365d]}\n\
    - {name: per-ip, failure_mode: deny, limits: [50/366d]}\n";

/// A configuration with its counters in this Redis.
fn shared(server: &RedisServer) -> String {
    format!(
        "upstream: {{address: '127.0.0.1:9'}}\nidentity: {{secret: hush}}\n\
         store: {{url: '{}', budget: 1s, denial_cache: 0s}}\n{POLICIES}",
        server.url()
    )
}

/// Runs a command on a configuration, with this on standard input.
fn ask(command: &str, yaml: &str, more: &[&str], input: &[u8]) -> Output {
    let config = file(yaml);
    let mut arguments = vec![command, "--config", text(config.path())];
    arguments.extend(more);
    let mut child = binary::command(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    // It may have refused before it read.
    drop(stdin.write_all(input));
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn told(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(all).expect("text")
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", told(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The answer by Redis: until the proxy is connected, which takes a while on a busy machine, it denies by its
/// failure mode and charges nothing.
async fn request(proxy: &Binary, key: &str) -> reqwest::Response {
    let client = reqwest::Client::new();
    let mut last = None;
    eventually("the proxy connects to Redis", async || {
        let request = client.get(proxy.url("/")).header("x-api-key", key);
        let response = request.send().await.expect("a response");
        last.insert(response).status() != 503
    })
    .await;
    last.expect("it was asked")
}

fn number(response: &reqwest::Response, header: &str) -> u64 {
    let value = response.headers().get(header).expect(header);
    value.to_str().expect("text").parse().expect("a number")
}

/// A proxy before an upstream, on this Redis.
fn proxy(server: &RedisServer) -> (Binary, Upstream) {
    let upstream = Upstream::start();
    let address = upstream.address.to_string();
    let yaml = shared(server).replace("127.0.0.1:9", &address);
    (Binary::start(&yaml), upstream)
}

#[tokio::test]
async fn inspect_tells_what_the_headers_told_and_charges_nothing() {
    let server = RedisServer::start();
    let (proxy, _upstream) = proxy(&server);
    request(&proxy, KEY).await;
    let last = request(&proxy, KEY).await;

    for _ in 0..2 {
        let key = format!("{KEY}\n");
        let output = ask("inspect", &shared(&server), &["--json"], key.as_bytes());
        let told = json(&output);
        let policies = told["policies"].as_array().expect("a list");
        assert_eq!(policies.len(), 1, "per-ip does not count keys: {told}");
        assert_eq!(policies[0]["policy"], "per-key");
        let limit = &policies[0]["limits"][0];
        assert_eq!(limit["name"], "per-key-366d");
        assert_eq!(limit["limit"], "5/366d");
        assert_eq!(
            (&limit["current"], &limit["previous"]),
            (&2.into(), &0.into())
        );
        assert_eq!(limit["estimate"], 2.0);
        assert_eq!(limit["remaining"], number(&last, "x-ratelimit-remaining"));
        assert_eq!(limit["quota"], number(&last, "x-ratelimit-limit"));
        assert_eq!(
            limit["window_turns_ms"],
            1000 * number(&last, "x-ratelimit-reset")
        );
        assert_eq!(limit["allowed"], true);
        let next = limit["next_unit_ms"].as_u64().expect("a moment");
        assert!(
            next > limit["now_ms"].as_u64().expect("a moment"),
            "{limit}"
        );
    }

    // By address, and by what the first one said it is called.
    let by_address = ask(
        "inspect",
        &shared(&server),
        &["--json", "--address", "::ffff:127.0.0.1"],
        b"",
    );
    let by_address = json(&by_address);
    assert_eq!(by_address["identifier"], "127.0.0.1");
    assert_eq!(by_address["policies"][0]["limits"][0]["current"], 2);
    let by_key = json(&ask(
        "inspect",
        &shared(&server),
        &["--json"],
        KEY.as_bytes(),
    ));
    let identifier = by_key["identifier"].as_str().expect("text");
    let arguments = ["--identifier", identifier, "--policy", "per-key"];
    let table = ask("inspect", &shared(&server), &arguments, b"");
    assert_eq!(table.status.code(), Some(0), "{}", told(&table));
    let row: Vec<String> = told(&table)
        .lines()
        .find(|line| line.contains("5/366d"))
        .expect("a row")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let expected = [
        "per-key",
        "per-key-366d",
        "5/366d",
        "2",
        "0",
        "2.00",
        "3",
        "admitted",
    ];
    assert_eq!(row[..8], expected);
    assert!(told(&table).starts_with(&format!("identifier {identifier}\n")));
}

#[tokio::test]
async fn of_a_log_no_turn_is_told_since_its_window_slides() {
    let server = RedisServer::start();
    let yaml = shared(&server).replace(
        "missing_identifier",
        "algorithm: sliding_log, missing_identifier",
    );
    let upstream = Upstream::start();
    let proxy = Binary::start(&yaml.replace("127.0.0.1:9", &upstream.address.to_string()));
    request(&proxy, KEY).await;
    let told_json = json(&ask("inspect", &yaml, &["--json"], KEY.as_bytes()));
    let limit = &told_json["policies"][0]["limits"][0];
    assert_eq!(
        (&limit["current"], &limit["window_turns_ms"]),
        (&1.into(), &Value::Null)
    );
    let table = told(&ask("inspect", &yaml, &[], KEY.as_bytes()));
    let rows = table.lines().filter(|line| line.starts_with("per-key"));
    let rows: Vec<Vec<_>> = rows.map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 2, "{table}");
    for row in rows {
        assert_eq!(
            (row[3], row[4], row.last()),
            ("1", "-", Some(&"-")),
            "{table}"
        );
    }
}

#[tokio::test]
async fn a_key_is_nowhere_but_where_it_was_given() {
    let server = RedisServer::start();
    let (proxy, _upstream) = proxy(&server);
    request(&proxy, KEY).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key");
    std::fs::write(&path, format!("Bearer {KEY}\r\n")).expect("written");

    let by_file = ask(
        "inspect",
        &shared(&server),
        &["--json", "--key-file", text(&path)],
        b"",
    );
    let by_dash = ask(
        "inspect",
        &shared(&server),
        &["--json", "--key-file", "-"],
        KEY.as_bytes(),
    );
    assert_eq!(json(&by_file)["identifier"], json(&by_dash)["identifier"]);
    assert_eq!(json(&by_file)["policies"][0]["limits"][0]["current"], 1);
    let identifier = json(&by_file)["identifier"]
        .as_str()
        .expect("text")
        .to_owned();

    let two_lines = format!("{KEY}\n{KEY}\n");
    let refused = ask("inspect", &shared(&server), &[], two_lines.as_bytes());
    let mistaken = ask("inspect", &shared(&server), &["--identifier", KEY], b"");
    let typed = ask("inspect", &shared(&server), &[KEY], b"");
    for (output, reason) in [
        (&refused, "a key is one line"),
        (&mistaken, "22 characters"),
        (&typed, "others can read a command line"),
    ] {
        assert_eq!(output.status.code(), Some(2));
        assert!(told(output).contains(reason), "{}", told(output));
    }
    let forgotten = ask("forget", &shared(&server), &[], KEY.as_bytes());
    for output in [&by_file, &by_dash, &refused, &mistaken, &typed, &forgotten] {
        assert!(!told(output).contains(KEY), "{}", told(output));
    }
    request(&proxy, KEY).await;
    let keys: Vec<String> = server.client().keys("*").expect("keys");
    assert!(keys.iter().any(|key| key.contains(&identifier)), "{keys:?}");
    assert!(!keys.iter().any(|key| key.contains(KEY)), "{keys:?}");
}

#[tokio::test]
async fn who_is_forgotten_gets_in_at_once_and_nobody_else_does() {
    let server = RedisServer::start();
    let (proxy, _upstream) = proxy(&server);
    for key in [KEY, "another"] {
        for _ in 0..5 {
            assert_eq!(request(&proxy, key).await.status(), 200);
        }
        assert_eq!(request(&proxy, key).await.status(), 429);
    }
    let denied = ask("inspect", &shared(&server), &[], KEY.as_bytes());
    assert!(told(&denied).contains(" denied "), "{}", told(&denied));

    let forgotten = json(&ask(
        "forget",
        &shared(&server),
        &["--json"],
        KEY.as_bytes(),
    ));
    let limits = &forgotten["deleted"][0]["limits"];
    assert_eq!(
        (&limits[0]["current"], &limits[1]["current"]),
        (&5.into(), &5.into())
    );
    assert_eq!(forgotten["denial_cache_ms"], 0);

    assert_eq!(request(&proxy, "another").await.status(), 429);
    let freed = request(&proxy, KEY).await;
    assert_eq!(freed.status(), 200);
    assert_eq!(number(&freed, "x-ratelimit-remaining"), 4);
    let address = json(&ask(
        "inspect",
        &shared(&server),
        &["--json", "--address", "127.0.0.1"],
        b"",
    ));
    assert_eq!(address["policies"][0]["limits"][0]["current"], 11);
}

#[test]
fn schema_prints_the_schema_and_nothing_else() {
    let output = binary::command(&["schema"]).output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert_eq!(told(&output), slidegate::config::SCHEMA);
}

/// As `slidegate schema | head` does, which reads no further than it needs.
#[test]
fn who_stops_reading_an_answer_is_no_failure() {
    let (unread, output) = std::io::pipe().expect("a pipe");
    drop(unread);
    let mut command = binary::command(&["schema"]);
    let output = command.stdout(output).output().expect("it ends");
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn an_answer_that_can_not_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = binary::command(&["schema"]);
    let output = command
        .stdout(full.expect("Linux has it"))
        .output()
        .expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        told(&output).contains("writing the schema"),
        "{}",
        told(&output)
    );
}

#[test]
fn forget_says_how_long_proxies_may_still_deny_and_when_there_was_nothing() {
    let server = RedisServer::start();
    let yaml = shared(&server).replace("denial_cache: 0s", "denial_cache: 10s");
    let nothing = ask("forget", &yaml, &[], KEY.as_bytes());
    assert_eq!(nothing.status.code(), Some(0), "{}", told(&nothing));
    assert!(
        told(&nothing).contains("Nothing is counted"),
        "{}",
        told(&nothing)
    );

    let identifier = json(&ask("inspect", &yaml, &["--json"], KEY.as_bytes()));
    let (name, now) = (
        &identifier["identifier"],
        &identifier["policies"][0]["limits"][0]["now_ms"],
    );
    let (name, now) = (
        name.as_str().expect("text"),
        now.as_u64().expect("a moment"),
    );
    let window = 366 * 86_400;
    let counter = format!(
        "rl:{{default:per-key:{name}}}:{window}:{}",
        now / 1000 / window
    );
    let () = server.client().set(&counter, 3).expect("set");
    let deleted = ask("forget", &yaml, &["--policy", "per-key"], KEY.as_bytes());
    let expected = "Deleted. Proxies may deny this client for up to 10s more (store.denial_cache)";
    assert!(told(&deleted).contains(expected), "{}", told(&deleted));
    let left: bool = server.client().exists(&counter).expect("exists");
    assert!(!left);
}

#[test]
fn what_can_not_be_asked_is_told_with_exit_code_2() {
    let server = RedisServer::start();
    let too_long = "k".repeat(8 * 1024 + 1);
    let cases: [(&[&str], &str, &str); 11] = [
        (
            &["--policy", "per-kye"],
            KEY,
            "found \"per-kye\", and the configuration has per-key, per-ip",
        ),
        (
            &["--policy", "per-ip"],
            KEY,
            "per-ip counts nobody by key, by address only",
        ),
        (
            &["--policy", "per-key", "--address", "192.0.2.7"],
            "",
            "per-key counts nobody by address, by key only",
        ),
        (
            &["--policy", "per-key", "--identifier", "192.0.2.7"],
            "",
            "nobody by address",
        ),
        (&[], "", "standard input: holds no key"),
        (&[], "\n", "standard input: holds no key"),
        (&[], "Bearer \n", "standard input: holds no key"),
        (&[], &too_long, "at most 8192 bytes"),
        (
            &["--key-file", "/nowhere/key"],
            "",
            "/nowhere/key: cannot be read",
        ),
        (
            &["--identifier", "2001:DB8::"],
            "",
            "exactly as it stands in logs",
        ),
        (
            &["--address", "192.0.2.7", "--key-file", "-"],
            "",
            "cannot be used with",
        ),
    ];
    for command in ["inspect", "forget"] {
        for (arguments, input, expected) in &cases {
            let output = ask(command, &shared(&server), arguments, input.as_bytes());
            assert_eq!(output.status.code(), Some(2), "{}", told(&output));
            assert!(told(&output).contains(expected), "{}", told(&output));
        }
    }
    let most = "k".repeat(8 * 1024) + "\r\n";
    json(&ask(
        "inspect",
        &shared(&server),
        &["--json"],
        most.as_bytes(),
    ));
}

#[test]
fn who_is_counted_by_several_sources_together_is_found_by_hash_and_not_by_key() {
    let server = RedisServer::start();
    let yaml =
        shared(&server).replace("[header:x-api-key]", "[[header:x-api-key, path], cookie:s]");
    let by_key = ask("inspect", &yaml, &["--policy", "per-key"], KEY.as_bytes());
    assert_eq!(by_key.status.code(), Some(2), "{}", told(&by_key));
    for expected in [
        "--policy: per-key counts nobody by key, by hash only",
        "give --identifier",
    ] {
        assert!(told(&by_key).contains(expected), "{}", told(&by_key));
    }
    let any = ask("inspect", &yaml, &[], KEY.as_bytes());
    assert_eq!(any.status.code(), Some(2), "{}", told(&any));
    let hash = ["--json", "--identifier", "3-dUaRiDLoMU7MMahBGKfw"];
    let by_hash = json(&ask("inspect", &yaml, &hash, b""));
    assert_eq!(by_hash["policies"][0]["policy"], "per-key");
    assert_eq!(by_hash["policies"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_address_of_a_group_names_the_group_as_an_identifier_too() {
    let server = RedisServer::start();
    for option in ["--identifier", "--address"] {
        let arguments = ["--json", option, "2001:db8::7"];
        let held = json(&ask("inspect", &shared(&server), &arguments, b""));
        assert_eq!(held["identifier"], "2001:db8::", "{option}");
    }
}

#[test]
fn an_identifier_that_begins_with_a_hyphen_is_taken_as_any_other() {
    let server = RedisServer::start();
    let identifier = "-XBrtHW74zXSe_4a6AolUw";
    for arguments in [
        vec!["--json", "--identifier", identifier],
        vec!["--identifier", identifier, "--json", "--policy", "per-key"],
    ] {
        let held = json(&ask("inspect", &shared(&server), &arguments, b""));
        assert_eq!(held["identifier"], identifier);
    }
    let none = ask(
        "inspect",
        &shared(&server),
        &["--identifier", "--json"],
        b"",
    );
    assert_eq!(none.status.code(), Some(2), "{}", told(&none));
}

#[test]
fn counters_in_memory_and_a_redis_that_is_away_are_told_with_exit_code_1() {
    let memory = format!("upstream: {{address: '127.0.0.1:9'}}\n{POLICIES}");
    let absent = RedisServer::absent();
    for (yaml, parts) in [
        (
            memory,
            ["counters are in memory", "hint: if the proxies take"],
        ),
        (
            shared(&absent),
            ["the store is not connected", "Connection refused"],
        ),
    ] {
        // At once, since each waits some seconds for a Redis.
        let ask = &|command| ask(command, &yaml, &[], KEY.as_bytes());
        let outputs = std::thread::scope(|scope| {
            ["inspect", "forget"]
                .map(|command| scope.spawn(move || ask(command)))
                .map(|asked| asked.join().expect("no panic"))
        });
        for output in outputs {
            assert_eq!(output.status.code(), Some(1), "{}", told(&output));
            assert!(output.stdout.is_empty());
            for part in parts {
                assert!(told(&output).contains(part), "{}", told(&output));
            }
        }
    }
}

#[tokio::test]
async fn of_a_cluster_it_is_told_why_a_slot_can_not_be_reached_and_the_others_can_be_asked() {
    let mut cluster = Cluster::start(3, 0).await;
    cluster.bear_gaps();
    let slot = |policy: &str| cluster.slot(&demand(policy, 7, "5/366d"));
    let on = |server| {
        let mut names = (0..).map(|number| format!("p{number}"));
        let found = names.find(|name| cluster.owner(slot(name)) == server);
        found.expect("one of very many")
    };
    let (moving, gone) = (on(1), on(2));
    let yaml = format!(
        "upstream: {{address: '127.0.0.1:9'}}\n\
         store: {{{}, namespace: test}}\n\
         policies: [{{name: {moving}, limits: [5/366d]}}, {{name: {gone}, limits: [5/366d]}}]",
        cluster.section()
    );
    let inspect = |more: &[&str]| {
        let of = [&["--address", "192.0.2.7"][..], more].concat();
        ask("inspect", &yaml, &of, &[])
    };
    let fails = |output: &Output, parts: [&str; 2]| {
        assert_eq!(output.status.code(), Some(1), "{}", told(output));
        assert!(output.stdout.is_empty(), "{}", told(output));
        for part in parts {
            assert!(told(output).contains(part), "{}", told(output));
        }
    };
    assert_eq!(inspect(&[]).status.code(), Some(0));

    let number = slot(&moving);
    cluster.begin_move(number, 1, 0);
    let only = ["--policy", &moving];
    fails(
        &inspect(&only),
        ["TRYAGAIN", "is being moved to another server"],
    );
    cluster.end_move(number, 1, 0);
    assert_eq!(inspect(&only).status.code(), Some(0));

    cluster.servers[2].kill();
    let away = format!("127.0.0.1:{}", cluster.servers[2].port());
    fails(&inspect(&[]), ["the store is not connected", &away]);
    assert_eq!(inspect(&only).status.code(), Some(0));

    // It has the slot by what the others say, and not by its own.
    let number = number.to_string();
    cluster::ask::<String>(&cluster.servers[0], &["DELSLOTS", &number]).expect("OK");
    fails(
        &inspect(&only),
        ["CLUSTERDOWN", "try again when it is whole"],
    );
}

/// Whether what TLS computes with has been chosen shows only in a process of its own.
#[test]
fn a_redis_behind_tls_is_reached_as_a_proxy_reaches_it() {
    let authority = Authority::new();
    let shown = authority.certify("server", "IP:127.0.0.1");
    let ca = authority.certificate();
    let server = RedisServer::start_with(&[
        "--tls-cert-file",
        text(&shown.certificate),
        "--tls-key-file",
        text(&shown.key),
        "--tls-ca-cert-file",
        text(&ca),
        "--tls-auth-clients",
        "no",
    ]);
    let url = format!("'{}'", server.url());
    let tls = format!(
        "'{}', tls: {{ca: {}}}",
        server.url().replace("redis:", "rediss:"),
        ca.display()
    );
    let yaml = shared(&server).replace(&url, &tls);
    let held = json(&ask("inspect", &yaml, &["--json"], KEY.as_bytes()));
    assert_eq!(held["policies"][0]["limits"][0]["current"], 0);
}
