//! Every request decided again: by the limiter of the proxy, and by others to compare it with.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use smallvec::SmallVec;

use super::{
    record::Record,
    tally::{Decided, Slot, Tally},
    timeline::Timeline,
};
use crate::{
    clock::Clock,
    limiter::{Intent, LimitDecision, Limiter, LimiterSettings, LineSettings, Outcome},
    policy::{Charge, ClientHeader, ClientRule, PolicySet, RequestView},
    ratelimit::{Algorithm, Timestamp},
    store::MemorySettings,
};

/// By what requests are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// As configured, where not all limits are by the same algorithm.
    Configured,
    /// All limits by this algorithm.
    By(Algorithm),
}

impl Rule {
    /// The word in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::By(algorithm) => algorithm.name(),
        }
    }

    /// The rules to compare by, for policies that are as `configured`: the one in force first.
    pub fn compared(policies: &PolicySet) -> Vec<Self> {
        let policies = policies.policies().iter();
        let tiers = policies.flat_map(|policy| policy.tiers.all());
        let mut algorithms = tiers
            .flat_map(|tier| &tier.limits)
            .map(|named| named.algorithm);
        let first = algorithms.next().unwrap_or_default();
        let in_force = match algorithms.all(|algorithm| algorithm == first) {
            true => Self::By(first),
            false => Self::Configured,
        };
        let others = Algorithm::ALL.into_iter().map(Self::By);
        let others = others.filter(|rule| *rule != in_force);
        std::iter::once(in_force).chain(others).collect()
    }
}

/// What became of the requests, whichever limit had a say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdicts {
    pub passed: u64,
    pub denied: u64,
    /// Blocked, or without the identity that a policy wants.
    pub refused: u64,
}

/// Requests decided again by several rules, each on counters of its own.
#[derive(Debug)]
pub struct Replay {
    pub(super) runs: Vec<Run>,
    clients: ClientRule,
    clock: Clock,
    pub(super) span: Option<(Timestamp, Timestamp)>,
    /// How many requests have a stamp before that of one before them, and by how much at most.
    pub(super) went_back: (u64, Duration),
    /// By the rule in force.
    pub(super) timeline: Timeline,
}

impl Replay {
    /// One by these rules, each with its policies; the first is the one in force. `clients` says who the client is
    /// where a log shows what proxies said.
    pub fn new(clients: ClientRule, rules: Vec<(Rule, Arc<PolicySet>)>) -> Self {
        Self::within(MEMORY, clients, rules)
    }

    fn within(
        memory: MemorySettings,
        clients: ClientRule,
        rules: Vec<(Rule, Arc<PolicySet>)>,
    ) -> Self {
        let clock = Clock::manual(Timestamp::from_millis(0));
        let runs = rules.into_iter();
        let runs = runs.map(|(rule, policies)| Run::new(rule, policies, memory, &clock));
        Self {
            runs: runs.collect(),
            clients,
            clock,
            span: None,
            went_back: (0, Duration::ZERO),
            timeline: Timeline::default(),
        }
    }

    /// Decides on the next request; whether the rule in force denies it.
    pub fn decide(&mut self, record: &Record) -> bool {
        let at = record.at;
        let (first, last) = self.span.unwrap_or((at, at));
        if at < last {
            let (requests, furthest) = self.went_back;
            self.went_back = (requests + 1, furthest.max(last.since(at)));
        }
        self.span = Some((first.min(at), last.max(at)));
        self.clock.set(at);
        let view = view(&self.clients, record);
        let mut in_force = None;
        for run in &mut self.runs {
            let is_denied = run.decide(&view, record);
            in_force.get_or_insert(is_denied);
        }
        let is_denied = in_force.unwrap_or_default();
        self.timeline.add(at, is_denied);
        is_denied
    }

    /// The rules whose decisions may differ from the proxy's, since what they counted first is forgotten, and may have been asked
    /// for since.
    pub(super) fn forgetful(&self) -> Vec<&'static str> {
        let (_, furthest) = self.went_back;
        let runs = self.runs.iter().filter(|run| run.is_forgetful(furthest));
        runs.map(|run| run.rule.name()).collect()
    }
}

/// What policies see of a request. Its client is whom the proxy would take for it: whom trusted proxies name, where the
/// log has that; else whom the log names.
pub(super) fn view<'r>(clients: &ClientRule, record: &'r Record) -> RequestView<'r> {
    let header = match clients.header {
        ClientHeader::XForwardedFor => http::HeaderName::from_static("x-forwarded-for"),
        ClientHeader::Forwarded => http::header::FORWARDED,
    };
    let headers = &record.head.headers;
    let peer_is_trusted = clients.trusts(record.peer);
    let client = match peer_is_trusted && headers.contains_key(header) {
        true => clients.client(record.peer, headers),
        false => record.client,
    };
    RequestView {
        head: &record.head,
        client,
        peer_is_trusted,
    }
}

/// The requests decided by one rule.
#[derive(Debug)]
pub(super) struct Run {
    pub rule: Rule,
    pub policies: Arc<PolicySet>,
    limiter: Arc<Limiter>,
    memory: MemorySettings,
    requests: u64,
    /// The most counters in memory at once.
    counters: usize,
    pub tallies: BTreeMap<Slot, Tally>,
    pub verdicts: Verdicts,
}

impl Run {
    fn new(rule: Rule, policies: Arc<PolicySet>, memory: MemorySettings, clock: &Clock) -> Self {
        let limiter = Limiter::at_stamps_of(clock, policies.clone(), memory, &settings());
        Self {
            rule,
            limiter: Arc::new(limiter),
            memory,
            requests: 0,
            counters: 0,
            policies,
            tallies: BTreeMap::new(),
            verdicts: Verdicts::default(),
        }
    }

    /// Whether it denies the request.
    fn decide(&mut self, view: &RequestView<'_>, record: &Record) -> bool {
        let (decided, is_denied) = self.decided(view, record);
        for decided in decided {
            self.tally(decided.slot).count(&decided, record.at);
        }
        self.requests += 1;
        if self.requests.is_multiple_of(LOOK_EVERY) {
            let counters = self.limiter.store_status().counters_here();
            self.counters = self.counters.max(counters);
        }
        is_denied
    }

    /// Whether a counter may be gone that was asked for when stamps went back by so much, or a log.
    ///
    /// An identifier's counters are in one part of the store, which forgets its own. So this asks whether a part has room for what
    /// may be asked for in it, and errs to the safe side.
    fn is_forgetful(&self, furthest: Duration) -> bool {
        let room = self.memory.max_counters / MemorySettings::SHARDS;
        let (mut counters, mut logs) = (0, false);
        for (slot, tally) in &self.tallies {
            let named = slot.of(&self.policies);
            if named.algorithm.keeps_a_log() {
                logs = true;
                continue;
            }
            let windows = 2 + furthest.as_secs().div_ceil(named.limit.window().seconds());
            let windows = usize::try_from(windows).unwrap_or(usize::MAX);
            counters += in_one_part(tally.identifiers.len()).saturating_mul(windows);
        }
        (self.counters > room && counters > room)
            || (logs && self.counters > NEARLY_FULL * self.memory.max_counters / 100)
    }

    fn tally(&mut self, slot: Slot) -> &mut Tally {
        let Self {
            tallies, policies, ..
        } = self;
        let tally = tallies.entry(slot);
        tally.or_insert_with(|| Tally::new(slot.of(policies)))
    }

    /// What each limit decided, and whether the request is denied by it all.
    fn decided(
        &mut self,
        view: &RequestView<'_>,
        record: &Record,
    ) -> (SmallVec<[Decided; 4]>, bool) {
        let limiter = self.limiter.clone();
        let checked = limiter.check(view, Intent::Take).now_or_never();
        let mut verdict = checked.expect("a store in memory is not waited for");
        self.count(&verdict.outcome);
        let passes = verdict.outcome == Outcome::Pass;
        let is_denied = verdict.outcome == Outcome::Denied;
        let decided = |limit: &LimitDecision| Decided {
            slot: Slot {
                policy: limit.policy,
                tier: limit.tier,
                limit: limit.limit,
            },
            identifier: limit.identifier,
            cost: limit.decision.cost.units(),
            estimate: limit.decision.estimate(),
            allowed: limit.decision.allowed,
            charged: self.stays_charged(limit.policy, limit.decision.charged, passes, record),
        };
        let limits = verdict.limits().iter().chain(verdict.shadow());
        let decided = limits.map(decided).collect();
        if let Some(status) = record.status {
            let settled = limiter.settle(&mut verdict, status).now_or_never();
            settled.expect("a store in memory is not waited for");
        }
        (decided, is_denied)
    }

    /// Whether what a request was, or was not, charged when it was decided stays so once its status is known.
    fn stays_charged(&self, policy: usize, charged: bool, passes: bool, record: &Record) -> bool {
        let answered = record.status.filter(|_| passes);
        match &self.policies.policies()[policy].charge {
            Charge::AtRequest { take_back_5xx } => {
                let taken_back = answered.is_some_and(|status| status.is_server_error());
                charged && !(*take_back_5xx && taken_back)
            }
            Charge::AtResponse { statuses } => {
                answered.is_some_and(|status| statuses.contains(&status))
            }
        }
    }

    fn count(&mut self, outcome: &Outcome) {
        let verdicts = &mut self.verdicts;
        *match outcome {
            Outcome::Pass => &mut verdicts.passed,
            Outcome::Denied => &mut verdicts.denied,
            Outcome::Refused(_) | Outcome::Unavailable { .. } => &mut verdicts.refused,
        } += 1;
    }
}

/// How many of so many identifiers may be in one part of the store: chance gives some parts more than others.
fn in_one_part(identifiers: usize) -> usize {
    let share = identifiers / MemorySettings::SHARDS;
    identifiers.min(share + 4 * share.isqrt() + 4)
}

/// No line is written, nothing is kept of single decisions, and no proxy shares a limit.
fn settings() -> LimiterSettings {
    LimiterSettings {
        expected_replicas: NonZeroU32::MIN,
        near_limit_edges: vec![0.9, 1.1],
        denial_cache: Duration::ZERO,
        audit: None,
        lines: LineSettings {
            near_limit: 0,
            denied: 0,
        },
    }
}

/// Of each run: about 50 MB, whatever the log is like. Counters of the oldest windows go first, which only a request can miss
/// whose stamp goes back as far, or one among more identifiers than that. So a bound costs decisions that nobody sees,
/// and a log of a year, whose counters of all windows were kept, would not fit any memory.
const MEMORY: MemorySettings = MemorySettings {
    max_counters: 500_000,
};

/// In percent: logs are forgotten before all parts of the store are full, since some have more of them than others.
const NEARLY_FULL: usize = 90;

/// After so many requests it is looked how full memory is: that takes a lock for each part.
const LOOK_EVERY: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::{IdentifierHasher, Policy},
        replay::{Identifiers, Reading, Report, read},
    };

    const SMALL: MemorySettings = MemorySettings {
        max_counters: 6_400,
    };

    /// Replays requests by who sent them and when, in seconds, with little memory.
    fn forgetful(requests: impl Iterator<Item = (u64, u64)>) -> Vec<&'static str> {
        let hasher = IdentifierHasher::new(None, IdentifierHasher::DEFAULT_IPV6_PREFIX);
        let limit = "5/1m".parse().expect("a limit");
        let policy = Policy::of_addresses("client_ip", &[limit]);
        let set = Arc::new(PolicySet::new(vec![policy], hasher.clone()));
        let rules = vec![(Rule::By(Algorithm::default()), set)];
        let mut replay = Replay::within(SMALL, ClientRule::default(), rules);
        let lines = requests.map(|(who, at)| {
            let (high, low, hour, minute, second) = (who >> 8, who & 255, at / 3_600, at / 60 % 60, at % 60);
            format!(
                "10.0.{high}.{low} - - [01/Jan/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 1\n"
            )
        });
        let (log, mut reading) = (lines.collect::<String>(), Reading::default());
        let each = &mut |record: &Record| {
            replay.decide(record);
        };
        read("a.log", log.as_bytes(), &mut reading, each).expect("in memory");
        let identifiers = Identifiers {
            hasher: &hasher,
            show: true,
        };
        Report::new(&reading, &replay, identifiers).forgetful
    }

    #[test]
    fn it_is_told_where_what_was_forgotten_may_have_been_asked_for_and_nowhere_else() {
        let nobody: Vec<&str> = Vec::new();
        let many = (0..8_000).map(|who| (who, 0));
        assert_eq!(forgetful(many), ["sliding_window_counter"]);
        let few = (0..4_000).map(|step| (step % 1_000, step / 1_000));
        assert_eq!(forgetful(few), nobody, "all have room");
        let onwards = (0..10_000).map(|step| (step % 50, 60 * (step / 50)));
        assert_eq!(
            forgetful(onwards.clone()),
            nobody,
            "what is forgotten is past"
        );
        let a_little = onwards.clone().chain([(1, 199 * 60 - 30)]);
        assert_eq!(forgetful(a_little), nobody, "that is still there");
        let far = onwards.chain([(1, 0)]);
        assert_eq!(forgetful(far), ["sliding_window_counter"]);
    }
}
