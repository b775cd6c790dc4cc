//! The Pingora callbacks, and nothing else: what a request asks is the limiter's to answer, what a client
//! reads is written in [`response`].

mod request;
pub mod response;
pub mod upstream;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use pingora::{
    Error, ErrorSource,
    ErrorType::{self, HTTPStatus},
    http::{RequestHeader, ResponseHeader},
    upstreams::peer::HttpPeer,
};
use pingora_proxy::{FailToProxy, ProxyHttp, Session};

use self::{response::Responder, upstream::Upstream};
use crate::{
    bounded_log::FoldedLog,
    clock,
    limiter::{Intent, Limiter, Outcome, Verdict},
    metrics::Metrics,
    policy::{Client, ClientRule, RequestView},
    server::{Pace, Readiness},
};

/// The proxy in front of the upstream.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// What a request is treated by. It keeps those that were in force when it came.
    pub rules: Arc<ArcSwap<Rules>>,
    /// Where requests go.
    pub upstream: Arc<Upstream>,
    /// What operators read.
    pub metrics: Arc<Metrics>,
    /// Whether new requests are welcome: if not, connections are not kept.
    pub readiness: Readiness,
    /// Where upstream failures are told.
    pub failures: Arc<FoldedLog<upstream::Failure>>,
    /// What a request may take.
    pub bounds: RequestBounds,
}

/// What a client's requests may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBounds {
    /// How long a connection without a request is kept. Default 75 s, longer than most clients and load balancers keep
    /// theirs, so that it is they who close.
    pub idle_timeout: Duration,
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
    /// What clients read.
    pub responder: Responder,
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
    verdict: Option<Verdict>,
    /// The request's place in the turn of the upstream's addresses, once it has one.
    turn: Option<usize>,
    /// How often an address was chosen, and when last.
    attempts: usize,
    /// How much of its body has come, in bytes.
    body: u64,
    upstream_chosen: Option<Instant>,
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = RequestState;

    fn new_ctx(&self) -> RequestState {
        RequestState {
            started: clock::instant(),
            rules: self.rules.load_full(),
            client: Client::Unix,
            peer_is_trusted: false,
            verdict: None,
            turn: None,
            attempts: 0,
            body: 0,
            upstream_chosen: None,
        }
    }

    async fn early_request_filter(
        &self,
        session: &mut Session,
        state: &mut RequestState,
    ) -> pingora::Result<()> {
        (state.client, state.peer_is_trusted) = request::client(session, &state.rules.clients);
        Pace::head_is_read(session.digest());
        request::bound_waiting(session, &self.bounds, self.readiness.is_ready());
        Ok(())
    }

    async fn request_filter(
        &self,
        session: &mut Session,
        state: &mut RequestState,
    ) -> pingora::Result<bool> {
        if let Some(status) = request::is_at_fault(session.req_header(), &self.bounds) {
            let (head, body) = state.rules.responder.fail(status, None, Duration::ZERO);
            request::keep_if_the_rest_is_small(session);
            request::answer(session, head, body).await?;
            return Ok(true);
        }
        let view = RequestView {
            head: session.req_header(),
            client: state.client,
            peer_is_trusted: state.peer_is_trusted,
        };
        let verdict = state.rules.limiter.check(&view, Intent::Take).await;
        let added = clock::elapsed(state.started);
        self.metrics.request_added.observe(added.as_secs_f64());

        let passes = verdict.outcome == Outcome::Pass;
        if !passes {
            let (head, body) = state.rules.responder.refuse(&verdict, session.req_header());
            request::keep_if_the_rest_is_small(session);
            request::answer(session, head, body).await?;
        }
        state.verdict = Some(verdict);
        Ok(!passes)
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        state: &mut RequestState,
    ) -> pingora::Result<Box<HttpPeer>> {
        state.upstream_chosen = Some(clock::instant());
        let turn = *state.turn.get_or_insert_with(|| self.upstream.turn());
        let peer = self
            .upstream
            .peer(turn, state.attempts, session.is_upgrade_req());
        state.attempts += 1;
        peer
    }

    /// Nothing was sent: another address of the upstream may be tried.
    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        state: &mut RequestState,
        mut error: Box<Error>,
    ) -> Box<Error> {
        error.set_retry(state.attempts < self.upstream.addresses());
        error
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _is_last: bool,
        state: &mut RequestState,
    ) -> pingora::Result<()> {
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
        state: &mut RequestState,
    ) -> pingora::Result<()> {
        let by_tls = request::is_tls(session);
        request::forward(head, state.client, state.peer_is_trusted, by_tls)
    }

    async fn response_filter(
        &self,
        _session: &mut Session,
        head: &mut ResponseHeader,
        state: &mut RequestState,
    ) -> pingora::Result<()> {
        if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(());
        }
        // An upstream is chosen as soon as the limiter has decided.
        let passed = state.upstream_chosen.take().map(clock::elapsed);
        if let Some(took) = passed {
            self.metrics.upstream_duration.observe(took.as_secs_f64());
        }
        if let Some(verdict) = &mut state.verdict {
            state.rules.limiter.settle(verdict, head.status).await;
            state
                .rules
                .responder
                .annotate(verdict, passed.unwrap_or_default(), head)?;
        }
        Ok(())
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        state: &mut RequestState,
    ) -> FailToProxy {
        let Some(status) = status_of(error) else {
            return FailToProxy {
                error_code: 0,
                can_reuse_downstream: false,
            };
        };
        if status.is_server_error() {
            self.failures.add(self.upstream.failure(status, error));
        }
        if let Some(verdict) = &mut state.verdict {
            state.rules.limiter.settle(verdict, status).await;
        }
        let passed = state
            .upstream_chosen
            .map(clock::elapsed)
            .unwrap_or_default();
        let (head, body) = state
            .rules
            .responder
            .fail(status, state.verdict.as_ref(), passed);
        let sent = session.as_downstream_mut().write_error_response(head, body);
        if let Err(error) = sent.await {
            tracing::debug!(%error, "The client left before its error was sent.");
        }
        FailToProxy {
            error_code: status.as_u16(),
            can_reuse_downstream: false,
        }
    }

    async fn logging(
        &self,
        session: &mut Session,
        _error: Option<&Error>,
        _state: &mut RequestState,
    ) {
        Pace::is_served(session.digest());
        self.metrics
            .request(session.response_written().map(|head| head.status));
    }

    /// Pingora's own line has no bound: [`Gateway::failures`] tells instead.
    fn suppress_error_log(&self, _: &Session, _: &RequestState, _: &Error) -> bool {
        true
    }
}

/// The status that an error is answered with; `None` if the client is gone.
fn status_of(error: &Error) -> Option<StatusCode> {
    use ErrorType::{
        ConnectTimedout, ConnectionClosed, HTTPStatus, ReadError, ReadTimedout,
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
        (ErrorSource::Downstream, _) => Some(StatusCode::BAD_REQUEST),
        (ErrorSource::Internal | ErrorSource::Unset, _) => Some(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
