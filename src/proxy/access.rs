//! What became of a request, collected for the access log.

use http::{StatusCode, Version, header};
use pingora::{Error, ErrorSource, http::RequestHeader};
use pingora_proxy::Session;

use super::{RequestState, is_final, request_id::RequestId, status_of};
use crate::{
    access_log::{
        ACCESS_TARGET, AccessFormat, AccessRecord, Escaped, Reported, RequestEnd, UpstreamPart,
        line,
    },
    clock,
    limiter::Verdict,
    ratelimit::Timestamp,
};

/// Tells of a request that has ended `now`, with this error if it did not end well.
pub(super) fn tell(
    format: AccessFormat,
    session: &Session,
    state: &RequestState,
    error: Option<&Error>,
    now: Timestamp,
) {
    let line = line(format, &record(session, state, error, now));
    tracing::info!(target: ACCESS_TARGET, line = &*line);
}

fn record<'a>(
    session: &'a Session,
    state: &'a RequestState,
    error: Option<&Error>,
    now: Timestamp,
) -> AccessRecord<'a> {
    let head = session.req_header();
    let digest = session.digest();
    let tls = digest.and_then(|digest| digest.ssl_digest.as_deref());
    let written = session.response_written().map(|head| head.status);
    let status = written.filter(|status| is_final(*status));
    let duration = clock::elapsed(state.started);
    let whole_millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    let verdict = state.verdict.as_ref();
    AccessRecord {
        time: now.offset_by(-whole_millis),
        client: state.client,
        method: Escaped::method(head.method.as_str().as_bytes()),
        host: host(head).map(Escaped::host),
        path: Escaped::path(path(head)),
        version: version(head.version),
        tls: tls.map(|digest| version_of_tls(&digest.version)),
        status: status.map(|status| status.as_u16()),
        bytes_sent: session.body_bytes_sent() as u64,
        bytes_received: session.body_bytes_read() as u64,
        ended: ended(state, status, error),
        duration,
        added: state.added,
        upstream: upstream(state),
        outcome: verdict.map(|verdict| verdict.outcome.name()),
        limit: verdict.and_then(|verdict| reported(state, verdict)),
        request_id: state.id.as_ref().map(RequestId::as_str),
    }
}

/// A path alone has no user and no password in it; what else a target may be is told by what Pingora took from it.
fn path(head: &RequestHeader) -> &[u8] {
    let target = match head.raw_path() {
        raw @ [b'/', ..] => raw,
        _ => head.uri.path().as_bytes(),
    };
    let end = target.iter().position(|byte| b"?#".contains(byte));
    &target[..end.unwrap_or(target.len())]
}

/// Without the user and the password that could stand before it.
fn host(head: &RequestHeader) -> Option<&[u8]> {
    let host = match head.uri.authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => head.headers.get(header::HOST)?.as_bytes(),
    };
    host.rsplit(|byte| *byte == b'@').next()
}

const fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// As nginx and OpenSSL write it; rustls has an underscore in it.
fn version_of_tls(version: &str) -> &str {
    match version {
        "TLSv1_2" => "TLSv1.2",
        "TLSv1_3" => "TLSv1.3",
        other => other,
    }
}

/// Without a status nobody was there to be sent one, whatever HTTP/2 makes of that.
fn ended(state: &RequestState, status: Option<StatusCode>, error: Option<&Error>) -> RequestEnd {
    let Some(error) = error else {
        return RequestEnd::Complete;
    };
    let is_the_clients = *error.esource() == ErrorSource::Downstream;
    // It is known as soon as there is one.
    let is_within_an_answer = state.upstream_took.is_some();
    match status {
        None => RequestEnd::ClientLeft,
        Some(_) if is_within_an_answer && is_the_clients => RequestEnd::ClientLeft,
        Some(_) if is_within_an_answer => RequestEnd::Cut,
        // It is our own answer.
        Some(_) => match status_of(error) {
            Some(_) => RequestEnd::Complete,
            None => RequestEnd::ClientLeft,
        },
    }
}

fn upstream(state: &RequestState) -> Option<UpstreamPart<'_>> {
    let way = state.way.as_ref()?;
    let waiting = state.upstream_chosen.map(clock::elapsed);
    Some(UpstreamPart {
        name: way.upstream.name(),
        address: way.tried.last().map(|member| &member.target.socket),
        took: state.upstream_took.or(waiting),
    })
}

fn reported<'a>(state: &'a RequestState, verdict: &'a Verdict) -> Option<Reported<'a>> {
    let limit = verdict.reported()?;
    let policy = &state.rules.limiter.policies().policies()[limit.policy];
    Some(Reported {
        policy: &policy.name,
        limit: &verdict.named(limit).name,
        plan: policy.tiers.all()[limit.tier].plan.as_deref(),
        identifier: limit.identifier,
        decided_by: limit.decided_by.name(),
        remaining: limit.decision.remaining(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(target: &str, host: &str) -> RequestHeader {
        let mut head = RequestHeader::build("GET", target.as_bytes(), None).expect(target);
        head.insert_header(header::HOST, host).expect(host);
        head
    }

    #[test]
    fn of_a_target_the_path_alone_is_told() {
        for (target, told) in [
            ("/a/b", "/a/b"),
            ("/a?key=k", "/a"),
            ("/a?b?c", "/a"),
            ("/a#k", "/a"),
            ("/?k", "/"),
            ("*", "*"),
            ("http://user:password@h/a?key=k", "/a"),
            ("http://user:password@h?key=k", "/"),
        ] {
            let head = head(target, "h");
            assert_eq!(path(&head), told.as_bytes(), "{target}");
        }
    }

    #[test]
    fn of_a_host_the_user_and_the_password_are_not_told() {
        for (sent, told) in [
            ("h:8000", "h:8000"),
            ("user:password@h:8000", "h:8000"),
            ("user@password@h", "h"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("user@", ""),
        ] {
            assert_eq!(host(&head("/", sent)), Some(told.as_bytes()), "{sent}");
        }
        let mut of_http_2 = head("/", "other");
        of_http_2.set_uri("http://user:password@h:8000/".parse().expect("a URI"));
        assert_eq!(host(&of_http_2), Some(&b"h:8000"[..]));
    }
}
