//! What each part of a request takes by itself: the rule, identities, matching, metrics, and the limiter with all of
//! them over a store in memory.

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::FutureExt;
use http::request::Parts;
use slidegate::{
    clock::Clock,
    config::Config,
    limiter::{Intent, Limiter},
    metrics::{Metrics, PolicyMetrics},
    policy::{Client, IdentifierHasher, PolicySet, RequestView},
    ratelimit::{Algorithm, Cost, Counts, Limit, Timestamp, decide},
    store::{DecidedBy, MemoryStore, Store},
};

criterion_group!(benches, core, identity, matching, metrics, limiter);
criterion_main!(benches);

/// A decision, and what a client is told of it.
fn core(criterion: &mut Criterion) {
    let limit: Limit = "100/1m".parse().expect("a limit");
    let now = Timestamp::from_millis(1_700_000_015_000);
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        for (outcome, current) in [("allowed", 30), ("denied", 100)] {
            let counts = Counts {
                current,
                previous: 80,
            };
            criterion.bench_function(&format!("core/{name}/{outcome}"), |bencher| {
                bencher.iter(|| {
                    let decision = decide(algorithm, limit, black_box(counts), Cost::ONE, now);
                    (decision.remaining(), decision.retry_after())
                });
            });
        }
    }
}

/// From a key or an address to what is counted.
fn identity(criterion: &mut Criterion) {
    let hasher = IdentifierHasher::new(Some("secret"), 64);
    criterion.bench_function("identity/key of 16 bytes", |bencher| {
        bencher.iter(|| hasher.api_key(black_box(b"0123456789abcdef")));
    });
    let client = Client::from(
        "2001:db8::1"
            .parse::<std::net::IpAddr>()
            .expect("an address"),
    );
    criterion.bench_function("identity/address", |bencher| {
        bencher.iter(|| hasher.client(black_box(client)));
    });
}

/// Which policies ask about a request, and whom each counts.
fn matching(criterion: &mut Criterion) {
    let head = head();
    for count in [1, 1_000] {
        let (policies, _) = policies(count);
        criterion.bench_function(&format!("policy/{count} policies"), |bencher| {
            bencher.iter(|| policies.asked(&view(black_box(&head))));
        });
    }
}

/// What one decision counts.
fn metrics(criterion: &mut Criterion) {
    let (policies, config) = policies(1);
    let metrics = Metrics::new();
    let edges = &config.limiter.near_limit_edges;
    let counted = PolicyMetrics::new(&metrics, &policies, edges, false);
    let head = head();
    let asked = policies.asked(&view(&head)).expect("one is asked about")[0];
    criterion.bench_function("metrics/a decision", |bencher| {
        bencher.iter(|| {
            counted.identified(&asked);
            let of = (asked.policy, asked.tier);
            counted.decided(of, true, DecidedBy::Store, Some(black_box(0.5)))
        });
    });
    criterion.bench_function("metrics/a request", |bencher| {
        bencher.iter(|| metrics.request(black_box(Some(http::StatusCode::OK))));
    });
}

/// A request from its head to the verdict, without HTTP.
fn limiter(criterion: &mut Criterion) {
    let head = head();
    for count in [1, 1_000] {
        let (policies, config) = policies(count);
        let (clock, metrics) = (Clock::system(), Arc::new(Metrics::new()));
        let [store, local] = [(); 2].map(|()| MemoryStore::new(config.memory, clock.clone()));
        let store = Store::Memory(store);
        let limiter = Limiter::new(policies, store, local, &config.limiter, metrics, clock);
        let limiter = Arc::new(limiter);
        criterion.bench_function(&format!("limiter/{count} policies"), |bencher| {
            bencher.iter(|| {
                let view = view(black_box(&head));
                let verdict = limiter.check(&view, Intent::Take).now_or_never();
                verdict.expect("memory keeps nobody waiting")
            });
        });
    }
}

/// So many of which the last one matches, and their configuration.
fn policies(count: usize) -> (Arc<PolicySet>, Config) {
    let others = (1..count).map(|number| {
        format!(
            "  - {{name: other-{number}, match: {{path: [/other/{number}/*]}}, limits: [9/1m]}}\n"
        )
    });
    let others: String = others.collect();
    let yaml = format!(
        "upstream: {{address: \"127.0.0.1:1\"}}\npolicies:\n{others}  \
         - {{name: per-key, match: {{path: [/orders/*]}}, identifier: [header:x-api-key], limits: [1000000000/1m]}}\n"
    );
    let mut config =
        Config::parse(&yaml, "bench.yaml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let policies = PolicySet::new(std::mem::take(&mut config.policies), config.hasher.clone());
    (Arc::new(policies), config)
}

fn head() -> Parts {
    let request = http::Request::get("/orders/7");
    let request = request
        .header("host", "bench")
        .header("x-api-key", "0123456789abcdef");
    request.body(()).expect("a request").into_parts().0
}

fn view(head: &Parts) -> RequestView<'_> {
    RequestView {
        head,
        client: Client::from(std::net::IpAddr::from([127, 0, 0, 1])),
        peer_is_trusted: false,
    }
}
