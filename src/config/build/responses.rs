//! `responses`: what clients are told.

use crate::{
    config::{
        leaf::{Choice, boolean, choice},
        section::Section,
    },
    proxy::response::{ErrorBody, ResetFormat, ResponseSettings},
};

pub fn read(section: &mut Section<'_>) -> ResponseSettings {
    ResponseSettings {
        x_ratelimit: section.word("x_ratelimit", true, boolean),
        ratelimit: section.word("ratelimit", true, boolean),
        x_ratelimit_reset: section.word("x_ratelimit_reset", ResetFormat::default(), choice),
        error_body: section.word("error_body", ErrorBody::default(), choice),
    }
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
