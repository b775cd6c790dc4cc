//! What would become of a request, and why: which policies are for it, whom they count, what their limits say.
//!
//! The answer comes from the code that decides on requests, which is asked to leave no trace. What is asked is a
//! [`Question`], from a command line or in JSON; the answer holds nothing that the question did, so no key.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header, request::Parts};
use serde::{Deserialize, Serialize};

use crate::{
    limiter::{Intent, LimitDecision, Outcome, Verdict},
    policy::{Asked, Client, Mode, Policy, PolicySet, RequestView, Standing},
    proxy::{Rules, response::whole_seconds, upstream::AmbiguousRoute},
    ratelimit::Wait,
};

/// A request that nobody sends.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Method and target, as in `GET /login`; a target alone is asked for by GET.
    pub request: String,
    /// Header lines, as in `X-API-Key: k`.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Who connects: the client, or a proxy before this one. Left out: a peer without an address, on a unix
    /// socket.
    pub from: Option<IpAddr>,
}

/// The question cannot be a request. What it holds is not repeated: it may be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// No method and target.
    #[error("request: expected a method and a target, as in GET /login?x=1")]
    Request,
    /// Not a header line. Counted from 1.
    #[error("header {0}: expected a name, a colon and a value, as in X-API-Key: k")]
    Header(usize),
    /// More than one `Host`, or another than that of the URL: such a request is answered 400 before it is decided.
    #[error("header: a request has one Host, and with a URL the one of that")]
    Host,
}

/// What would become of the request.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Who the client is, trusted proxies considered.
    pub client: String,
    /// Whether who connects is a trusted proxy.
    pub peer_is_trusted: bool,
    /// `pass`, `denied`, `refused` or `unavailable`.
    pub outcome: &'static str,
    /// Why it is refused, exempt or sent nowhere, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The status of slidegate's own answer; none where the upstream answers.
    pub status: Option<u16>,
    /// The upstream that would answer, where one would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The headers that slidegate adds or sends.
    pub headers: Vec<(String, String)>,
    /// Every policy, in configuration order.
    pub policies: Vec<PolicyExplanation>,
}

/// What a policy makes of the request.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyExplanation {
    /// Its name.
    pub policy: String,
    /// `enforce` or `shadow`.
    pub mode: &'static str,
    /// Whether it is for this request.
    pub matches: bool,
    /// Why it does not ask, where it matches and does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// As whom the client is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identifier: Option<String>,
    /// What told so, as in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The plan whose limits apply, if they are one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// What the request takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The limits that apply, and what they say.
    pub limits: Vec<LimitExplanation>,
}

/// What a limit says.
#[derive(Clone, Debug, Serialize)]
pub struct LimitExplanation {
    /// Its name.
    pub name: String,
    /// As configured.
    pub limit: String,
    /// What it says; none where nothing was asked, since the request does not get as far or the store is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionExplanation>,
}

/// A decision on one limit.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionExplanation {
    /// Whether it admits the request.
    pub allowed: bool,
    /// Who decided: `store` or `local`.
    pub decided_by: &'static str,
    /// Units counted in this window.
    pub current: u64,
    /// Units counted in the one before.
    pub previous: u64,
    /// Units that count now.
    pub estimate: f64,
    /// Requests of cost 1 that it would admit at this moment.
    pub remaining: u64,
    /// Seconds until it would admit this request, where it does not; none for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

/// Explains what the rules would make of a request now.
///
/// # Errors
/// If the question can not be a request.
pub async fn explain(rules: &Rules, question: &Question) -> Result<Explanation, QuestionError> {
    let head = question.head()?;
    let peer = question.from.map_or(Client::Unix, Client::from);
    let view = RequestView {
        head: &head,
        client: rules.clients.client(peer, &head.headers),
        peer_is_trusted: rules.clients.trusts(peer),
    };
    let policies = rules.limiter.policies();
    let verdict = rules.limiter.check(&view, Intent::Peek).await;
    let preview = rules.responder.preview(&verdict, &head);
    let headers = preview.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        (name.to_string(), value.into_owned())
    });
    let outcome = verdict.outcome.name();
    let because = match &verdict.outcome {
        Outcome::Pass if policies.exempts(&view) => Some("exempt".to_owned()),
        Outcome::Pass | Outcome::Denied => None,
        Outcome::Refused(refusal) => Some(refusal.to_string()),
        Outcome::Unavailable { .. } => {
            Some("the store is away, and a policy has failure_mode: deny".to_owned())
        }
    };
    let way = match rules.upstreams.route(&head) {
        _ if verdict.outcome != Outcome::Pass => Way::default(),
        Ok(Some(upstream)) => Way {
            upstream: Some(upstream.name().to_owned()),
            ..Way::default()
        },
        Ok(None) => Way::nowhere(StatusCode::NOT_FOUND, "no route is for it"),
        Err(AmbiguousRoute) => Way::nowhere(
            StatusCode::BAD_REQUEST,
            "its path can be read in several ways, which lead to different upstreams",
        ),
    };
    let because: Vec<_> = because.into_iter().chain(way.because).collect();
    let status = way.status.or(preview.status);
    let standings = policies.standings(&view).into_iter().enumerate();
    Ok(Explanation {
        client: match view.client {
            Client::Address(address) => address.to_canonical().to_string(),
            Client::Unix => "unix".to_owned(),
        },
        peer_is_trusted: view.peer_is_trusted,
        outcome,
        because: (!because.is_empty()).then(|| because.join(", ")),
        status: status.map(|status| status.as_u16()),
        upstream: way.upstream,
        headers: headers.collect(),
        policies: standings
            .map(|(place, standing)| policy(policies, place, &standing, &verdict))
            .collect(),
    })
}

impl Question {
    fn head(&self) -> Result<Parts, QuestionError> {
        let (method, target) = match self.request.trim().split_once(' ') {
            Some((method, target)) => (method, target.trim()),
            None => ("GET", self.request.trim()),
        };
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| QuestionError::Request)?;
        let uri: Uri = target.parse().map_err(|_| QuestionError::Request)?;
        if !target.starts_with(['/', '*']) && uri.scheme().is_none() {
            return Err(QuestionError::Request);
        }
        let mut request = http::Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        for (place, line) in self.headers.iter().enumerate() {
            let (name, value) = header_line(line).ok_or(QuestionError::Header(place + 1))?;
            request.headers_mut().append(name, value);
        }
        let host = request
            .uri()
            .authority()
            .map(|authority| authority.as_str());
        if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
            let told = request
                .headers_mut()
                .entry(header::HOST)
                .or_insert(host.clone());
            if !told.as_bytes().eq_ignore_ascii_case(host.as_bytes()) {
                return Err(QuestionError::Host);
            }
        }
        if request.headers().get_all(header::HOST).iter().count() > 1 {
            return Err(QuestionError::Host);
        }
        Ok(request.into_parts().0)
    }
}

/// Where a request would go that passes.
#[derive(Default)]
struct Way {
    upstream: Option<String>,
    status: Option<StatusCode>,
    because: Option<String>,
}

impl Way {
    fn nowhere(status: StatusCode, because: &str) -> Self {
        Self {
            upstream: None,
            status: Some(status),
            because: Some(because.to_owned()),
        }
    }
}

fn header_line(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let value = HeaderValue::from_bytes(value.trim().as_bytes()).ok()?;
    Some((name, value))
}

fn policy(
    policies: &Arc<PolicySet>,
    place: usize,
    standing: &Standing,
    verdict: &Verdict,
) -> PolicyExplanation {
    let policy = &policies.policies()[place];
    let mut explained = PolicyExplanation {
        policy: policy.name.to_string(),
        mode: policy.mode.name(),
        matches: !matches!(standing, Standing::DoesNotMatch),
        because: None,
        identifier: None,
        source: None,
        plan: None,
        cost: None,
        limits: Vec::new(),
    };
    let plan = |tier: usize| {
        policy.tiers.all()[tier]
            .plan
            .as_ref()
            .map(ToString::to_string)
    };
    let because = |why: &str| Some(why.to_owned());
    match standing {
        Standing::DoesNotMatch => {}
        Standing::IsBehind => {
            explained.because = because("apply: first, and an enforced policy before it matches");
        }
        Standing::CountsNobody => {
            explained.because =
                because("none of its sources has a value (missing_identifier: allow)");
        }
        Standing::IsUnlimited { identifier, tier } => {
            explained.because = because("unlimited");
            explained.identifier = Some(identifier.to_string());
            explained.plan = plan(*tier);
        }
        Standing::Refuses(refusal) => explained.because = Some(refusal.to_string()),
        Standing::Asks(asked) => {
            explained.identifier = Some(asked.identifier.to_string());
            explained.source = Some(source(policy, asked));
            explained.plan = plan(asked.tier);
            explained.cost = Some(asked.cost.units());
            explained.limits = limits(policies, asked, verdict);
        }
    }
    explained
}

fn source(policy: &Policy, asked: &Asked) -> String {
    let entry = policy.identifier.entries.get(asked.entry);
    entry.map_or_else(
        || "client_ip, for want of a source".to_owned(),
        ToString::to_string,
    )
}

fn limits(policies: &PolicySet, asked: &Asked, verdict: &Verdict) -> Vec<LimitExplanation> {
    let decided = match policies.policies()[asked.policy].mode {
        Mode::Enforce => verdict.limits(),
        Mode::Shadow => verdict.shadow(),
    };
    let limits = policies.limits(asked).iter().enumerate();
    let explained = limits.map(|(place, named)| {
        let mut decided = decided.iter();
        let decision = decided.find(|limit| (limit.policy, limit.limit) == (asked.policy, place));
        LimitExplanation {
            name: named.name.to_string(),
            limit: named.limit.to_string(),
            decision: decision.map(decision_explained),
        }
    });
    explained.collect()
}

fn decision_explained(limit: &LimitDecision) -> DecisionExplanation {
    let decision = &limit.decision;
    let wait = match decision.retry_after() {
        Some(Wait::For(wait)) => Some(whole_seconds(wait)),
        Some(Wait::Never) | None => None,
    };
    DecisionExplanation {
        allowed: decision.allowed,
        decided_by: limit.decided_by.name(),
        current: decision.counts.current,
        previous: decision.counts.previous,
        estimate: decision.estimate(),
        remaining: decision.remaining(),
        retry_after_seconds: wait,
    }
}
