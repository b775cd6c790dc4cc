//! `access_log`: whether and how requests are logged, one by one.

use crate::{
    access_log::{AccessFormat, AccessLogSettings},
    config::{
        leaf::{Choice, Decimals, choice, decimal},
        section::Section,
    },
};

/// What is logged; `None` is nothing, the default.
pub fn read(section: &mut Section<'_>) -> Option<AccessLogSettings> {
    let format = section.word("format", Format::Off, choice);
    let share = section.word("sample", 1.0, decimal(0.0..=1.0, Decimals::Four));
    let format = match format {
        Format::Off => return None,
        Format::Json => AccessFormat::Json,
        Format::Common => AccessFormat::Common,
    };
    // With four decimals, a whole number but for what binary fractions are off.
    let per_million = (share * 1e6).round() as u32;
    (per_million > 0).then_some(AccessLogSettings {
        format,
        per_million,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Off,
    Json,
    Common,
}

impl Choice for Format {
    const ALL: &'static [Self] = &[Self::Off, Self::Json, Self::Common];

    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Json => "json",
            Self::Common => "common",
        }
    }
}
