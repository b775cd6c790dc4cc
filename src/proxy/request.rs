//! What is read from a request, and what bounds it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, Version, header, uri::Authority};
use pingora::{
    Error, ErrorSource, ErrorType,
    http::{RequestHeader, ResponseHeader},
    protocols::http::{HttpTask, ServerSession as HttpSession},
};
use pingora_proxy::Session;

use super::RequestBounds;
use crate::{
    policy::{Client, ClientRule},
    server::Lingering,
};

/// Who sent the request, and whether the peer of its connection is a trusted proxy.
pub(super) fn client(session: &Session, rule: &ClientRule) -> (Client, bool) {
    let peer = match session.client_addr().and_then(|address| address.as_inet()) {
        Some(address) => Client::from(address.ip()),
        None => Client::Unix,
    };
    let client = rule.client(peer, &session.req_header().headers);
    (client, rule.trusts(peer))
}

/// Bounds how long the client may take, and lets its connection go where it is not to be kept. How long it is, `server`
/// sees to: Pingora would set a timer for each request.
pub(super) fn bound_waiting(session: &mut Session, bounds: &RequestBounds, keep_connections: bool) {
    if !keep_connections {
        session.set_keepalive(None);
    }
    if session.req_header().version < Version::HTTP_11 {
        // It knows no answer before the answer (RFC 9110, 10.1.1 and 15.2).
        session.req_header_mut().remove_header(&header::EXPECT);
        session.set_ignore_info_resp(true);
    }
    // Else what a client sent ahead would be dropped behind an answer that promised to keep the connection.
    session.set_pipelining_enabled(true);
    session.set_read_timeout(Some(bounds.body_timeout));
    session.set_write_timeout(Some(bounds.body_timeout));
}

/// Makes one header of the cookies that a client of HTTP/2 sent in several, as browsers do: an upstream of HTTP/1.1 may
/// know the first alone, and those of HTTP/2 know both ways (RFC 9113, 8.2.3).
///
/// # Errors
/// None: what header values are joined by is one.
pub(super) fn join_cookies(head: &mut RequestHeader) -> pingora::Result<()> {
    if head.version != Version::HTTP_2 {
        return Ok(());
    }
    let cookies = head.headers.get_all(header::COOKIE);
    if cookies.iter().nth(1).is_none() {
        return Ok(());
    }
    let cookies: Vec<&[u8]> = cookies.iter().map(HeaderValue::as_bytes).collect();
    let joined = cookies.join(&b"; "[..]);
    head.insert_header(header::COOKIE, joined)
}

/// Takes the bound off how long a client sends nothing: its connection is no longer one of HTTP.
pub(super) fn may_be_silent(session: &mut Session) {
    session.set_read_timeout(None);
}

/// Whether the client's connection is encrypted.
pub(super) fn is_tls(session: &Session) -> bool {
    session
        .digest()
        .is_some_and(|digest| digest.ssl_digest.is_some())
}

/// The status of a request that goes no further, whoever sent it and wherever it would go.
pub(super) fn is_at_fault(head: &RequestHeader, bounds: &RequestBounds) -> Option<StatusCode> {
    if lacks_host(head)
        || names_no_host(head)
        || has_no_path(head)
        || is_coded(head)
        || repeats_its_length(head)
    {
        return Some(StatusCode::BAD_REQUEST);
    }
    let lines = head.headers.iter();
    let size: usize = lines
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if head.headers.len() > bounds.max_headers
        || head.raw_path().len() + size > bounds.max_header_size
    {
        return Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    let length = content_length(head);
    (length > Some(bounds.max_body_size)).then_some(StatusCode::PAYLOAD_TOO_LARGE)
}

/// The length of the body, where it is told. Pingora has refused what is no number.
fn content_length(head: &RequestHeader) -> Option<u64> {
    let length = head.headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Whether the request lacks what every one since HTTP/1.1 has (RFC 9112, 3.2): the host it is for. One of HTTP/1.0
/// that has it in its target alone would be matched by none and still reach the upstream by it.
pub(super) fn lacks_host(head: &RequestHeader) -> bool {
    let only_a_path = matches!(head.raw_path(), [b'/', ..] | b"*");
    (head.version >= Version::HTTP_11 || !only_a_path)
        && head.uri.authority().is_none()
        && !head.headers.contains_key(header::HOST)
}

/// Whether `Host` is there and names none (RFC 9112, 3.2): of `x y`, `x/path`, `x@y` or `x:99999` servers make
/// different things.
fn names_no_host(head: &RequestHeader) -> bool {
    let host = head.headers.get(header::HOST);
    let Some(host) = host.filter(|host| !host.is_empty()) else {
        return false;
    };
    let Ok(authority) = Authority::try_from(host.as_bytes()) else {
        return true;
    };
    let port = authority.as_str().strip_prefix(authority.host());
    let port = port.map(|port| port.strip_prefix(':').unwrap_or(port));
    // Without a prefix a user stands before it.
    !port.is_some_and(|port| {
        port.bytes().all(|byte| byte.is_ascii_digit())
            && (port.is_empty() || port.parse::<u16>().is_ok())
    })
}

/// Whether the body is coded otherwise than in chunks, once. Pingora knows no other coding, tells the upstream of
/// chunks alone, and so of a body that is none.
fn is_coded(head: &RequestHeader) -> bool {
    let mut codings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    codings.next().is_some_and(|first| !is_chunked(first)) || codings.next().is_some()
}

/// Whether the length of the body is told more than once, in several lines or in a list. Pingora has refused it if they
/// differ, and hands it on as it came if they do not; RFC 9110, 8.6 has it refused, or told once.
fn repeats_its_length(head: &RequestHeader) -> bool {
    let mut lengths = head.headers.get_all(header::CONTENT_LENGTH).iter();
    let first = lengths.next();
    first.is_some_and(|first| first.as_bytes().contains(&b',')) || lengths.next().is_some()
}

/// Whether the target is none that a request to a proxy or a server has (RFC 9112, 3.2): a path, a whole URL, or
/// `*`. Pingora takes any other, such as `login` or `x:/login`, for the path `/` and hands it on as it came; to some
/// upstreams it is `/login`.
pub(super) fn has_no_path(head: &RequestHeader) -> bool {
    match head.raw_path() {
        [b'/', ..] | b"*" => false,
        // Behind its first colon; what only looks like a URL Pingora has refused.
        target => {
            let colon = target.iter().position(|byte| *byte == b':');
            !colon.is_some_and(|colon| target[colon + 1..].starts_with(b"//"))
        }
    }
}

/// Keeps the connection of a request that is answered early if little of it is still to come: the rest is
/// read and dropped after the answer. A large rest closes it, and one that waits for a 100 never comes.
fn keep_if_the_rest_is_small(session: &mut Session) {
    let head = session.req_header();
    let is_small = content_length(head).is_some_and(|length| length <= MOST_DRAINED);
    if is_small && !head.headers.contains_key(header::EXPECT) {
        session.set_close_on_response_before_downstream_finish(false);
        session.set_total_drain_timeout(Some(DRAIN_TIMEOUT));
    }
}

/// Sends a whole response before the upstream is asked, so that the request is done: `true`. The connection survives it
/// if little of the request is still to come.
///
/// # Errors
/// If the client is gone.
pub(super) async fn answer_early(
    session: &mut Session,
    whole: (ResponseHeader, Bytes),
) -> pingora::Result<bool> {
    keep_if_the_rest_is_small(session);
    answer(session, whole).await?;
    Ok(true)
}

/// Sends a whole response in place of the upstream's.
///
/// # Errors
/// If the client is gone.
pub(super) async fn answer(
    session: &mut Session,
    (head, body): (ResponseHeader, Bytes),
) -> pingora::Result<()> {
    if session.req_header().method == Method::HEAD || body.is_empty() {
        // By itself, a head would not end the stream of HTTP/2: gRPC's status stands in one that does.
        let lone = HttpTask::Header(Box::new(head), true);
        session.write_response_tasks(vec![lone]).await?;
    } else {
        let head = Box::new(head);
        session.write_response_header(head, false).await?;
        session.write_response_body(Some(body), true).await?;
    }
    read_on(session).await;
    Ok(())
}

/// The same, and no other on this connection. Pingora lets go of it, where a request failed, without a word: whoever still
/// sends would lose the answer by the reset that follows.
///
/// # Errors
/// If the client is gone.
pub(super) async fn answer_last(
    session: &mut Session,
    whole: (ResponseHeader, Bytes),
) -> pingora::Result<()> {
    session.set_keepalive(None);
    answer(session, whole).await?;
    if let HttpSession::H1(connection) = session.as_downstream_mut() {
        connection.shutdown().await;
    }
    Ok(())
}

/// Whether a response was cut off since its client took nothing of it for too long.
pub(super) fn took_nothing(error: &Error) -> bool {
    *error.esource() == ErrorSource::Downstream && *error.etype() == ErrorType::WriteTimedout
}

/// Reads and drops what a client of HTTP/2 still sends of a request that is answered, for as long as one of HTTP/1 is
/// read on from.
///
/// A stream that is let go before its request has ended is reset, in the packet of the answer: RFC 9113, 8.1 has it so,
/// and curl, node and tonic then know of no answer.
pub(super) async fn read_on(session: &mut Session) {
    let downstream = session.as_downstream_mut();
    if downstream.as_http2().is_none() || downstream.is_body_done() {
        return;
    }
    let mut lingering = Lingering::begin();
    while lingering
        .hears(async {
            let part = downstream.read_request_body().await;
            part.ok().flatten().map(|part| part.len())
        })
        .await
    {}
}

/// The most of an unread body that is read for the sake of the connection, in bytes.
const MOST_DRAINED: u64 = 64 * 1024;

const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
