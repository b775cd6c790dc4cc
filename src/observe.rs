//! What operators read, on a listener of its own that is served to the end of a shutdown.
//!
//! - `GET /metrics`: Prometheus text format 0.0.4.
//! - `GET /livez`: 200 as long as the process runs.
//! - `GET /readyz`: 200 while new requests are welcome, else 503. It does not depend on Redis. Its text tells
//!   which configuration is in force, what became of the last reload, and which upstreams have addresses that are not in
//!   rotation: none of that makes a pod unready, since another one would find the same.

mod ask;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use http::{HeaderValue, Method, Response, StatusCode, Version, header};
use parking_lot::Mutex;
use pingora::{apps::http_app::ServeHttp, protocols::http::ServerSession};

pub use self::ask::{AskError, Health, ask};
use crate::{limiter::StoreStatus, metrics::Metrics, server::Readiness};

/// Serves metrics and health.
pub struct Observatory {
    /// Everything that is counted.
    pub metrics: Arc<Metrics>,
    /// How the store is.
    pub store: StoreStatus,
    /// Whether the configuration in force is the one in the file.
    pub reloads: ReloadStatus,
    /// Whether new requests are welcome.
    pub readiness: Readiness,
}

#[async_trait]
impl ServeHttp for Observatory {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        // Pingora would keep it, and a probe that reads to the end would hang.
        if session.req_header().version == Version::HTTP_10 {
            session.set_keepalive(None);
        }
        let request = session.req_header();
        let head_only = request.method == Method::HEAD;
        let mut response = match (request.method.as_str(), request.uri.path()) {
            ("GET" | "HEAD", "/metrics") => self.metrics(),
            ("GET" | "HEAD", "/livez") => text(StatusCode::OK, "alive\n"),
            ("GET" | "HEAD", "/readyz") => self.ready(),
            (_, "/metrics" | "/livez" | "/readyz") => {
                text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n")
            }
            _ => text(
                StatusCode::NOT_FOUND,
                "here are /metrics, /livez and /readyz\n",
            ),
        };
        let length = response.body().len();
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, length.into());
        if head_only {
            response.body_mut().clear();
        }
        response
    }
}

/// What became of the configuration since the start: told with readiness, without a say in it, and to operators.
#[derive(Clone, Debug, Default)]
pub struct ReloadStatus(Arc<Mutex<Reloads>>);

/// Which configuration is in force, and what stands in the way of the one in the file.
#[derive(Clone, Debug, Default)]
pub struct Reloads {
    /// Which is in force.
    pub fingerprint: String,
    /// What is wrong with the one in the file, if that was refused.
    pub refused: Option<Refused>,
    /// Settings that were changed and need a restart, by their paths, each with the value that it still has; `None`
    /// for its default.
    pub waiting: Vec<(String, Option<String>)>,
}

/// What is wrong with a configuration that was refused.
#[derive(Clone, Debug)]
pub struct Refused {
    /// How many faults there are.
    pub faults: usize,
    /// Where the first is: file, line and column.
    pub first_at: String,
    /// The first of them, as the log tells them.
    pub told: Vec<String>,
}

impl ReloadStatus {
    /// Replaces what is told.
    pub fn set(&self, reloads: Reloads) {
        *self.0.lock() = reloads;
    }

    /// What became of it so far.
    pub fn get(&self) -> Reloads {
        self.0.lock().clone()
    }
}

/// Lines without a last line end.
impl fmt::Display for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration {} in force", self.fingerprint)?;
        if let Some(Refused {
            faults, first_at, ..
        }) = &self.refused
        {
            write!(
                f,
                "\nthe file was refused, faults: {faults}, the first at {first_at}; the log tells them"
            )?;
        }
        if !self.waiting.is_empty() {
            let first = self.waiting.iter().take(MOST_TOLD);
            let first: Vec<_> = first.map(|(path, _)| path.as_str()).collect();
            write!(f, "\nwaiting for a restart: {}", first.join(", "))?;
        }
        match self.waiting.len().saturating_sub(MOST_TOLD) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Settings that are named in a line, at most.
const MOST_TOLD: usize = 20;

impl Observatory {
    fn ready(&self) -> Response<Vec<u8>> {
        let (status, word) = if self.readiness.is_ready() {
            (StatusCode::OK, "ready")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready")
        };
        let upstreams = self.metrics.upstreams_in_rotation().into_iter();
        // Of those that are well there is nothing to say.
        let troubled = upstreams.filter(|(_, well, all)| well < all || *all == 0);
        let upstreams: String = troubled
            .map(|(name, well, all)| {
                format!("upstream {name}: {well} of {all} addresses in rotation\n")
            })
            .collect();
        text(
            status,
            &format!("{word}\n{}\n{upstreams}", self.reloads.get()),
        )
    }

    fn metrics(&self) -> Response<Vec<u8>> {
        let (body, content_type) = self.metrics.expose(self.store.health());
        let mut response = Response::new(body);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}

fn text(status: StatusCode, body: &str) -> Response<Vec<u8>> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
