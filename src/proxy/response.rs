//! Verdicts and errors as HTTP: the only place with statuses and headers.
//!
//! | outcome | status | RateLimit headers | Retry-After |
//! |---|---|---|---|
//! | pass | the upstream's | of the limits in force | – |
//! | denied | 429; gRPC: 200 with `grpc-status: 8` | of the limits in force | the exact wait; none on "never" |
//! | unavailable | 503 | – | seconds to the next probe of the store |
//! | refused | 400, 401 or 403 | – | – |
//! | upstream down, slow | 502, 504 | as decided | – |
//!
//! A gRPC call reads `grpc-status` beside each of ours, and no body, which its client would take for a message.

mod cors;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use pingora::http::ResponseHeader;
use serde::Serialize;
use smallvec::SmallVec;

pub use self::cors::Cors;
use super::{
    field::{Field, Fields},
    request_id::{RequestId, X_REQUEST_ID},
    text::HeaderText,
};
use crate::{
    limiter::{LimitDecision, Outcome, Verdict},
    policy::{IdentifierSource, Mode, NamedLimit, PolicySet, Refusal},
    ratelimit::Wait,
};

/// How responses are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseSettings {
    /// Whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are sent. Default true.
    pub x_ratelimit: bool,
    /// Whether `RateLimit-Policy` and `RateLimit` are sent. Default true.
    pub ratelimit: bool,
    /// What `X-RateLimit-Reset` holds. Default [`ResetFormat::Epoch`].
    pub x_ratelimit_reset: ResetFormat,
    /// What the body of a denial is. Default [`ErrorBody::ProblemJson`].
    pub error_body: ErrorBody,
    /// Pages of which origins may read our answers and headers. Default none: where an app has no pages of other
    /// origins, nobody needs to.
    pub cors: Option<Cors>,
}

/// What an answer depends on beside what was decided.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What the client asked for.
    pub head: &'a Parts,
    /// What the request is called, if it is called anything.
    pub id: Option<&'a RequestId>,
}

/// What `X-RateLimit-Reset` holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetFormat {
    /// The start of the next window in epoch seconds, as GitHub does.
    #[default]
    Epoch,
    /// Seconds from now until then.
    Seconds,
}

/// What the body of a denial, and of every other answer of our own, is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorBody {
    /// `application/problem+json` (RFC 9457).
    #[default]
    ProblemJson,
    /// One line of `text/plain`.
    Text,
}

/// What a client would get.
#[derive(Clone, Debug)]
pub struct Preview {
    /// The status of our own answer; `None` where the upstream answers.
    pub status: Option<StatusCode>,
    /// Our headers, all of them or beside the upstream's, but those that depend on the request's id: itself, and the
    /// length of a body that holds it.
    pub headers: HeaderMap,
}

/// Writes responses.
#[derive(Debug)]
pub struct Responder {
    settings: ResponseSettings,
    /// What `RateLimit-Policy` tells of each policy, by its tiers.
    members: Vec<Vec<Option<HeaderValue>>>,
    /// `RateLimit-Policy` where all of so many enforced policies are in force with limits of their own, as it mostly
    /// is: written once.
    all_limits: (usize, Option<HeaderValue>),
    /// Which of our headers pages may read.
    exposed: HeaderValue,
}

impl Responder {
    /// A writer of responses for these policies.
    pub fn new(settings: ResponseSettings, policies: &PolicySet) -> Self {
        let enforced: Vec<&[NamedLimit]> = policies
            .policies()
            .iter()
            .filter(|policy| policy.mode == Mode::Enforce)
            .map(|policy| policy.tiers.own())
            .filter(|limits| !limits.is_empty())
            .collect();
        let members = policies.policies().iter().map(|policy| {
            let tiers = policy.tiers.all().iter();
            tiers
                .map(|tier| policy_members(tier.limits.iter()))
                .collect()
        });
        Self {
            exposed: exposed(&settings),
            settings,
            members: members.collect(),
            all_limits: (
                enforced.len(),
                policy_members(enforced.into_iter().flatten()),
            ),
        }
    }

    /// Adds to the upstream's response what the client may know: of its limits, and what its request is called. A page
    /// that the upstream lets read the response may read them.
    ///
    /// # Errors
    /// None in practice: every value here is a header value.
    pub fn annotate(
        &self,
        asked: &Asked<'_>,
        verdict: Option<&Verdict>,
        passed: Duration,
        head: &mut ResponseHeader,
    ) -> pingora::Result<()> {
        if let Some(id) = asked.id
            && !head.headers.contains_key(&X_REQUEST_ID.name)
        {
            head.set(&X_REQUEST_ID, id.value())?;
        }
        if let Some(cors) = &self.settings.cors {
            cors.expose(asked.head, &self.exposed, head)?;
        }
        verdict.map_or(Ok(()), |verdict| self.limits(verdict, passed, head))
    }

    /// Adds what the client may know of its limits.
    ///
    /// `X-RateLimit-*` of the upstream are replaced, since two limits can not share one header; its
    /// `RateLimit` members are kept and ours added, as the draft asks of intermediaries. `passed` is the time
    /// since the decision: its whole seconds are taken off the waits, so that none is told too short.
    fn limits(
        &self,
        verdict: &Verdict,
        passed: Duration,
        head: &mut impl Fields,
    ) -> pingora::Result<()> {
        let Some(reported) = verdict.reported() else {
            return Ok(());
        };
        let passed = Duration::from_secs(passed.as_secs());
        let decision = &reported.decision;
        let limit = verdict.named(reported);
        if self.settings.x_ratelimit {
            let reset = match self.settings.x_ratelimit_reset {
                ResetFormat::Epoch => decision.reset().as_seconds(),
                ResetFormat::Seconds => {
                    let left = decision.reset().since(decision.now);
                    whole_seconds(left.saturating_sub(passed))
                }
            };
            head.set(&X_RATELIMIT_LIMIT, limit.limit.quota())?;
            head.set(&X_RATELIMIT_REMAINING, decision.remaining())?;
            head.set(&X_RATELIMIT_RESET, reset)?;
        }
        if self.settings.ratelimit {
            if let Some(members) = self.policy_members(verdict) {
                head.add(&RATELIMIT_POLICY, members)?;
            }
            head.add(&RATELIMIT, member(limit, reported, passed))?;
        }
        Ok(())
    }

    /// The head of what a client would get: of our own answer, or what is added to the upstream's.
    pub fn preview(&self, verdict: &Verdict, request: &Parts) -> Preview {
        let asked = Asked {
            head: request,
            id: None,
        };
        let (status, mut head) = match self.refuse(&asked, verdict) {
            Some((head, _)) => (Some(head.status), head),
            None => {
                let mut head = ResponseHeader::build(StatusCode::OK, None)
                    .expect("a head with a status and nothing else");
                self.annotate(&asked, Some(verdict), Duration::ZERO, &mut head)
                    .expect("every value is a header value");
                (None, head)
            }
        };
        head.remove_header(&header::CONTENT_LENGTH);
        Preview {
            status,
            headers: head.headers.clone(),
        }
    }

    /// The response to a request that does not pass; `None` where it does.
    pub fn refuse(&self, asked: &Asked<'_>, verdict: &Verdict) -> Option<(ResponseHeader, Bytes)> {
        let problem = match &verdict.outcome {
            Outcome::Pass => return None,
            Outcome::Denied => Problem::denied(verdict),
            Outcome::Unavailable { retry_after } => Problem::unavailable(*retry_after),
            Outcome::Refused(refusal) => Problem::refused(refusal),
        };
        Some(self.write(asked, &problem, Some(verdict), Duration::ZERO))
    }

    /// The response to a request that failed with `status`, `passed` after the decision on it.
    pub fn fail(
        &self,
        asked: &Asked<'_>,
        status: StatusCode,
        verdict: Option<&Verdict>,
        passed: Duration,
    ) -> (ResponseHeader, Bytes) {
        self.write(asked, &Problem::failed(status), verdict, passed)
    }

    fn write(
        &self,
        asked: &Asked<'_>,
        problem: &Problem<'_>,
        verdict: Option<&Verdict>,
        passed: Duration,
    ) -> (ResponseHeader, Bytes) {
        let grpc = is_grpc(asked.head).then(|| problem.grpc());
        let (content_type, body) = match self.settings.error_body {
            _ if grpc.is_some() => ("application/grpc", Vec::new()),
            ErrorBody::ProblemJson => ("application/problem+json", problem.json(asked.id)),
            ErrorBody::Text => ("text/plain; charset=utf-8", problem.text(asked.id).into()),
        };
        let status = grpc.map_or(problem.status, |(status, _, _)| status);
        let head = self.head(asked, status, content_type, body.len(), |head| {
            if let Some((_, code, message)) = grpc {
                head.set(&GRPC_STATUS, code)?;
                head.set(&GRPC_MESSAGE, message)?;
            }
            if let Some(seconds) = problem.retry_after {
                head.set(&RETRY_AFTER, seconds)?;
            }
            if let Some(challenge) = &problem.challenge {
                head.set(&WWW_AUTHENTICATE, challenge.as_str())?;
            }
            verdict.map_or(Ok(()), |verdict| self.limits(verdict, passed, head))
        });
        (head, body.into())
    }

    fn head(
        &self,
        asked: &Asked<'_>,
        status: StatusCode,
        content_type: &'static str,
        length: usize,
        more: impl FnOnce(&mut HeaderMap) -> pingora::Result<()>,
    ) -> ResponseHeader {
        let build = || {
            let mut fields = HeaderMap::with_capacity(USUAL_FIELDS);
            fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            fields.insert(header::CONTENT_LENGTH, length.into());
            fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            if let Some(id) = asked.id {
                fields.set(&X_REQUEST_ID, id.value())?;
            }
            if let Some(cors) = &self.settings.cors {
                cors.share(asked.head, &self.exposed, &mut fields)?;
            }
            more(&mut fields)?;
            Ok::<_, Box<pingora::Error>>(fields)
        };
        let fields = build().expect("names are constant; values are numbers, words of ours or the configuration, or came as headers");
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.status = status;
        head.headers = fields;
        head.into()
    }

    fn policy_members(&self, verdict: &Verdict) -> Option<HeaderValue> {
        let members = |&(policy, tier): &(usize, usize)| self.members[policy][tier].as_ref();
        let in_force = verdict.tiers_in_force();
        if let [alone] = in_force {
            return members(alone).cloned();
        }
        let (enforced, all) = &self.all_limits;
        if verdict.are_own_limits_of(*enforced) {
            return all.clone();
        }
        let mut list = Vec::with_capacity(in_force.len() * USUAL_MEMBER);
        for one in in_force {
            if !list.is_empty() {
                list.extend_from_slice(b", ");
            }
            list.extend_from_slice(members(one)?.as_bytes());
        }
        policy_list(list)
    }
}

/// What is told of an answer of our own.
struct Problem<'a> {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    violated: SmallVec<[&'a str; 2]>,
    retry_after: Option<u64>,
    detail: Option<String>,
    challenge: Option<String>,
}

impl<'a> Problem<'a> {
    fn new(status: StatusCode, kind: &'static str, title: &'static str) -> Self {
        Self {
            status,
            kind,
            title,
            violated: SmallVec::new(),
            retry_after: None,
            detail: None,
            challenge: None,
        }
    }

    fn denied(verdict: &'a Verdict) -> Self {
        let retry_after = match verdict.retry_after() {
            Some(Wait::For(wait)) => Some(whole_seconds(wait).max(1)),
            Some(Wait::Never) | None => None,
        };
        Self {
            violated: verdict.violated().collect(),
            retry_after,
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                QUOTA_EXCEEDED,
                "Quota exceeded",
            )
        }
    }

    fn unavailable(retry_after: Duration) -> Self {
        Self {
            retry_after: Some(whole_seconds(retry_after).max(1)),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                REDUCED_CAPACITY,
                "Rate limits cannot be checked at the moment",
            )
        }
    }

    fn refused(refusal: &Refusal) -> Self {
        let (status, title, challenge) = match refusal {
            Refusal::DuplicateValue(_) | Refusal::ValueTooLong(_) | Refusal::StaysBehind(_) => {
                (StatusCode::BAD_REQUEST, "The identity cannot be read", None)
            }
            Refusal::InvalidCost { .. } => {
                (StatusCode::BAD_REQUEST, "The cost cannot be read", None)
            }
            Refusal::Blocked => (StatusCode::FORBIDDEN, "Forbidden", None),
            Refusal::AmbiguousPath => (StatusCode::BAD_REQUEST, "The path is ambiguous", None),
            Refusal::IdentifierRequired(sources) => (
                StatusCode::UNAUTHORIZED,
                "An identity is required",
                Some(challenge(sources)),
            ),
        };
        Self {
            detail: Some(refusal.to_string()),
            challenge,
            ..Self::new(status, ABOUT_BLANK, title)
        }
    }

    fn failed(status: StatusCode) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self::new(status, ABOUT_BLANK, title)
    }

    /// As gRPC tells it, trailers-only: the status, `grpc-status` and `grpc-message`. Clients would take 429 for
    /// unavailable, and try again; of the others they make what we tell of them (http-grpc-status-mapping.md).
    fn grpc(&self) -> (StatusCode, u64, &'static str) {
        let code = match self.status {
            StatusCode::TOO_MANY_REQUESTS => {
                return (StatusCode::OK, GRPC_RESOURCE_EXHAUSTED, "quota exceeded");
            }
            StatusCode::BAD_REQUEST => GRPC_INTERNAL,
            StatusCode::UNAUTHORIZED => GRPC_UNAUTHENTICATED,
            StatusCode::FORBIDDEN => GRPC_PERMISSION_DENIED,
            StatusCode::NOT_FOUND => GRPC_UNIMPLEMENTED,
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => GRPC_UNAVAILABLE,
            _ => GRPC_UNKNOWN,
        };
        (self.status, code, self.title)
    }

    /// As RFC 9457 has it.
    fn json(&self, id: Option<&RequestId>) -> Vec<u8> {
        let details = ProblemDetails {
            kind: self.kind,
            title: self.title,
            status: self.status.as_u16(),
            detail: self.detail.as_deref(),
            violated: &self.violated,
            id: id.map(RequestId::as_str),
        };
        let mut json = Vec::with_capacity(USUAL_BODY);
        serde_json::to_writer(&mut json, &details).expect("words and a number");
        json
    }

    fn text(&self, id: Option<&RequestId>) -> String {
        let mut text = self.title.to_owned();
        if let Some(detail) = &self.detail {
            text += ": ";
            text += detail;
        }
        if let Some(id) = id {
            text += " (request ";
            text += id.as_str();
            text += ")";
        }
        text + "\n"
    }
}

#[derive(Serialize)]
struct ProblemDetails<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    violated: &'a [&'a str],
    #[serde(rename = "request-id", skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

/// `ApiKey header="x-tenant x-user", cookie="session"`: what a request must have, all of it. A parameter stands once
/// in a challenge (RFC 9110, 11.2), and no name has a blank in it.
fn challenge(sources: &[IdentifierSource]) -> String {
    let (mut headers, mut cookies, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
    for source in sources {
        match source {
            IdentifierSource::Header(name) | IdentifierSource::Consumer(name) => {
                headers.push(name.as_str())
            }
            IdentifierSource::Host => headers.push(header::HOST.as_str()),
            IdentifierSource::Cookie(name) => cookies.push(&**name),
            IdentifierSource::Query(name) => parameters.push(&**name),
            IdentifierSource::Path
            | IdentifierSource::Method
            | IdentifierSource::Constant
            | IdentifierSource::ClientIp => {}
        }
    }
    let named = [
        ("header", headers),
        ("cookie", cookies),
        ("query", parameters),
    ];
    let named = named.into_iter().filter(|(_, names)| !names.is_empty());
    let named: Vec<_> = named
        .map(|(place, names)| format!("{place}=\"{}\"", names.join(" ")))
        .collect();
    format!("ApiKey {}", named.join(", "))
}

/// `"per-client";q=100;w=60, …`: RateLimit-Policy, a list of strings with parameters (RFC 9651).
fn policy_members<'a>(limits: impl Iterator<Item = &'a NamedLimit>) -> Option<HeaderValue> {
    let members: Vec<String> = limits
        .map(|named| {
            let (quota, window) = (named.limit.quota(), named.limit.window().seconds());
            format!("\"{}\";q={quota};w={window}", named.name)
        })
        .collect();
    policy_list(members.join(", ").into_bytes())
}

fn policy_list(members: Vec<u8>) -> Option<HeaderValue> {
    let value = HeaderValue::try_from(members);
    let value = value.expect("names of limits are letters, digits and hyphens");
    (1..=LONGEST_POLICY_LIST)
        .contains(&value.len())
        .then_some(value)
}

/// `"per-client";r=50;t=30`: RateLimit; `t` is when one more unit than now is available.
fn member(named: &NamedLimit, limit: &LimitDecision, passed: Duration) -> HeaderValue {
    let told = if limit.decision.allowed {
        limit.decision.next_unit()
    } else {
        match limit.decision.retry_after() {
            Some(Wait::For(wait)) => Some(wait),
            Some(Wait::Never) | None => None,
        }
    };
    let mut text = HeaderText::default();
    text.word("\"").word(&named.name).word("\"");
    text.word(";r=").number(limit.decision.remaining());
    if let Some(wait) = told {
        let seconds = whole_seconds(wait.saturating_sub(passed)).max(1);
        text.word(";t=").number(seconds);
    }
    text.value()
}

/// Which of the headers that we send a page may read (Fetch Standard, 3.3.4).
fn exposed(settings: &ResponseSettings) -> HeaderValue {
    let mut fields = vec![&RETRY_AFTER, &X_REQUEST_ID];
    if settings.ratelimit {
        fields.extend([&RATELIMIT_POLICY, &RATELIMIT]);
    }
    if settings.x_ratelimit {
        fields.extend([
            &X_RATELIMIT_LIMIT,
            &X_RATELIMIT_REMAINING,
            &X_RATELIMIT_RESET,
        ]);
    }
    let names: Vec<&str> = fields.into_iter().map(|field| field.written).collect();
    HeaderValue::try_from(names.join(", ")).expect("names are constant")
}

fn is_grpc(request: &Parts) -> bool {
    request
        .headers
        .get(header::CONTENT_TYPE)
        .map(|content_type| content_type.as_bytes().to_ascii_lowercase())
        .and_then(|content_type| {
            let rest = content_type.strip_prefix(b"application/grpc")?;
            Some(matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
        })
        .unwrap_or(false)
}

/// Whole seconds, rounded up: never told too early.
pub fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

static RETRY_AFTER: Field = Field::new("Retry-After", "retry-after");
static WWW_AUTHENTICATE: Field = Field::new("WWW-Authenticate", "www-authenticate");
static X_RATELIMIT_LIMIT: Field = Field::new("X-RateLimit-Limit", "x-ratelimit-limit");
static X_RATELIMIT_REMAINING: Field = Field::new("X-RateLimit-Remaining", "x-ratelimit-remaining");
static X_RATELIMIT_RESET: Field = Field::new("X-RateLimit-Reset", "x-ratelimit-reset");
static RATELIMIT_POLICY: Field = Field::new("RateLimit-Policy", "ratelimit-policy");
static RATELIMIT: Field = Field::new("RateLimit", "ratelimit");
static GRPC_STATUS: Field = Field::new("grpc-status", "grpc-status");
static GRPC_MESSAGE: Field = Field::new("grpc-message", "grpc-message");
const GRPC_UNKNOWN: u64 = 2;
const GRPC_PERMISSION_DENIED: u64 = 7;
const GRPC_RESOURCE_EXHAUSTED: u64 = 8;
const GRPC_UNIMPLEMENTED: u64 = 12;
const GRPC_INTERNAL: u64 = 13;
const GRPC_UNAVAILABLE: u64 = 14;
const GRPC_UNAUTHENTICATED: u64 = 16;

/// Bytes of a name, a quota and a window; longer ones cost a second allocation.
const USUAL_MEMBER: usize = 48;

/// Header fields of an answer of our own, with some to spare: more of them cost a second allocation.
const USUAL_FIELDS: usize = 12;

/// Bytes of a body; longer ones cost a second allocation.
const USUAL_BODY: usize = 256;

/// A longer RateLimit-Policy is left out, as the draft allows: many clients refuse heads above 8 KiB.
const LONGEST_POLICY_LIST: usize = 4096;

/// The problem types of draft-ietf-httpapi-ratelimit-headers.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
const ABOUT_BLANK: &str = "about:blank";
