//! From a request to a verdict: policy, then store, then what it means. The only caller of a store.
//!
//! [`Limiter::check`] asks every policy about a request in one call to the store, or on a cluster in one for
//! each policy, all at once; [`Limiter::settle`] completes it once the status of the response is known. What a
//! verdict looks like in HTTP is deliberately absent.

mod apart;
mod denial_cache;
mod failure_mode;
mod noted;
mod settle;
mod shared;
mod verdict;

use std::{
    collections::HashSet,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use tokio::sync::Semaphore;

pub use noted::{NearLimit, Noted};
pub use shared::{LimiterLogs, StoreStatus};
pub use verdict::{LimitDecision, LimitDecisions, Outcome, Verdict};

use self::{
    denial_cache::DenialCache,
    noted::{Denied, StoreFailure},
    shared::Shared,
};
use crate::{
    bounded_log::{Kind, LINES_PER_SECOND},
    clock::{self, Clock},
    metrics::{Metrics, PolicyCounts, PolicyMetrics},
    policy::{Asked, AuditSample, Charge, Identifier, Mode, PolicySet, RequestView},
    ratelimit::{Algorithm, Decision, Limit},
    store::{
        Action, DecidedBy, Demand, Group, GroupReply, MAX_AUDITED_QUOTA, MemorySettings,
        MemoryStore, Store, StoreError,
    },
};

/// How verdicts are made.
#[derive(Clone, Debug)]
pub struct LimiterSettings {
    /// How many proxies share each limit while each decides alone. Default 1.
    pub expected_replicas: NonZeroU32,
    /// The edges of the near-limit bands, as shares of the quota; ascending, at least two.
    /// Default [`Self::DEFAULT_NEAR_LIMIT_EDGES`].
    pub near_limit_edges: Vec<f64>,
    /// How long what Redis told of a denial may prove others without a call; zero is off. Default 1 s:
    /// about as long as a denial that is no longer right is bearable.
    pub denial_cache: Duration,
    /// For whom decisions are compared with an exact log. Default nobody: it costs memory in Redis.
    pub audit: Option<AuditSample>,
    /// What is logged of single decisions, from the start of the process on.
    pub lines: LineSettings,
}

impl LimiterSettings {
    /// The edges of the near-limit bands where none are configured: 5 % apart, on both sides of the limit.
    pub const DEFAULT_NEAR_LIMIT_EDGES: [f64; 5] = [0.90, 0.95, 1.00, 1.05, 1.10];
}

/// The most log lines a second about single decisions, from 0 to 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSettings {
    /// About those near a limit. Default 10: enough to see who comes near which, too few to matter.
    pub near_limit: u64,
    /// About denials. Default 0: denied clients are many in a flood, and metrics count them.
    pub denied: u64,
}

impl Default for LineSettings {
    fn default() -> Self {
        Self {
            near_limit: LINES_PER_SECOND,
            denied: 0,
        }
    }
}

/// Decides on requests by one set of policies.
#[derive(Debug)]
pub struct Limiter {
    policies: Arc<PolicySet>,
    counted: PolicyMetrics,
    /// `None` where it is off, where asking the store is as cheap, or where counts do not only grow.
    denials: Option<DenialCache>,
    denial_cache: Duration,
    expected_replicas: u32,
    audit: Option<AuditSample>,
    shared: Arc<Shared>,
}

/// Whether a check charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It does, if the request is admitted.
    Take,
    /// It only tells what would happen, and leaves no trace: not in metrics, nor in the denial cache.
    Peek,
}

impl Limiter {
    /// A limiter of these policies over `store`; `local` decides where the store cannot.
    pub fn new(
        policies: Arc<PolicySet>,
        store: Store,
        local: MemoryStore,
        settings: &LimiterSettings,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        let shared = Shared::new(store, local, settings.lines, metrics, clock);
        Self::over(Arc::new(shared), policies, settings)
    }

    /// A limiter in memory that decides each request at the stamp that `stamps` then shows, also where that has gone
    /// back: of requests that were, as logs tell them. It waits for nothing.
    pub fn at_stamps_of(
        stamps: &Clock,
        policies: Arc<PolicySet>,
        memory: MemorySettings,
        settings: &LimiterSettings,
    ) -> Self {
        let store = Store::Memory(MemoryStore::new(memory, stamps.clone()));
        // Nothing asks it: a store in memory does not fail.
        let local = MemoryStore::new(MemorySettings { max_counters: 1 }, stamps.clone());
        let metrics = Arc::new(Metrics::new());
        let shared = Shared::new(store, local, settings.lines, metrics, stamps.clone());
        let shared = shared.at_stamps_of(stamps.clone());
        Self::over(Arc::new(shared), policies, settings)
    }

    /// A limiter of other policies and settings over the same counters, which takes the place of this one.
    /// Series of metrics that are no longer among them go.
    #[must_use]
    pub fn replaced(&self, policies: Arc<PolicySet>, settings: &LimiterSettings) -> Self {
        let next = Self::over(self.shared.clone(), policies, settings);
        self.counted
            .give_way_to(&next.counted, &self.shared.metrics);
        next
    }

    fn over(shared: Arc<Shared>, policies: Arc<PolicySet>, settings: &LimiterSettings) -> Self {
        let enforced = policies.policies().iter();
        let enforced = enforced.filter(|policy| policy.mode == Mode::Enforce);
        let store = &shared.store;
        // What one policy charged and another's denial takes back soon must not deny anybody for longer.
        let counts_only_grow = store.spans_policies() || enforced.count() <= 1;
        let is_of_use = store.is_remote() && counts_only_grow && !settings.denial_cache.is_zero();
        let denials = is_of_use.then(|| DenialCache::new(policies.clone(), settings.denial_cache));
        let audited = settings.audit.is_some();
        let counted = PolicyMetrics::new(
            &shared.metrics,
            &policies,
            &settings.near_limit_edges,
            audited,
        );
        Self {
            policies,
            counted,
            denials,
            denial_cache: settings.denial_cache,
            expected_replicas: settings.expected_replicas.get(),
            audit: settings.audit.clone(),
            shared,
        }
    }

    /// The policies it decides by.
    pub fn policies(&self) -> &Arc<PolicySet> {
        &self.policies
    }

    /// How long it may deny a client after the store has forgotten it.
    pub fn denial_cache(&self) -> Duration {
        self.denial_cache
    }

    /// What was counted so far of the policy in this place.
    pub fn counted(&self, policy: usize) -> PolicyCounts {
        self.counted
            .so_far(policy, &self.policies.policies()[policy])
    }

    /// How its store is, and goes on to be when other policies have taken the place of these.
    pub fn store_status(&self) -> StoreStatus {
        StoreStatus(self.shared.clone())
    }

    /// What it and its successors tell only now and then.
    pub fn logs(&self) -> LimiterLogs {
        LimiterLogs(self.shared.clone())
    }

    /// The last decisions near a limit, those alike as one, the newest first; at most
    /// [`MOST_KINDS`](crate::bounded_log::MOST_KINDS).
    pub fn near_limit(&self) -> Vec<Kind<NearLimit>> {
        self.shared.near_limit.recent()
    }

    /// Decides on a request: all its policies, in one call, or on a cluster in one for each; the enforced ones in none if
    /// a denial is known beforehand.
    pub async fn check(self: &Arc<Self>, view: &RequestView<'_>, intent: Intent) -> Verdict {
        let asked = match self.policies.asked(view) {
            Ok(asked) => asked,
            Err(refusal) => return self.verdict(Outcome::Refused(refusal)),
        };
        let is_enforced =
            |asked: &Asked| self.policies.policies()[asked.policy].mode == Mode::Enforce;
        let (enforced, shadow): (SmallVec<[Asked; 2]>, SmallVec<[Asked; 2]>) =
            asked.into_iter().partition(is_enforced);

        let started = clock::instant();
        let cache = self.denials.as_ref().filter(|_| intent == Intent::Take);
        let denials = cache.map_or_else(SmallVec::new, |cache| {
            // What the store does not decide, its logs know nothing of.
            let unaudited = enforced.iter().filter(|asked| !self.has_a_log(asked));
            cache.denials(unaudited, started)
        });
        let verdict =
            if denials.is_empty() && enforced.len() > 1 && !self.shared.store.spans_policies() {
                self.decide_apart(&enforced, &shadow, intent, started).await
            } else if denials.is_empty() {
                self.decide(&enforced, &shadow, intent, started).await
            } else {
                self.ask_unawaited(shadow.clone());
                self.conclude(&enforced, denials)
            };
        if intent == Intent::Take {
            for asked in enforced.iter().chain(&shadow) {
                self.counted.identified(asked);
            }
            self.observe(&verdict.limits);
            self.observe(&verdict.shadow);
        }
        verdict
    }

    /// What the store holds for an identifier under a policy's limits, as the decisions that a request
    /// would meet now; nothing is charged.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn inspect(
        &self,
        policy: usize,
        identifier: Identifier,
    ) -> Result<LimitDecisions, StoreError> {
        let asked = [self.policies.asked_about(policy, identifier)];
        let group = self.group(&asked, Intent::Peek);
        let mut replies = self.shared.store.take(&[group], self.shared.at()).await;
        let decisions = replies.pop().unwrap_or(Err(StoreError::Disconnected))?;
        Ok(self.limit_decisions(&asked, decisions, DecidedBy::Store))
    }

    /// Deletes what the store and this proxy's own memory hold for an identifier under a policy.
    ///
    /// # Errors
    /// If the store does not answer; this proxy's memory has forgotten all the same.
    pub async fn forget(&self, policy: usize, identifier: Identifier) -> Result<(), StoreError> {
        let asked = self.policies.asked_about(policy, identifier);
        let group = self.every_counter(&asked);
        self.shared.local.forget(&group, self.shared.at());
        let forgotten = self.shared.store.forget(&group, self.shared.at()).await;
        // Last, since until then the store may tell of a denial that is to be forgotten.
        if let Some(cache) = &self.denials {
            cache.forget(asked);
        }
        forgotten
    }

    /// A demand for each counter that the policy may have for whoever is asked about, in whatever plan.
    fn every_counter(&self, asked: &Asked) -> Group<'_> {
        let policy = &self.policies.policies()[asked.policy];
        let mut windows = HashSet::new();
        let limits = policy.tiers.all().iter().flat_map(|tier| &tier.limits);
        let counters = limits.filter(|named| windows.insert(named.limit.window()));
        let demands = counters.map(|named| Demand {
            policy: &policy.name,
            identifier: asked.identifier,
            limit: named.limit,
            algorithm: named.algorithm,
            cost: asked.cost,
            action: Action::Peek,
            audited: false,
        });
        demands.collect()
    }

    /// What the store says in one call, or whoever decides in its stead.
    async fn decide(
        &self,
        enforced: &[Asked],
        shadow: &[Asked],
        intent: Intent,
        started: Instant,
    ) -> Verdict {
        // All enforced policies stand or fall together; each shadow policy decides alone.
        let mut groups: SmallVec<[Group<'_>; 2]> = SmallVec::new();
        if !enforced.is_empty() {
            groups.push(self.group(enforced, intent));
        }
        groups.extend(self.shadow_groups(shadow, intent));
        if groups.is_empty() {
            return self.verdict(Outcome::Pass);
        }

        let within = self.shared.store.budget();
        let (replies, received) = self.ask(&groups, started, within, intent).await;
        let mut replies = replies.into_iter();
        let mut verdict = if enforced.is_empty() {
            self.verdict(Outcome::Pass)
        } else {
            match replies.next() {
                Some(Ok(decisions)) => {
                    let limits = self.limit_decisions(enforced, decisions, DecidedBy::Store);
                    if let Some(cache) = self.denials.as_ref().filter(|_| intent == Intent::Take) {
                        cache.learn(&limits, started, received);
                    }
                    self.conclude(enforced, limits)
                }
                Some(Err(_)) | None => self.decide_without_store(enforced, intent),
            }
        };
        verdict.shadow = self.shadow_decisions(shadow, replies);
        verdict.waited = received - started;
        verdict
    }

    /// One question to the store, sent at `started`; and when its replies were received.
    async fn ask(
        &self,
        groups: &[Group<'_>],
        started: Instant,
        within: Duration,
        intent: Intent,
    ) -> (Vec<GroupReply>, Instant) {
        let replies = self
            .shared
            .store
            .take_within(groups, self.shared.at(), within)
            .await;
        let received = self.received(&replies, started, intent);
        (replies, received)
    }

    /// Counts what came of a question that charges, sent at `started`; returns when that was. A cause that fails several
    /// groups is one failure. Of a store in memory nothing is counted, and it answers when it is asked.
    fn received<'r>(
        &self,
        replies: impl IntoIterator<Item = &'r GroupReply>,
        started: Instant,
        intent: Intent,
    ) -> Instant {
        if !self.shared.store.is_remote() {
            return started;
        }
        let took = clock::elapsed(started);
        if intent == Intent::Peek {
            return started + took;
        }
        let (mut told, mut asked) = (SmallVec::<[&StoreError; 2]>::new(), false);
        for reply in replies {
            match reply {
                Err(error) => {
                    if !told.contains(&error) {
                        self.store_failed(error);
                        told.push(error);
                    }
                    asked |= !matches!(error, StoreError::Disconnected | StoreError::Overloaded);
                }
                Ok(_) => asked = true,
            }
        }
        if asked {
            self.shared
                .metrics
                .store_duration
                .observe(took.as_secs_f64());
        }
        started + took
    }

    /// Asks the store about shadow policies for a request that is denied already and does not wait.
    fn ask_unawaited(self: &Arc<Self>, shadow: SmallVec<[Asked; 2]>) {
        if shadow.is_empty() {
            return;
        }
        let limiter = self.clone();
        self.behind(&self.shared.unawaited, 0, async move {
            let groups = limiter.shadow_groups(&shadow, Intent::Take);
            let budget = limiter.shared.store.budget();
            let (replies, _) = limiter
                .ask(&groups, clock::instant(), budget, Intent::Take)
                .await;
            limiter.observe(&limiter.shadow_decisions(&shadow, replies));
        });
    }

    /// Does what no request waits for; unless too much of that is under way, and so many give-backs are lost.
    fn behind(
        &self,
        permits: &Arc<Semaphore>,
        lost: usize,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            for _ in 0..lost {
                self.shared.metrics.gave_back(false);
            }
            self.store_failed(&StoreError::Overloaded);
            return;
        };
        tokio::spawn(async move {
            work.await;
            drop(permit);
        });
    }

    fn shadow_groups<'a>(&'a self, shadow: &[Asked], intent: Intent) -> SmallVec<[Group<'a>; 2]> {
        let groups = shadow.iter().map(|asked| self.group(&[*asked], intent));
        groups.collect()
    }

    /// A shadow policy that the store did not decide has no say: its failure mode is never asked.
    fn shadow_decisions(
        &self,
        shadow: &[Asked],
        replies: impl IntoIterator<Item = GroupReply>,
    ) -> LimitDecisions {
        let decided = shadow.iter().zip(replies).filter_map(|(asked, reply)| {
            let decisions = reply.ok()?;
            Some(self.limit_decisions(&[*asked], decisions, DecidedBy::Store))
        });
        decided.flatten().collect()
    }

    /// The demands of these policies, to be charged together.
    fn group(&self, asked: &[Asked], intent: Intent) -> Group<'_> {
        let demands = asked.iter().flat_map(|asked| {
            let policy = &self.policies.policies()[asked.policy];
            let audited = intent == Intent::Take && self.audits(asked.identifier);
            self.policies.limits(asked).iter().map(move |named| Demand {
                policy: &policy.name,
                identifier: asked.identifier,
                limit: named.limit,
                algorithm: named.algorithm,
                cost: asked.cost,
                action: match (intent, &policy.charge) {
                    (Intent::Take, Charge::AtRequest { .. }) => Action::Take,
                    (Intent::Take, Charge::AtResponse { .. }) | (Intent::Peek, _) => Action::Peek,
                },
                audited: audited && can_be_audited(named.algorithm, named.limit),
            })
        });
        demands.collect()
    }

    /// Whether decisions on this identifier by any of this policy's limits are compared with an exact log.
    fn has_a_log(&self, asked: &Asked) -> bool {
        let mut limits = self.policies.limits(asked).iter();
        limits.any(|named| can_be_audited(named.algorithm, named.limit))
            && self.audits(asked.identifier)
    }

    /// Whether decisions on this identifier, by limits that can be audited, are compared with an exact log.
    fn audits(&self, identifier: Identifier) -> bool {
        let sample = self.audit.as_ref();
        sample.is_some_and(|sample| sample.includes(identifier))
    }

    /// Puts the decisions on a group back to the limits they are about.
    fn limit_decisions(
        &self,
        asked: &[Asked],
        decisions: impl IntoIterator<Item = Decision>,
        decided_by: DecidedBy,
    ) -> LimitDecisions {
        let limits = asked.iter().flat_map(|asked| {
            let limits = 0..self.policies.limits(asked).len();
            limits.map(|limit| (*asked, limit))
        });
        limits
            .zip(decisions)
            .map(|((asked, limit), decision)| LimitDecision {
                policy: asked.policy,
                tier: asked.tier,
                limit,
                identifier: asked.identifier,
                decision,
                decided_by,
            })
            .collect()
    }

    /// The verdict of `limits`, which are those of the `asked` that decided.
    fn conclude(&self, asked: &[Asked], limits: LimitDecisions) -> Verdict {
        let allowed = limits.iter().all(|limit| limit.decision.allowed);
        let mut verdict = self.verdict(if allowed {
            Outcome::Pass
        } else {
            Outcome::Denied
        });
        verdict.in_force = asked
            .iter()
            .map(|asked| (asked.policy, asked.tier))
            .collect();
        verdict.limits = limits;
        verdict
    }

    fn verdict(&self, outcome: Outcome) -> Verdict {
        Verdict::new(self.policies.clone(), outcome)
    }

    /// Counts what each policy decided, at its fullest limit, and notes what is near it, or denied; and how right
    /// each limit was, where that is known.
    fn observe(&self, limits: &[LimitDecision]) {
        for limit in limits {
            self.counted.judged(limit.policy, &limit.decision);
        }
        for limits in limits.chunk_by(|a, b| a.policy == b.policy) {
            let fullest = limits
                .iter()
                .filter_map(|limit| Some((limit, limit.decision.utilization()?)))
                .max_by(|(_, a), (_, b)| a.total_cmp(b));
            let allowed = limits.iter().all(|limit| limit.decision.allowed);
            let utilization = fullest.map(|(_, utilization)| utilization);
            let of = (limits[0].policy, limits[0].tier);
            let by = limits[0].decided_by;
            let near = self.counted.decided(of, allowed, by, utilization);
            let policy = &self.policies.policies()[limits[0].policy];
            if let Some((limit, _)) = fullest.filter(|_| near) {
                self.shared
                    .near_limit
                    .add(NearLimit(Noted::of(limit, policy)));
            }
            if let Some(log) = self.shared.denied.as_ref().filter(|_| !allowed) {
                let slowest = limits
                    .iter()
                    .rev()
                    .max_by_key(|limit| limit.decision.retry_after());
                if let Some(limit) = slowest {
                    log.add(Denied(Noted::of(limit, policy)));
                }
            }
        }
    }

    /// Counts an error of the store, and tells it.
    fn store_failed(&self, error: &StoreError) {
        self.shared.metrics.store_failed(error);
        self.shared.store_failures.add(StoreFailure(error.clone()));
    }
}

/// Whether a log of what this limit admits is of use, and small enough. A ban is right whatever was admitted, and what
/// is decided by a log could only be compared with itself.
fn can_be_audited(algorithm: Algorithm, limit: Limit) -> bool {
    !algorithm.keeps_a_log() && (1..=MAX_AUDITED_QUOTA).contains(&limit.quota())
}
