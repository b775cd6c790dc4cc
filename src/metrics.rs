//! Every metric: name, help, labels, buckets with the reason for their edges.
//!
//! Labels come from the configuration and from closed sets, never from a client. Each series exists at 0
//! from the start, so that a rate over it is right from its first event on. Handles are resolved once: on
//! the path of a request nothing is looked up by label.

mod policies;
mod upstreams;

use std::collections::BTreeMap;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

pub use policies::{PolicyCounts, PolicyMetrics};
pub use upstreams::{UpstreamMetrics, UpstreamOutcome};

use crate::store::{Health, StoreError};

/// Every metric of one process, and the handles through which they are counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    decisions: IntCounterVec,
    identified: IntCounterVec,
    near_limit: IntCounterVec,
    utilization: HistogramVec,
    audit_decisions: IntCounterVec,
    audit_estimate_error: HistogramVec,
    /// How long calls to Redis take, up to the budget; what fails without one is not among them.
    pub store_duration: Histogram,
    store_errors: Vec<(&'static str, IntCounter)>,
    store_breaker_tripped: IntGauge,
    store_pending: IntGauge,
    give_backs: [IntCounter; 2],
    requests: [IntCounter; STATUS_CLASSES.len()],
    config_reloads: [IntCounter; Reload::ALL.len()],
    config_info: IntGaugeVec,
    certificate_expiry: IntGaugeVec,
    /// Connections of clients at this moment.
    pub connections: IntGauge,
    connections_ended: [IntCounter; ConnectionEnd::ALL.len()],
    refusals: [IntCounter; REFUSED.len()],
    upstream_requests: IntCounterVec,
    upstream_retries: IntCounterVec,
    upstream_ejections: IntCounterVec,
    upstream_addresses: IntGaugeVec,
    /// By name.
    upstreams: Mutex<BTreeMap<Box<str>, UpstreamMetrics>>,
    /// From the choice of the upstream to the head of its response.
    pub upstream_duration: Histogram,
    /// From the head of a request to the decision on it; what a charge by response waits is not in it.
    pub request_added: Histogram,
}

/// Why a client's connection was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// There were as many as may be.
    TooMany,
    /// Its address had as many as one may have.
    TooManyOfAddress,
    /// It did not get as far as HTTP in time.
    SlowStart,
    /// It did not get as far as HTTP: no TLS, no header of the PROXY protocol, or from who may send none.
    BadStart,
    /// The head of a request took too long.
    SlowHead,
    /// The head of a request did not end.
    LargeHead,
    /// It took nothing of what it was sent.
    SlowRead,
}

impl ConnectionEnd {
    const ALL: [Self; 7] = [
        Self::TooMany,
        Self::TooManyOfAddress,
        Self::SlowStart,
        Self::BadStart,
        Self::SlowHead,
        Self::LargeHead,
        Self::SlowRead,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::TooMany => "too_many",
            Self::TooManyOfAddress => "too_many_of_address",
            Self::SlowStart => "slow_start",
            Self::BadStart => "bad_start",
            Self::SlowHead => "slow_head",
            Self::LargeHead => "large_head",
            Self::SlowRead => "slow_read",
        }
    }
}

/// What became of a configuration that was read after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// It is in force.
    Applied,
    /// It says what the one before said.
    Unchanged,
    /// It has faults.
    Refused,
}

impl Reload {
    const ALL: [Self; 3] = [Self::Applied, Self::Unchanged, Self::Refused];

    const fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

impl Metrics {
    /// Registers every metric; the series of policies come with [`PolicyMetrics`].
    ///
    /// # Panics
    /// Never: names and labels are fixed here.
    pub fn new() -> Self {
        let registry = Registry::new();
        let register = Register(&registry);

        let decisions = register.counters(
            "decisions_total",
            "Decisions, once per request and policy asked; deny if any of its limits denies.",
            &["policy", "plan", "decision", "decided_by", "mode"],
        );
        let identified = register.counters(
            "identified_total",
            "Requests by what told who is counted; fallback is the address for want of any source.",
            &["policy", "source"],
        );
        let near_limit = register.counters(
            "near_limit_decisions_total",
            "Decisions whose estimate / limit, at the policy's fullest limit, lies in the band.",
            &["policy", "decision", "band"],
        );
        let utilization = register.histograms(
            "utilization_ratio",
            "Estimate / limit at the policy's fullest limit, before the request is charged.",
            &["policy"],
            UTILIZATION_BUCKETS,
        );
        let audit_decisions = register.counters(
            "audit_decisions_total",
            "Decisions of single limits on audited identifiers, against an exact log of what was admitted.",
            &["policy", "outcome"],
        );
        let audit_estimate_error = register.histograms(
            "audit_estimate_error_ratio",
            "(Estimate - exact count) / limit of these decisions, before the request is charged.",
            &["policy"],
            ERROR_BUCKETS,
        );
        let store_errors = register.counters(
            "store_errors_total",
            "Calls to the store, or groups of one, that were not decided.",
            &["kind"],
        );
        let give_backs = register.counters(
            "give_backs_total",
            "Charges taken back after the fact, done or lost.",
            &["result"],
        );
        let requests = register.counters(
            "requests_total",
            "Requests by class of the status sent; none where the client left before one was.",
            &["status"],
        );
        let config_reloads = register.counters(
            "config_reloads_total",
            "Configurations read after the start: applied, the same as before, or refused for faults.",
            &["result"],
        );
        let refusals = register.counters(
            "refusals_total",
            "Requests that were refused whatever their limits, by status: unreadable, too large, too slow, blocked, for no route.",
            &["status"],
        );
        let connections_ended = register.counters(
            "connections_ended_total",
            "Connections of clients that were ended, and why: bounds, or what came before HTTP.",
            &["reason"],
        );
        let config_info = register.gauges(
            "config_info",
            "Always 1; the label is the same where the same configuration is in force.",
            &["fingerprint"],
        );
        let certificate_expiry = register.gauges(
            "certificate_expiry_timestamp_seconds",
            "When a certificate that clients are shown ends, in seconds since 1970; file is its file in the configuration.",
            &["file"],
        );
        let upstream_requests = register.counters(
            "upstream_requests_total",
            "Requests that were to go to an upstream, each once: answered by it, or not (502, 504), or left by the client.",
            &["upstream", "outcome"],
        );
        let upstream_retries = register.counters(
            "upstream_retries_total",
            "Attempts after a request's first, to another address or by a new connection.",
            &["upstream"],
        );
        let upstream_ejections = register.counters(
            "upstream_ejections_total",
            "Addresses left out for a while since requests failed there, each time.",
            &["upstream"],
        );
        let upstream_addresses = register.gauges(
            "upstream_addresses",
            "Addresses of an upstream by what becomes of requests there; all get some where none is in rotation.",
            &["upstream", "state"],
        );
        register
            .gauges(
                "build_info",
                "Always 1; the labels tell the version.",
                &["version"],
            )
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        register.process();

        Self {
            decisions,
            identified,
            near_limit,
            utilization,
            audit_decisions,
            audit_estimate_error,
            store_duration: register.histogram(
                "store_duration_seconds",
                "Calls to Redis, from the question to its answer or the end of the budget.",
                STORE_BUCKETS,
            ),
            store_errors: StoreError::KINDS
                .map(|kind| (kind, store_errors.with_label_values(&[kind])))
                .into(),
            store_breaker_tripped: register.gauge(
                "store_breaker_tripped",
                "1 while the store, or in a cluster any part of it, is away and requests do not wait for it.",
            ),
            store_pending: register.gauge(
                "store_pending",
                "Requests that wait for the store at this moment.",
            ),
            give_backs: ["lost", "done"].map(|result| give_backs.with_label_values(&[result])),
            requests: STATUS_CLASSES.map(|class| requests.with_label_values(&[class])),
            config_reloads: Reload::ALL
                .map(|result| config_reloads.with_label_values(&[result.name()])),
            config_info,
            certificate_expiry,
            connections: register.gauge("connections", "Connections of clients at this moment."),
            connections_ended: ConnectionEnd::ALL
                .map(|reason| connections_ended.with_label_values(&[reason.name()])),
            refusals: REFUSED.map(|status| refusals.with_label_values(&[status.as_str()])),
            upstream_requests,
            upstream_retries,
            upstream_ejections,
            upstream_addresses,
            upstreams: Mutex::default(),
            upstream_duration: register.histogram(
                "upstream_duration_seconds",
                "From the choice of the upstream to the head of its response.",
                UPSTREAM_BUCKETS,
            ),
            request_added: register.histogram(
                "request_added_seconds",
                "From the head of a request to the decision on it: what the limiter adds.",
                STORE_BUCKETS,
            ),
            registry,
        }
    }

    /// Counts a call that the store did not answer with a decision.
    pub fn store_failed(&self, error: &StoreError) {
        let counter = self
            .store_errors
            .iter()
            .find(|(kind, _)| *kind == error.kind());
        if let Some((_, counter)) = counter {
            counter.inc();
        }
    }

    /// Counts a charge that was taken back, or could not be.
    pub fn gave_back(&self, done: bool) {
        self.give_backs[usize::from(done)].inc();
    }

    /// Counts a request by the status that was sent; `None` if the client left before one was.
    pub fn request(&self, status: Option<http::StatusCode>) {
        let class = status.map_or(0, |status| usize::from(status.as_u16() / 100));
        self.requests[class.min(STATUS_CLASSES.len() - 1)].inc();
    }

    /// Counts a configuration that was read after the start.
    pub fn reloaded(&self, result: Reload) {
        self.config_reloads[result as usize].inc();
    }

    /// Tells which configuration is in force.
    pub fn configured(&self, fingerprint: &str) {
        self.config_info.reset();
        self.config_info.with_label_values(&[fingerprint]).set(1);
    }

    /// Counts a request that was answered by us with this status, if that is one that no limit brings about.
    pub fn refused(&self, status: StatusCode) {
        if let Some(place) = REFUSED.iter().position(|known| *known == status) {
            self.refusals[place].inc();
        }
    }

    /// Counts a connection that was ended.
    pub fn connection_ended(&self, reason: ConnectionEnd) {
        self.connections_ended[reason as usize].inc();
    }

    /// Forgets which certificates are shown.
    pub fn no_certificates(&self) {
        self.certificate_expiry.reset();
    }

    /// Tells when a certificate that is shown ends, in seconds since 1970.
    pub fn certificate(&self, file: &str, expires: i64) {
        let series = self.certificate_expiry.with_label_values(&[file]);
        series.set(expires);
    }

    /// Everything in the text format 0.0.4, and the content type to send it with.
    pub fn expose(&self, store: Health) -> (Vec<u8>, &'static str) {
        self.store_breaker_tripped.set(i64::from(store.tripped));
        self.store_pending
            .set(i64::try_from(store.pending).unwrap_or(i64::MAX));
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("writing to memory does not fail");
        (text, prometheus::TEXT_FORMAT)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Registers metrics under the prefix; a name that is taken or not valid is a fault of this file.
struct Register<'a>(&'a Registry);

impl Register<'_> {
    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Self::opts(name, help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Self::opts(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::with_opts(Self::opts(name, help)))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let opts = HistogramOpts::from(Self::opts(name, help)).buckets(buckets.into());
        self.add(Histogram::with_opts(opts))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        let opts = HistogramOpts::from(Self::opts(name, help)).buckets(buckets.into());
        self.add(HistogramVec::new(opts, labels))
    }

    fn process(&self) {
        let collector = prometheus::process_collector::ProcessCollector::for_self();
        self.0
            .register(Box::new(collector))
            .expect("the process collector is registered once");
    }

    fn opts(name: &str, help: &str) -> Opts {
        Opts::new(name, help).namespace("slidegate")
    }

    fn add<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        collector: prometheus::Result<C>,
    ) -> C {
        let collector = collector.expect("every name, help and label here is valid");
        self.0
            .register(Box::new(collector.clone()))
            .expect("every name here is used once");
        collector
    }
}

/// Labels whose values are not a closed set, and where they come from: never from a client.
pub const OPEN_LABELS: [(&str, &str); 8] = [
    ("band", "neighbours in `near_limit.edges`"),
    ("file", "`listen[].tls.certificates[].certificate`"),
    (
        "fingerprint",
        "a hash of the configuration in force, of which secrets are no part",
    ),
    (
        "plan",
        "a name in `policies[].plans`, or empty where the policy's own limits decide",
    ),
    ("policy", "`policies[].name`"),
    (
        "source",
        "an entry of `policies[].identifier`, or `fallback`, the address for want of any",
    ),
    (
        "upstream",
        "a name in `upstreams`, or `default` where there is one `upstream`",
    ),
    ("version", "that of slidegate"),
];

/// Indexed by `usize::from(allowed)`.
const DECISIONS: [&str; 2] = ["deny", "allow"];

/// What requests are refused with that no limit denies. 429, 503 and what upstreams bring about are counted by what they are.
const REFUSED: [StatusCode; 7] = [
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
];

/// Indexed by the first digit of a status; `none` where nothing was sent.
const STATUS_CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Fine around the limit, where a choice of limit is judged; coarse below.
const UTILIZATION_BUCKETS: &[f64] = &[0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0, 1.05, 1.1, 1.5, 2.0];

/// Around 0, where an estimate that is right lies; to the limit on both sides.
const ERROR_BUCKETS: &[f64] = &[
    -1.0, -0.5, -0.25, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0,
];

/// From a local round trip (0.1 ms) to past the default budget of 25 ms.
const STORE_BUCKETS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
];

/// From a cache hit to the default read timeout of 60 s.
const UPSTREAM_BUCKETS: &[f64] = &[
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
