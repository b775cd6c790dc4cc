//! What metrics cost. There is no switch for them, so all that is counted of one request is counted by itself, and
//! set against what the proxy takes for one.

use std::{fs, net::Ipv4Addr, sync::Arc, thread};

use slidegate::{
    clock,
    config::Config,
    metrics::{Metrics, PolicyMetrics},
    policy::{Asked, Identifier, PolicySet},
    store::DecidedBy,
};

use super::{
    compare::{ask, others, spent},
    report::{Bound, Report, median},
    scenarios::Scale,
    support::{binary::Binary, nginx::Nginx},
};

/// Rounds of requests, and rounds of what is counted of them, by turns.
pub fn counting(scale: &Scale, report: &mut Report) {
    let nginx = Nginx::start();
    let yaml = format!(
        "upstream: {{address: \"{}\"}}\nstore: {{url: \"memory:\"}}\nlog: {{level: warn}}\n{POLICY}",
        nginx.address
    );
    let gate = Binary::start(&yaml);
    let counted = Counted::new(&yaml);
    ask(&gate, scale);
    let (mut requests, mut counts, mut failed) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..scale.crowd_rounds {
        let (took, answers) = spent(gate.child.id(), || ask(&gate, scale));
        requests.push(took.as_secs_f64() * 1e6 / scale.crowd_requests as f64);
        failed += others(&answers);
        counts.push(counted.round());
    }
    let (request, count) = (median(&mut requests), median(&mut counts));
    let mut add = |what: &str, value, unit, bound| {
        report.add("counting", what, value, unit, bound);
    };
    add("answers other than 200", failed, "", Bound::Exactly(0.0));
    add("processor time of a request", request, "us", Bound::None);
    add("all that is counted of it", count, "ns", Bound::None);
    let share = count / 10.0 / request;
    add("  share of it", share, "%", Bound::AtMost(2.0));
}

/// The metrics of a proxy, shared by its workers.
struct Counted {
    metrics: Metrics,
    policy: PolicyMetrics,
    asked: Asked,
}

impl Counted {
    fn new(yaml: &str) -> Self {
        let config = Config::parse(yaml, "soak.yaml", &|_| None);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        let edges = &config.limiter.near_limit_edges;
        let policies = Arc::new(PolicySet::new(config.policies, config.hasher));
        let metrics = Metrics::new();
        let policy = PolicyMetrics::new(&metrics, &policies, edges, false);
        let who = Identifier::Address(Ipv4Addr::LOCALHOST.into());
        let asked = Asked {
            entry: 0,
            ..policies.asked_about(0, who)
        };
        Self {
            metrics,
            policy,
            asked,
        }
    }

    /// The processor time of one request's metrics in nanoseconds, with as many threads at once as a proxy has.
    fn round(&self) -> f64 {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let took: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|_| {
                    scope.spawn(|| {
                        for number in 0..A_ROUND {
                            self.request(number);
                        }
                        of_this_thread()
                    })
                })
                .collect();
            let threads = threads.into_iter();
            threads
                .map(|thread| thread.join().expect("it counts"))
                .sum()
        });
        took as f64 / (A_ROUND * workers as u64) as f64
    }

    /// What the limiter and the proxy count of a request that passes; every tenth is near its limit. The time is
    /// read for two of them.
    fn request(&self, number: u64) {
        let started = clock::instant();
        self.policy.identified(&self.asked);
        let of = (self.asked.policy, self.asked.tier);
        let utilization = (number % 10) as f64 / 9.5;
        let near = self
            .policy
            .decided(of, true, DecidedBy::Store, Some(utilization));
        std::hint::black_box(near);
        let added = clock::elapsed(started);
        self.metrics.request_added.observe(added.as_secs_f64());

        let chosen = clock::instant();
        let took = clock::elapsed(chosen);
        self.metrics.upstream_duration.observe(took.as_secs_f64());
        self.metrics.request(Some(http::StatusCode::OK));
    }
}

/// In nanoseconds, since it began.
fn of_this_thread() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat");
    let text = text.expect("the kernel has CONFIG_SCHED_INFO");
    let first = text.split(' ').next().and_then(|text| text.parse().ok());
    first.expect("a number")
}

const POLICY: &str =
    "policies: [{name: p, identifier: [header:x-api-key], limits: [2000000/1m]}]\n";

/// Requests that each thread counts in a round.
const A_ROUND: u64 = 100_000;
