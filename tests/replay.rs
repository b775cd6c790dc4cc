//! `replay`: recorded traffic is read whole, and decided on as by the proxy.

use std::{fs::File, path::Path};

use slidegate::replay::{self, Format, Reading, Reason, Record, Wrapper};

/// What a log holds, and every request of it.
fn read(name: &str) -> (Reading, Vec<Record>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let file = File::open(path.join(name)).expect(name);
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
