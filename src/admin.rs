//! What operators ask a running proxy, on a listener that only its own machine reaches.
//!
//! - `POST /explain`: what would become of a request now, by the counters as they are. The body is a [`Question`]
//!   in JSON; nothing is charged, and no metric or cache notices.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::{Method, Response, StatusCode, Version, header};
use pingora::{apps::http_app::ServeHttp, protocols::http::ServerSession};
use serde::Serialize;
use serde_json::json;

use crate::{
    explain::{self, Question},
    proxy::Rules,
};

/// Answers operators.
pub struct Admin {
    /// What is in force.
    pub rules: Arc<ArcSwap<Rules>>,
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        // Pingora would keep it, and a client that reads to the end would hang.
        if session.req_header().version == Version::HTTP_10 {
            session.set_keepalive(None);
        }
        session.set_read_timeout(Some(PATIENCE));
        let request = session.req_header();
        // Every browser says so of a POST, whatever name of its own a page has given this machine.
        if request.headers.contains_key(header::ORIGIN) {
            return failed(StatusCode::FORBIDDEN, "no page in a browser asks here");
        }
        match (&request.method, request.uri.path()) {
            (&Method::POST, "/explain") => self.explain(session).await,
            (_, "/explain") => failed(StatusCode::METHOD_NOT_ALLOWED, "only POST"),
            _ => failed(StatusCode::NOT_FOUND, "here is POST /explain"),
        }
    }
}

impl Admin {
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

/// The whole body, if it is not too long.
async fn body(session: &mut ServerSession) -> Result<Vec<u8>, Response<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        match session.read_request_body().await {
            Ok(Some(piece)) if body.len() + piece.len() > MAX_BODY => {
                let why = format!("the body is longer than {MAX_BODY} bytes");
                return Err(failed(StatusCode::PAYLOAD_TOO_LARGE, &why));
            }
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) => return Ok(body),
            Err(_) => {
                let why = "the body did not arrive";
                return Err(failed(StatusCode::REQUEST_TIMEOUT, why));
            }
        }
    }
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
    let json = header::HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    headers.insert(header::CONTENT_LENGTH, length.into());
    response
}

/// More than the head of any request that is worth a question.
const MAX_BODY: usize = 64 << 10;

/// Between two pieces of a body.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLE: &str =
    r#"{"request": "GET /login", "headers": ["X-API-Key: k"], "from": "203.0.113.7"}"#;
