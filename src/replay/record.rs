//! What a log tells of one request.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, request::Parts, uri,
};

use crate::{policy::Client, ratelimit::Timestamp};

/// A request, as far as a line of a log tells of it.
#[derive(Clone, Debug)]
pub struct Record {
    /// When: to the second or finer, as the log has it.
    pub at: Timestamp,
    /// Who sent it, by the log's own account.
    pub client: Client,
    /// Who connected: the client, or a proxy before the one that wrote the log.
    pub peer: Client,
    /// Method, target and those of the headers that the log has.
    pub head: Parts,
    /// Whether method and target are as HTTP wants them; what is not stands as `GET /`.
    pub is_http: bool,
    /// How it was answered, if it was.
    pub status: Option<StatusCode>,
}

/// What a format finds in a line, before it is made a request.
#[derive(Debug)]
pub(super) struct Found {
    pub at: Timestamp,
    pub client: Client,
    pub peer: Client,
    pub status: Option<StatusCode>,
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub headers: HeaderMap,
}

impl From<Found> for Record {
    fn from(found: Found) -> Self {
        let request = request(&found.method, found.target);
        let (mut head, ()) = http::Request::new(()).into_parts();
        let is_http = request.is_some();
        if let Some((method, uri)) = request {
            (head.method, head.uri) = (method, uri);
        }
        head.headers = found.headers;
        Self {
            at: found.at,
            client: found.client,
            peer: found.peer,
            head,
            is_http,
            status: found.status,
        }
    }
}

fn request(method: &[u8], target: Vec<u8>) -> Option<(Method, Uri)> {
    let method = Method::from_bytes(method).ok()?;
    let is_authority = method == Method::CONNECT;
    let uri = Uri::from_maybe_shared(bytes::Bytes::from(target)).ok()?;
    // What a server takes: a path, `*`, a whole URL, and an authority for CONNECT alone.
    let is_whole = uri.scheme().is_some() || uri.path().starts_with('/') || uri.path() == "*";
    let is_path = uri.path_and_query().map(uri::PathAndQuery::path);
    (is_authority || (is_whole && is_path.is_some())).then_some((method, uri))
}

/// Adds a header, unless the log shows that there was none: by nothing, or by a hyphen.
pub(super) fn add_header(headers: &mut HeaderMap, name: &[u8], value: &[u8]) {
    if value.is_empty() || value == b"-" {
        return;
    }
    let name = HeaderName::from_bytes(name);
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}

/// Says for which host the request is.
pub(super) fn set_host(headers: &mut HeaderMap, host: &[u8]) {
    if !headers.contains_key(header::HOST) {
        add_header(headers, b"host", host);
    }
}

/// The last address of an `X-Forwarded-For`, and what stands before it.
pub(super) fn last_forwarded(list: &[u8]) -> Option<(Client, &[u8])> {
    let comma = list.iter().rposition(|byte| *byte == b',');
    let (before, last) = match comma {
        Some(comma) => (&list[..comma], &list[comma + 1..]),
        None => (&[][..], list),
    };
    Some((Client::written(last)?, before.trim_ascii()))
}
