//! What a call of the script takes of Redis's processor time: by itself, and with the parts that only an audit needs.

use redis::{Cmd, Connection};
use slidegate::clock::Clock;

use super::{
    compare::{CLIENTS, spent},
    report::{Bound, Report, median},
    scenarios::{Scale, mix},
    support::redis::RedisServer,
    system::info,
    take::{self, TAKE},
};

/// Four scripts with the same keys and arguments, by turns.
pub fn script(scale: &Scale, report: &mut Report) {
    let server = RedisServer::start();
    let mut client = server.client();
    let store = info(&server, "server", "process_id:") as u32;
    let [nothing, take] = ["return 1", TAKE].map(|text| take::load(text, &mut client));
    let subjects = [
        ("EVALSHA of `return 1`", &nothing, Audit::Off),
        ("take", &take, Audit::Off),
        ("take, in a call with an audit", &take, Audit::OfAnother),
        ("take, audited", &take, Audit::On),
    ];
    let mut round = |place: usize| {
        let (_, script, audit) = subjects[place];
        let (took, ()) = spent(store, || ask(script, place, audit, scale, &mut client));
        took.as_secs_f64() * 1e6 / scale.crowd_requests as f64
    };
    // The first calls create counters.
    for place in 0..subjects.len() {
        round(place);
    }
    let mut costs = subjects.map(|_| Vec::new());
    for turn in 0..scale.crowd_rounds as usize {
        for place in 0..subjects.len() {
            let place = (place + turn) % subjects.len();
            costs[place].push(round(place));
        }
    }
    let calls = scale.crowd_requests * u64::from(scale.crowd_rounds);
    report.add("script", "calls of each", calls as f64, "", Bound::None);
    for ((name, ..), mut costs) in subjects.into_iter().zip(costs) {
        report.add("script", name, median(&mut costs), "us", Bound::None);
    }
}

/// One round of calls, by [`CLIENTS`], so many at once as come in one packet.
fn ask(script: &str, policy: usize, audit: Audit, scale: &Scale, client: &mut Connection) {
    // One window for the whole run, by whatever clock.
    let number = Clock::system().now().as_seconds() / WINDOW;
    for first in (0..scale.crowd_requests).step_by(AT_ONCE) {
        let mut calls = redis::pipe();
        for request in first..(first + AT_ONCE as u64).min(scale.crowd_requests) {
            let identifier = mix(request % CLIENTS);
            calls.add_command(call(script, policy, audit, identifier, number));
        }
        calls.ignore().exec(client).expect("Redis answers");
    }
}

/// One request by one policy with one limit: lua/README.md.
fn call(script: &str, policy: usize, audit: Audit, identifier: u64, number: u64) -> Cmd {
    let key = |end: &str| format!("rl:{{soak:{policy}:{identifier}}}:{WINDOW}:{end}");
    let mut keys = vec![key(&number.to_string()), key(&(number - 1).to_string())];
    let mut arguments = vec!["1", "sliding_window_counter", "take", QUOTA];
    let (window, number) = (WINDOW.to_string(), number.to_string());
    arguments.extend([&*window, "1", &*number]);
    let kinds = match audit {
        Audit::Off => "",
        // The script does not ask whether there is an `a`.
        Audit::OfAnother => "c",
        Audit::On => {
            keys.push(key("log"));
            "a"
        }
    };
    let mut call = redis::cmd("EVALSHA");
    call.arg(script).arg(keys.len()).arg(keys);
    call.arg("").arg(kinds).arg(arguments);
    call
}

/// Whether the call has an audited identifier.
#[derive(Clone, Copy)]
enum Audit {
    Off,
    /// It has, and this is another.
    OfAnother,
    On,
}

/// The largest that can be audited, in a window that does not turn.
const QUOTA: &str = "10000";
const WINDOW: u64 = 366 * 86_400;

const AT_ONCE: usize = 100;
