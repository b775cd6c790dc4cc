//! What is replayed: whatever a log holds, each of its lines is a request or is counted, and each request is decided.
//!
//! An input is a log, zipped or not.

use std::{io::Write as _, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use slidegate::{
    policy::{ClientRule, IdentifierHasher, Policy, PolicySet},
    ratelimit::{Algorithm, Limit},
    replay::{self, Identifiers, Reading, Reason, Record, Replay, Report, Rule, Suggesting},
};

/// Panics if a line is lost, if one spoils another, or if a request is not decided.
pub fn check(data: &[u8]) {
    let (records, reading) = read(data);
    check_counts(data, &records, &reading);
    check_decisions(&records, &reading);
    if !data.starts_with(&GZIP) {
        check_zipped(data, &records, &reading);
        check_neighbours(data, &records);
    }
}

fn read(log: &[u8]) -> (Vec<Record>, Reading) {
    let (mut records, mut reading) = (Vec::new(), Reading::default());
    let each = &mut |record: &Record| records.push(record.clone());
    replay::read("a.log", log, &mut reading, each).expect("it is in memory");
    (records, reading)
}

fn check_counts(data: &[u8], records: &[Record], reading: &Reading) {
    assert_eq!(reading.requests, records.len() as u64);
    assert_eq!(reading.requests, reading.formats.values().sum::<u64>());
    assert!(reading.not_http <= reading.requests);
    let unread = reading.unread();
    assert_eq!(
        reading.shown.len(),
        Reading::MOST_SHOWN.min(usize::try_from(unread).unwrap_or(usize::MAX))
    );
    for shown in &reading.shown {
        let is_printable = |byte: u8| (b' '..=b'~').contains(&byte);
        assert!(shown.begins.bytes().all(is_printable), "{shown:?}");
    }
    if data.starts_with(&GZIP) {
        return;
    }
    let lines = data.split(|byte| *byte == b'\n').count();
    // What stands after the last break is no line if it is nothing.
    let lines = (lines - usize::from(data.is_empty() || data.ends_with(b"\n"))) as u64;
    let cut = reading.unreadable.get(&Reason::Cut).copied();
    let told = reading.requests + unread - cut.unwrap_or_default();
    assert!(told <= lines, "{told} of {lines}");
    if !has_parts(data) {
        assert_eq!(told, lines);
    }
}

/// Whether any line may be a part of one, as a container's runtime cuts them.
fn has_parts(data: &[u8]) -> bool {
    let marks = [&b" stdout P"[..], b" stderr P", b"{\"log\":"];
    let mut marks = marks.iter();
    marks.any(|mark| data.windows(mark.len()).any(|window| window == *mark))
}

/// By limits of several windows, each algorithm decides on each request.
fn check_decisions(records: &[Record], reading: &Reading) {
    let hasher = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
    let limits = ["2/1s", "3/1m", "100/30d"].map(|limit| limit.parse::<Limit>().expect(limit));
    let set = |algorithm| {
        let policy = Policy::of_addresses("client_ip", &limits).deciding_by(algorithm);
        Arc::new(PolicySet::new(vec![policy], hasher.clone()))
    };
    let rules = Algorithm::ALL.map(|algorithm| (Rule::By(algorithm), set(algorithm)));
    let mut replay = Replay::new(ClientRule::default(), rules.to_vec());
    let mut suggesting = Suggesting::new(ClientRule::default(), set(Algorithm::default()));
    for record in records {
        replay.decide(record);
        suggesting.see(record);
    }
    let identifiers = Identifiers {
        hasher: &hasher,
        show: false,
    };
    let report = Report::new(reading, &replay, identifiers);
    for outcome in report.requests.values() {
        assert_eq!(outcome.passed + outcome.denied, reading.requests);
    }
    for limit in &report.limits {
        let exact = limit.algorithms[Rule::By(Algorithm::SlidingLog).name()];
        assert_eq!((exact.false_allows, exact.max_excess), (0, 0), "{limit:?}");
    }
    for suggestion in suggesting.suggestions() {
        assert_eq!(suggestion.requests, reading.requests);
        let last = suggestion.candidates.last();
        assert!(last.is_some_and(|last| last.denied == 0), "{suggestion:?}");
    }
}

/// The same log zipped tells the same.
fn check_zipped(data: &[u8], records: &[Record], reading: &Reading) {
    let mut zip = GzEncoder::new(Vec::new(), Compression::fast());
    zip.write_all(data).expect("it is in memory");
    let zipped = zip.finish().expect("it is in memory");
    let (unzipped, again) = read(&zipped);
    assert_eq!(told(&unzipped), told(records));
    assert_eq!(again.unreadable, reading.unreadable);
}

/// A line before and one after are read, and change nothing.
fn check_neighbours(data: &[u8], records: &[Record]) {
    let (around, _) = read(&[LINE, b"\n", data, b"\n", LINE].concat());
    let (line, _) = read(LINE);
    let expected = [told(&line), told(records), told(&line)].concat();
    assert_eq!(told(&around), expected);
}

/// What policies go by.
fn told(records: &[Record]) -> Vec<String> {
    let told = records.iter().map(|record| {
        let Record { at, head, .. } = record;
        let (client, peer, status) = (record.client, record.peer, record.status);
        format!(
            "{at:?} {client} {peer} {status:?} {} {} {:?}",
            head.method, head.uri, head.headers
        )
    });
    told.collect()
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const LINE: &[u8] = b"10.0.0.1 - - [22/Jan/2019:03:56:14 +0330] \"GET /known HTTP/1.1\" 200 1";
