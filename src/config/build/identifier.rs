//! `identifier` and `missing_identifier` of a policy: who is counted.

use crate::{
    config::{
        ConsumersSettings,
        field::Field,
        leaf::{Choice, Rejected, choice, nearest},
        section::Section,
    },
    policy::{
        IdentifierEntry, IdentifierRule, IdentifierSource, MAX_PARTS, MissingIdentifier,
        ParseIdentifierSourceError,
    },
};

/// By address unless configured: a header's value is the client's own choice.
pub fn read(section: &mut Section<'_>, consumers: Option<&ConsumersSettings>) -> IdentifierRule {
    let mut entries: Vec<IdentifierEntry> = Vec::new();
    // A list has no fault of its own, so what is wrong with a combination is told of the whole setting.
    let mut conflicts: Vec<Rejected> = Vec::new();
    let mut place = 0;
    let _ = section.list("identifier", LIST, |item| {
        place += 1;
        let entry = match item.is_list() {
            true => match combination(item, &entries)? {
                Ok(entry) => entry,
                Err(Rejected { accepted, hint }) => {
                    let accepted = format!("its entry {place} {accepted}");
                    conflicts.push(Rejected { accepted, hint });
                    return None;
                }
            },
            false => item.word(|text| {
                let entry = IdentifierEntry::One(source(text)?);
                tried(&entry, &entries)?;
                Ok::<_, Rejected>(entry)
            })?,
        };
        entries.push(entry);
        Some(())
    });
    for Rejected { accepted, hint } in conflicts {
        section.conflict("identifier", accepted, hint.as_deref());
    }
    let missing = section.optional("missing_identifier", choice);
    if entries.is_empty() {
        entries.push(IdentifierEntry::One(IdentifierSource::ClientIp));
    }
    let never_missing = entries.iter().find(|entry| entry.is_never_missing());
    if let Some(entry) = never_missing
        && missing.is_some_and(|missing| missing != MissingIdentifier::ClientIp)
    {
        section.conflict(
            "missing_identifier",
            format!("has no effect: {entry} is among the sources, and no request is without it"),
            Some(&format!("remove {entry} from identifier, or this line")),
        );
    }
    if let Some(consumers) = consumers {
        for entry in &mut entries {
            entry.look_for_consumers_in(&consumers.headers);
        }
    }
    IdentifierRule {
        entries,
        missing: missing.unwrap_or_default(),
    }
}

/// Several sources that identify together; `None` if one of them is at fault, which has been told.
fn combination(
    item: Field<'_>,
    before: &[IdentifierEntry],
) -> Option<Result<IdentifierEntry, Rejected>> {
    let mut given = 0;
    let mut sources: Vec<IdentifierSource> = Vec::new();
    item.list(COMBINATION, |part| {
        given += 1;
        let source = part.word(|text| {
            let source = source(text)?;
            match sources.contains(&source) {
                true => Err(Rejected::new(
                    "each source stands once in a combination, and this one did",
                )),
                false => Ok(source),
            }
        })?;
        sources.push(source);
        Some(())
    })?;
    (given == sources.len()).then(|| combined(sources, before))
}

fn combined(
    sources: Vec<IdentifierSource>,
    before: &[IdentifierEntry],
) -> Result<IdentifierEntry, Rejected> {
    if let [lone] = &sources[..] {
        return Err(Rejected::new("is a combination of one source")
            .hint(Some(format!("write {lone} without the inner brackets"))));
    }
    if sources.len() > MAX_PARTS {
        return Err(Rejected::new(format!(
            "combines more than {MAX_PARTS} sources"
        )));
    }
    if sources.contains(&IdentifierSource::Constant) {
        return Err(Rejected::new(
            "combines constant, which tells nobody apart, with other sources",
        )
        .hint(Some("leave constant out, or have it alone".to_owned())));
    }
    let entry = IdentifierEntry::All(sources.into());
    match tried(&entry, before) {
        Ok(()) => Ok(entry),
        Err(Rejected { accepted, hint }) => Err(Rejected {
            accepted: format!("({entry}) has no effect: {accepted}"),
            hint,
        }),
    }
}

/// Whether an entry after these can ever identify a request.
fn tried(entry: &IdentifierEntry, before: &[IdentifierEntry]) -> Result<(), Rejected> {
    if before.contains(entry) {
        return Err(Rejected::new("each source is tried once, and this one was"));
    }
    match before.iter().find(|first| first.is_there_wherever(entry)) {
        Some(first) if first.is_never_missing() => {
            let hint = match entry.is_never_missing() {
                true => format!("leave out one of the two, {first} or {entry}"),
                false => format!("put {first} last"),
            };
            let problem = format!("no request is without {first}, so nothing after it is tried");
            Err(Rejected::new(problem).hint(Some(hint)))
        }
        Some(first) => {
            let hint = match entry.is_there_wherever(first) {
                true => format!("leave out one of the two, {first} or {entry}"),
                false => format!("put {entry} before {first}"),
            };
            let problem = format!("a request that has it has {first} too, which is tried before");
            Err(Rejected::new(problem).hint(Some(hint)))
        }
        None => Ok(()),
    }
}

fn source(text: &str) -> Result<IdentifierSource, Rejected> {
    text.parse().map_err(|error| {
        let hint = match error {
            ParseIdentifierSourceError::Unknown => match text.split_once(':') {
                Some((kind, _)) => nearest(kind, ["header", "cookie", "query"]),
                None => nearest(text, ["client_ip", "constant", "host", "method", "path"]),
            },
            _ => None,
        };
        Rejected::from(error).hint(hint)
    })
}

impl Choice for MissingIdentifier {
    const ALL: &'static [Self] = &[Self::ClientIp, Self::Allow, Self::Deny];

    fn name(self) -> &'static str {
        Self::name(self)
    }
}

const LIST: &str = "[header:x-api-key, client_ip]";

const COMBINATION: &str = "[header:x-tenant, header:x-user]";
