//! `replay`: recorded traffic is read whole, and decided on as by the proxy.

use std::{
    collections::HashMap,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};

use serde_json::Value;
use slidegate::{
    policy::{Client, ClientRule, IdentifierHasher, Policy, PolicySet},
    ratelimit::{Algorithm, Limit},
    replay::{
        self, Format, Identifiers, Reading, Reason, Record, Replay, Report, Rule, RuleReport,
        Wrapper,
    },
    store::{At, Demand},
};

use crate::support::{binary, demand::*, random::Random, redis::RedisServer, snapshot::agrees};

fn log(name: &str) -> PathBuf {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    logs.join(name)
}

/// Runs the command with this on standard input.
fn replay(arguments: &[&str], input: &[u8]) -> Output {
    let arguments = [&["replay"], arguments].concat();
    let mut child = binary::command(&arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // It may have refused before it read.
    drop(child.stdin.take().expect("it is piped").write_all(input));
    child.wait_with_output().expect("it ends")
}

/// What was written, with a mark before what was written as an error.
fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    match error.is_empty() {
        true => out,
        false => format!("{out}[{:?}] {error}", output.status.code()),
    }
}

/// What a log holds, and every request of it.
fn read(name: &str) -> (Reading, Vec<Record>) {
    let file = File::open(log(name)).expect(name);
    let (mut reading, mut records) = (Reading::default(), Vec::new());
    let each = &mut |record: &Record| records.push(record.clone());
    replay::read(name, file, &mut reading, each).expect(name);
    (reading, records)
}

#[test]
fn every_line_of_recorded_logs_is_read_or_counted() {
    for (name, formats, not_http, unreadable, clients) in [
        (
            "nasa_aug95.common.log",
            &[(Format::Common, 9_999)][..],
            0,
            &[][..],
            853,
        ),
        (
            "blog_may15.combined.log",
            &[(Format::Combined, 10_000)],
            0,
            &[],
            1_753,
        ),
        (
            "shop_jan19.combined.log",
            &[(Format::Combined, 1_000)],
            0,
            &[],
            101,
        ),
        (
            "noise.combined.log",
            &[(Format::Combined, 1_000)],
            46,
            &[],
            228,
        ),
        (
            "scan.traefik.json.log",
            &[(Format::TraefikJson, 80)],
            0,
            &[],
            1,
        ),
        (
            "mixed.caddy.json.log",
            &[(Format::CaddyJson, 10)],
            0,
            &[(Reason::NoRequest, 1), (Reason::Empty, 1)],
            2,
        ),
        (
            "mixed.envoy.cri.log",
            &[(Format::EnvoyText, 4), (Format::EnvoyJson, 6)],
            0,
            &[],
            7,
        ),
    ] {
        let (reading, records) = read(name);
        let found: Vec<_> = reading.formats.into_iter().collect();
        assert_eq!(found, formats, "{name}");
        let unread: Vec<_> = reading.unreadable.into_iter().collect();
        assert_eq!(unread, unreadable, "{name}");
        assert_eq!(reading.requests, records.len() as u64, "{name}");
        assert_eq!(reading.not_http, not_http, "{name}");
        let mut addresses: Vec<_> = records
            .iter()
            .map(|record| record.client.to_string())
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), clients, "{name}");
        let wrapped = if name.contains("cri") { 10 } else { 0 };
        let wrapped_found = reading.wrappers.get(&Wrapper::Cri).copied();
        assert_eq!(wrapped_found.unwrap_or_default(), wrapped, "{name}");
    }
}

/// What a log says that these limits, of one policy for each address, would have done.
fn replayed(name: &str, log: impl std::io::Read, limits: &[&str]) -> Report {
    let limits: Vec<Limit> = limits
        .iter()
        .map(|limit| limit.parse().expect(limit))
        .collect();
    let hasher = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
    let set = |rule: Rule| {
        let policy = Policy::of_addresses("client_ip", &limits);
        let policy = match rule {
            Rule::By(algorithm) => policy.deciding_by(algorithm),
            _ => policy,
        };
        Arc::new(PolicySet::new(vec![policy], hasher.clone()))
    };
    let rules = Rule::compared(&set(Rule::Configured));
    let rules = rules.into_iter().map(|rule| (rule, set(rule))).collect();
    let (mut replay, mut reading) = (
        Replay::new(ClientRule::default(), rules),
        Reading::default(),
    );
    let each = &mut |record: &Record| {
        replay.decide(record);
    };
    replay::read(name, log, &mut reading, each).expect(name);
    let identifiers = Identifiers {
        hasher: &hasher,
        show: true,
    };
    Report::new(&reading, &replay, identifiers)
}

fn by(report: &Report, rule: Rule) -> RuleReport {
    report.limits[0].algorithms[rule.name()]
}

const COUNTER: Rule = Rule::By(Algorithm::SlidingWindowCounter);
const EXACT: Rule = Rule::By(Algorithm::SlidingLog);
const FIXED: Rule = Rule::By(Algorithm::FixedWindow);

/// Computed by others, before there was a replay: requests denied at 5, 10, 30, 60 and 120 in a minute.
#[test]
fn each_algorithm_denies_of_recorded_traffic_what_it_is_known_to() {
    let none = [0; 2];
    for (name, counter, exact, fixed) in [
        (
            "nasa_aug95.common.log",
            [1477, 175, 0],
            [1862, 275, 0],
            [1221, 141, 0],
        ),
        (
            "shop_jan19.combined.log",
            [635, 447, 78],
            [652, 474, 110],
            [603, 402, 50],
        ),
        (
            "noise.combined.log",
            [393, 239, 13],
            [395, 249, 13],
            [378, 230, 13],
        ),
    ] {
        for (place, quota) in [5, 10, 30, 60, 120].into_iter().enumerate() {
            let file = File::open(log(name)).expect(name);
            let report = replayed(name, file, &[&format!("{quota}/1m")]);
            for (rule, expected) in [(COUNTER, counter), (EXACT, exact), (FIXED, fixed)] {
                let expected = expected.iter().chain(&none).nth(place);
                let denied = by(&report, rule).denied;
                assert_eq!(Some(&denied), expected, "{name}, {quota}, {}", rule.name());
            }
            let exact = by(&report, EXACT);
            let wrong = (exact.false_allows, exact.false_denials, exact.max_excess);
            assert_eq!(wrong, (0, 0, 0), "{name}: an exact log is never wrong");
        }
    }
    for (quota, denied) in [(5, 3083), (10, 1729), (30, 456), (60, 87), (120, 0)] {
        let name = "blog_may15.combined.log";
        let report = replayed(
            name,
            File::open(log(name)).expect(name),
            &[&format!("{quota}/1m")],
        );
        for rule in [COUNTER, EXACT, FIXED] {
            assert_eq!(by(&report, rule).denied, denied, "{quota}");
        }
    }
}

/// A log of requests of one client: at this second past noon, so many.
fn constructed(requests: &[(u32, usize)]) -> String {
    let line = |second: u32| {
        let (minute, second) = (second / 60, second % 60);
        format!(
            "10.0.0.1 - - [01/Jan/2026:12:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 1\n"
        )
    };
    let lines = requests
        .iter()
        .map(|(second, many)| line(*second).repeat(*many));
    lines.collect()
}

#[test]
fn twice_the_limit_in_a_window_is_told_exactly() {
    // Ten at the end of a minute; in the next one as many as the estimate lets through, one after the other.
    let mut requests = vec![(59, 10)];
    requests.extend((60..=118).map(|second| (second, 1)));
    let report = replayed("a.log", constructed(&requests).as_bytes(), &["10/1m"]);
    let fixed = by(&report, FIXED);
    // In 60 seconds from 59 on: ten, and ten.
    assert_eq!((fixed.max_excess, fixed.denied), (10, 49));
    assert_eq!((fixed.false_allows, fixed.false_denials), (10, 0));
    let counter = by(&report, COUNTER);
    // The counter lets a unit in whenever six seconds have taken one out of its estimate: the first at 61, and the tenth at
    // 115, when the ten of 59 are still in the window.
    assert_eq!((counter.max_excess, counter.denied), (10, 49));
    assert_eq!((counter.false_allows, counter.false_denials), (10, 0));
    assert_eq!(by(&report, EXACT).denied, 59);
    let worst = &report.limits[0].worst;
    assert_eq!(worst.len(), 1);
    assert_eq!(
        (&*worst[0].identifier, worst[0].requests, worst[0].denied),
        ("10.0.0.1", 69, 49)
    );
}

#[test]
fn a_denial_of_whom_the_exact_count_says_nothing_against_is_told_exactly() {
    // All ten in the first second of a minute; 61 seconds later none counts, and the estimate has nearly all.
    let requests = [(0, 10), (61, 5)];
    let report = replayed("a.log", constructed(&requests).as_bytes(), &["10/1m"]);
    let counter = by(&report, COUNTER);
    assert_eq!((counter.denied, counter.false_denials), (4, 4));
    assert_eq!((counter.false_allows, counter.max_excess), (0, 0));
    assert_eq!(by(&report, FIXED).denied, 0);
    assert_eq!(by(&report, EXACT).denied, 0);
}

#[test]
fn a_request_that_one_limit_denies_is_charged_to_none() {
    let requests: Vec<_> = (0..120).map(|second| (second, 1)).collect();
    let report = replayed(
        "a.log",
        constructed(&requests).as_bytes(),
        &["1/10s", "7/1m"],
    );
    let names = report
        .limits
        .iter()
        .map(|limit| (&*limit.name, &*limit.limit));
    let names: Vec<_> = names.collect();
    assert_eq!(
        names,
        [("client_ip-10s", "1/10s"), ("client_ip-1m", "7/1m")]
    );
    let minute = report.limits[1].algorithms["fixed_window"];
    assert_eq!(
        minute.denied, 0,
        "six windows of ten seconds let six through, and charge no more"
    );
    assert_eq!(report.requests["fixed_window"].denied, 108);
    assert_eq!(report.requests["fixed_window"].passed, 12);
}

/// Where time goes back by more than two windows, what was counted then is still known.
#[test]
fn a_request_is_decided_at_its_own_stamp_also_where_stamps_go_back() {
    let requests = [(0, 3), (600, 3), (0, 1), (599, 1), (601, 1)];
    let report = replayed("a.log", constructed(&requests).as_bytes(), &["3/1m"]);
    assert_eq!(by(&report, FIXED).denied, 2, "at 0 and at 601, not at 599");
    assert_eq!(report.logs.out_of_order, 2);
    assert_eq!(report.logs.out_of_order_by_ms, 600_000);
}

#[test]
fn stamps_of_several_zones_are_of_one_time() {
    let line = |stamp: &str| format!("10.0.0.1 - - [{stamp}] \"GET / HTTP/1.1\" 200 1\r\n");
    let log = [
        "01/Jan/2026:12:00:00 +0000",
        "01/Jan/2026:15:30:01 +0330",
        "01/Jan/2026:07:00:02 -0500",
        "2026-01-01T13:00:03+01:00",
        "01/Jan/2026:12:01:00 +0000",
    ]
    .map(line);
    let report = replayed("a.log", log.concat().as_bytes(), &["2/1m"]);
    assert_eq!(by(&report, FIXED).denied, 2, "the third and the fourth");
    assert_eq!(by(&report, EXACT).denied, 2);
    assert_eq!(report.logs.out_of_order, 0);
}

/// By itself: what a sliding log is to decide of requests that cost as much, several limits at once.
fn denied_exactly(requests: &[(u64, u64)], cost: u64, limits: &[(u64, u64)]) -> u64 {
    let (mut denied, mut kept) = (0, vec![HashMap::<u64, Vec<u64>>::new(); limits.len()]);
    for &(who, at) in requests {
        let mut fits = true;
        for ((quota, window), kept) in limits.iter().zip(&mut kept) {
            let moments = kept.entry(who).or_default();
            moments.retain(|moment| moment + window > at);
            fits &= (moments.len() as u64 + 1) * cost <= *quota;
        }
        if fits {
            kept.iter_mut()
                .for_each(|kept| kept.entry(who).or_default().push(at));
        }
        denied += u64::from(!fits);
    }
    denied
}

#[test]
fn the_sliding_log_is_exact_of_several_limits_and_costs_where_stamps_go_back_and_above_its_largest()
{
    for (seed, cost, limits, named) in [
        (1, 1, &[(4, 10), (9, 60)][..], "4/10s, 9/1m"),
        (2, 3, &[(14, 10), (31, 60)], "14/10s, 31/1m"),
        (3, 700, &[(12_000, 60)], "12000/1m"),
    ] {
        let config = binary::file(&format!(
            "upstream: {{address: '127.0.0.1:9'}}\n\
             policies: [{{name: p, limits: [{named}], cost: {cost}}}]\n"
        ));
        let (mut random, mut now) = (Random::new(seed), 100);
        let requests = std::iter::repeat_with(|| {
            now += random.below(2);
            let back = random.one_of(&[0, 0, 0, 0, 0, 20, 70]);
            (1 + random.below(2), now - back)
        });
        let requests: Vec<_> = requests.take(600).collect();
        let lines = requests.iter().map(|(who, at)| {
            let (minute, second) = (at / 60, at % 60);
            format!(
                "10.0.0.{who} - - [01/Jan/2026:12:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 1\n"
            )
        });
        let arguments = ["--json", "--config", binary::text(config.path()), "-"];
        let output = replay(&arguments, lines.collect::<String>().as_bytes());
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)));
        let denied = denied_exactly(&requests, cost, limits);
        assert!((50..550).contains(&denied), "{denied} is no test");
        assert_eq!(
            report["requests"]["sliding_log"]["denied"], denied,
            "{named}"
        );
        for limit in report["limits"].as_array().expect("a list") {
            let log = &limit["algorithms"]["sliding_log"];
            for wrong in ["false_allows", "false_denials", "max_excess"] {
                assert_eq!(log[wrong], 0, "{named}: {wrong}");
            }
            let beyond = (limits[0].0 > 10_000).then_some(10_000);
            assert_eq!(log["beyond_max_quota"].as_u64(), beyond, "{named}");
        }
    }
}

#[test]
fn a_person_is_told_where_no_configuration_takes_the_exact_algorithm() {
    let told = told(&replay(&["--limit", "10001/1m", SHOP], b""));
    let note = "no configuration takes sliding_log above 10000 units";
    assert_eq!(told.matches(note).count(), 1, "{told}");
}

/// A log of so many clients, each with so many requests at noon and as many a minute later.
fn crowd(clients: u32, requests: usize) -> String {
    let mut log = String::new();
    for minute in 0..2 {
        for client in 0..clients {
            let (high, low) = (client >> 8, client & 255);
            let line = format!(
                "10.0.{high}.{low} - - [01/Jan/2026:12:0{minute}:00 +0000] \"GET / HTTP/1.1\" 200 1\n"
            );
            log.push_str(&line.repeat(requests));
        }
    }
    log
}

/// Charges Redis with what a log tells, and tells by how much its memory has grown.
async fn grown(log: &str, limit: &str, algorithm: Algorithm) -> u64 {
    let server = RedisServer::start();
    let store = server.store();
    // One for both: each takes memory of its own.
    let mut connection = server.client();
    let mut used = || -> u64 {
        let info = redis::cmd("INFO").arg("memory").query(&mut connection);
        let info: redis::InfoDict = info.expect("an answer");
        let number = |name| -> u64 { info.get(name).expect("a number") };
        // What its connections have is none of the keys', and grows with what waits in them.
        number("used_memory") - number("mem_clients_normal")
    };
    let hasher = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
    let mut demands = Vec::new();
    let each = &mut |record: &Record| {
        let Client::Address(address) = record.client else {
            panic!("{record:?} has no address")
        };
        // As long in a key as those are that the estimate is for.
        let hashed = hasher.api_key(address.to_string().as_bytes());
        let identifier = hashed.expect("short").expect("not empty");
        let demand = Demand {
            identifier,
            algorithm,
            ..demand("client_ip", 0, limit)
        };
        demands.push((record.at, group(&[demand])));
    };
    replay::read("a.log", log.as_bytes(), &mut Reading::default(), each).expect("in memory");
    // By now the scripts are loaded, and connections are open.
    take(&store, demand("warm", 0, limit), At::Now).await;
    let before = used();
    for calls in demands.chunk_by(|one, next| one.0 == next.0) {
        for groups in calls.chunks(100) {
            let groups: Vec<_> = groups.iter().map(|(_, group)| group.clone()).collect();
            let replies = store.take(&groups, At::Stamp(calls[0].0)).await;
            assert!(replies.iter().all(Result::is_ok), "{replies:?}");
        }
    }
    used() - before
}

#[tokio::test]
async fn what_a_limit_is_said_to_hold_in_redis_is_what_it_holds_within_a_quarter() {
    for (clients, requests, limit, algorithms) in [
        // Fewer counters would not be much against the buffers of connections, which come and go.
        (2_000, 3, "2/1m", &Algorithm::ALL[..]),
        (1_000, 25, "60/1m", &Algorithm::ALL),
        (60, 300, "400/1m", &[Algorithm::SlidingLog]),
    ] {
        let log = crowd(clients, requests);
        let report = replayed("a.log", log.as_bytes(), &[limit]);
        for algorithm in algorithms {
            let told = by(&report, Rule::By(*algorithm)).redis_bytes;
            let held = grown(&log, limit, *algorithm).await;
            let name = algorithm.name();
            let within = held.abs_diff(told) * 4 <= held;
            assert!(within, "{limit}, {name}: {told} told, {held} held");
        }
    }
}

const SHOP: &str = "tests/logs/shop_jan19.combined.log";

#[test]
fn a_person_gets_a_table_and_nothing_else_where_it_is_piped() {
    let told = told(&replay(&["--limit", "30/1m", SHOP], b""));
    agrees("tests/snapshots/replay.txt", &told);
}

#[test]
fn a_program_gets_json_alike_from_a_file_and_zipped_from_standard_input() {
    let log = std::fs::read(log("shop_jan19.combined.log")).expect("a log");
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zip.write_all(&log).expect("in memory");
    let zip = zip.finish().expect("in memory");
    let arguments = ["--json", "--limit", "30/1m", "--limit", "60/1h"];
    let json = |file, input: &[u8]| -> Value {
        let output = replay(&[&arguments[..], &[file]].concat(), input);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)))
    };
    let report = json(SHOP, b"");
    assert_eq!(report, json("-", &zip));
    assert_eq!(report["in_force"], "sliding_window_counter");
    for limit in report["limits"].as_array().expect("a list") {
        for rule in ["sliding_window_counter", "fixed_window", "sliding_log"] {
            for key in [
                "denied",
                "false_allows",
                "false_denials",
                "max_excess",
                "redis_bytes",
            ] {
                assert!(limit["algorithms"][rule][key].is_u64(), "{limit}");
            }
        }
    }
}

#[test]
fn addresses_are_shown_where_that_is_asked_for_and_nowhere_else() {
    let arguments = ["--limit", "30/1m", SHOP];
    let hashed = told(&replay(&arguments, b""));
    let shown = told(&replay(&[&arguments[..], &["--show"]].concat(), b""));
    let is_told = |text: &str| text.contains("10.0.0.") || text.contains("2001:db8:");
    assert!(is_told(&shown) && !is_told(&hashed), "{shown}{hashed}");
}

#[test]
fn policies_of_a_configuration_decide_as_they_would_on_the_requests_themselves() {
    let config = binary::file(
        "upstream: {address: '127.0.0.1:9'}\n\
         identity: {trusted_proxies: [10.0.0.0/8]}\n\
         policies:\n\
         - {name: login, match: {path: [/login], method: [POST]}, limits: [1/1m]}\n\
         - {name: by-agent, mode: shadow, identifier: [header:user-agent], algorithm: fixed_window, limits: [2/1m]}\n",
    );
    let line = |request: &str, client: &str| {
        format!(
            "10.0.0.9 - - [01/Jan/2026:12:00:00 +0000] \"{request} HTTP/1.1\" 200 1 \"-\" \"x\" \"{client}\"\n"
        )
    };
    let log = [
        line("POST /login", "203.0.113.1"),
        line("POST /login", "203.0.113.1, 10.0.0.1"),
        line("POST /%6cogin", "203.0.113.2"),
        line("GET /login", "203.0.113.1"),
    ];
    let config = binary::text(config.path()).to_owned();
    let output = replay(
        &["--json", "--config", &config, "--show", "-"],
        log.concat().as_bytes(),
    );
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)));
    assert_eq!(report["in_force"], "configured");
    let limit = |place: usize| &report["limits"][place];
    let login = &limit(0)["algorithms"]["configured"];
    assert_eq!(
        (&limit(0)["requests"], &login["denied"]),
        (&3.into(), &1.into()),
        "{report:#}"
    );
    assert_eq!(limit(0)["worst"][0]["identifier"], "203.0.113.1");
    let agent = &limit(1)["algorithms"]["configured"];
    assert_eq!(
        (&limit(1)["mode"], &agent["denied"]),
        (&"shadow".into(), &2.into())
    );
    assert_eq!(report["requests"]["configured"]["denied"], 1);
}

#[test]
fn what_is_no_log_or_no_limit_is_told_with_what_is_accepted() {
    for (arguments, input, expected) in [
        (
            &["--limit", "5/1m", "-"][..],
            "hello\n\x1b[2Jx\n",
            "standard input: none of its lines tells of a request\n  \
            2 in no known format\n    \
              standard input:1: in no known format: hello\n    \
              standard input:2: in no known format: \\x1b[2Jx\n  \
            hint: accepted are the common and the combined format, ",
        ),
        (
            &["--limit", "5/1m", "nowhere"],
            "",
            "nowhere: cannot be opened: ",
        ),
        (
            &["--limit", "5/1m", "--limit", "6/60s", "-"],
            "",
            "--limit: found 5/1m and 6/1m, and one window has one limit",
        ),
        (
            &["--limit", "5", "-"],
            "",
            "a limit is units, a slash and a window, as in 100/1m",
        ),
        (
            &["--limit", "5/1m", "--config", "config.yaml", "-"],
            "",
            "cannot be used with",
        ),
        (
            &["--limit", "5/1m", "--window", "1h", "-"],
            "",
            "cannot be used with",
        ),
        (&["--suggest", "--show", "-"], "", "cannot be used with"),
        (&["-"], "", "<--config <CONFIG>|--limit <LIMIT>|--suggest>"),
        (&["--limit", "5/1m"], "", "<FILE>..."),
    ] {
        let output = replay(arguments, input.as_bytes());
        let told = told(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
}

#[test]
fn an_empty_log_is_no_error() {
    let zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zipped = zip.finish().expect("in memory");
    for log in [&b""[..], &zipped] {
        let output = replay(&["--limit", "5/1m", "-"], log);
        assert_eq!(
            (told(&output), output.status.code()),
            ("0 requests\n".to_owned(), Some(0))
        );
    }
}

#[test]
fn what_a_suggested_limit_would_have_cost_is_what_replay_says_of_it() {
    for (name, least) in [("shop_jan19.combined.log", 4), ("nasa_aug95.common.log", 3)] {
        let file = format!("tests/logs/{name}");
        let output = replay(&["--suggest", "--json", &file], b"");
        let told: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)));
        let suggestion = &told["suggestions"][0];
        assert_eq!(
            (&suggestion["policy"], &suggestion["window"]),
            (&"client_ip".into(), &"1m".into())
        );
        let candidates = suggestion["candidates"].as_array().expect("a list");
        assert!(candidates.len() >= least, "{suggestion:#}");
        for candidate in candidates {
            let limit = candidate["limit"].as_str().expect("a limit");
            let report = replayed(name, File::open(log(name)).expect(name), &[limit]);
            let counter = by(&report, COUNTER);
            assert_eq!(candidate["denied"], counter.denied, "{name}, {limit}");
            assert_eq!(
                candidate["denied_identifiers"], counter.denied_identifiers,
                "{name}, {limit}"
            );
        }
        let last = candidates.last().expect("one");
        assert_eq!(
            (&last["denied"], &last["peak"]),
            (&0.into(), &suggestion["peak"])
        );
        assert!(
            told["assumptions"]
                .as_array()
                .is_some_and(|all| all.len() > 2)
        );
    }
}

#[test]
fn a_suggestion_knows_the_busiest_window_wherever_it_begins_and_what_a_limit_cuts() {
    let other = constructed(&[(61, 2)]).replace("10.0.0.1", "10.0.0.2");
    let log = constructed(&[(58, 3), (62, 4)]) + &other;
    let output = replay(
        &["--suggest", "--window", "1m", "--json", "-"],
        log.as_bytes(),
    );
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let suggestion = &told["suggestions"][0];
    assert_eq!(
        suggestion["busiest"]["max"], 7,
        "3 and 4, though a minute begins between"
    );
    assert_eq!(suggestion["busiest"]["p50"], 2);
    assert_eq!(suggestion["peak"], 6, "4 and 2 in the second minute");
    let candidates = suggestion["candidates"].as_array().expect("a list");
    let rows: Vec<_> = candidates.iter().map(|row| row.to_string()).collect();
    let row = |limit, identifiers, denied, peak| {
        format!(
            "{{\"denied\":{denied},\"denied_identifiers\":{identifiers},\"limit\":\"{limit}\",\"peak\":{peak}}}"
        )
    };
    // By 2: one of three, and three of four, since two weigh 1.93 then. By 5: 2.9 weigh, and three more may come.
    assert_eq!(
        rows,
        [
            row("2/1m", 1, 4, 3),
            row("5/1m", 1, 1, 5),
            row("10/1m", 0, 0, 6)
        ]
    );
}

#[test]
fn a_person_gets_candidates_with_what_is_assumed() {
    agrees(
        "tests/snapshots/suggest.txt",
        &told(&replay(&["--suggest", SHOP], b"")),
    );
}

/// Whether an XML parser that knows nothing of HTML takes it.
fn is_well_formed(page: &str) -> bool {
    let mut child = Command::new("python3")
        .args([
            "-c",
            "import sys, xml.etree.ElementTree as e; e.parse(sys.stdin.buffer)",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(page.as_bytes()).expect("it reads");
    drop(stdin);
    child.wait().expect("it ends").success()
}

#[test]
fn the_page_needs_nothing_else_and_what_a_log_has_is_nothing_but_text_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (name, line) = (
        "<img src=x onerror=alert(1)>&\"'.log",
        "]]></pre><script>alert('1')</script>&amp;\x1b",
    );
    let (hostile, page) = (folder.path().join(name), folder.path().join("page.html"));
    std::fs::write(
        &hostile,
        format!("{line}\n{}", constructed(&[(0, 5), (30, 9), (61, 9)])),
    )
    .expect("a log");
    std::fs::write(&page, "what was there before").expect("a file");
    let [hostile, path] = [&hostile, &page].map(|path| binary::text(path));
    let output = replay(
        &["--limit", "12/1m", "--show", "--html", path, hostile, SHOP],
        b"",
    );
    assert!(
        told(&output).contains("are denied by sliding_window_counter"),
        "{}",
        told(&output)
    );
    let page = std::fs::read_to_string(path).expect("a page");
    assert!(
        page.starts_with("<!DOCTYPE html>") && is_well_formed(&page),
        "{page}"
    );
    for loads in [
        "http:",
        "https:",
        "<script",
        "<img",
        "<link",
        "src=",
        "href=",
        "url(",
        "@import",
        "what was there",
    ] {
        let may_be = loads == "src=";
        assert_eq!(
            page.matches(loads).count(),
            usize::from(may_be),
            "{loads}: {page}"
        );
    }
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
    assert!(
        page.contains("&lt;img src=x onerror=alert(1)&gt;&amp;&quot;&#39;.log:1: "),
        "{page}"
    );
    assert!(
        page.contains("]]&gt;&lt;/pre&gt;&lt;script&gt;alert("),
        "{page}"
    );
    for title in [
        "Denied over time",
        "How busy identifiers were at their busiest",
        "Estimate against exact count",
        "How often it would be wrong by another limit",
    ] {
        let figure = format!("<h3>{title}</h3>");
        assert_eq!(
            (page.matches(&figure).count(), page.matches(title).count()),
            (1, 2),
            "{title}, and for who does not see it"
        );
    }
    for limit in ["3/1m", "6/1m", "12/1m", "24/1m", "48/1m"] {
        assert!(page.contains(&format!(">{limit}</text>")), "{limit}");
    }
}

#[test]
fn a_page_of_no_requests_or_of_several_policies_is_well_formed_too() {
    let config = binary::file(
        "upstream: {address: '127.0.0.1:9'}\n\
         policies:\n\
         - {name: a, limits: [1/1s, 20/1m]}\n\
         - {name: b, mode: shadow, identifier: [header:user-agent], algorithm: sliding_log, limits: [0/1m]}\n",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    let path = binary::text(&page);
    let config = ["--config", binary::text(config.path())];
    for (limits, log, figures) in [
        (&["--limit", "1/1m"][..], "/dev/null", 0),
        (&config, SHOP, 10),
    ] {
        let output = replay(&[limits, &["--html", path, log]].concat(), b"");
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        let page = std::fs::read_to_string(path).expect("a page");
        assert!(is_well_formed(&page), "{page}");
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        assert_eq!(page.matches("<figure>").count(), figures, "{page}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_an_error_with_its_name() {
    let output = replay(
        &["--limit", "5/1m", "--html", "/nowhere/page.html", SHOP],
        b"",
    );
    assert_eq!(output.status.code(), Some(2));
    let told = told(&output);
    assert!(
        told.contains("--html: /nowhere/page.html: cannot be written: "),
        "{told}"
    );
}

#[test]
fn a_page_never_takes_the_place_of_what_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let [log, link] = ["access.log", "page.html"].map(|name| folder.path().join(name));
    let lines = constructed(&[(0, 3)]);
    std::fs::write(&log, &lines).expect("a log");
    std::os::unix::fs::symlink(&log, &link).expect("a link");
    let log = binary::text(&log);
    let config = binary::file("upstream: {address: '127.0.0.1:9'}\n");
    let config = binary::text(config.path());
    for (page, by) in [
        (log, ["--limit", "5/1m"]),
        (binary::text(&link), ["--limit", "5/1m"]),
        (config, ["--config", config]),
    ] {
        let input = std::fs::File::open(log).expect("a log");
        let output = Command::new(binary::program())
            .arg("replay")
            .args(by)
            .args(["--html", page, SHOP, "-"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(input)
            .output()
            .expect("it runs");
        let told = told(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(
            told.contains(&format!("--html: {page}: is read here")),
            "{told}"
        );
        assert_eq!(std::fs::read_to_string(log).expect("a log"), lines);
    }
}

/// What a person sees who runs this in a terminal.
fn on_a_terminal(command: &str) -> String {
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", command, "/dev/null"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    let seen = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{seen}");
    seen
}

#[test]
fn on_a_terminal_what_is_told_of_progress_is_gone_in_the_end() {
    let run = format!("{} replay --limit 5/1m {SHOP}", binary::program());
    let seen = on_a_terminal(&format!("{run} > /dev/null"));
    assert!(seen.ends_with("\r\x1b[K"), "{seen:?}");
}
