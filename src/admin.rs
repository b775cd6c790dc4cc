//! What operators ask a running proxy, on a listener that only its own machine reaches unless they have a token.
//!
//! - `GET /`: what can be asked.
//! - `GET /config`: the configuration in force, without what is secret.
//! - `GET /policies`: each policy, and what has come of it so far.
//! - `GET /near-limit`: the last decisions near a limit.
//! - `GET` and `DELETE /identifiers/<identifier>`: what the store holds of one client, and its deletion.
//! - `POST /explain`: what would become of a request now, by the counters as they are. The body is a [`Question`]
//!   in JSON; nothing is charged, and no metric or cache notices.
//!
//! Answers are JSON. `guard` says who gets one; nothing that a request held is repeated in any.

mod config;
mod guard;
mod identifiers;
mod near_limit;
mod policies;
mod token;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::{HeaderValue, Method, Response, StatusCode, Version, header};
use pingora::{ErrorType, apps::http_app::ServeHttp, protocols::http::ServerSession};
use serde::Serialize;
use serde_json::json;

pub use token::{AdminToken, ParseAdminTokenError};

use self::{
    guard::Refused,
    identifiers::{Selection, SelectionError},
};
use crate::{
    bounded_log::BoundedLog,
    explain::{self, Question},
    limiter::StoreStatus,
    observe::ReloadStatus,
    proxy::Rules,
};

/// Answers operators.
pub struct Admin {
    /// What is in force.
    pub rules: Arc<ArcSwap<Rules>>,
    /// How the store is.
    pub store: StoreStatus,
    /// Whether the configuration in force is the one in the file.
    pub reloads: ReloadStatus,
    /// What each request must show; `None` where only this machine can ask.
    pub token: Option<AdminToken>,
    /// Where requests that are refused are told, and those that the store does not answer.
    pub refused_log: BoundedLog,
}

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Listing,
    Config,
    Policies,
    NearLimit,
    Identifiers,
    Explain,
}

impl Endpoint {
    const ALL: [Self; 6] = [
        Self::Listing,
        Self::Config,
        Self::Policies,
        Self::NearLimit,
        Self::Identifiers,
        Self::Explain,
    ];

    fn of(path: &str) -> Option<Self> {
        if path.starts_with(IDENTIFIERS) {
            return Some(Self::Identifiers);
        }
        let mut all = Self::ALL.into_iter();
        all.find(|endpoint| endpoint.path() == path)
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Listing => "/",
            Self::Config => "/config",
            Self::Policies => "/policies",
            Self::NearLimit => "/near-limit",
            Self::Identifiers => "/identifiers/<identifier>",
            Self::Explain => "/explain",
        }
    }

    /// As in the header `allow`.
    const fn methods(self) -> &'static str {
        match self {
            Self::Listing | Self::Config | Self::Policies | Self::NearLimit => "GET, HEAD",
            Self::Identifiers => "GET, HEAD, DELETE",
            Self::Explain => "POST",
        }
    }

    fn allows(self, method: &Method) -> bool {
        self.methods()
            .split(", ")
            .any(|allowed| allowed == method.as_str())
    }

    const fn answers(self) -> &'static str {
        match self {
            Self::Listing => "what can be asked",
            Self::Config => "the configuration in force, without what is secret",
            Self::Policies => "each policy, and what has come of it so far",
            Self::NearLimit => "the last decisions near a limit",
            Self::Identifiers => {
                "what the store holds of one client, by ?policy=<name> or all; DELETE deletes it"
            }
            Self::Explain => "what would become of a request, which is described in the body",
        }
    }
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        // Pingora would keep it, and a client that reads to the end would hang.
        if session.req_header().version == Version::HTTP_10 {
            session.set_keepalive(None);
        }
        session.set_read_timeout(Some(PATIENCE));
        let head_only = session.req_header().method == Method::HEAD;
        let mut response = match guard::admit(session.req_header(), self.token.as_ref()) {
            Ok(()) => self.admitted(session).await,
            Err(refused) => self.refused(session, refused),
        };
        if head_only {
            response.body_mut().clear();
        }
        response
    }
}

impl Admin {
    async fn admitted(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let request = session.req_header();
        let Some(endpoint) = Endpoint::of(request.uri.path()) else {
            return failed(StatusCode::NOT_FOUND, "GET / tells what can be asked");
        };
        if !endpoint.allows(&request.method) {
            let why = format!("only {}", endpoint.methods());
            let mut response = failed(StatusCode::METHOD_NOT_ALLOWED, &why);
            let methods = HeaderValue::from_static(endpoint.methods());
            response.headers_mut().insert(header::ALLOW, methods);
            return response;
        }
        match endpoint {
            Endpoint::Listing => listing(),
            Endpoint::Config => {
                let rules = self.rules.load();
                let told = config::told(&rules.origin, &self.reloads.get());
                answer(StatusCode::OK, &told)
            }
            Endpoint::Policies => {
                let told = policies::told(&self.rules.load(), &self.store);
                answer(StatusCode::OK, &told)
            }
            Endpoint::NearLimit => {
                let near_limit = self.rules.load().limiter.near_limit();
                answer(StatusCode::OK, &near_limit::told(near_limit))
            }
            Endpoint::Identifiers => {
                let deletes = request.method == Method::DELETE;
                let rules = self.rules.load_full();
                let told = match Selection::of(&request.uri, &rules.limiter) {
                    Ok(selection) if deletes => selection.forget(&rules.limiter).await,
                    Ok(selection) => selection.inspect(&rules.limiter).await,
                    Err(error) => Err(error),
                };
                told.map_or_else(
                    |error| self.unselected(&error),
                    |told| answer(StatusCode::OK, &told),
                )
            }
            Endpoint::Explain => self.explain(session).await,
        }
    }

    fn refused(&self, session: &mut ServerSession, refused: Refused) -> Response<Vec<u8>> {
        // So that what is left of its body is neither waited for nor taken for another request.
        session.set_keepalive(None);
        if let Some(suppressed) = self.refused_log.line() {
            let peer = session.client_addr().and_then(|peer| peer.as_inet());
            let peer = peer.map(ToString::to_string);
            tracing::warn!(peer, reason = %refused, suppressed, "A request to admin_listen was refused.");
        }
        let mut response = failed(refused.status(), &refused.to_string());
        if refused == Refused::Token {
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    fn unselected(&self, error: &SelectionError) -> Response<Vec<u8>> {
        let is_the_stores = error.status().is_server_error();
        if is_the_stores && let Some(suppressed) = self.refused_log.line() {
            tracing::warn!(%error, suppressed, "The store did not answer a request to admin_listen.");
        }
        failed(error.status(), &error.to_string())
    }

    async fn explain(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let body = match body(session).await {
            Ok(body) => body,
            Err(response) => {
                // What is left of the body would be taken for the next request.
                session.set_keepalive(None);
                return response;
            }
        };
        // serde_json's own words would repeat what was found, which may be a key.
        let question: Question = match serde_json::from_slice(&body) {
            Ok(question) => question,
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                let why = format!("line {line}, column {column}: expected {EXAMPLE}");
                return failed(StatusCode::BAD_REQUEST, &why);
            }
        };
        let rules = self.rules.load_full();
        match explain::explain(&rules, &question).await {
            Ok(explanation) => answer(StatusCode::OK, &explanation),
            Err(error) => failed(StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }
}

fn listing() -> Response<Vec<u8>> {
    let endpoints = Endpoint::ALL.map(|endpoint| {
        json!({
            "path": endpoint.path(),
            "methods": endpoint.methods(),
            "answers": endpoint.answers(),
        })
    });
    answer(StatusCode::OK, &endpoints)
}

/// The whole body, if it is not too long.
async fn body(session: &mut ServerSession) -> Result<Vec<u8>, Response<Vec<u8>>> {
    let length = session.req_header().headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    loop {
        match session.read_request_body().await {
            Ok(Some(piece)) if body.len() + piece.len() > MAX_BODY => return Err(too_large()),
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) => return Ok(body),
            Err(error) if *error.etype() == ErrorType::ReadTimedout => {
                let why = "the body did not arrive";
                return Err(failed(StatusCode::REQUEST_TIMEOUT, why));
            }
            Err(_) => {
                let why = "the body does not end as it should";
                return Err(failed(StatusCode::BAD_REQUEST, why));
            }
        }
    }
}

fn too_large() -> Response<Vec<u8>> {
    let why = format!("the body is longer than {MAX_BODY} bytes");
    failed(StatusCode::PAYLOAD_TOO_LARGE, &why)
}

fn failed(status: StatusCode, why: &str) -> Response<Vec<u8>> {
    answer(status, &json!({"error": why}))
}

fn answer(status: StatusCode, told: &impl Serialize) -> Response<Vec<u8>> {
    let mut body = serde_json::to_vec_pretty(told).expect("text, numbers, lists and names");
    body.push(b'\n');
    let length = body.len();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_LENGTH, length.into());
    response
}

/// What paths of clients begin with.
const IDENTIFIERS: &str = "/identifiers/";

/// More than the head of any request that is worth a question.
const MAX_BODY: usize = 64 << 10;

/// Between two pieces of a body.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLE: &str =
    r#"{"request": "GET /login", "headers": ["X-API-Key: k"], "from": "203.0.113.7"}"#;
