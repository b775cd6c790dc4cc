//! What a request costs beside many others' policies.

use std::{fs, path::PathBuf, thread, time::Duration};

use slidegate::policy::IdentifierHasher;
use tempfile::TempDir;

use super::{
    compare::{CLIENTS, Comparison, ask, others, spent},
    load::{HOST, Load, PATH, Plan},
    report::{Bound, Report},
    scenarios::{Scale, mix},
    support::{binary::Binary, nginx::Nginx},
    system,
};

/// 1,000 policies, one of which is for the request, against that one alone.
pub fn crowd(scale: &Scale, report: &mut Report) {
    for (what, condition) in [
        ("1,000 policies by host", by_host as Condition),
        ("1,000 policies by path", by_path),
    ] {
        let [few, many] = [0, OTHERS].map(|others| policies(others, condition));
        compare(what, &few, &many, scale, report);
    }
    let (few, many) = (List::of(CLIENTS), List::of(CONSUMERS));
    let what = "100,000 consumers against 1,000";
    compare(what, &few.policies(0), &many.policies(0), scale, report);
    reload(&many, report);
}

/// The file that lists so many consumers, the first of whom are those that ask.
struct List {
    folder: TempDir,
}

impl List {
    fn of(consumers: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let list = Self { folder };
        list.write(consumers);
        list
    }

    fn write(&self, consumers: u64) {
        let hasher = IdentifierHasher::new(Some(SECRET), 64);
        let mut text = "consumers:\n".to_owned();
        for number in 0..consumers {
            let key = format!("{:016x}", mix(number));
            let hash = hasher.api_key(key.as_bytes()).expect("short");
            let hash = hash.expect("not empty");
            text += &format!("- {{name: c{number}, plan: gold, keys: [\"{hash}\"]}}\n");
        }
        fs::write(self.path(), text).expect("the list is written");
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("consumers.yaml")
    }

    /// Policies that count consumers, beside so many others.
    fn policies(&self, others: usize) -> String {
        let file = self.path();
        let identity = format!(
            "identity: {{secret: {SECRET}, consumers: {{file: \"{}\"}}}}\n",
            file.display()
        );
        let text = identity + &policies(others, by_host);
        text.replace("limits: [", "plans: {gold: [2000000/1m]}, limits: [")
    }
}

/// A reload of 1,000 policies and 100,000 consumers while requests go on.
fn reload(list: &List, report: &mut Report) {
    let nginx = Nginx::start();
    let gate = Binary::start(&format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"memory:\"}}\nlog: {{level: warn}}\n{}",
        nginx.address,
        list.policies(OTHERS)
    ));
    let load = |target| {
        Load::start(Plan {
            targets: vec![target],
            connections: 64,
            rate: Some(1_000),
            requests: u64::MAX,
            identifier: |number| mix(number % CLIENTS),
        })
    };
    let (through, straight) = (load(gate.proxy), load(nginx.address));
    thread::sleep(Duration::from_secs(3));
    let mut reloads = Vec::new();
    let mut longest = Duration::ZERO;
    for round in 1..=RELOADS {
        list.write(CONSUMERS + round);
        let asked = through.age();
        system::reload(&gate);
        longest = longest.max(through.age() - asked);
        reloads.push(asked..through.age());
        thread::sleep(Duration::from_secs(1));
    }
    let (through, straight) = (through.end(), straight.end());
    let mut add = |what: &str, value, unit, bound| report.add("crowd", what, value, unit, bound);
    let others = through.count() - through.with(200..201);
    add(
        "reloads of 1,000 policies and 100,000 consumers, at 1,000/s",
        RELOADS as f64,
        "",
        Bound::None,
    );
    add(
        "  answers other than 200",
        others as f64,
        "",
        Bound::Exactly(0.0),
    );
    let seconds = longest.as_secs_f64();
    add("  longest, from SIGHUP to force", seconds, "s", Bound::None);
    let (during, machine) = (through.latencies(&reloads), straight.latencies(&reloads));
    add(
        "  p99 straight to nginx meanwhile",
        machine.percentile(99),
        "ms",
        Bound::None,
    );
    add(
        "  added at p99: beyond straight to nginx",
        during.percentile(99) - machine.percentile(99),
        "ms",
        Bound::AtMost(25.0),
    );
    add(
        "  slowest answer",
        during.percentile(100),
        "ms",
        Bound::None,
    );
}

/// Compares two configurations, which should cost a request the same: of policies, or of anything else that may
/// be many.
fn compare(what: &str, few: &str, many: &str, scale: &Scale, report: &mut Report) {
    let nginx = Nginx::start();
    let gates = [few, few, many].map(|policies| {
        Binary::start(&format!(
            "upstream: {{address: \"{}\"}}\nstore: {{url: \"memory:\"}}\nlog: {{level: warn}}\n{policies}",
            nginx.address
        ))
    });
    let found = Comparison::of(&gates, scale, |gate| {
        let (spent, answers) = spent(gate.child.id(), || ask(gate, scale));
        (spent, others(&answers))
    });
    found.tell("crowd", what, "with one", Bound::AtMost(5.0), report);
}

/// The policy for the request of [`Load`], and so many others before and behind it.
fn policies(others: usize, condition: Condition) -> String {
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

/// Writes the condition of another policy, or of the one that matches.
type Condition = fn(Option<usize>) -> String;

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

const OTHERS: usize = 999;

const CONSUMERS: u64 = 100_000;

const SECRET: &str = "soak";

const RELOADS: u64 = 3;
