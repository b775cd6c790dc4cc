//! `responses`: what clients are told.

use crate::{
    config::{
        leaf::{Choice, boolean, choice},
        section::Section,
    },
    proxy::response::{DenialBody, ResetFormat, ResponseSettings},
};

pub fn read(section: &mut Section<'_>) -> ResponseSettings {
    ResponseSettings {
        x_ratelimit: section.word("x_ratelimit", true, boolean),
        ratelimit: section.word("ratelimit", true, boolean),
        x_ratelimit_reset: section.word("x_ratelimit_reset", ResetFormat::default(), choice),
        denial_body: section.word("denial_body", DenialBody::default(), choice),
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

impl Choice for DenialBody {
    const ALL: &'static [Self] = &[Self::ProblemJson, Self::Text];

    fn name(self) -> &'static str {
        match self {
            Self::ProblemJson => "problem_json",
            Self::Text => "text",
        }
    }
}
