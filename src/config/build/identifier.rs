//! `identifier` and `missing_identifier` of a policy: who is counted.

use crate::{
    config::{
        leaf::{Choice, Rejected, choice, nearest},
        section::Section,
    },
    policy::{IdentifierRule, IdentifierSource, MissingIdentifier},
};

/// By address unless configured: a header's value is the client's own choice.
pub fn read(section: &mut Section<'_>) -> IdentifierRule {
    let mut seen: Vec<IdentifierSource> = Vec::new();
    let example = "[header:x-api-key, client_ip]";
    let sources = section.list("identifier", example, |item| {
        let source = item.word(|text| source(text, &seen));
        seen.extend(source.clone());
        source
    });
    let missing = section.optional("missing_identifier", choice);
    let sources = sources.unwrap_or_else(|| vec![IdentifierSource::ClientIp]);
    let never_missing = sources.contains(&IdentifierSource::ClientIp);
    if never_missing && missing.is_some_and(|missing| missing != MissingIdentifier::ClientIp) {
        section.conflict(
            "missing_identifier",
            "has no effect: client_ip is among the sources, and every client has an address",
            Some("remove client_ip from identifier, or this line"),
        );
    }
    IdentifierRule {
        sources,
        missing: missing.unwrap_or_default(),
    }
}

fn source(text: &str, before: &[IdentifierSource]) -> Result<IdentifierSource, Rejected> {
    let source: IdentifierSource = text
        .parse()
        .map_err(|error| Rejected::from(error).hint(nearest(text, ["client_ip"])))?;
    if before.contains(&source) {
        return Err(Rejected::new("each source is tried once, and this one was"));
    }
    if before.contains(&IdentifierSource::ClientIp) {
        return Err(Rejected::new(
            "every client has an address, so nothing after client_ip is tried",
        )
        .hint(Some("put client_ip last".to_owned())));
    }
    Ok(source)
}

impl Choice for MissingIdentifier {
    const ALL: &'static [Self] = &[Self::ClientIp, Self::Allow, Self::Deny];

    fn name(self) -> &'static str {
        match self {
            Self::ClientIp => "client_ip",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}
