//! `bounds`: what clients may take of connections, heads and bodies.

use std::time::Duration;

use crate::{
    config::{duration::duration, leaf::integer, section::Section, size::size},
    proxy::RequestBounds,
    server::{Bounds, CensusSettings},
};

/// Those of each connection, of each request, and of how many connections there are.
pub fn read(section: &mut Section<'_>) -> (Bounds, RequestBounds, CensusSettings) {
    let seconds = |least, most| duration(Duration::from_secs(least)..=Duration::from_secs(most));
    let (each, all) = (Bounds::default(), CensusSettings::default());
    let header_timeout = section.word(
        "header_timeout",
        each.header_timeout,
        duration(Duration::from_millis(100)..=Duration::from_secs(3600)),
    );
    let idle_timeout = section.word("idle_timeout", each.idle_timeout, seconds(1, 86_400));
    let body_timeout = section.word(
        "body_timeout",
        each.body_timeout,
        duration(Duration::from_millis(100)..=Duration::from_secs(86_400)),
    );
    // Pingora reads no more of a head.
    let max_header_size = section.word(
        "max_header_size",
        each.max_header_size as u64,
        size(1 << 10..=1 << 20),
    );
    let max_headers = section.word("max_headers", 100, integer(1..=256));
    let max_body_size = section.word("max_body_size", 1 << 30, size(0..=1 << 40));
    let requests_per_connection = section.word(
        "requests_per_connection",
        10_000,
        integer(1..=1_000_000_000),
    );
    let connections = section.word("connections", all.connections, integer(1..=1_000_000));
    let connections_per_address = section.word(
        "connections_per_address",
        all.connections_per_address,
        integer(1..=1_000_000),
    );
    let reaches_all = connections_per_address as usize > connections;
    if section.has("connections_per_address") && reaches_all {
        let problem = "has no effect: there are no more connections in all";
        section.conflict(
            "connections_per_address",
            problem,
            Some("connections says how many there are"),
        );
    }
    let max_header_size = usize::try_from(max_header_size).expect("at most 1 MiB");
    let bounds = Bounds {
        header_timeout,
        max_header_size,
        idle_timeout,
        body_timeout,
    };
    let requests = RequestBounds {
        body_timeout,
        max_header_size,
        max_headers,
        max_body_size,
        requests_per_connection,
    };
    let census = CensusSettings {
        connections,
        connections_per_address,
    };
    (bounds, requests, census)
}
