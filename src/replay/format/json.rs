//! Lines that are a JSON object. Whose it is shows in its keys.

use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};

use super::{Format, text::method_and_target};
use crate::{
    access_log::ACCESS_TARGET,
    policy::Client,
    ratelimit::Timestamp,
    replay::{
        record::{Found, add_header, last_forwarded, set_host},
        stamp,
        unreadable::Reason,
    },
};

type Object = Map<String, Value>;

pub(super) fn find(line: &[u8]) -> Result<(Format, Found), Reason> {
    let object = object(line).ok_or(Reason::Json)?;
    let has = |key: &str| object.contains_key(key);
    if text(&object, "target") == Some(ACCESS_TARGET) {
        return Ok((Format::SlidegateJson, slidegate(&object)?));
    }
    if has("ClientHost") || has("ClientAddr") {
        return Ok((Format::TraefikJson, traefik(&object)?));
    }
    if let Some(Value::Object(request)) = object.get("request") {
        return Ok((Format::CaddyJson, caddy(&object, request)?));
    }
    if has(":authority") || has("downstream_remote_address") || has("start_time") {
        return Ok((Format::EnvoyJson, envoy(&object)?));
    }
    if has("remote_addr") || has("request_uri") || has("request") {
        return Ok((Format::NginxJson, nginx(&object)?));
    }
    Err(Reason::NoRequest)
}

/// JSON is text, and nginx writes into it what clients sent, bytes of any kind included.
fn object(line: &[u8]) -> Option<Object> {
    let parsed = serde_json::from_slice(line);
    parsed
        .or_else(|error| match std::str::from_utf8(line) {
            Ok(_) => Err(error),
            Err(_) => serde_json::from_str(&String::from_utf8_lossy(line)),
        })
        .ok()
}

fn slidegate(object: &Object) -> Result<Found, Reason> {
    let at = text(object, "timestamp").and_then(|text| stamp::rfc3339(text.as_bytes()));
    let client = match text(object, "client") {
        Some("unix") => Some(Client::Unix),
        client => client.and_then(written),
    };
    let mut headers = HeaderMap::new();
    set_host(&mut headers, bytes(object, "host"));
    add_header(&mut headers, b"x-request-id", bytes(object, "request_id"));
    let client = client.ok_or(Reason::Client)?;
    Ok(Found {
        at: at.ok_or(Reason::Stamp)?,
        client,
        peer: client,
        status: status(object, "status"),
        method: bytes(object, "method").to_vec(),
        target: bytes(object, "path").to_vec(),
        headers,
    })
}

/// Its headers are `request_<name>`, as far as it is told to keep them.
fn traefik(object: &Object) -> Result<Found, Reason> {
    // `time` is when the line was written.
    let times = ["StartUTC", "StartLocal", "time"];
    let mut times = times.iter().filter_map(|key| text(object, key));
    let at = times.find_map(|text| stamp::rfc3339(text.as_bytes()));
    let client = ["ClientHost", "ClientAddr"].iter();
    let mut client = client.filter_map(|key| written(text(object, key)?));
    let client = client.next().ok_or(Reason::Client)?;
    let mut headers = HeaderMap::new();
    for (key, value) in object {
        if let (Some(name), Value::String(value)) = (key.strip_prefix("request_"), value) {
            add_header(&mut headers, name.as_bytes(), value.as_bytes());
        }
    }
    set_host(&mut headers, bytes(object, "RequestHost"));
    Ok(Found {
        at: at.ok_or(Reason::Stamp)?,
        client,
        peer: client,
        status: status(object, "DownstreamStatus"),
        method: bytes(object, "RequestMethod").to_vec(),
        target: bytes(object, "RequestPath").to_vec(),
        headers,
    })
}

/// `client_ip` is who caddy itself takes for the client, behind the proxies that it trusts.
fn caddy(object: &Object, request: &Object) -> Result<Found, Reason> {
    let at = object.get("ts").and_then(moment).ok_or(Reason::Stamp)?;
    let peer = text(request, "remote_ip").or(text(request, "remote_addr"));
    let peer = peer.and_then(written).ok_or(Reason::Client)?;
    let client = text(request, "client_ip").and_then(written);
    let mut headers = HeaderMap::new();
    if let Some(Value::Object(told)) = request.get("headers") {
        for (name, values) in told {
            for value in values.as_array().into_iter().flatten() {
                let value = value.as_str().unwrap_or_default();
                add_header(&mut headers, name.as_bytes(), value.as_bytes());
            }
        }
    }
    set_host(&mut headers, bytes(request, "host"));
    Ok(Found {
        at,
        client: client.unwrap_or(peer),
        peer,
        status: status(object, "status"),
        method: bytes(request, "method").to_vec(),
        target: bytes(request, "uri").to_vec(),
        headers,
    })
}

/// Keys with a hyphen are headers.
fn envoy(object: &Object) -> Result<Found, Reason> {
    let at = object.get("start_time").and_then(moment);
    let forwarded = text(object, "x-forwarded-for").or(text(object, "x_forwarded_for"));
    let last = forwarded.and_then(|list| last_forwarded(list.as_bytes()));
    let remote = text(object, "downstream_remote_address").and_then(written);
    let client = remote
        .or(last.map(|(last, _)| last))
        .ok_or(Reason::Client)?;
    let mut headers = HeaderMap::new();
    for (key, value) in object {
        let is_header = key.contains('-') && key != "x-forwarded-for";
        if let (true, Value::String(value)) = (is_header, value) {
            add_header(&mut headers, key.as_bytes(), value.as_bytes());
        }
    }
    // Envoy appends who connected.
    let before = match (last, forwarded) {
        (Some((last, before)), _) if last == client => before,
        (_, forwarded) => forwarded.unwrap_or_default().as_bytes(),
    };
    add_header(&mut headers, b"x-forwarded-for", before);
    for key in [":authority", "authority"] {
        set_host(&mut headers, bytes(object, key));
    }
    for (key, name) in [("user_agent", "user-agent"), ("request_id", "x-request-id")] {
        if !headers.contains_key(name) {
            add_header(&mut headers, name.as_bytes(), bytes(object, key));
        }
    }
    let target = [
        "x-envoy-original-path",
        "x-envoy-origin-path",
        ":path",
        "path",
    ];
    let target = target.iter().find_map(|key| text(object, key));
    Ok(Found {
        at: at.ok_or(Reason::Stamp)?,
        client,
        peer: client,
        status: status(object, "response_code"),
        method: text(object, "method")
            .unwrap_or(text(object, ":method").unwrap_or_default())
            .into(),
        target: target.unwrap_or_default().into(),
        headers,
    })
}

/// Named after its variables, as nearly everybody does; `http_<name>` is a header.
fn nginx(object: &Object) -> Result<Found, Reason> {
    let times = [
        "time_iso8601",
        "time_local",
        "msec",
        "@timestamp",
        "timestamp",
        "time",
    ];
    let mut times = times.iter().filter_map(|key| object.get(*key));
    let at = times.find_map(moment).ok_or(Reason::Stamp)?;
    let client = ["remote_addr", "client", "client_ip", "remote_ip"].iter();
    let mut client = client.filter_map(|key| written(text(object, key)?));
    let client = client.next().ok_or(Reason::Client)?;
    let mut headers = HeaderMap::new();
    for (key, value) in object {
        if let (Some(name), Value::String(value)) = (key.strip_prefix("http_"), value) {
            let name = name.replace('_', "-");
            add_header(&mut headers, name.as_bytes(), value.as_bytes());
        }
    }
    for key in ["host", "server_name"] {
        set_host(&mut headers, bytes(object, key));
    }
    let (method, target) = match text(object, "request") {
        Some(line) => method_and_target(line.as_bytes()),
        None => {
            let mut target = bytes(object, "request_uri").to_vec();
            if target.is_empty() {
                target.extend_from_slice(bytes(object, "uri"));
                let arguments = bytes(object, "args");
                if !target.is_empty() && !arguments.is_empty() && arguments != b"-" {
                    target.push(b'?');
                    target.extend_from_slice(arguments);
                }
            }
            let method = text(object, "request_method").or(text(object, "method"));
            (method.unwrap_or_default().into(), target)
        }
    };
    Ok(Found {
        at,
        client,
        peer: client,
        status: status(object, "status"),
        method,
        target,
        headers,
    })
}

fn text<'o>(object: &'o Object, key: &str) -> Option<&'o str> {
    object.get(key).and_then(Value::as_str)
}

fn bytes<'o>(object: &'o Object, key: &str) -> &'o [u8] {
    text(object, key).unwrap_or_default().as_bytes()
}

fn written(text: &str) -> Option<Client> {
    Client::written(text.as_bytes())
}

/// As a number or as text.
fn status(object: &Object, key: &str) -> Option<StatusCode> {
    let code = match object.get(key)? {
        Value::Number(number) => u16::try_from(number.as_u64()?).ok()?,
        Value::String(text) => text.parse().ok()?,
        _ => return None,
    };
    StatusCode::from_u16(code).ok()
}

/// A time in one of the usual forms; numbers are seconds since the epoch.
fn moment(value: &Value) -> Option<Timestamp> {
    match value {
        // As it is printed: a float's digits are those that the log had.
        Value::Number(number) => stamp::epoch(&number.to_string()),
        Value::String(text) => stamp::rfc3339(text.as_bytes())
            .or_else(|| stamp::common(text.as_bytes()))
            .or_else(|| stamp::epoch(text)),
        _ => None,
    }
}
