//! `replay`: recorded traffic is read whole, and decided on as by the proxy.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use slidegate::{
    policy::{ClientRule, IdentifierHasher, Policy, PolicySet},
    ratelimit::{Algorithm, Limit},
    replay::{
        self, Format, Identifiers, Reading, Reason, Record, Replay, Report, Rule, RuleReport,
        Wrapper,
    },
};

fn log(name: &str) -> PathBuf {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    logs.join(name)
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
    let rules = Rule::compared(&set(Rule::Exact));
    let rules = rules.into_iter().map(|rule| (rule, set(rule))).collect();
    let (mut replay, mut reading) = (
        Replay::new(ClientRule::default(), rules),
        Reading::default(),
    );
    let each = &mut |record: &Record| replay.decide(record);
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
            for (rule, expected) in [(COUNTER, counter), (Rule::Exact, exact), (FIXED, fixed)] {
                let expected = expected.iter().chain(&none).nth(place);
                let denied = by(&report, rule).denied;
                assert_eq!(Some(&denied), expected, "{name}, {quota}, {}", rule.name());
            }
            let exact = by(&report, Rule::Exact);
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
        for rule in [COUNTER, Rule::Exact, FIXED] {
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
    assert_eq!(by(&report, Rule::Exact).denied, 59);
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
    assert_eq!(by(&report, Rule::Exact).denied, 0);
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
