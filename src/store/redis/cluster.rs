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
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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

use self::slots::Share;
use super::{
    RedisSettings,
    access::Access,
    connection::Dialer,
    script::Script,
    server::Server,
    topology::{ClusterSettings, HostPort},
};
use crate::{
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
    servers: Box<[Option<Arc<Server>>]>,
    /// What it was made of.
    shares: Vec<Share>,
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
            table: ArcSwap::from_pointee(Table::new(Vec::new(), |_| None)),
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
        let known = || self.shared.table.load().servers[slot.index()].clone();
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

    /// The server that a redirect by `asked` names.
    pub(super) fn redirected(&self, redirect: &Redirect, asked: &Arc<Server>) -> Arc<Server> {
        let host = redirect.host.clone();
        let at = HostPort {
            host: host.unwrap_or_else(|| self.shared.members.host(asked)),
            port: redirect.port,
        };
        let server = self.shared.members.get(&at);
        if !redirect.asking {
            *self.shared.named.lock() = Some(at);
            self.shared.outdated.notify_one();
        }
        server
    }

    /// Tripped while any server is, or while there are slots that none is known to have.
    pub(super) fn health(&self) -> Health {
        let table = self.shared.table.load();
        let healths = self.shared.members.healths(&table);
        let tripped = || healths.iter().filter(|health| health.tripped);
        Health {
            tripped: tripped().next().is_some() || !table.is_whole(),
            next_probe: tripped()
                .map(|health| health.next_probe)
                .min()
                .unwrap_or_default(),
            pending: healths.iter().map(|health| health.pending).sum(),
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
    fn new(shares: Vec<Share>, mut server: impl FnMut(&HostPort) -> Option<Arc<Server>>) -> Self {
        let mut servers = vec![None; Slot::COUNT];
        for share in &shares {
            servers[share.slots.clone()].fill(server(&share.server));
        }
        Self {
            servers: servers.into(),
            shares,
        }
    }

    /// The servers that have slots.
    fn addresses(&self) -> impl Iterator<Item = &HostPort> {
        self.shares.iter().map(|share| &share.server)
    }

    fn is_whole(&self) -> bool {
        self.servers.iter().all(Option::is_some)
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
    wanted: AtomicBool,
}

impl Members {
    /// The server at an address; it is connected to if it is new.
    fn get(&self, at: &HostPort) -> Arc<Server> {
        let mut open = self.open.lock();
        let member = open.entry(at.clone()).or_insert_with(|| Member {
            server: Arc::new(self.connect(at)),
            wanted: AtomicBool::new(true),
        });
        member.wanted.store(true, Ordering::Relaxed);
        Arc::clone(&member.server)
    }

    fn connect(&self, at: &HostPort) -> Server {
        let dialer = Dialer::to(at, &self.settings, self.probe.clone());
        let take = Arc::clone(&self.take);
        Server::open(dialer, take, self.settings.budget, &self.runtime)
    }

    /// Where a server is; empty for one that has been left meanwhile.
    fn host(&self, server: &Arc<Server>) -> String {
        let open = self.open.lock();
        let mut members = open.iter();
        let found = members.find(|(_, member)| Arc::ptr_eq(&member.server, server));
        found.map(|(at, _)| at.host.clone()).unwrap_or_default()
    }

    /// Leaves all but those of `table` and those wanted since the last time.
    fn keep(&self, table: &Table) {
        let addresses: HashSet<_> = table.addresses().collect();
        let stays = |at: &HostPort, member: &mut Member| {
            member.wanted.swap(false, Ordering::Relaxed) || addresses.contains(at)
        };
        self.open.lock().retain(stays);
    }

    /// The health of the servers in `table`.
    fn healths(&self, table: &Table) -> Vec<Health> {
        let addresses: HashSet<_> = table.addresses().collect();
        let open = self.open.lock();
        let members = addresses.into_iter().filter_map(|at| open.get(at));
        members.map(|member| member.server.health()).collect()
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
        let mut trouble = None;
        loop {
            match self.learn().await {
                Ok(()) => trouble = None,
                // Once, not at every attempt; a new reason is news.
                Err(reason) if trouble.as_ref() != Some(&reason) => {
                    tracing::warn!(%reason, "No server tells the slots of the cluster.");
                    trouble = Some(reason);
                }
                Err(_) => {}
            }
            self.shared.attempted.send_replace(true);
            time::sleep(SHORTEST_PAUSE).await;
            self.rest(trouble.is_none()).await;
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
            let table = self.shared.table.load();
            let healths = self.shared.members.healths(&table);
            if !learnt || !table.is_whole() || healths.iter().any(|health| health.tripped) {
                return;
            }
        }
    }

    /// Asks one server after the other, until one tells the slots.
    async fn learn(&mut self) -> Result<(), String> {
        let mut reasons = Vec::new();
        for whom in self.candidates() {
            match self.ask(&whom).await {
                Ok(shares) => {
                    self.install(shares);
                    return Ok(());
                }
                Err(reason) => reasons.push(format!("{whom}: {reason}")),
            }
        }
        Err(reasons.join("; "))
    }

    async fn ask(&self, whom: &HostPort) -> Result<Vec<Share>, String> {
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let reply: Value = self.access.ask(whom, &question).await?;
        let mut shares = slots::read(reply, whom).map_err(|error| error.to_string())?;
        if shares.is_empty() {
            return Err("it knows of no slots".to_owned());
        }
        shares.sort_by_key(|share| *share.slots.start());
        Ok(shares)
    }

    /// Whom a redirect named, then the servers of the table, those that are away last, then the seeds.
    fn candidates(&mut self) -> Vec<HostPort> {
        let table = self.shared.table.load();
        let mut known: Vec<HostPort> = table.addresses().cloned().collect();
        known.sort_by(|a, b| (&a.host, a.port).cmp(&(&b.host, b.port)));
        known.dedup();
        if !known.is_empty() {
            self.turn = (self.turn + 1) % known.len();
            known.rotate_left(self.turn);
        }
        let open = self.shared.members.open.lock();
        known.sort_by_key(|at| {
            open.get(at)
                .is_none_or(|member| member.server.health().tripped)
        });
        drop(open);

        let named = self.shared.named.lock().take();
        let mut seen = HashSet::new();
        let all = named
            .into_iter()
            .chain(known)
            .chain(self.seeds.iter().cloned());
        all.filter(|at| seen.insert(at.clone())).collect()
    }

    fn install(&self, shares: Vec<Share>) {
        if self.shared.table.load().shares == shares {
            self.shared.members.keep(&self.shared.table.load());
            return;
        }
        let table = Table::new(shares, |at| Some(self.shared.members.get(at)));
        let servers: HashSet<_> = table.addresses().map(ToString::to_string).collect();
        tracing::info!(
            ?servers,
            whole = table.is_whole(),
            "The cluster told who has which slots."
        );
        self.shared.members.keep(&table);
        self.shared.table.store(Arc::new(table));
    }
}

/// Between two questions, whatever happens: redirects come in crowds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// While a server is away: a new primary is then found within half a second.
const TROUBLED_PAUSE: Duration = Duration::from_millis(500);

/// While all is well: a slot that moves is told by a redirect, and one server of many that is not needed
/// any more costs little.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The settings may hold a password.
impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
