//! What a request costs beside many others' policies: the proxy's own processor time, not the clock on the wall, of
//! which client and nginx have their part.
//!
//! Three proxies, two with one policy and one with many, are asked the same by turns, for many short rounds, and the
//! middle one of the ratios counts: most of what else the machine does comes and goes slower than that. How far the two
//! are apart is what this measurement can not tell from nothing.

use super::{
    load::{HOST, Load, PATH, Plan},
    report::{Bound, Report},
    scenarios::{Scale, mix},
    support::{binary::Binary, nginx::Nginx},
    system::processor,
};

/// 1,000 policies, one of which is for the request, against that one alone.
pub fn crowd(scale: &Scale, report: &mut Report) {
    let compared = [
        Compared {
            what: "1,000 policies by host",
            few: policies(0, by_host),
            many: policies(OTHERS, by_host),
        },
        Compared {
            what: "1,000 policies by path",
            few: policies(0, by_path),
            many: policies(OTHERS, by_path),
        },
    ];
    for compared in compared {
        compare(&compared, scale, report);
    }
}

/// Two configurations, which should cost a request the same: of policies, or of anything else that may be many.
struct Compared {
    what: &'static str,
    few: String,
    many: String,
}

fn compare(compared: &Compared, scale: &Scale, report: &mut Report) {
    let nginx = Nginx::start();
    let [few, same, many] = [&compared.few, &compared.few, &compared.many].map(|policies| {
        Binary::start(&format!(
            "upstream: {{address: \"{}\"}}\nstore: {{url: \"memory:\"}}\nlog: {{level: warn}}\n{policies}",
            nginx.address
        ))
    });
    // The first requests of a process pay for memory and connections that later ones find.
    for gate in [&few, &same, &many] {
        cost(gate, scale.crowd_requests);
    }
    let (mut costs, mut ratios, mut noise) = (Vec::new(), Vec::new(), Vec::new());
    let mut failed = 0.0;
    for round in 0..scale.crowd_rounds {
        let mut gates = [&few, &same, &many];
        gates.rotate_left(round as usize % 3);
        let mut spent = gates.map(|gate| {
            let (micros, failures) = cost(gate, scale.crowd_requests);
            failed += failures;
            micros
        });
        spent.rotate_right(round as usize % 3);
        let [few, same, many] = spent;
        costs.push(few);
        ratios.push(100.0 * (2.0 * many / (few + same) - 1.0));
        noise.push(100.0 * (same / few - 1.0));
    }

    let mut add = |what: &str, value, unit, bound| report.add("crowd", what, value, unit, bound);
    let requests = scale.crowd_requests * u64::from(scale.crowd_rounds);
    let what = compared.what;
    add(
        &format!("{what}: requests"),
        requests as f64,
        "",
        Bound::None,
    );
    add("  answers other than 200", failed, "", Bound::Exactly(0.0));
    add(
        "  processor time of a request, with one",
        median(&mut costs),
        "us",
        Bound::None,
    );
    add(
        "  added to it, middle of all rounds",
        median(&mut ratios),
        "%",
        Bound::AtMost(5.0),
    );
    add(
        "  the same between two with one",
        median(&mut noise),
        "%",
        Bound::None,
    );
}

/// The processor time of one of so many requests in microseconds, and how many were not answered 200.
fn cost(gate: &Binary, requests: u64) -> (f64, f64) {
    let before = processor(gate);
    let answers = Load::start(Plan {
        targets: vec![gate.proxy],
        connections: 16,
        rate: None,
        requests,
        identifier: |number| mix(number % 1_000),
    })
    .finish();
    let spent = processor(gate) - before;
    let others = answers.count() - answers.with(200..201);
    let micros = spent.as_secs_f64() * 1e6 / answers.count() as f64;
    (micros, others as f64)
}

/// The policy for the request of [`Load`], and so many others before and behind it.
fn policies(others: usize, condition: fn(Option<usize>) -> String) -> String {
    let mut text = "policies:\n".to_owned();
    let half = others / 2;
    let before = (0..half).map(Some);
    let behind = (half..others).map(Some);
    for (place, other) in before.chain([None]).chain(behind).enumerate() {
        text += &format!(
            "- {{name: p{place:04}, match: {{{}}}, identifier: [header:x-api-key], limits: [1000000/1m]}}\n",
            condition(other)
        );
    }
    text
}

/// The condition of another policy, or of the one that matches.
fn by_host(other: Option<usize>) -> String {
    match other {
        Some(number) => format!("host: [app-{number:04}.example.com]"),
        None => format!("host: [{HOST}]"),
    }
}

fn by_path(other: Option<usize>) -> String {
    match other {
        Some(number) => format!("path: [/service-{number:04}/**]"),
        None => format!("path: [{PATH}]"),
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const OTHERS: usize = 999;
