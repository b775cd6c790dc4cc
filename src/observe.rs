//! What operators read, on a listener of its own that is served to the end of a shutdown.
//!
//! - `GET /metrics`: Prometheus text format 0.0.4.
//! - `GET /livez`: 200 as long as the process runs.
//! - `GET /readyz`: 200 while new requests are welcome, else 503. It does not depend on Redis. Its text tells
//!   which configuration is in force, and what became of the last reload.

use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderValue, Method, Response, StatusCode, Version, header};
use parking_lot::Mutex;
use pingora::{apps::http_app::ServeHttp, protocols::http::ServerSession};

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

/// Which configuration is in force, and what stands in the way of the one in the file: told with readiness,
/// without a say in it.
#[derive(Clone, Debug, Default)]
pub struct ReloadStatus(Arc<Mutex<String>>);

impl ReloadStatus {
    /// Replaces what is told: lines without a last line end.
    pub fn set(&self, detail: String) {
        *self.0.lock() = detail;
    }

    fn detail(&self) -> String {
        self.0.lock().clone()
    }
}

impl Observatory {
    fn ready(&self) -> Response<Vec<u8>> {
        let (status, word) = if self.readiness.is_ready() {
            (StatusCode::OK, "ready")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready")
        };
        text(status, &format!("{word}\n{}\n", self.reloads.detail()))
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
