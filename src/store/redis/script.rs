//! The scripts of `lua/`, and their contract (`lua/README.md`) in Rust: what is sent, and in [`reply`] what
//! is understood.

mod reply;

use std::fmt;

use redis::{Arg, Cmd, RedisWrite};
use smallvec::SmallVec;
use tokio::time::Instant;

pub(super) use reply::{Answer, Answers, Counted, Logged, read_give_back, read_take, read_time};

use super::{cluster::Slot, key::Names};
use crate::{
    ratelimit::{Algorithm, Cost, Limit, Timestamp},
    store::{Action, At, Demand, GiveBack, Group},
};

/// A script and the name under which Redis caches it.
pub(super) struct Script {
    source: String,
    sha: String,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.sha)
    }
}

impl Script {
    /// Decides groups of demands and charges them.
    pub(super) fn take() -> Self {
        let rules = Algorithm::ALL.map(rule).concat();
        let log = include_str!("../../../lua/log.lua");
        Self::new([COUNTER, log, &rules, include_str!("../../../lua/take.lua")].concat())
    }

    /// Takes units back.
    pub(super) fn give_back() -> Self {
        Self::new([COUNTER, include_str!("../../../lua/give_back.lua")].concat())
    }

    fn new(source: String) -> Self {
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }

    /// The whole text.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// A call by name, to be completed with keys and arguments.
    pub(super) fn by_name(&self) -> Cmd {
        let mut command = Cmd::with_capacity(24, 320);
        command.arg("EVALSHA").arg(&self.sha);
        command
    }

    /// A call that carries the source, for a server that does not know the name.
    pub(super) fn by_source(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.source);
        command
    }
}

/// The Lua side of an algorithm.
fn rule(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingWindowCounter => {
            include_str!("../../../lua/sliding_window_counter.lua")
        }
        Algorithm::FixedWindow => include_str!("../../../lua/fixed_window.lua"),
        Algorithm::SlidingLog => include_str!("../../../lua/sliding_log.lua"),
    }
}

const COUNTER: &str = include_str!("../../../lua/counter.lua");

/// The groups of one request, ready to be sent.
#[derive(Debug)]
pub(super) struct Part {
    /// Parts that differ in it do not travel together.
    pub class: Class,
    /// The KEYS, without a command.
    pub keys: Cmd,
    /// What each demand is counted in.
    pub kinds: Kinds,
    /// What is asked about the keys.
    pub groups: SmallVec<[Terms; 1]>,
    /// Until when it may be sent.
    pub until: Instant,
}

/// What is said once for a whole call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// Whose clock decides.
    pub at: At,
    /// The slot of all its counters, in a cluster; a call may hold no others. `None` on a single server.
    pub slot: Option<Slot>,
    /// Whether it is sent behind `ASKING`: the slot is still being moved to this server.
    pub asking: bool,
}

/// What the demands of a request are counted in, group after group.
pub(super) type Kinds = SmallVec<[Kind; 4]>;

/// What is asked about the keys of a group, demand by demand.
pub(super) type Terms = SmallVec<[Term; 1]>;

/// What is asked about the keys of a demand: for most requests of a moment it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    algorithm: Algorithm,
    action: Action,
    limit: Limit,
    cost: Cost,
    /// Of the window that the keys are made with.
    number: u64,
}

impl Term {
    fn write(&self, command: &mut Cmd) {
        let window = self.limit.window();
        command
            .arg(self.algorithm.name())
            .arg(action(self.action))
            .arg(self.limit.quota())
            .arg(window.seconds())
            .arg(self.cost.units())
            .arg(self.number);
    }
}

/// The groups of one request as a part of a call of [`Script::take`]. `guess` is when the script is thought to run.
pub(super) fn write_part<'g, 'd: 'g>(
    namespace: &str,
    groups: impl Iterator<Item = &'g Group<'d>>,
    guess: Timestamp,
    class: Class,
    until: Instant,
) -> Part {
    let (mut keys, mut kinds) = (Cmd::with_capacity(4, 160), Kinds::new());
    let groups = groups.map(|group| {
        let terms = group.iter().map(|demand| {
            let number = demand.limit.window().position(guess).number;
            let (mut names, kind) = (Names::new(namespace, demand), Kind::of(demand));
            if kind == Kind::Log {
                keys.write_arg(names.log());
            } else {
                keys.write_arg(names.counter(number));
                keys.write_arg(names.previous(number));
            }
            if kind == Kind::Audited {
                keys.write_arg(names.audit());
            }
            kinds.push(kind);
            Term {
                algorithm: demand.algorithm,
                action: demand.action,
                limit: demand.limit,
                cost: demand.cost,
                number,
            }
        });
        terms.collect()
    });
    let groups = groups.collect();
    Part {
        class,
        keys,
        kinds,
        groups,
        until,
    }
}

/// Writes the KEYS and ARGV of one call for all of these.
pub(super) fn write_take(command: &mut Cmd, at: At, parts: &[Part]) {
    let keys = parts.iter().map(|part| words(&part.keys).count());
    command.arg(keys.sum::<usize>());
    for word in parts.iter().flat_map(|part| words(&part.keys)) {
        command.arg(word);
    }
    match at {
        At::Stamp(stamp) => command.arg(stamp.as_millis()),
        At::Now => command.arg(""),
    };
    command.arg(&kinds(parts)[..]);
    let mut before = None;
    for terms in parts.iter().flat_map(|part| &part.groups) {
        if before == Some(terms) {
            command.arg(SAME);
        } else {
            command.arg(terms.len());
            for term in terms {
                term.write(command);
            }
        }
        before = Some(terms);
    }
}

/// Says it of a whole call: nothing where no demand has a log, and the script makes nothing that logs need.
fn kinds(parts: &[Part]) -> SmallVec<[u8; 64]> {
    let kinds = parts.iter().flat_map(|part| &part.kinds);
    if kinds.clone().all(|kind| *kind == Kind::Counters) {
        return SmallVec::new();
    }
    kinds.map(|kind| kind.letter()).collect()
}

fn words(command: &Cmd) -> impl Iterator<Item = &[u8]> {
    command.args_iter().map(|word| match word {
        Arg::Simple(bytes) => bytes,
        _ => unreachable!("only bytes were written"),
    })
}

/// In the place of a group's demands: they are those of the group before, about other keys.
const SAME: &str = "=";

/// What a demand is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counters,
    /// Counters, with a log beside them that decides nothing.
    Audited,
    /// A log that decides.
    Log,
}

impl Kind {
    const fn of(demand: &Demand<'_>) -> Self {
        match (demand.algorithm.keeps_a_log(), demand.audited) {
            (true, _) => Self::Log,
            (false, true) => Self::Audited,
            (false, false) => Self::Counters,
        }
    }

    const fn letter(self) -> u8 {
        match self {
            Self::Counters => b'c',
            Self::Audited => b'a',
            Self::Log => b'l',
        }
    }
}

const fn action(action: Action) -> &'static str {
    match action {
        Action::Take => "take",
        Action::Peek => "peek",
        Action::Charge => "charge",
    }
}

/// Completes a call of [`Script::give_back`].
pub(super) fn write_give_back(command: &mut Cmd, namespace: &str, charged: &[GiveBack<'_>]) {
    let audited = |unit: &&GiveBack<'_>| Kind::of(&unit.demand) == Kind::Audited;
    command.arg(charged.len() + charged.iter().filter(audited).count());
    for unit in charged {
        let (mut names, kind) = (Names::new(namespace, &unit.demand), Kind::of(&unit.demand));
        match kind {
            Kind::Log => command.write_arg(names.log()),
            Kind::Counters | Kind::Audited => {
                command.write_arg(names.counter(unit.window_number()));
            }
        }
        if kind == Kind::Audited {
            command.write_arg(names.audit());
        }
    }
    for GiveBack { demand, charged_at } in charged {
        command
            .arg(&[Kind::of(demand).letter()])
            .arg(demand.cost.units())
            .arg(demand.limit.window().moment_of(*charged_at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::Identifier, ratelimit::Cost};

    fn words(command: &Cmd) -> Vec<String> {
        let text = |arg| match arg {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => panic!("no cursor"),
        };
        command.args_iter().map(text).collect()
    }

    fn demand(limit: &str, action: Action) -> Demand<'static> {
        Demand {
            policy: "p",
            identifier: Identifier::Unix,
            limit: limit.parse().expect(limit),
            algorithm: Algorithm::SlidingWindowCounter,
            cost: Cost::new(3).expect("a cost"),
            action,
            audited: false,
        }
    }

    fn audited(demand: Demand<'static>) -> Demand<'static> {
        Demand {
            audited: true,
            ..demand
        }
    }

    fn logged(demand: Demand<'static>) -> Demand<'static> {
        Demand {
            algorithm: Algorithm::SlidingLog,
            ..demand
        }
    }

    #[test]
    fn every_algorithm_has_its_rule_in_the_script() {
        let script = Script::take();
        for algorithm in Algorithm::ALL {
            let entry = match algorithm.keeps_a_log() {
                true => format!("own.{} = rule\n", algorithm.name()),
                false => format!("rules.{} = function(", algorithm.name()),
            };
            assert_eq!(script.source.matches(&entry).count(), 1, "{entry}");
        }
    }

    #[test]
    fn keys_and_arguments_are_written_as_the_readme_tells() {
        let minute = demand("5/1m", Action::Take);
        let groups: [Group<'_>; 3] = [
            [minute, demand("9/1h", Action::Peek)].into_iter().collect(),
            [logged(demand("8/1m", Action::Take))].into_iter().collect(),
            [audited(demand("7/2d", Action::Charge))]
                .into_iter()
                .collect(),
        ];
        let now = Timestamp::from_seconds(2 * 86_400);
        let class = Class {
            at: At::Now,
            slot: None,
            asking: false,
        };
        let until = Instant::from_std(crate::clock::instant());
        let part = |groups: &[Group<'_>]| write_part("ns", groups.iter(), now, class, until);
        let written = |parts: &[Part]| {
            let mut command = Cmd::new();
            write_take(&mut command, At::Now, parts);
            words(&command).join(" ")
        };
        assert_eq!(
            written(&[part(&groups)]),
            "8 rl:{ns:p:unix}:60:2880 rl:{ns:p:unix}:60:2879 rl:{ns:p:unix}:3600:48 \
             rl:{ns:p:unix}:3600:47 rl:{ns:p:unix}:60:exact rl:{ns:p:unix}:172800:1 rl:{ns:p:unix}:172800:0 \
             rl:{ns:p:unix}:172800:log  ccla \
             2 sliding_window_counter take 5 60 3 2880 sliding_window_counter peek 9 3600 3 48 \
             1 sliding_log take 8 60 3 2880 \
             1 sliding_window_counter charge 7 172800 3 1"
        );
        let one = "rl:{ns:p:unix}:60:2880 rl:{ns:p:unix}:60:2879";
        let terms = "1 sliding_window_counter take 5 60 3 2880";
        let alone: Group<'_> = [minute].into_iter().collect();
        let other: Group<'_> = [audited(minute)].into_iter().collect();
        let parts = [&alone, &alone, &other].map(|group| part(std::slice::from_ref(group)));
        assert_eq!(written(&parts[..1]), format!("2 {one}   {terms}"));
        assert_eq!(
            written(&parts),
            format!("7 {one} {one} {one} rl:{{ns:p:unix}}:60:log  cca {terms} = =")
        );
    }

    #[test]
    fn units_to_be_given_back_stand_beside_their_counter() {
        let charged_at = Timestamp::from_millis(7 * 60_000 + 1);
        let one = GiveBack {
            demand: demand("5/1m", Action::Take),
            charged_at,
        };
        let other = GiveBack {
            demand: audited(one.demand),
            charged_at,
        };
        let third = GiveBack {
            demand: logged(one.demand),
            charged_at,
        };
        let mut command = Script::give_back().by_name();
        write_give_back(&mut command, "ns", &[one, other, third]);
        assert_eq!(
            words(&command)[2..].join(" "),
            "4 rl:{ns:p:unix}:60:7 rl:{ns:p:unix}:60:7 rl:{ns:p:unix}:60:log rl:{ns:p:unix}:60:exact \
             c 3 420001 a 3 420001 l 3 420001"
        );
    }
}
