//! The table of ratios, each beside what it must be.

use super::{
    report::{Bound, Report, median},
    rounds::{Found, Rounds},
};

/// Adds what every subject takes, then how they compare.
pub fn compare(rounds: &Rounds, report: &mut Report) {
    for found in &rounds.0 {
        alone(found, report);
    }
    for (what, one, other, bound) in SPEEDS {
        if let Some((one, other)) = both(rounds, what, one, other) {
            let mut add = |what: &str, value, bound| report.add("speed", what, value, "", bound);
            add(what, one.speed_against(other), Bound::AboutAtLeast(bound));
            add("  on the clock", one.rate_against(other), Bound::None);
        }
    }
    for (what, one, other, bound) in COSTS {
        if let Some((one, other)) = both(rounds, what, one, other) {
            let cost = other.speed_against(one);
            report.add("cost", what, cost, "", Bound::AboutAtMost(bound));
        }
    }
}

fn both<'a>(
    rounds: &'a Rounds,
    what: &str,
    one: &str,
    other: &str,
) -> Option<(&'a Found, &'a Found)> {
    let found = rounds.of(one).zip(rounds.of(other));
    if found.is_none() {
        println!("{what} is not measured: one of the two is left out");
    }
    found
}

fn alone(found: &Found, report: &mut Report) {
    let mut add = |what: &str, values: &[f64], unit, bound| {
        report.add("alone", what, median(&mut values.to_vec()), unit, bound);
    };
    add(
        &format!("{}: requests per second", found.name),
        &found.rates,
        "/s",
        Bound::None,
    );
    add("  processor of the proxy", &found.proxy, "us", Bound::None);
    if found.store.iter().any(|store| *store > 0.0) {
        add("  processor of Redis", &found.store, "us", Bound::None);
    }
    add("  p50", &found.p50, "ms", Bound::None);
    add("  p99", &found.p99, "ms", Bound::None);
    add(
        "  not answered as was meant",
        &[found.wrong as f64],
        "",
        Bound::Exactly(0.0),
    );
}

/// What is compared with what, and how many times as fast it must be.
const SPEEDS: [(&str, &str, &str, f64); 7] = [
    ("memory, against bare", "memory", "bare", 0.92),
    ("redis on another core, against bare", "redis", "bare", 0.88),
    (
        "redis, against nginx + lua + redis",
        "redis on the proxy's core",
        "nginx + lua + redis",
        1.25,
    ),
    (
        "redis, against traefik + redis",
        "redis on the proxy's core",
        "traefik + redis",
        3.5,
    ),
    (
        "denied by the horizon, against bare admitted",
        "denied, redis and horizon",
        "bare",
        2.3,
    ),
    (
        "denied by memory, against bare admitted",
        "denied, memory",
        "bare",
        2.3,
    ),
    (
        "memory, against envoy's local limit",
        "memory",
        "envoy local limit",
        1.9,
    ),
];

/// What is compared with what, and how many times as much a request may cost.
const COSTS: [(&str, &str, &str, f64); 3] = [
    (
        "memory, 1,000,000 identifiers against 1,000",
        "memory, 1,000,000 identifiers",
        "memory, 1,000 identifiers",
        1.10,
    ),
    (
        "redis, 1,000,000 identifiers against 1,000",
        "redis, 1,000,000 identifiers",
        "redis, 1,000 identifiers",
        1.10,
    ),
    (
        "memory, 1,000 policies against 1",
        "memory, 1,000 policies",
        "memory",
        1.05,
    ),
];
