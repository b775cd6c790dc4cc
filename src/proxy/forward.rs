//! What goes on, both ways: what the upstream is told of a request beside what the client sent, and what of its
//! response was for us alone.

use std::{fmt::Write as _, net::IpAddr};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use smallvec::SmallVec;

use super::{
    request_id::{RequestId, X_REQUEST_ID},
    text::HeaderText,
};
use crate::policy::Client;

/// What the upstream is told beside what the client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardSettings {
    /// In which headers it is told of the client. Default [`ClientHeaders::XForwarded`].
    pub client: ClientHeaders,
    /// Under which name the proxy stands in `Via` (RFC 9110, 7.6.3), of requests and of responses. Default none: with one,
    /// some servers compress no response any more.
    pub via: Option<Box<str>>,
    /// Whether every request has an `X-Request-Id`. Default true.
    pub request_id: bool,
}

impl Default for ForwardSettings {
    fn default() -> Self {
        Self {
            client: ClientHeaders::default(),
            via: None,
            request_id: true,
        }
    }
}

/// In which headers the upstream is told who the client is, and how it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientHeaders {
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// All of them.
    Both,
}

/// How a request came, as far as the upstream is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    /// Who sent it.
    pub client: Client,
    /// Whether who connected is a trusted proxy.
    pub peer_is_trusted: bool,
    /// Whether that connection is encrypted.
    pub by_tls: bool,
    /// What was spoken over it.
    pub version: Version,
}

/// Tells the upstream who the client is; what the client said of that itself is replaced. A trusted proxy alone
/// knows whether its client came by TLS, so its word for that is kept; without one it is told how the client came to
/// us.
///
/// # Errors
/// None in practice: an address and a host that was accepted are header values.
pub(super) fn request(
    settings: &ForwardSettings,
    head: &mut RequestHeader,
    came: Came,
    id: Option<&RequestId>,
) -> pingora::Result<()> {
    let is_told = came.peer_is_trusted && head.headers.contains_key("x-forwarded-proto");
    let by_tls = if is_told {
        says_https(head)
    } else {
        came.by_tls
    };
    let spoofed: SmallVec<[HeaderName; 4]> = head
        .headers
        .keys()
        .filter(tells_the_client)
        .cloned()
        .collect();
    for name in spoofed {
        head.remove_header(&name);
    }
    let address = match came.client {
        Client::Address(address) => Some(address.to_canonical()),
        Client::Unix => None,
    };
    let proto = if by_tls { "https" } else { "http" };
    let host = host(head);
    if settings.client != ClientHeaders::Forwarded {
        if let Some(address) = address {
            head.insert_header(
                "X-Forwarded-For",
                HeaderText::default().address(address).value(),
            )?;
        }
        head.insert_header("X-Forwarded-Proto", HeaderValue::from_static(proto))?;
        if let Some(host) = &host {
            head.insert_header("X-Forwarded-Host", host.clone())?;
        }
    }
    if settings.client != ClientHeaders::XForwarded {
        head.insert_header("Forwarded", forwarded(address, proto, host.as_ref()))?;
    }
    if let Some(name) = &settings.via {
        head.append_header("Via", via(came.version, name))?;
    }
    if let Some(id) = id {
        head.insert_header(X_REQUEST_ID.written, id.value())?;
    }
    Ok(())
}

/// Takes out of a response what the upstream says to whom it is connected to, and no further (RFC 9110, 7.6.1). Its
/// framing is left: Pingora reads that, and writes its own.
///
/// # Errors
/// None in practice: the name in `Via` is a token.
pub(super) fn response(
    settings: &ForwardSettings,
    head: &mut ResponseHeader,
) -> pingora::Result<()> {
    let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
    // An upgrade may need any of them.
    if !switches {
        for name in of_this_hop(&head.headers) {
            head.remove_header(&name);
        }
        // There it is the answer to which protocol is required (RFC 9110, 15.5.22).
        if head.status != StatusCode::UPGRADE_REQUIRED {
            head.remove_header(&header::UPGRADE);
        }
    }
    if let Some(name) = &settings.via {
        head.append_header("Via", via(head.version, name))?;
    }
    Ok(())
}

/// Takes the chunks off a response to a client of HTTP/1.0, which knows none (RFC 9112, 6.1). Whether there were any: its body
/// then ends with the connection.
pub(super) fn unchunk(head: &mut ResponseHeader) -> bool {
    head.remove_header(&header::TRANSFER_ENCODING).is_some()
}

/// Headers for whom the response is sent to over this connection: some always, and those that `Connection` names but
/// for what says what the message is, or what comes after it.
fn of_this_hop(headers: &HeaderMap) -> SmallVec<[HeaderName; 2]> {
    let lines = headers.get_all(header::CONNECTION).iter();
    let words = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let names = words.filter_map(|word| HeaderName::from_bytes(word.trim_ascii()).ok());
    let kept = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    let nominated = names.filter(|name| !kept.contains(name) && headers.contains_key(name));
    // Mostly there is none: one look at the names that are there is less work than one for each that may be.
    let always = headers
        .keys()
        .filter(|name| HOP_BY_HOP.contains(&name.as_str()));
    always.cloned().chain(nominated).collect()
}

/// `for=192.0.2.1;proto=https;host="example.com:8000"` (RFC 7239, 4). A host that can not stand there is left out.
fn forwarded(address: Option<IpAddr>, proto: &str, host: Option<&HeaderValue>) -> String {
    let mut told = match address {
        Some(IpAddr::V4(address)) => format!("for={address};proto={proto}"),
        Some(IpAddr::V6(address)) => format!("for=\"[{address}]\";proto={proto}"),
        None => format!("for=unknown;proto={proto}"),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]~%".contains(&byte);
    let host = host.and_then(|host| host.to_str().ok());
    if let Some(host) = host.filter(|host| host.bytes().all(is_plain)) {
        write!(told, ";host=\"{host}\"").expect("a string grows");
    }
    told
}

/// `1.1 name`: what was spoken on the way here, and who received it.
fn via(version: Version, name: &str) -> String {
    let version = match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    format!("{version} {name}")
}

/// What the request is for, wherever its version says that.
fn host(head: &RequestHeader) -> Option<HeaderValue> {
    if let Some(host) = head.headers.get(header::HOST) {
        return Some(host.clone());
    }
    let authority = head.uri.authority()?;
    HeaderValue::from_str(authority.as_str()).ok()
}

/// Whether `X-Forwarded-Proto` is there once and says that the client came by TLS.
fn says_https(head: &RequestHeader) -> bool {
    let mut lines = head.headers.get_all("x-forwarded-proto").iter();
    let is_https = |line: &HeaderValue| line.as_bytes().eq_ignore_ascii_case(b"https");
    lines.next().is_some_and(is_https) && lines.next().is_none()
}

/// Whether a header tells who the client is, or how it came: only a proxy may say that. Underscores count
/// as hyphens, since CGI and its heirs make them the same.
fn tells_the_client(name: &&HeaderName) -> bool {
    let like = |wanted: &[u8]| {
        let bytes = name.as_str().bytes();
        let hyphenated = bytes.map(|byte| if byte == b'_' { b'-' } else { byte });
        hyphenated.take(wanted.len()).eq(wanted.iter().copied())
    };
    match name.as_str().as_bytes().first() {
        Some(b'x') => like(b"x-forwarded") || like(b"x-real-ip"),
        Some(b'f') => **name == header::FORWARDED,
        _ => false,
    }
}

/// Of a response, what is for whom it is sent to over this connection.
const HOP_BY_HOP: [&str; 3] = ["keep-alive", "proxy-authenticate", "proxy-connection"];
