//! `block` and `exempt`: whom no policy is asked about.

use std::collections::HashSet;

use super::{
    identity::IdentitySettings,
    matching::{CLIENTS, List, PATHS},
};
use crate::{
    config::{consumer_name, leaf::boolean, section::Section},
    policy::{Cidr, Gate, Identifier, PathPattern},
};

/// What `block` and `exempt` list, as it is written. What is at fault is left out.
#[derive(Default)]
pub struct Lists {
    pub blocked: Vec<Cidr>,
    pub exempt_clients: Vec<Cidr>,
    pub exempt_paths: Vec<PathPattern>,
    pub exempt_consumers: HashSet<Identifier>,
    pub exempt_cors_preflights: bool,
}

pub fn read(root: &mut Section<'_>, identity: &IdentitySettings) -> Lists {
    let given = root.has("block");
    let blocked = root.section("block", |section| {
        if given && section.is_empty() {
            section.conflict_here("blocks nobody", Some("leave it out"));
        }
        CLIENTS.read(section, &[])
    });
    let blocked = blocked.flatten().unwrap_or_default();

    let given = root.has("exempt");
    let exempt = root.section("exempt", |section| {
        if given && section.is_empty() {
            section.conflict_here("exempts nothing", Some("leave it out"));
        }
        let clients = CLIENTS.read(section, &[]).unwrap_or_default();
        for range in &clients {
            if let Some(wide) = blocked.iter().find(|wide| wide.covers(*range)) {
                let problem = format!("{range} has no effect: {wide} is blocked");
                section.conflict("client_ip", problem, None);
            }
        }
        let paths = PATHS.read(section, &[]).unwrap_or_default();
        if paths.iter().any(PathPattern::is_everything) {
            let problem = "covers every path: no policy would ever be asked";
            section.conflict("path", problem, None);
        }
        let preflights = section.word("cors_preflight", false, boolean);
        let consumers = CONSUMERS.read(section, &[]).unwrap_or_default();
        if section.has("consumer") && identity.consumers.is_none() {
            let problem = "has no effect: there are no consumers";
            let hint = "list them in a file, and name it in identity.consumers";
            section.conflict("consumer", problem, Some(hint));
        }
        let path = section.path().key("consumer");
        let consumers = consumers.iter();
        let consumers = consumers.filter_map(|name| identity.consumer(&path, name).ok());
        (clients, paths, consumers.collect(), preflights)
    });
    let (exempt_clients, exempt_paths, exempt_consumers, exempt_cors_preflights) =
        exempt.unwrap_or_default();
    Lists {
        blocked,
        exempt_clients,
        exempt_paths,
        exempt_consumers,
        exempt_cors_preflights,
    }
}

impl Lists {
    pub fn gate(&self) -> Gate {
        Gate {
            blocked: self.blocked.iter().copied().collect(),
            exempt_clients: self.exempt_clients.iter().copied().collect(),
            exempt_consumers: self.exempt_consumers.clone(),
            exempt_paths: self.exempt_paths.clone(),
            exempt_cors_preflights: self.exempt_cors_preflights,
        }
    }
}

const CONSUMERS: List<String> = List {
    key: "consumer",
    example: "[acme]",
    parse: |text| consumer_name(text).map(str::to_owned),
    covers: String::eq,
    range: None,
    told: str::to_owned,
};
