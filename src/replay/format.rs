//! What a line says of a request: in text or in JSON. Which of the formats a line is in, it tells itself, so that a
//! log may hold several.

mod json;
mod text;

use std::fmt;

use super::{record::Found, unreadable::Reason};

/// What a line is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// The common log format of the Apache HTTP server, perhaps with other fields after it.
    Common,
    /// The same, then referer and user agent, as nginx writes it too; perhaps with other fields after them.
    Combined,
    /// Envoy's default, and Istio's.
    EnvoyText,
    /// JSON of envoy.
    EnvoyJson,
    /// JSON of nginx: it has no keys of its own, so those that are usual.
    NginxJson,
    /// JSON of traefik.
    TraefikJson,
    /// JSON of caddy.
    CaddyJson,
    /// JSON of slidegate itself.
    SlidegateJson,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 8] = [
        Self::Common,
        Self::Combined,
        Self::EnvoyText,
        Self::EnvoyJson,
        Self::NginxJson,
        Self::TraefikJson,
        Self::CaddyJson,
        Self::SlidegateJson,
    ];

    /// The word in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Combined => "combined",
            Self::EnvoyText => "envoy_text",
            Self::EnvoyJson => "envoy_json",
            Self::NginxJson => "nginx_json",
            Self::TraefikJson => "traefik_json",
            Self::CaddyJson => "caddy_json",
            Self::SlidegateJson => "slidegate_json",
        }
    }
}

/// For people.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Common => "common",
            Self::Combined => "combined",
            Self::EnvoyText => "text of envoy",
            Self::EnvoyJson => "JSON of envoy",
            Self::NginxJson => "JSON as of nginx",
            Self::TraefikJson => "JSON of traefik",
            Self::CaddyJson => "JSON of caddy",
            Self::SlidegateJson => "JSON of slidegate",
        })
    }
}

/// What this line says, and in which format.
pub(super) fn find(line: &[u8]) -> Result<(Format, Found), Reason> {
    match line.trim_ascii_start() {
        [] => Err(Reason::Empty),
        line @ [b'{', ..] => json::find(line),
        line @ [b'[', ..] if !text::begins_with_address(line) => {
            text::find_envoy(line).map(|found| (Format::EnvoyText, found))
        }
        line => text::find(line),
    }
}
