//! `match` and `apply`: which requests a policy is for. What could never match, or is covered by something else,
//! is a fault: whoever wrote it meant something.

use std::{collections::BTreeMap, fmt::Display};

use http::Method;

use super::gate::Lists;
use crate::{
    config::{
        field::Field,
        leaf::{Choice, Rejected},
        section::Section,
        shown::HIDDEN,
    },
    policy::{Apply, Cidr, Conditions, HeaderPattern, HostPattern, MatchRule, Mode, PathPattern},
};

/// What `match` of a policy says; `None` if it is at fault.
pub fn read(policy: &mut Section<'_>) -> Option<MatchRule> {
    let given = policy.has("match");
    policy.section("match", |section| {
        if given && section.is_empty() {
            let problem = "holds no condition";
            section.conflict_here(problem, Some("leave it out to match every request"));
        }
        let all = conditions(section, &Conditions::default());
        let given = section.has("not");
        let wanted = all.clone().unwrap_or_default();
        let none = section.section("not", |section| {
            if given && section.is_empty() {
                section.conflict_here("holds no condition", Some("leave it out"));
            }
            let none = conditions(section, &wanted)?;
            if none.paths.iter().any(PathPattern::is_everything) {
                section.conflict("path", "covers every path: nothing is left to match", None);
            }
            Some(none)
        });
        let (all, none) = (all?, none??);
        Some(MatchRule { all, none })
    })?
}

/// What takes requests away from a policy.
pub struct Earlier {
    apply: Apply,
    /// Blocks and exemptions, by their key.
    gate: Vec<(&'static str, MatchRule)>,
    /// Enforced policies of which only the first applies, by their path.
    policies: Vec<(String, MatchRule)>,
}

impl Earlier {
    pub fn new(apply: Apply, lists: &Lists) -> Self {
        let clients = |clients: &[Cidr]| Conditions::default().with_clients(clients.to_vec());
        let mut paths = Conditions::default();
        paths.paths.clone_from(&lists.exempt_paths);
        let gate = [
            ("block", clients(&lists.blocked)),
            ("exempt", clients(&lists.exempt_clients)),
            ("exempt", paths),
        ];
        let gate = gate.into_iter().filter(|(_, all)| !all.is_empty());
        let none = Conditions::default;
        let gate = gate.map(|(key, all)| (key, MatchRule { all, none: none() }));
        Self {
            apply,
            gate: gate.collect(),
            policies: Vec::new(),
        }
    }

    /// Adds a fault if no request is left for the policy of `section`, else remembers what that one takes.
    pub fn leave(&mut self, section: &Section<'_>, mode: Mode, rule: &MatchRule) {
        let key = if section.has("match") {
            "match"
        } else {
            "name"
        };
        if let Some((by, _)) = self.gate.iter().find(|(_, taken)| taken.covers(rule)) {
            let problem = format!("never applies: {by} takes every request that it matches");
            section.conflict(key, problem, None);
        } else if self.apply == Apply::First && mode == Mode::Enforce {
            let mut policies = self.policies.iter();
            if let Some((by, _)) = policies.find(|(_, taken)| taken.covers(rule)) {
                let problem = format!(
                    "never applies: under apply: first, {by} takes every request that it matches"
                );
                let hint = "put the policy for fewer requests first, or apply: all";
                section.conflict(key, problem, Some(hint));
            } else {
                let path = section.path().to_string();
                self.policies.push((path, rule.clone()));
            }
        }
    }
}

/// The conditions of a section; `wanted` are those that they are not to cover. `None` if one is at fault.
fn conditions(section: &mut Section<'_>, wanted: &Conditions) -> Option<Conditions> {
    let hosts = HOSTS.read(section, &wanted.hosts);
    let paths = PATHS.read(section, &wanted.paths);
    let methods = METHODS.read(section, &wanted.methods);
    let headers = HEADERS.read(section, &wanted.headers);
    let clients = CLIENTS.read(section, &wanted.clients);
    let mut conditions = Conditions::default()
        .with_clients(clients?)
        .with_headers(headers?);
    conditions.hosts = hosts?;
    conditions.paths = paths?;
    conditions.methods = methods?;
    Some(conditions)
}

/// A key that holds alternatives.
pub struct List<T> {
    pub key: &'static str,
    pub example: &'static str,
    pub parse: fn(&str) -> Result<T, Rejected>,
    pub covers: fn(&T, &T) -> bool,
    /// The range that it is, of what comes by the ten thousand.
    pub range: Option<fn(&T) -> Cidr>,
    /// What of it is shown where the configuration is.
    pub told: fn(&str) -> String,
}

/// The alternatives so far, none of which covers another.
struct Before<T> {
    range: Option<fn(&T) -> Cidr>,
    all: Vec<T>,
    /// Those that are ranges, instead.
    ranges: BTreeMap<Cidr, T>,
}

impl<T> Before<T> {
    fn add(&mut self, value: T) {
        match self.range {
            Some(range) => drop(self.ranges.insert(range(&value), value)),
            None => self.all.push(value),
        }
    }

    /// Those that may be `value`, cover it or be covered by it. Of ranges that are apart from each other these can
    /// but be its neighbours.
    fn near(&self, value: &T) -> impl Iterator<Item = &T> + Clone {
        let neighbours = self.range.map(|range| {
            let range = range(value);
            let before = self.ranges.range(..=range).next_back();
            let after = self.ranges.range(range..).next();
            before.into_iter().chain(after).map(|(_, near)| near)
        });
        self.all.iter().chain(neighbours.into_iter().flatten())
    }
}

impl<T: Display + Clone + PartialEq> List<T> {
    /// Its alternatives, of which a single one may stand without brackets; none if it is absent, `None` if it is at
    /// fault.
    pub fn read_one_or_many(&self, section: &mut Section<'_>) -> Option<Vec<T>> {
        match section.field(self.key) {
            Some(field) if field.is_word() => {
                let value = field.word_told(self.told, self.parse)?;
                Some(vec![value])
            }
            Some(field) => self.read_list(field, &[]),
            None => Some(Vec::new()),
        }
    }

    /// Its alternatives, none if it is absent; `None` if it is at fault.
    pub fn read(&self, section: &mut Section<'_>, wanted: &[T]) -> Option<Vec<T>> {
        match section.field(self.key) {
            Some(field) => self.read_list(field, wanted),
            None => Some(Vec::new()),
        }
    }

    fn read_list(&self, field: Field<'_>, wanted: &[T]) -> Option<Vec<T>> {
        let mut before = Before {
            range: self.range,
            all: Vec::new(),
            ranges: BTreeMap::new(),
        };
        let mut given = 0;
        let read = field.list(self.example, |item| {
            given += 1;
            item.word_told(self.told, |text| {
                let value = (self.parse)(text)?;
                self.conflict(&value, before.near(&value), wanted)?;
                before.add(value.clone());
                Ok::<_, Rejected>(value)
            })
        });
        read.filter(|values| values.len() == given)
    }

    fn conflict<'t>(
        &self,
        value: &T,
        mut near: impl Iterator<Item = &'t T> + Clone,
        wanted: &[T],
    ) -> Result<(), Rejected>
    where
        T: 't,
    {
        let covers = self.covers;
        if near.clone().any(|other| other == value) {
            return Err(Rejected::new("each stands once, and this one did"));
        }
        if let Some(wide) = near.clone().find(|wide| covers(wide, value)) {
            return Err(Rejected::new(format!("has no effect: {wide} covers it")));
        }
        if let Some(narrow) = near.find(|narrow| covers(value, narrow)) {
            let problem = format!("covers {narrow}, which then has no effect");
            return Err(Rejected::new(problem));
        }
        match wanted.iter().find(|narrow| covers(value, narrow)) {
            Some(narrow) => Err(Rejected::new(format!(
                "leaves nothing of {narrow}, which the policy is to match"
            ))),
            None => Ok(()),
        }
    }
}

fn from_str<T: std::str::FromStr>(text: &str) -> Result<T, Rejected>
where
    Rejected: From<T::Err>,
{
    text.parse().map_err(Rejected::from)
}

fn header(text: &str) -> Result<HeaderPattern, Rejected> {
    from_str::<HeaderPattern>(text).map_err(|rejected| {
        let meant = text.split_once(':').map(|(name, value)| {
            let value = value.trim();
            format!("{}={value}", name.trim())
        });
        let meant = meant.filter(|meant| meant.parse::<HeaderPattern>().is_ok());
        rejected.hint(meant.map(|meant| format!("write {meant}")))
    })
}

/// Capital letters: a method's case matters, and no other is in use.
fn method(text: &str) -> Result<Method, Rejected> {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte == b'-' || byte == b'_';
    let method = Method::from_bytes(text.as_bytes()).ok();
    method.filter(|_| text.bytes().all(plain)).ok_or_else(|| {
        let upper = text.to_ascii_uppercase();
        let meant = text.bytes().all(|byte| byte.is_ascii_alphabetic());
        Rejected::new("a method is written in capital letters, as in GET")
            .hint((meant && !text.is_empty()).then(|| format!("write {upper}")))
    })
}

impl Choice for Apply {
    const ALL: &'static [Self] = &[Self::All, Self::First];

    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::First => "first",
        }
    }
}

pub const HOSTS: List<HostPattern> = List {
    key: "host",
    example: "[api.example.com, \"*.example.org\"]",
    parse: from_str::<HostPattern>,
    covers: HostPattern::covers,
    range: None,
    told: str::to_owned,
};

pub const PATHS: List<PathPattern> = List {
    key: "path",
    example: "[/login, /api/**, /users/*/avatar]",
    parse: from_str::<PathPattern>,
    covers: PathPattern::covers,
    range: None,
    told: str::to_owned,
};

const METHODS: List<Method> = List {
    key: "method",
    example: "[POST, PUT]",
    parse: method,
    covers: Method::eq,
    range: None,
    told: str::to_owned,
};

const HEADERS: List<HeaderPattern> = List {
    key: "header",
    example: "[x-plan=gold, x-debug]",
    parse: header,
    covers: HeaderPattern::covers,
    range: None,
    // A value may be a credential.
    told: |text| match text.split_once('=') {
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None => text.to_owned(),
    },
};

pub const CLIENTS: List<Cidr> = List {
    key: "client_ip",
    example: "[10.0.0.0/8, 192.0.2.7]",
    parse: from_str::<Cidr>,
    covers: |wide: &Cidr, narrow: &Cidr| wide.covers(*narrow),
    range: Some(|range| *range),
    told: str::to_owned,
};
