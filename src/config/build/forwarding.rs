//! `forwarding`: what the upstream is told of a request beside what the client sent.

use crate::{
    config::{
        leaf::{Choice, Rejected, boolean, choice, name},
        section::Section,
    },
    proxy::forward::{ClientHeaders, ForwardSettings},
};

pub fn read(section: &mut Section<'_>) -> ForwardSettings {
    let defaults = ForwardSettings::default();
    ForwardSettings {
        client: section.word("client", defaults.client, choice),
        via: section.word("via", defaults.via, via),
        request_id: section.word("request_id", defaults.request_id, boolean),
    }
}

/// The pseudonym of RFC 9110, 7.6.3: any token may be one, but a name in small letters does.
fn via(text: &str) -> Result<Option<Box<str>>, Rejected> {
    match text {
        "off" => Ok(None),
        _ => Ok(Some(name(text)?.into())),
    }
}

impl Choice for ClientHeaders {
    const ALL: &'static [Self] = &[Self::XForwarded, Self::Forwarded, Self::Both];

    fn name(self) -> &'static str {
        match self {
            Self::XForwarded => "x_forwarded",
            Self::Forwarded => "forwarded",
            Self::Both => "both",
        }
    }
}
