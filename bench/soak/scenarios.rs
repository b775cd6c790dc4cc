//! The scenarios, in the order in which they run.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use slidegate::{
    clock,
    ratelimit::{Decision, Limit},
};

use super::{
    audit::audit,
    bodies::bodies,
    counting::counting,
    crowd::crowd,
    load::{Answers, Load, Plan},
    replay::replay,
    report::{Bound, Report, millis},
    script::script,
    slow_readers::slow_readers,
    slowloris::slowloris,
    support::{
        binary::Binary,
        cluster::Cluster,
        nginx::Nginx,
        oracle,
        redis::{RedisServer, eventually},
        relay::Relay,
        sentinel::Watched,
    },
    system::{
        System, admitted_by_store, by_store, counters, gate, info, keys, resident, unanswered,
        until_all_decide, until_store_decides,
    },
};

type Scenario = fn(&Scale, &mut Report);

pub const ALL: [(&str, Scenario); 15] = [
    ("kill", kill),
    ("stop", stop),
    ("fail-over", fail_over),
    ("one-client", one_client),
    ("nuisances", nuisances),
    ("million", million),
    ("crowd", crowd),
    ("audit", audit),
    ("script", script),
    ("counting", counting),
    ("bodies", bodies),
    ("slowloris", slowloris),
    ("slow-readers", slow_readers),
    ("replay", replay),
    ("flat", flat),
];

/// How long it all takes.
pub struct Scale {
    kills: u32,
    baseline: Duration,
    nuisances: Duration,
    identifiers: u64,
    flat: Duration,
    /// Bytes of a large body.
    pub body: u64,
    /// So many rounds for each proxy of a comparison.
    pub crowd_rounds: u32,
    /// Requests of a round.
    pub crowd_requests: u64,
    /// Lines of a log.
    pub replayed_lines: u64,
}

impl Scale {
    pub const FULL: Self = Self {
        kills: 5,
        baseline: Duration::from_secs(15),
        nuisances: Duration::from_secs(20),
        identifiers: 1_000_000,
        flat: Duration::from_secs(600),
        body: 1_000_000_000,
        crowd_rounds: 31,
        crowd_requests: 10_000,
        replayed_lines: 10_000_000,
    };
    pub const QUICK: Self = Self {
        kills: 2,
        baseline: Duration::from_secs(5),
        nuisances: Duration::from_secs(5),
        identifiers: 100_000,
        flat: Duration::from_secs(10),
        body: 100_000_000,
        crowd_rounds: 15,
        crowd_requests: 4_000,
        replayed_lines: 1_000_000,
    };
}

/// `kill -9` of Redis under load, and its restart: empty, and in the same place.
fn kill(scale: &Scale, report: &mut Report) {
    let (mut server, limit) = (RedisServer::start(), 8);
    let system = System::start(&url(&server), "8/1s");
    let base = warm_baseline(&system.gate, scale);

    let control = Load::start(straight(&system));
    let load = Load::start(steady(&system.gate));
    thread::sleep(SECOND);
    let (mut outages, mut slowest, mut beyond) = (Vec::new(), Duration::ZERO, 0);
    for _ in 0..scale.kills {
        beyond += above(&server, limit);
        let killed = load.age();
        server.kill();
        thread::sleep(2 * SECOND);
        // From before its start, so its own way up is in it.
        let back = clock::instant();
        server.restart();
        until_store_decides(&system.gate);
        slowest = slowest.max(clock::elapsed(back));
        thread::sleep(SECOND);
        outages.push(killed..load.age());
        thread::sleep(SECOND);
    }
    beyond += above(&server, limit);
    let (answers, control) = (load.end(), control.end());

    let mut add = |what: &str, value, unit, bound| report.add("kill", what, value, unit, bound);
    let during = answers.latencies(&outages).percentile(99);
    let machine = control.latencies(&outages).percentile(99);
    add(
        "requests per second, of 2,000 intended",
        answers.rate(),
        "/s",
        Bound::None,
    );
    add("outages of 2 s", f64::from(scale.kills), "", Bound::None);
    add(
        "answers 5xx, or none",
        failures(&answers),
        "",
        Bound::Exactly(0.0),
    );
    add("p99 without an outage", base, "ms", Bound::None);
    add(
        "p99 from each kill to 1 s after recovery",
        during,
        "ms",
        Bound::None,
    );
    add(
        "p99 straight to nginx meanwhile",
        machine,
        "ms",
        Bound::None,
    );
    add(
        "added at p99: beyond straight to nginx",
        during - machine,
        "ms",
        Bound::AtMost(BUDGET),
    );
    add(
        "slowest answer",
        answers.latencies(&outages).percentile(100),
        "ms",
        Bound::None,
    );
    add(
        "from restart to a decision by Redis, slowest",
        millis(slowest),
        "ms",
        Bound::AtMost(1_000.0),
    );
    add(
        "counters in Redis above the limit",
        beyond as f64,
        "",
        Bound::Exactly(0.0),
    );
}

/// A Redis that keeps its connections and does not answer.
fn stop(scale: &Scale, report: &mut Report) {
    let server = RedisServer::start();
    let system = System::start(&url(&server), "8/1s");
    let base = warm_baseline(&system.gate, scale);

    let control = Load::start(straight(&system));
    let load = Load::start(steady(&system.gate));
    thread::sleep(2 * SECOND);
    let from = load.age();
    server.pause();
    thread::sleep(10 * SECOND);
    let (to, resumed) = (load.age(), clock::instant());
    server.resume();
    until_store_decides(&system.gate);
    let healed = clock::elapsed(resumed);
    thread::sleep(SECOND);
    let (settled, decided) = (load.age(), by_store(&system.gate));
    thread::sleep(2 * SECOND);
    let decided = by_store(&system.gate) - decided;
    let (answers, control) = (load.end(), control.end());

    let mut add = |what: &str, value, unit, bound| report.add("stop", what, value, unit, bound);
    let stopped = from..to;
    let first = stopped.start..stopped.start + SECOND;
    add(
        "requests per second, of 2,000 intended",
        answers.rate(),
        "/s",
        Bound::None,
    );
    add(
        "answers 5xx, or none",
        failures(&answers),
        "",
        Bound::Exactly(0.0),
    );
    add("p99 before", base, "ms", Bound::None);
    let stopped = [stopped];
    let during = answers.latencies(&stopped).percentile(99);
    let machine = control.latencies(&stopped).percentile(99);
    add("p99 while stopped (10 s)", during, "ms", Bound::None);
    add(
        "p99 straight to nginx meanwhile",
        machine,
        "ms",
        Bound::None,
    );
    add(
        "p99 while stopped, less that",
        during - machine,
        "ms",
        Bound::AtMost(BUDGET + 5.0),
    );
    add(
        "p99 in the first second of it",
        answers.latencies(&[first]).percentile(99),
        "ms",
        Bound::None,
    );
    add(
        "from SIGCONT to a decision by Redis",
        millis(healed),
        "ms",
        Bound::AtMost(1_000.0),
    );
    add(
        "decisions by Redis in 2 s, once healed",
        decided,
        "",
        Bound::AtLeast(1.0),
    );
    let after = settled..Duration::MAX;
    add(
        "p99 once healed",
        answers.latencies(&[after]).percentile(99),
        "ms",
        Bound::None,
    );
}

/// A new primary, by Sentinel and in a cluster, and slots that move, under load.
fn fail_over(_: &Scale, report: &mut Report) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut add =
        |what: &str, value, unit, bound| report.add("fail-over", what, value, unit, bound);

    let mut watched = runtime.block_on(Watched::start());
    let store = format!(
        "url: \"redis://mymaster\", sentinel: {{addresses: [{}]}}",
        watched.addresses()
    );
    let healed = through(&store, || {
        let before = watched.primary().expect("no fail-over yet");
        watched.servers[before].kill();
        let agree = async || watched.primary() == Some(1 - before);
        runtime.block_on(eventually("the sentinels agree on the replica", agree));
    });
    add(
        "Sentinel, primary killed: answers 5xx, or none",
        healed.failures,
        "",
        Bound::Exactly(0.0),
    );
    add(
        "  from the new primary to decisions by it",
        healed.after,
        "ms",
        Bound::AtMost(5_000.0),
    );
    drop(watched);

    let mut cluster = runtime.block_on(Cluster::start(3, 3));
    let store = cluster.section();
    let healed = through(&store, || {
        cluster.servers[1].kill();
        let slot_of_the_second = 8_192;
        let told = async || cluster.owner(slot_of_the_second) == 4;
        runtime.block_on(eventually("the replica has its slots", told));
    });
    add(
        "Cluster, primary killed: answers 5xx, or none",
        healed.failures,
        "",
        Bound::Exactly(0.0),
    );
    add(
        "  from the new primary to decisions by all",
        healed.after,
        "ms",
        Bound::AtMost(5_000.0),
    );
    drop(cluster);

    let cluster = runtime.block_on(Cluster::start(3, 0));
    // Each key of the load is in a slot of its own, so some are among these.
    let moved = 0..500;
    let mut beyond: usize = 0;
    let healed = through(&cluster.section(), || {
        for slot in moved.clone() {
            cluster.begin_move(slot, 0, 1);
            cluster.end_move(slot, 0, 1);
        }
        beyond = cluster.servers.iter().map(|server| above(server, 8)).sum();
    });
    add(
        "Cluster, slots moved under load",
        moved.len() as f64,
        "",
        Bound::None,
    );
    add(
        "  answers 5xx, or none",
        healed.failures,
        "",
        Bound::Exactly(0.0),
    );
    add(
        "  from the last one to decisions by all",
        healed.after,
        "ms",
        Bound::AtMost(5_000.0),
    );
    add(
        "  counters in Redis above the limit",
        beyond as f64,
        "",
        Bound::Exactly(0.0),
    );
}

/// What clients saw of a change in Redis.
struct Healed {
    failures: f64,
    /// From its end to decisions by all of Redis, in milliseconds.
    after: f64,
}

/// Steady load on `store`, from a second before `change` to a second after all of it decides again.
fn through(store: &str, change: impl FnOnce()) -> Healed {
    let system = System::start(store, "8/1s");
    let load = Load::start(steady(&system.gate));
    thread::sleep(SECOND);
    change();
    let after = millis(until_all_decide(&system.gate));
    thread::sleep(SECOND);
    Healed {
        failures: failures(&load.end()),
        after,
    }
}

/// Four proxies and one identifier, as fast as they answer.
fn one_client(_: &Scale, report: &mut Report) {
    const LIMIT: &str = "500/1s";
    let limit: Limit = LIMIT.parse().expect("a limit");
    let nginx = Nginx::start();
    // Nothing times out here: whether units are counted is the question, not how fast.
    let patient = "budget: 2s";

    let server = RedisServer::start();
    let relay = Relay::to(([127, 0, 0, 1], server.port()).into());
    let store = format!("url: \"{}\", {patient}, denial_cache: 0s", relay.url());
    let (answers, units) = flood(&server, &nginx, &store, LIMIT);
    let decisions: Vec<Decision> = relay
        .answers()
        .iter()
        .flat_map(|reply| oracle::take_replies(reply, limit))
        .collect();
    let decided = decisions.len();
    let charged = decisions.iter().filter(|reply| reply.charged).count();
    let faults = oracle::faults(decisions);
    for fault in faults.iter().take(3) {
        eprintln!("{fault}");
    }
    let by_redis = [
        (
            "  replies of Redis that the oracle decides otherwise",
            faults.len() as f64,
        ),
        (
            "  requests without a reply of Redis",
            answers.count() as f64 - decided as f64,
        ),
        (
            "  answers 200 less charges",
            answers.with(200..201) as f64 - charged as f64,
        ),
    ];
    let what = "requests, each decided by Redis";
    flooded(report, what, &answers, &units, &by_redis);

    let server = RedisServer::start();
    let store = format!("{}, {patient}", url(&server));
    let (answers, units) = flood(&server, &nginx, &store, LIMIT);
    let what = "requests, with the denial cache";
    flooded(report, what, &answers, &units, &[]);
}

/// The rows of a flood; `differences` are further ones that must be 0.
fn flooded(
    report: &mut Report,
    what: &str,
    answers: &Answers,
    units: &BTreeMap<String, u64>,
    differences: &[(&str, f64)],
) {
    let mut add =
        |what: &str, value, unit, bound| report.add("one-client", what, value, unit, bound);
    let count = answers.count() as f64;
    add(what, count, "", Bound::AtLeast(100_000.0));
    add("  per second", answers.rate(), "/s", Bound::None);
    add("  windows", units.len() as f64, "", Bound::AtLeast(3.0));
    add(
        "  most units in a window of 500",
        most(units),
        "",
        Bound::AtMost(500.0),
    );
    for (what, difference) in differences {
        add(what, *difference, "", Bound::Exactly(0.0));
    }
    let admitted = answers.with(200..201) as f64;
    add(
        "  answers 200 less units in Redis",
        admitted - total(units),
        "",
        Bound::Exactly(0.0),
    );
    add(
        "  answers neither 200 nor 429",
        others(answers),
        "",
        Bound::Exactly(0.0),
    );
}

/// At least 100,000 requests by one identifier over four windows or more, and the units of each window.
fn flood(
    server: &RedisServer,
    nginx: &Nginx,
    store: &str,
    limit: &str,
) -> (Answers, BTreeMap<String, u64>) {
    let gates = [(); 4].map(|()| gate(nginx, store, limit));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Counters end two windows after their own began: what is seen last of each is what it came to.
        let watch = scope.spawn(|| {
            let mut units = BTreeMap::new();
            while !over.load(Ordering::Relaxed) {
                units.extend(counters(server));
                thread::sleep(Duration::from_millis(200));
            }
            units.extend(counters(server));
            units
        });
        let load = Load::start(Plan {
            targets: gates.iter().map(|gate| gate.proxy).collect(),
            connections: 64,
            rate: None,
            requests: u64::MAX,
            identifier: |_| 0,
        });
        while load.begun() < 101_000 || load.age() < 4 * SECOND {
            thread::sleep(Duration::from_millis(50));
        }
        let answers = load.end();
        over.store(true, Ordering::Relaxed);
        (answers, watch.join().expect("it watches"))
    })
}

/// What a Redis may do to its clients, again and again.
fn nuisances(scale: &Scale, report: &mut Report) {
    let server = RedisServer::start();
    let system = System::start(&url(&server), "1000000000/1h");
    let refuse = || {
        for (command, pause) in [
            (&["SCRIPT", "FLUSH"][..], 40),
            (&["ACL", "SETUSER", "default", "-evalsha"], 20),
            (&["ACL", "SETUSER", "default", "+evalsha"], 20),
            (&["CONFIG", "SET", "maxmemory", "1"], 40),
            (&["CONFIG", "SET", "maxmemory", "0"], 20),
        ] {
            tell(&server, command);
            thread::sleep(Duration::from_millis(pause));
        }
    };
    let disconnect = || {
        refuse();
        tell(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
        thread::sleep(Duration::from_millis(200));
    };
    nuisance(
        "SCRIPT FLUSH, ACL, maxmemory",
        &refuse,
        &server,
        &system,
        scale,
        report,
    );
    nuisance(
        "SCRIPT FLUSH, ACL, maxmemory, CLIENT KILL",
        &disconnect,
        &server,
        &system,
        scale,
        report,
    );
}

fn nuisance(
    name: &str,
    nuisance: &dyn Fn(),
    server: &RedisServer,
    system: &System,
    scale: &Scale,
    report: &mut Report,
) {
    let gate = &system.gate;
    let before = (
        total(&counters(server)),
        admitted_by_store(gate),
        unanswered(gate),
    );
    let load = Load::start(Plan {
        identifier: |number| mix(number % 1_000),
        ..steady(gate)
    });
    let mut times = 0.0;
    while load.age() < scale.nuisances {
        nuisance();
        times += 1.0;
    }
    let answers = load.end();
    // A request is counted when it has ended, which its client may see a moment earlier.
    thread::sleep(SECOND);
    let units = total(&counters(server)) - before.0;
    let admitted = admitted_by_store(gate) - before.1;
    let unanswered = unanswered(gate) - before.2;

    let mut add =
        |what: &str, value, unit, bound| report.add("nuisances", what, value, unit, bound);
    add(&format!("rounds of {name}"), times, "", Bound::None);
    add(
        "  requests per second, of 2,000 intended",
        answers.rate(),
        "/s",
        Bound::None,
    );
    add(
        "  answers neither 200 nor 429",
        others(&answers),
        "",
        Bound::Exactly(0.0),
    );
    add("  admitted by Redis", admitted, "", Bound::AtLeast(1_000.0));
    add(
        "  admitted by Redis and not charged",
        (admitted - units).max(0.0),
        "",
        Bound::Exactly(0.0),
    );
    // Such a call may have run.
    add("  calls without an answer", unanswered, "", Bound::None);
    add(
        "  charged beyond those and the admitted",
        (units - admitted - unanswered).max(0.0),
        "",
        Bound::Exactly(0.0),
    );
    add(
        "  charged for calls without an answer",
        units - admitted,
        "",
        Bound::None,
    );
}

fn tell(server: &RedisServer, command: &[&str]) {
    let (name, arguments) = command.split_first().expect("a command");
    redis::cmd(name)
        .arg(arguments)
        .exec(&mut server.client())
        .expect("Redis obeys");
}

/// As many identifiers as a large service has, each once.
fn million(scale: &Scale, report: &mut Report) {
    let server = RedisServer::start();
    // All of them are to be in Redis: none may be decided elsewhere since this machine is busy.
    let store = format!("{}, budget: 5s", url(&server));
    let system = System::start(&store, "100/1h");
    let resident_before = resident(&system.gate);
    let used_before = info(&server, "memory", "used_memory:");
    let load = Load::start(Plan {
        targets: vec![system.gate.proxy],
        connections: 64,
        rate: None,
        requests: scale.identifiers,
        identifier: mix,
    });
    let answers = load.finish();
    let used = info(&server, "memory", "used_memory:") - used_before;
    let resident_after = resident(&system.gate);
    let identifiers = scale.identifiers as f64;

    let keys = keys(&server);
    let longest = keys.iter().flatten().map(String::len).max().unwrap_or(0);
    let ends = write_next_windows(&server, &keys);
    let both = info(&server, "memory", "used_memory:") - used_before;

    let mut add = |what: &str, value, unit, bound| report.add("million", what, value, unit, bound);
    add("identifiers", identifiers, "", Bound::None);
    add("requests per second", answers.rate(), "/s", Bound::None);
    add(
        "answers neither 200 nor 429",
        others(&answers),
        "",
        Bound::Exactly(0.0),
    );
    add(
        "keys in Redis, found by SCAN",
        keys.iter().map(Vec::len).sum::<usize>() as f64,
        "",
        Bound::AtLeast(identifiers),
    );
    add(
        "keys without an end, of all",
        ends.without as f64,
        "",
        Bound::Exactly(0.0),
    );
    add(
        "longest time to live, in windows",
        ends.longest / 3_600_000.0,
        "",
        Bound::AtMost(2.0),
    );
    add("longest key", longest as f64, "B", Bound::AtMost(60.0));
    // How full its tables are depends on the number: the bound is for exactly a million.
    let bound = if scale.identifiers == 1_000_000 {
        Bound::AtMost(300.0)
    } else {
        Bound::None
    };
    add(
        "memory of Redis per identifier, one window",
        used / identifiers,
        "B",
        bound,
    );
    add(
        "memory of Redis per identifier, both windows",
        both / identifiers,
        "B",
        bound,
    );
    add(
        "resident memory of slidegate before",
        resident_before,
        "MB",
        Bound::None,
    );
    add(
        "resident memory of slidegate after",
        resident_after,
        "MB",
        Bound::None,
    );
    add(
        "  grown by",
        resident_after - resident_before,
        "MB",
        Bound::AtMost(16.0),
    );
}

/// When keys end.
struct Ends {
    without: usize,
    /// In milliseconds.
    longest: f64,
}

/// Looks at the time to live of every key, then writes beside it the same client's counter of the next
/// window, as the script would write it an hour later.
fn write_next_windows(server: &RedisServer, keys: &[Vec<String>]) -> Ends {
    let mut connection = server.client();
    let mut ends = Ends {
        without: 0,
        longest: 0.0,
    };
    for part in keys {
        let mut asked = redis::pipe();
        for key in part {
            asked.cmd("PEXPIRETIME").arg(key);
        }
        let moments: Vec<i64> = asked.query(&mut connection).expect("keys have an end");
        let now = clock::Clock::system().now().as_millis() as i64;
        let mut written = redis::pipe();
        for (key, moment) in part.iter().zip(moments) {
            if moment < 0 {
                ends.without += 1;
                continue;
            }
            ends.longest = ends.longest.max((moment - now) as f64);
            let (counter, number) = key.rsplit_once(':').expect("a key ends with a window");
            let number: u64 = number.parse().expect("the number of a window");
            written
                .cmd("SET")
                .arg(format!("{counter}:{}", number + 1))
                .arg(1)
                .arg("PXAT")
                .arg(moment + 3_600_000)
                .ignore();
        }
        written.exec(&mut connection).expect("written");
    }
    ends
}

/// New identifiers without end, at the caps of what slidegate keeps of them; both floods at once.
fn flat(scale: &Scale, report: &mut Report) {
    let capped = "max_counters: 100000";
    let server = RedisServer::start();
    let memory = System::start(&format!("url: \"memory:\", {capped}"), "100/1m");
    let store = format!("{}, budget: 1s, denial_cache: 1m, {capped}", url(&server));
    let denials = System::start(&store, "1/1m");
    let (memory, denials) = thread::scope(|scope| {
        let memory = scope.spawn(|| flatness(mix, &memory.gate, scale));
        // Each asks twice, and is denied the second time.
        let denials = flatness(|number| mix(number / 2), &denials.gate, scale);
        (memory.join().expect("it ends"), denials)
    });
    for (name, flat) in [
        ("memory store at 100,000 counters", memory),
        ("denial cache at 100,000 counters", denials),
    ] {
        let mut add = |what: &str, value, unit, bound| report.add("flat", what, value, unit, bound);
        let Flat {
            answers,
            empty,
            full,
            most,
            last,
        } = flat;
        let name = format!("{name}: requests");
        add(&name, answers.count() as f64, "", Bound::AtLeast(250_000.0));
        add(
            "  answered 429",
            answers.with(429..430) as f64,
            "",
            Bound::None,
        );
        add(
            "  answers 5xx, or none",
            failures(&answers),
            "",
            Bound::Exactly(0.0),
        );
        add(
            "  seconds at the cap",
            scale.flat.as_secs_f64(),
            "s",
            Bound::None,
        );
        add("  resident memory, empty", empty, "MB", Bound::None);
        add("  resident memory, once full", full, "MB", Bound::None);
        add("  resident memory, at the end", last, "MB", Bound::None);
        add(
            "  most beyond once full",
            most - full,
            "MB",
            Bound::AtMost(8.0),
        );
    }
}

/// Resident memory in the course of a flood, in MB.
struct Flat {
    answers: Answers,
    empty: f64,
    full: f64,
    most: f64,
    last: f64,
}

fn flatness(identifier: fn(u64) -> u64, gate: &Binary, scale: &Scale) -> Flat {
    let empty = resident(gate);
    let load = Load::start(Plan {
        targets: vec![gate.proxy],
        connections: 64,
        rate: None,
        requests: u64::MAX,
        identifier,
    });
    // Enough to fill it, then the time that is measured.
    while load.begun() < 250_000 {
        thread::sleep(Duration::from_millis(50));
    }
    let (full, since) = (resident(gate), load.age());
    let mut most = full;
    while load.age() < since + scale.flat {
        thread::sleep(Duration::from_millis(500));
        most = most.max(resident(gate));
    }
    Flat {
        answers: load.end(),
        empty,
        full,
        most,
        last: resident(gate),
    }
}

const SECOND: Duration = Duration::from_secs(1);
const RATE: u32 = 2_000;
/// The default of `store.budget`, in milliseconds.
const BUDGET: f64 = 25.0;

/// 2,000 requests per second of 200 clients, each about ten; far apart on each connection, so that one that
/// waits for the whole budget delays none behind it.
pub fn steady(gate: &Binary) -> Plan {
    Plan {
        targets: vec![gate.proxy],
        connections: 128,
        rate: Some(RATE),
        requests: u64::MAX,
        identifier: |number| mix(mix(number) % 200),
    }
}

/// The same client at a tenth of the rate, past slidegate: how late this machine makes requests by itself. It
/// may have other work, which is not slidegate's delay.
pub fn straight(system: &System) -> Plan {
    Plan {
        targets: vec![system.nginx.address],
        rate: Some(RATE / 10),
        ..steady(&system.gate)
    }
}

/// The p99 of the same load while nothing happens, in milliseconds.
pub fn warm_baseline(gate: &Binary, scale: &Scale) -> f64 {
    let load = Load::start(steady(gate));
    thread::sleep(SECOND + scale.baseline);
    let all: [Range<Duration>; 1] = [SECOND..Duration::MAX];
    load.end().latencies(&all).percentile(99)
}

fn url(server: &RedisServer) -> String {
    format!("url: \"{}\"", server.url())
}

/// Counters above the limit.
fn above(server: &RedisServer, limit: u64) -> usize {
    let counters = counters(server);
    assert!(!counters.is_empty(), "Redis decided");
    counters.values().filter(|units| **units > limit).count()
}

fn failures(answers: &Answers) -> f64 {
    (answers.with(500..600) + answers.with(0..1)) as f64
}

/// Neither admitted nor denied.
fn others(answers: &Answers) -> f64 {
    (answers.count() - answers.with(200..201) - answers.with(429..430)) as f64
}

fn most(units: &BTreeMap<String, u64>) -> f64 {
    units.values().max().copied().unwrap_or(0) as f64
}

fn total(units: &BTreeMap<String, u64>) -> f64 {
    units.values().sum::<u64>() as f64
}

/// Another number for each: SplitMix64's last steps, which lose nothing.
pub fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
