//! The Pingora callbacks, and nothing else: what a request asks is the limiter's to answer, what a client
//! reads is written in [`response`].

mod access;
mod field;
pub mod forward;
mod request;
mod request_id;
pub mod response;
mod text;
pub mod upstream;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use http::{StatusCode, Version};
use pingora::{
    Error, ErrorSource,
    ErrorType::{self, HTTPStatus},
    http::{RequestHeader, ResponseHeader},
    modules::http::HttpModules,
    upstreams::peer::HttpPeer,
};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use smallvec::SmallVec;

use self::{
    forward::{Came, ForwardSettings},
    request_id::RequestId,
    response::{Asked, Responder},
    upstream::{AmbiguousRoute, Upstream, Upstreams},
};
use crate::{
    access_log::AccessLog,
    bounded_log::FoldedLog,
    clock::{self, Clock},
    limiter::{Intent, Limiter, Verdict},
    metrics::{ConnectionEnd, Metrics, UpstreamOutcome},
    policy::{Client, ClientRule, RequestView},
    server::{InFlight, Pace, Readiness},
    upstream::Member,
};

/// The proxy in front of the upstream.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// What a request is treated by. It keeps those that were in force when it came.
    pub rules: Arc<ArcSwap<Rules>>,
    /// What operators read.
    pub metrics: Arc<Metrics>,
    /// Whether new requests are welcome: if not, connections are not kept.
    pub readiness: Readiness,
    /// Where upstream failures are told.
    pub failures: Arc<FoldedLog<upstream::Failure>>,
    /// What a request may take.
    pub bounds: RequestBounds,
    /// When a request came, in the access log.
    pub clock: Clock,
}

/// What a client's requests may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBounds {
    /// Between two reads of a request's body, and for one write of a response. Default 60 s.
    pub body_timeout: Duration,
    /// The most of a head, in bytes: target, names and values. Default 64 KiB.
    pub max_header_size: usize,
    /// The most headers of a request. Default 100.
    pub max_headers: usize,
    /// The most of a body, in bytes. Default 1 GiB: it is passed on and not kept, so that this is for the upstream's sake.
    pub max_body_size: u64,
    /// After so many requests a connection is closed. Default 10,000, so that load balancers above TCP balance anew.
    pub requests_per_connection: u32,
}

/// What a reload of the configuration replaces, all of it at once.
#[derive(Debug)]
pub struct Rules {
    /// Finds the client behind other proxies.
    pub clients: ClientRule,
    /// Decides on requests.
    pub limiter: Arc<Limiter>,
    /// Where requests go.
    pub upstreams: Upstreams,
    /// What upstreams are told.
    pub forwarding: ForwardSettings,
    /// What clients read.
    pub responder: Responder,
    /// Which requests are told of one by one; `None` for none.
    pub access_log: Option<AccessLog>,
    /// What operators are told that all of it was made from.
    pub origin: Origin,
}

/// The configuration that rules were made from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The same wherever the same configuration is in force.
    pub fingerprint: String,
    /// Its settings as they may be shown, policies in the order of the limiter's.
    pub settings: serde_json::Value,
}

/// What is remembered of a request from one callback to the next.
#[derive(Debug)]
pub struct RequestState {
    started: Instant,
    rules: Arc<Rules>,
    /// Who was counted, and whom the upstream is told of: one and the same.
    client: Client,
    peer_is_trusted: bool,
    /// What the request is called, if it is to be.
    id: Option<RequestId>,
    verdict: Option<Verdict>,
    /// From its head to the decision on it.
    added: Option<Duration>,
    /// How much of its body has come, in bytes.
    body: u64,
    /// Where the request goes, once that is known.
    way: Option<Way>,
    /// When an address was chosen last.
    upstream_chosen: Option<Instant>,
    /// From then to the head of its answer.
    upstream_took: Option<Duration>,
    /// Keeps a connection of HTTP/2 from being idle.
    serving: Option<InFlight>,
}

/// Where a request goes.
#[derive(Debug)]
struct Way {
    upstream: Arc<Upstream>,
    /// Its place in the turn of the upstream's addresses.
    turn: usize,
    /// Where it has been, the last one last.
    tried: SmallVec<[Arc<Member>; 2]>,
    /// Whether it was sent again although an address may have had it.
    is_repeated: bool,
    /// Whether what became of it there is counted.
    is_counted: bool,
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Box<RequestState>;

    /// None. Pingora's own would compress, and is off: it is made, asked and dropped with each request all the same.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    fn new_ctx(&self) -> Self::CTX {
        Box::new(RequestState {
            started: clock::instant(),
            rules: self.rules.load_full(),
            client: Client::Unix,
            peer_is_trusted: false,
            id: None,
            verdict: None,
            added: None,
            body: 0,
            way: None,
            upstream_chosen: None,
            upstream_took: None,
            serving: None,
        })
    }

    async fn early_request_filter(
        &self,
        session: &mut Session,
        state: &mut Self::CTX,
    ) -> pingora::Result<()> {
        (state.client, state.peer_is_trusted) = request::client(session, &state.rules.clients);
        let headers = &session.req_header().headers;
        let has_id = state.rules.forwarding.request_id;
        state.id = has_id.then(|| RequestId::of(headers));
        match session.req_header().version {
            Version::HTTP_2 => state.serving = InFlight::on(session.digest()),
            _ => Pace::head_is_read(session.digest()),
        }
        request::bound_waiting(session, &self.bounds, self.readiness.is_ready());
        request::join_cookies(session.req_header_mut())
    }

    async fn request_filter(
        &self,
        session: &mut Session,
        state: &mut Self::CTX,
    ) -> pingora::Result<bool> {
        if let Some(status) = request::is_at_fault(session.req_header(), &self.bounds) {
            let responder = &state.rules.responder;
            let answer = responder.fail(&state.asked(session), status, None, Duration::ZERO);
            return self.answer_early(session, answer).await;
        }
        let view = RequestView {
            head: session.req_header(),
            client: state.client,
            peer_is_trusted: state.peer_is_trusted,
        };
        let mut verdict = state.rules.limiter.check(&view, Intent::Take).await;
        let added = clock::elapsed(state.started);
        self.metrics.request_added.observe(added.as_secs_f64());
        state.added = Some(added);

        let (rules, asked) = (&state.rules, state.asked(session));
        let answer = match rules.responder.refuse(&asked, &verdict) {
            Some(refusal) => refusal,
            None => {
                let status = match rules.upstreams.route(session.req_header()) {
                    Ok(Some(upstream)) => {
                        state.way = Some(Way::to(upstream));
                        state.verdict = Some(verdict);
                        return Ok(false);
                    }
                    Ok(None) => StatusCode::NOT_FOUND,
                    Err(AmbiguousRoute) => StatusCode::BAD_REQUEST,
                };
                rules.limiter.settle(&mut verdict, status).await;
                let responder = &rules.responder;
                responder.fail(&asked, status, Some(&verdict), Duration::ZERO)
            }
        };
        state.verdict = Some(verdict);
        self.answer_early(session, answer).await
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        state: &mut Self::CTX,
    ) -> pingora::Result<Box<HttpPeer>> {
        let way = state.way.as_mut();
        let way = way.ok_or_else(|| Error::explain(ErrorType::InternalError, "no route"))?;
        state.upstream_chosen = Some(clock::instant());
        let head = session.req_header();
        way.next_peer(head.method.is_idempotent(), session.is_upgrade_req())
    }

    /// Nothing was sent: another address of the upstream may be tried.
    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        state: &mut Self::CTX,
        mut error: Box<Error>,
    ) -> Box<Error> {
        let Some(way) = &state.way else {
            return error;
        };
        way.failed();
        error.set_retry(way.tried.len() < way.upstream.addresses());
        error
    }

    /// Sent again, once, is only what may be sent twice: where a connection that was kept did not take it, and to another
    /// address where a new one broke before there was an answer.
    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        state: &mut Self::CTX,
        client_reused: bool,
    ) -> Box<Error> {
        let Some(way) = &mut state.way else {
            error.set_retry(false);
            return error;
        };
        let may_be_repeated = session.req_header().method.is_idempotent()
            && !session.as_ref().retry_buffer_truncated()
            && !way.is_repeated;
        let broke = *error.esource() == ErrorSource::Upstream && broke(error.etype());
        if broke && !client_reused && !way.is_counted {
            way.failed();
            let elsewhere = way.tried.len() == 1 && way.upstream.addresses() > 1;
            error.set_retry(may_be_repeated && elsewhere);
        } else if may_be_repeated {
            error.retry.decide_reuse(client_reused);
        } else {
            error.set_retry(false);
        }
        way.is_repeated |= error.retry();
        error
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        is_last: bool,
        state: &mut Self::CTX,
    ) -> pingora::Result<()> {
        if is_last && body.as_ref().is_some_and(Bytes::is_empty) {
            // Pingora would make a chunk of it, which is the end of all chunks, and another one of that it is the last:
            // to the upstream the beginning of another request. Clients of HTTP/2 do end a body so.
            *body = None;
        }
        state.body += body.as_ref().map_or(0, |body| body.len() as u64);
        match state.body > self.bounds.max_body_size {
            true => Error::e_explain(HTTPStatus(413), "the body is larger than may be"),
            false => Ok(()),
        }
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        head: &mut RequestHeader,
        state: &mut Self::CTX,
    ) -> pingora::Result<()> {
        let came = Came {
            client: state.client,
            peer_is_trusted: state.peer_is_trusted,
            by_tls: request::is_tls(session),
            version: session.req_header().version,
        };
        forward::request(&state.rules.forwarding, head, came, state.id.as_ref())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        head: &mut ResponseHeader,
        state: &mut Self::CTX,
    ) -> pingora::Result<()> {
        if !is_final(head.status) {
            return Ok(());
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            request::may_be_silent(session);
        }
        if !self.readiness.is_ready() {
            // Who came before that would be told that it is kept, and lose what it asks next.
            session.set_keepalive(None);
        }
        if let Some(way) = &mut state.way {
            way.answered(head, session.is_upgrade_req())?;
        }
        // An upstream is chosen as soon as the limiter has decided.
        let passed = state.upstream_chosen.take().map(clock::elapsed);
        if let Some(took) = passed {
            self.metrics.upstream_duration.observe(took.as_secs_f64());
            state.upstream_took = passed;
        }
        if let Some(verdict) = &mut state.verdict {
            state.rules.limiter.settle(verdict, head.status).await;
        }
        forward::response(&state.rules.forwarding, head)?;
        if session.req_header().version < Version::HTTP_11 && forward::unchunk(head) {
            session.set_keepalive(None);
        }
        let passed = passed.unwrap_or_default();
        let (responder, asked) = (&state.rules.responder, state.asked(session));
        responder.annotate(&asked, state.verdict.as_ref(), passed, head)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        state: &mut Self::CTX,
    ) -> FailToProxy {
        let status = status_of(error);
        if let Some(way) = &mut state.way {
            way.count(match status {
                Some(StatusCode::GATEWAY_TIMEOUT) => UpstreamOutcome::TimedOut,
                Some(status) if status.is_server_error() => UpstreamOutcome::Failed,
                _ => UpstreamOutcome::Abandoned,
            });
        }
        let Some(status) = status else {
            return FailToProxy {
                error_code: 0,
                can_reuse_downstream: false,
            };
        };
        // An answer that has begun can not become another one: it is cut off.
        let written = session.response_written();
        let is_cut_off = written.is_some_and(|head| is_final(head.status));
        if status.is_server_error() {
            let failure = match &state.way {
                Some(way) => {
                    let at = way.tried.last().map(|member| &**member);
                    way.upstream.failure(at, status, error)
                }
                None => upstream::Failure::before_any(status, error),
            };
            self.failures.add(match is_cut_off {
                true => failure.cut_off(),
                false => failure,
            });
        }
        self.metrics.refused(status);
        if let Some(verdict) = &mut state.verdict {
            state.rules.limiter.settle(verdict, status).await;
        }
        let passed = state
            .upstream_chosen
            .map(clock::elapsed)
            .unwrap_or_default();
        let (responder, asked) = (&state.rules.responder, state.asked(session));
        let answer = responder.fail(&asked, status, state.verdict.as_ref(), passed);
        if !is_cut_off && let Err(error) = request::answer_last(session, answer).await {
            tracing::debug!(%error, "The client left before its error was sent.");
        }
        FailToProxy {
            error_code: status.as_u16(),
            can_reuse_downstream: false,
        }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, state: &mut Self::CTX) {
        if state.serving.is_none() {
            Pace::is_served(session.digest());
        }
        if error.is_some_and(request::took_nothing) && session.as_downstream().as_http2().is_none()
        {
            // In HTTP/2 it is the connection that sees it.
            self.metrics.connection_ended(ConnectionEnd::SlowRead);
        }
        self.metrics
            .request(session.response_written().map(|head| head.status));
        if let Some(log) = &state.rules.access_log
            && log.takes_next()
        {
            access::tell(log.format(), session, state, error, self.clock.now());
        }
        // The upstream may have answered before it had all of the request.
        if error.is_none() {
            request::read_on(session).await;
        }
    }

    /// Pingora's own line has no bound: [`Gateway::failures`] tells instead.
    fn suppress_error_log(&self, _: &Session, _: &Self::CTX, _: &Error) -> bool {
        true
    }

    /// Nor has the one for each attempt that is followed by another; [`Metrics`] counts them.
    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &Self::CTX,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

impl Gateway {
    /// Answers a request that goes no further, and counts it if no limit denies it.
    async fn answer_early(
        &self,
        session: &mut Session,
        answer: (ResponseHeader, Bytes),
    ) -> pingora::Result<bool> {
        self.metrics.refused(answer.0.status);
        request::answer_early(session, answer).await
    }
}

impl RequestState {
    /// What an answer depends on beside what was decided.
    fn asked<'a>(&'a self, session: &'a Session) -> Asked<'a> {
        Asked {
            head: session.req_header(),
            id: self.id.as_ref(),
        }
    }
}

impl Way {
    fn to(upstream: &Arc<Upstream>) -> Self {
        Self {
            upstream: upstream.clone(),
            turn: upstream.turn(),
            tried: SmallVec::new(),
            is_repeated: false,
            is_counted: false,
        }
    }

    /// How the address is connected to whose turn it is for the next attempt.
    fn next_peer(&mut self, repeats: bool, upgrade: bool) -> pingora::Result<Box<HttpPeer>> {
        let member = self.upstream.choose(self.turn, &self.tried, repeats)?;
        let mut peer = self.upstream.peer(&member, upgrade);
        if self.is_repeated
            && let Ok(peer) = &mut peer
        {
            upstream::connect_anew(peer);
        }
        if !self.tried.is_empty() {
            self.upstream.metrics().retried();
        }
        self.tried.push(member);
        peer
    }

    /// The last attempt failed for what is no fault of the request.
    fn failed(&self) {
        if let Some(member) = self.tried.last() {
            self.upstream.failed_at(member);
        }
    }

    /// The head of an answer is there; `upgrade` says whether another protocol was asked for.
    ///
    /// # Errors
    /// If it is in another version than what is configured, which is not fallen back from; and if it goes over to another
    /// protocol unasked (RFC 9110, 7.8).
    fn answered(&mut self, head: &ResponseHeader, upgrade: bool) -> pingora::Result<()> {
        let version = head.version;
        if !self.upstream.expects(version) {
            let reason = format!("it speaks {version:?}, and is configured with http: 2");
            return Err(Error::explain(ErrorType::H2Error, reason).into_up());
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS && !upgrade {
            let reason = "it answered 101, and was asked for no other protocol";
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, reason).into_up());
        }
        if let Some(member) = self.tried.last() {
            self.upstream.answered_at(member);
        }
        self.count(UpstreamOutcome::Answered);
        Ok(())
    }

    /// Counts what became of the request, once.
    fn count(&mut self, outcome: UpstreamOutcome) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.upstream.metrics().request(outcome);
        }
    }
}

/// Whether such an error of a connection is the address's fault. A slow answer is not: it says something of what was
/// asked for.
fn broke(kind: &ErrorType) -> bool {
    !matches!(kind, ErrorType::ReadTimedout | ErrorType::WriteTimedout)
}

/// Whether it is the last status that a request gets.
fn is_final(status: StatusCode) -> bool {
    !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS
}

/// The status that an error is answered with; `None` if the client is gone.
fn status_of(error: &Error) -> Option<StatusCode> {
    use ErrorType::{
        ConnectTimedout, ConnectionClosed, HTTPStatus, InvalidHTTPHeader, ReadError, ReadTimedout,
        TLSHandshakeTimedout, WriteError, WriteTimedout,
    };
    match (error.esource(), error.etype()) {
        (_, HTTPStatus(code)) => {
            Some(StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        }
        (
            ErrorSource::Upstream,
            ConnectTimedout | ReadTimedout | WriteTimedout | TLSHandshakeTimedout,
        ) => Some(StatusCode::GATEWAY_TIMEOUT),
        (ErrorSource::Upstream, _) => Some(StatusCode::BAD_GATEWAY),
        (ErrorSource::Downstream, ConnectionClosed | ReadError | WriteError | WriteTimedout) => {
            None
        }
        (ErrorSource::Downstream, ReadTimedout) => Some(StatusCode::REQUEST_TIMEOUT),
        // What HTTP/2 has no way to say is the second, such as a `Host` with a blank in it.
        (ErrorSource::Downstream, _)
        | (ErrorSource::Internal | ErrorSource::Unset, InvalidHTTPHeader) => {
            Some(StatusCode::BAD_REQUEST)
        }
        (ErrorSource::Internal | ErrorSource::Unset, _) => Some(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
