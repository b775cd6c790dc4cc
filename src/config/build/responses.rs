//! `responses`: what clients are told.

use crate::{
    config::{
        leaf::{Choice, Rejected, boolean, choice},
        section::Section,
    },
    proxy::response::{Cors, ErrorBody, ResetFormat, ResponseSettings},
};

/// `None` if what they say of other origins is at fault.
pub fn read(section: &mut Section<'_>) -> Option<ResponseSettings> {
    let cors = section.field("cors");
    let cors = cors.map(|field| field.section(self::cors).flatten());
    Some(ResponseSettings {
        x_ratelimit: section.word("x_ratelimit", true, boolean),
        ratelimit: section.word("ratelimit", true, boolean),
        x_ratelimit_reset: section.word("x_ratelimit_reset", ResetFormat::default(), choice),
        error_body: section.word("error_body", ErrorBody::default(), choice),
        cors: match cors {
            None => None,
            Some(cors) => Some(cors?),
        },
    })
}

fn cors(section: &mut Section<'_>) -> Option<Cors> {
    section.note();
    section.require("origins", "origins: [https://app.example.com]");
    let credentials = section.word("credentials", false, boolean);
    let origins = section.field("origins")?;
    let origins = if origins.is_list() {
        Some(origins.list("[https://app.example.com]", |item| item.word(origin))?)
    } else {
        origins.word(all_origins)?;
        None
    };
    if credentials && origins.is_none() {
        section.conflict(
            "credentials",
            "would let the pages of anybody read what your users may",
            Some("list the origins"),
        );
        return None;
    }
    Some(Cors {
        origins,
        credentials,
    })
}

fn all_origins(text: &str) -> Result<(), Rejected> {
    match text {
        "*" => Ok(()),
        _ => Err(Rejected::new(
            "a list of origins, as in [https://app.example.com], or \"*\" for all",
        )),
    }
}

/// An origin as browsers write it (Fetch Standard, 3.2): in small letters, without a path, and without the scheme's own
/// port.
fn origin(text: &str) -> Result<Box<str>, Rejected> {
    let rejected = || {
        Rejected::new(
            "a scheme and a host as browsers write them, as in https://app.example.com or http://localhost:5173",
        )
    };
    let url = text.parse::<http::Uri>().map_err(|_| rejected())?;
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return Err(rejected());
    };
    let own_port = match scheme {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    };
    let port = match authority.port_u16() {
        Some(port) if Some(port) != own_port => format!(":{port}"),
        _ => String::new(),
    };
    let host = authority.host().to_ascii_lowercase();
    let written = format!("{scheme}://{host}{port}");
    let hint = match host.contains('*') {
        true => {
            "each host has to be listed, or \"*\" stands for all, in place of the list".to_owned()
        }
        false if written != text => format!("write {written}"),
        false => return Ok(text.into()),
    };
    Err(rejected().hint(Some(hint)))
}

impl Choice for ResetFormat {
    const ALL: &'static [Self] = &[Self::Epoch, Self::Seconds];

    fn name(self) -> &'static str {
        match self {
            Self::Epoch => "epoch",
            Self::Seconds => "seconds",
        }
    }
}

impl Choice for ErrorBody {
    const ALL: &'static [Self] = &[Self::ProblemJson, Self::Text];

    fn name(self) -> &'static str {
        match self {
            Self::ProblemJson => "problem_json",
            Self::Text => "text",
        }
    }
}
