//! Real traffic drives the limiter: every request of four public access logs, decided at its own stamp.
//!
//! Both stores decide each request alike, and like a reference written here from the formula alone.

use std::{collections::HashMap, net::IpAddr};

use slidegate::{
    clock::Clock,
    policy::{Client, Identifier, IdentifierHasher},
    ratelimit::{Algorithm, Cost, Timestamp},
    store::{Action, At, Demand, Group, MemorySettings, MemoryStore, Store},
};

use crate::support::{
    access_log::{self, Request},
    redis::RedisServer,
};

/// Per minute; each is asked on its own.
const QUOTAS: [u64; 5] = [5, 10, 30, 60, 120];

/// How many requests each quota denies.
type Denied = [usize; 5];

/// File, lines, and what each algorithm denies, in the order of [`Algorithm::ALL`].
const LOGS: [(&str, usize, [Denied; Algorithm::ALL.len()]); 4] = [
    (
        "nasa_aug95.common.log",
        9_999,
        [
            [1477, 175, 0, 0, 0],
            [1221, 141, 0, 0, 0],
            [1862, 275, 0, 0, 0],
        ],
    ),
    (
        "blog_may15.combined.log",
        10_000,
        // All in one minute of an hour: there never is a window before.
        [[3083, 1729, 456, 87, 0]; 3],
    ),
    (
        "shop_jan19.combined.log",
        1_000,
        [
            [635, 447, 78, 0, 0],
            [603, 402, 50, 0, 0],
            [652, 474, 110, 0, 0],
        ],
    ),
    (
        "noise.combined.log",
        1_000,
        [
            [393, 239, 13, 0, 0],
            [378, 230, 13, 0, 0],
            [395, 249, 13, 0, 0],
        ],
    ),
];

#[tokio::test]
async fn both_stores_decide_every_request_of_real_logs_like_the_formula() {
    let server = RedisServer::start();
    let settings = MemorySettings {
        max_counters: 10_000_000,
    };
    let memory = Store::Memory(MemoryStore::new(settings, Clock::system()));
    let redis = server.store();
    for (file, lines, expected) in LOGS {
        let requests = access_log::read(file);
        assert_eq!(requests.len(), lines, "{file}");
        for (algorithm, expected) in Algorithm::ALL.into_iter().zip(expected) {
            let reference = QUOTAS.map(|quota| reference(algorithm, &requests, quota));
            let denied = reference.each_ref().map(|decisions| denials(decisions));
            assert_eq!(denied, expected, "{file}, {algorithm:?}");
            for store in [&memory, &redis] {
                let decisions = decide(store, file, algorithm, &requests).await;
                for (quota, (found, expected)) in
                    QUOTAS.iter().zip(decisions.iter().zip(&reference))
                {
                    let mut both = found.iter().zip(expected);
                    let first = both.position(|(found, expected)| found != expected);
                    assert_eq!(
                        first, None,
                        "{file} at {quota}/1m by {algorithm:?} differs in line {first:?}"
                    );
                }
            }
        }
    }
}

/// Whether each request is admitted, by quota.
async fn decide(
    store: &Store,
    file: &str,
    algorithm: Algorithm,
    requests: &[Request],
) -> [Vec<bool>; 5] {
    let hasher = IdentifierHasher::new(None, 128);
    // A policy for each log, algorithm and quota: nothing is shared between them.
    let (log, name) = (&file[..4], algorithm.name());
    let policies = QUOTAS.map(|quota| format!("{log}-{name}-{quota}"));
    let mut decisions = [const { Vec::new() }; 5];
    for request in requests {
        let identifier = hasher.client(Client::Address(request.client));
        let groups: Vec<Group<'_>> = QUOTAS
            .iter()
            .zip(&policies)
            .map(|(quota, policy)| {
                Group::from_elem(demand(policy, algorithm, *quota, identifier), 1)
            })
            .collect();
        let replies = store.take(&groups, At::Stamp(request.at)).await;
        for (decisions, reply) in decisions.iter_mut().zip(replies) {
            decisions.push(reply.expect("it decides")[0].allowed);
        }
    }
    decisions
}

fn demand(policy: &str, algorithm: Algorithm, quota: u64, identifier: Identifier) -> Demand<'_> {
    Demand {
        policy,
        identifier,
        limit: format!("{quota}/1m").parse().expect("a limit"),
        algorithm,
        cost: Cost::ONE,
        action: Action::Take,
        audited: false,
    }
}

/// By a log, in whole seconds, `units after now - 60 >= quota` denies; those that have left are gone for good, also where
/// stamps go back.
fn exact_reference(requests: &[Request], quota: u64) -> Vec<bool> {
    let mut logs = HashMap::<IpAddr, Vec<u64>>::new();
    let mut admit = |Request { at, client }: &Request| {
        let log = logs.entry(*client).or_default();
        log.retain(|second| second + 60 > at.as_seconds());
        let admits = (log.len() as u64) < quota;
        if admits {
            log.push(at.as_seconds());
        }
        admits
    };
    requests.iter().map(&mut admit).collect()
}

/// `current + previous * (60 - elapsed) / 60 >= quota` denies, in whole seconds, of a fixed window `current >= quota`;
/// what is admitted counts.
fn reference(algorithm: Algorithm, requests: &[Request], quota: u64) -> Vec<bool> {
    if algorithm.keeps_a_log() {
        return exact_reference(requests, quota);
    }
    let mut admitted = HashMap::<(IpAddr, u64), u64>::new();
    let mut admit = |Request { at, client }: &Request| {
        let (minute, elapsed) = (Timestamp::as_seconds(*at) / 60, at.as_seconds() % 60);
        let count = |minute| admitted.get(&(*client, minute)).copied().unwrap_or(0);
        let previous = match algorithm {
            Algorithm::SlidingWindowCounter => count(minute - 1),
            Algorithm::FixedWindow => 0,
            Algorithm::SlidingLog => unreachable!("it has no windows"),
        };
        let sixtieths = count(minute) * 60 + previous * (60 - elapsed);
        let admits = sixtieths < quota * 60;
        if admits {
            *admitted.entry((*client, minute)).or_default() += 1;
        }
        admits
    };
    requests.iter().map(&mut admit).collect()
}

fn denials(decisions: &[bool]) -> usize {
    decisions.iter().filter(|admitted| !**admitted).count()
}
