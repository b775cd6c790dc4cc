//! `block` and `exempt`: whom no policy is asked about.

use super::matching::{CLIENTS, PATHS};
use crate::{
    config::section::Section,
    policy::{Cidr, Gate, PathPattern},
};

/// What `block` and `exempt` list, as it is written. What is at fault is left out.
#[derive(Default)]
pub struct Lists {
    pub blocked: Vec<Cidr>,
    pub exempt_clients: Vec<Cidr>,
    pub exempt_paths: Vec<PathPattern>,
}

pub fn read(root: &mut Section<'_>) -> Lists {
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
        (clients, paths)
    });
    let (exempt_clients, exempt_paths) = exempt.unwrap_or_default();
    Lists {
        blocked,
        exempt_clients,
        exempt_paths,
    }
}

impl Lists {
    pub fn gate(&self) -> Gate {
        Gate {
            blocked: self.blocked.iter().copied().collect(),
            exempt_clients: self.exempt_clients.iter().copied().collect(),
            exempt_paths: self.exempt_paths.clone(),
        }
    }
}
