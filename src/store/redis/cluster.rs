//! A cluster: which server has which slots, learnt and kept up to date.
//!
//! Each server has its own connection, breaker, queue and clock ([`Server`]), as a single one has: one that
//! is frozen or gone costs its own slots the failure mode, and the others nothing. A task asks for the
//! slots at start, whenever a server says that one has moved, and again and again while one is away; only
//! routing is done here, and no call is repeated.
//!
//! The client library's own cluster client is not used. It repeats a call whose connection broke, which may
//! have run; told not to, it follows no redirect to a server that has no slots yet. While it learns the
//! slots anew it holds up the calls to every server, also those to sound ones, for as long as one that does
//! not answer takes to be given up. And it keeps the password and certificates that it began with.

mod slots;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time,
};

pub(super) use slots::{Redirect, Slot};

use self::slots::Range;
use super::{
    RedisSettings,
    access::Access,
    connection::Dialer,
    script::Script,
    server::Server,
    topology::{ClusterSettings, HostPort},
    trouble::Trouble,
};
use crate::{
    bounded_log::News,
    clock,
    store::{Health, StoreError},
};

/// The servers of a cluster, by slot.
///
/// Dropping it ends their connections.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    refresher: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    /// Whom to ask about each slot.
    table: ArcSwap<Table>,
    members: Members,
    /// Whether the first attempt to learn the slots has ended.
    attempted: watch::Sender<bool>,
    /// Whom a redirect named last: it knows what is new.
    named: Mutex<Option<HostPort>>,
    /// Wakes the refresher.
    outdated: Notify,
}

/// The server of each slot, as far as there is one.
#[derive(Debug)]
struct Table {
    by_slot: Box<[Option<Arc<Server>>]>,
    /// Those that have slots, once each.
    servers: Vec<Arc<Server>>,
    /// Whether every slot has one.
    whole: bool,
    /// What it was made of.
    ranges: Vec<Range>,
}

impl Cluster {
    /// Starts to learn the slots, on `runtime`.
    pub(super) fn open(
        cluster: &ClusterSettings,
        settings: RedisSettings,
        take: Arc<Script>,
        probe: redis::Pipeline,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let seeds = settings.url.host_port().into_iter();
        let seeds = seeds.chain(cluster.addresses.iter().cloned()).collect();
        let access = Access::to_servers(&settings);
        let shared = Arc::new(Shared {
            table: ArcSwap::from_pointee(Table::new(Vec::new(), &[])),
            members: Members {
                open: Mutex::default(),
                settings,
                take,
                probe,
                runtime: runtime.clone(),
            },
            attempted: watch::Sender::new(false),
            named: Mutex::default(),
            outdated: Notify::new(),
        });
        let refresher = Refresher {
            shared: Arc::clone(&shared),
            access,
            seeds,
            turn: 0,
        };
        Self {
            shared,
            refresher: runtime.spawn(refresher.run()).abort_handle(),
        }
    }

    /// The server of a slot. Waits only until the first attempt to learn the slots has ended.
    ///
    /// # Errors
    /// [`StoreError::Disconnected`] if none is known.
    pub(super) async fn server(&self, slot: Slot) -> Result<Arc<Server>, StoreError> {
        let known = || self.shared.table.load().by_slot[slot.index()].clone();
        if let Some(server) = known() {
            return Ok(server);
        }
        self.shared
            .attempted
            .subscribe()
            .wait_for(|attempted| *attempted)
            .await
            .expect("the sender is in self");
        known().ok_or(StoreError::Disconnected)
    }

    /// The server at an address that another one told; it is connected to if it is new. `None` if there are
    /// too many.
    pub(super) fn member(&self, told: &HostPort) -> Option<Arc<Server>> {
        self.shared.members.get(told)
    }

    /// Has the slots learnt anew, of the server there first.
    pub(super) fn moved(&self, to: &HostPort) {
        *self.shared.named.lock() = Some(to.clone());
        self.shared.outdated.notify_one();
    }

    /// Tripped while any server is, or while there are slots that none is known to have.
    pub(super) fn health(&self) -> Health {
        let table = self.shared.table.load();
        let healths = || table.servers.iter().map(|server| server.health());
        let tripped = table.is_in_trouble();
        let probes = healths().filter(|health| health.tripped);
        let probes = probes.map(|health| health.next_probe);
        Health {
            tripped,
            next_probe: if tripped {
                probes.fold(SHORTEST_PAUSE + TROUBLED_PAUSE, Duration::min)
            } else {
                Duration::ZERO
            },
            pending: healths().map(|health| health.pending).sum(),
        }
    }
}

/// The connections go with it; calls under way fail.
impl Drop for Cluster {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

impl Table {
    /// Of these ranges; a server of each is among `servers`.
    fn new(ranges: Vec<Range>, servers: &[Arc<Server>]) -> Self {
        let mut by_slot = vec![None; Slot::COUNT.into()];
        for range in &ranges {
            let mut servers = servers.iter();
            let server = servers.find(|server| server.at.as_ref() == Some(&range.server));
            by_slot[range.slots.clone()].fill(server.cloned());
        }
        Self {
            servers: servers.to_vec(),
            whole: by_slot.iter().all(Option::is_some),
            by_slot: by_slot.into(),
            ranges,
        }
    }

    fn is_in_trouble(&self) -> bool {
        !self.whole || self.servers.iter().any(|server| server.is_in_trouble())
    }
}

/// Every server that is connected to, or on the way there.
struct Members {
    open: Mutex<HashMap<HostPort, Member>>,
    settings: RedisSettings,
    take: Arc<Script>,
    probe: redis::Pipeline,
    runtime: tokio::runtime::Handle,
}

#[derive(Debug)]
struct Member {
    server: Arc<Server>,
    /// Whether it was wanted since the slots were last learnt: one that only gets its first slots is in no
    /// table yet.
    wanted: bool,
}

impl Members {
    /// The server at an address; it is connected to if it is new, unless there are too many.
    fn get(&self, at: &HostPort) -> Option<Arc<Server>> {
        let mut open = self.open.lock();
        if let Some(member) = open.get_mut(at) {
            member.wanted = true;
            return Some(Arc::clone(&member.server));
        }
        if open.len() >= MOST_SERVERS {
            return None;
        }
        let server = Arc::new(self.connect(at));
        let member = Member {
            server: Arc::clone(&server),
            wanted: true,
        };
        open.insert(at.clone(), member);
        Some(server)
    }

    fn connect(&self, at: &HostPort) -> Server {
        let dialer = Dialer::to(at, &self.settings, self.probe.clone());
        let (take, budget) = (Arc::clone(&self.take), self.settings.budget);
        Server::open(Some(at.clone()), dialer, take, budget, &self.runtime)
    }

    /// Leaves all but `servers` and those wanted since the last time.
    fn keep(&self, servers: &[Arc<Server>]) {
        self.open.lock().retain(|_, member| {
            let in_table = servers
                .iter()
                .any(|server| Arc::ptr_eq(server, &member.server));
            mem::take(&mut member.wanted) || in_table
        });
    }
}

/// Learns the slots, over and over.
struct Refresher {
    shared: Arc<Shared>,
    access: Access,
    /// Asked while nobody else is known, or answers.
    seeds: Vec<HostPort>,
    /// Who is asked first: not always the same, since one that is cut off from the others may be behind.
    turn: usize,
}

impl Refresher {
    async fn run(mut self) {
        let mut news = News::default();
        loop {
            match self.learn().await {
                Ok(()) => news.went_well(),
                Err(trouble) => {
                    if let Some(reason) = news.failed(trouble) {
                        tracing::warn!(%reason, "No server tells the slots of the cluster: those known so far are asked, and failure modes decide the others.");
                    }
                }
            }
            self.shared.attempted.send_replace(true);
            time::sleep(SHORTEST_PAUSE).await;
            self.rest(!news.is_failing()).await;
        }
    }

    /// Until there is a reason to ask again.
    async fn rest(&self, learnt: bool) {
        let since = clock::instant();
        while clock::elapsed(since) < LONGEST_PAUSE {
            let outdated = self.shared.outdated.notified();
            if time::timeout(TROUBLED_PAUSE, outdated).await.is_ok() {
                return;
            }
            if !learnt || self.shared.table.load().is_in_trouble() {
                return;
            }
        }
    }

    /// Asks one server after the other, until one tells the slots.
    async fn learn(&mut self) -> Result<(), Trouble> {
        let (mut reasons, mut fullest) = (Vec::new(), (0, Vec::new()));
        for whom in self.candidates() {
            match self.ask(&whom).await {
                Ok(ranges) => {
                    let known: usize = ranges.iter().map(Range::len).sum();
                    if known > fullest.0 {
                        fullest = (known, ranges);
                    }
                    // One that others have forgotten knows of a part only.
                    if known == usize::from(Slot::COUNT) {
                        break;
                    }
                }
                Err(reason) => reasons.push(reason.with(&whom)),
            }
        }
        let table = self.shared.table.load_full();
        for server in &table.servers {
            server.doubt(false);
        }
        let (known, ranges) = fullest;
        if known > 0 {
            self.install(ranges);
            return Ok(());
        }
        self.shared.members.keep(&table.servers);
        // In the same order at every attempt, though the turn is another one.
        reasons.sort_by_cached_key(Trouble::to_string);
        Err(Trouble::All(reasons))
    }

    async fn ask(&self, whom: &HostPort) -> Result<Vec<Range>, Trouble> {
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let reply: Value = self.access.ask(whom, &question).await?;
        let mut ranges =
            slots::read(reply, whom).map_err(|error| Trouble::Said(error.to_string()))?;
        if ranges.is_empty() {
            return Err(Trouble::NoSlots);
        }
        ranges.sort_by_key(|range| *range.slots.start());
        if ranges
            .windows(2)
            .any(|two| two[0].slots.end() >= two[1].slots.start())
        {
            return Err(Trouble::SlotTwice);
        }
        Ok(ranges)
    }

    /// Whom a redirect named, then the servers of the table, those that are away last, then the seeds.
    fn candidates(&mut self) -> Vec<HostPort> {
        let mut known = self.shared.table.load().servers.clone();
        if !known.is_empty() {
            self.turn = (self.turn + 1) % known.len();
            known.rotate_left(self.turn);
        }
        known.sort_by_key(|server| server.is_in_trouble());

        let named = self.shared.named.lock().take();
        let known = known.iter().filter_map(|server| server.at.clone());
        let all = named
            .into_iter()
            .chain(known)
            .chain(self.seeds.iter().cloned());
        let mut seen = HashSet::new();
        all.filter(|at| seen.insert(at.clone())).collect()
    }

    fn install(&self, ranges: Vec<Range>) {
        let table = self.shared.table.load();
        if table.ranges == ranges {
            self.shared.members.keep(&table.servers);
            return;
        }
        let addresses: BTreeSet<&HostPort> = ranges.iter().map(|range| &range.server).collect();
        let servers: Vec<_> = addresses
            .into_iter()
            .filter_map(|at| self.shared.members.get(at))
            .collect();
        let table = Table::new(ranges, &servers);
        let told: Vec<_> = servers
            .iter()
            .filter_map(|server| server.at.as_ref())
            .map(ToString::to_string)
            .collect();
        tracing::info!(servers = ?told, whole = table.whole, "The cluster told who has which slots.");
        self.shared.members.keep(&servers);
        self.shared.table.store(Arc::new(table));
    }
}

/// As many servers as Redis recommends for the largest cluster: a server that invents others gets no further.
const MOST_SERVERS: usize = 1000;

/// Between two questions, whatever happens: redirects come in crowds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// While a server is away: a new primary is then found within a second, with the time that the answer takes.
const TROUBLED_PAUSE: Duration = Duration::from_millis(500);

/// While all is well. A move is told by a redirect; this bounds how long a server that has left stays
/// connected.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The settings may hold a password.
impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
