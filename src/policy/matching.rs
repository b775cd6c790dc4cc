//! Which requests a policy is for: by host, path, method, header and client address, and by none of these.
//!
//! A [`MatchRule`] tells it of one policy. [`Index`](index::Index) finds those policies of many that may be for a
//! request, so that the others cost it nothing. Where a path has two readings a rule matches if it does by
//! either: to get out of a policy, a request must be out of it whatever its upstream makes of its path.

pub(super) mod index;
pub(super) mod route;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    fmt,
    str::FromStr,
};

use http::{HeaderName, HeaderValue, Method, header, request::Parts};

use super::{
    RequestView,
    cidr::{Cidr, CidrSet},
    client::Client,
    path::{PathPattern, Readings},
};

/// Which requests a policy is for; every one by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchRule {
    /// What a request must have.
    pub all: Conditions,
    /// What it must have none of.
    pub none: Conditions,
}

/// Conditions of each kind; an empty list is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The host is one of these.
    pub hosts: Vec<HostPattern>,
    /// The path is one of these.
    pub paths: Vec<PathPattern>,
    /// The method is one of these.
    pub methods: Vec<Method>,
    /// A header of each name is there, with one of the values given for it.
    pub headers: Vec<HeaderPattern>,
    /// The client's address is in one of these.
    pub clients: Vec<Cidr>,
    /// `headers` and `clients`, to be looked up.
    header_set: HeaderSet,
    client_set: CidrSet,
}

/// A host, or all below one: `api.example.com`, `*.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// In small letters, without a port or a dot at the end.
    name: Box<str>,
    below: bool,
}

/// A header by name, or with a value: `x-debug`, `x-plan=gold`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderPattern {
    /// Its name.
    pub name: HeaderName,
    /// The whole value of one of its lines; any if `None`.
    pub value: Option<Box<str>>,
}

/// Which of the policies that match apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Apply {
    /// Each of them.
    #[default]
    All,
    /// The first enforced one, and each shadow policy beside it.
    First,
}

/// What rules look at in a request, read once.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    head: &'a Parts,
    pub client: Client,
    /// In small letters, without port; `None` if the request names none, or no rule asks for it.
    host: Option<Cow<'a, str>>,
    /// `None` if no rule asks for it.
    pub paths: Option<Readings<'a>>,
}

/// Which facts any rule asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub host: bool,
    pub path: bool,
}

impl<'a> Facts<'a> {
    /// Whether a browser asks what a page of another origin may send (Fetch Standard, 3.3.2).
    pub fn is_cors_preflight(&self) -> bool {
        self.head.method == Method::OPTIONS
            && self.head.headers.contains_key(header::ORIGIN)
            && self
                .head
                .headers
                .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    pub fn new(view: &RequestView<'a>, wanted: Wanted) -> Self {
        Self {
            head: view.head,
            client: view.client,
            host: wanted.host.then(|| host(view.head)).flatten(),
            paths: wanted
                .path
                .then(|| Readings::of(view.head.uri.path().as_bytes())),
        }
    }

    /// Whether its path could be read in more ways than are looked at.
    pub fn path_is_ambiguous(&self) -> bool {
        self.paths.as_ref().is_some_and(Readings::is_ambiguous)
    }
}

impl MatchRule {
    /// Whether every request matches.
    pub fn is_everything(&self) -> bool {
        self.all.is_empty() && self.none.is_empty()
    }

    pub(super) fn wants(&self) -> Wanted {
        let any = |kind: fn(&Conditions) -> bool| kind(&self.all) || kind(&self.none);
        Wanted {
            host: any(|conditions| !conditions.hosts.is_empty()),
            path: any(|conditions| !conditions.paths.is_empty()),
        }
    }

    pub(super) fn matches(&self, facts: &Facts<'_>) -> bool {
        let by = |path| self.all.all_hold(facts, path) && !self.none.any_holds(facts, path);
        match &facts.paths {
            Some(readings) => readings.iter().any(by),
            None => by(b"/"),
        }
    }

    /// Whether every request that matches `other` matches this rule too, as far as single conditions tell.
    pub fn covers(&self, other: &Self) -> bool {
        self.all.holds_wherever(&other.all) && other.none.covers_each(&self.none)
    }
}

impl Conditions {
    /// Adds addresses.
    pub fn with_clients(self, clients: Vec<Cidr>) -> Self {
        Self {
            client_set: clients.iter().copied().collect(),
            clients,
            ..self
        }
    }

    /// Adds headers.
    pub fn with_headers(self, headers: Vec<HeaderPattern>) -> Self {
        Self {
            header_set: headers.iter().cloned().collect(),
            headers,
            ..self
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
            && self.paths.is_empty()
            && self.methods.is_empty()
            && self.headers.is_empty()
            && self.clients.is_empty()
    }

    fn all_hold(&self, facts: &Facts<'_>, path: &[u8]) -> bool {
        (self.methods.is_empty() || self.has_method(facts))
            && (self.hosts.is_empty() || self.has_host(facts))
            && (self.paths.is_empty() || self.has_path(path))
            && (self.clients.is_empty() || self.has_client(facts))
            && self.header_set.all_are_in(facts.head)
    }

    fn any_holds(&self, facts: &Facts<'_>, path: &[u8]) -> bool {
        self.has_method(facts)
            || self.has_host(facts)
            || self.has_path(path)
            || self.has_client(facts)
            || self.header_set.any_is_in(facts.head)
    }

    fn has_method(&self, facts: &Facts<'_>) -> bool {
        self.methods.contains(&facts.head.method)
    }

    fn has_host(&self, facts: &Facts<'_>) -> bool {
        let host = facts.host.as_deref();
        host.is_some_and(|host| self.hosts.iter().any(|pattern| pattern.matches(host)))
    }

    fn has_path(&self, path: &[u8]) -> bool {
        self.paths.iter().any(|pattern| pattern.matches(path))
    }

    fn has_client(&self, facts: &Facts<'_>) -> bool {
        facts.client.is_in(&self.client_set)
    }

    /// Whether a request for which all of `other` hold has all of these.
    fn holds_wherever(&self, other: &Self) -> bool {
        fn implied<T>(ours: &[T], theirs: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
            let covered = |narrow| ours.iter().any(|wide| covers(wide, narrow));
            ours.is_empty() || (!theirs.is_empty() && theirs.iter().all(covered))
        }
        self.header_set.holds_wherever(&other.header_set)
            && implied(&self.hosts, &other.hosts, HostPattern::covers)
            && implied(&self.paths, &other.paths, PathPattern::covers)
            && implied(&self.methods, &other.methods, Method::eq)
            && (self.clients.is_empty()
                || (!other.clients.is_empty() && self.covers_clients(other)))
    }

    /// Whether each condition of `other` is one of these, or narrower.
    fn covers_each(&self, other: &Self) -> bool {
        fn each<T>(ours: &[T], theirs: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
            let covered = |narrow| ours.iter().any(|wide| covers(wide, narrow));
            theirs.iter().all(covered)
        }
        each(&self.hosts, &other.hosts, HostPattern::covers)
            && each(&self.paths, &other.paths, PathPattern::covers)
            && each(&self.methods, &other.methods, Method::eq)
            && each(&self.headers, &other.headers, HeaderPattern::covers)
            && self.covers_clients(other)
    }

    fn covers_clients(&self, other: &Self) -> bool {
        let mut theirs = other.clients.iter();
        theirs.all(|range| self.client_set.covers(*range))
    }
}

/// Its conditions, as `check` tells them.
impl fmt::Display for MatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = self.all.words();
        let none = self.none.words().into_iter();
        words.extend(none.map(|word| format!("not {word}")));
        f.write_str(&words.join("; "))
    }
}

impl Conditions {
    /// One for each kind.
    fn words(&self) -> Vec<String> {
        fn word<T: ToString>(key: &str, alternatives: &[T]) -> Option<String> {
            let words: Vec<_> = alternatives.iter().map(ToString::to_string).collect();
            (!words.is_empty()).then(|| format!("{key} {}", words.join(", ")))
        }
        let words = [
            word("host", &self.hosts),
            word("path", &self.paths),
            word("method", &self.methods),
            word("header", &self.headers),
            word("client_ip", &self.clients),
        ];
        words.into_iter().flatten().collect()
    }
}

/// The host that a request is for; Pingora has made sure that it names no two.
pub(super) fn host(head: &Parts) -> Option<Cow<'_, str>> {
    let host = match head.uri.authority() {
        Some(authority) => authority.as_str(),
        None => head.headers.get(header::HOST)?.to_str().ok()?,
    };
    let host = without_port(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    Some(match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    })
}

/// Ends at the first colon whatever follows, since some upstreams take anything for a port; an IPv6 address keeps
/// its brackets.
fn without_port(host: &str) -> &str {
    let end = match host.starts_with('[') {
        true => host.find(']').map(|bracket| bracket + 1),
        false => host.find(':'),
    };
    &host[..end.unwrap_or(host.len())]
}

impl HostPattern {
    /// Whether it is one host alone.
    pub fn is_one(&self) -> bool {
        !self.below
    }

    /// Whether `host`, in small letters and without port, is one of its hosts.
    fn matches(&self, host: &str) -> bool {
        match self.below {
            false => *self.name == *host,
            true => {
                let before = host.strip_suffix(&*self.name);
                before.is_some_and(|before| before.len() > 1 && before.ends_with('.'))
            }
        }
    }

    /// Whether every host of `other` is one of its own.
    pub fn covers(&self, other: &Self) -> bool {
        self == other || (self.below && self.matches(&other.name))
    }
}

impl FromStr for HostPattern {
    type Err = ParseHostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        if !below && let Some(address) = address {
            let address = address.parse::<std::net::Ipv6Addr>();
            let address = address.map_err(|_| ParseHostPatternError::Name)?;
            let name = format!("[{address}]").into();
            return Ok(Self { name, below });
        }
        if name.contains('*') {
            return Err(ParseHostPatternError::Star);
        }
        if name.contains("://") || name.contains('/') {
            return Err(ParseHostPatternError::Name);
        }
        if name.contains(':') {
            return Err(ParseHostPatternError::Port);
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
        if name.len() > 253 || !name.split('.').all(label) {
            return Err(ParseHostPatternError::Name);
        }
        let name = name.to_ascii_lowercase().into();
        Ok(Self { name, below })
    }
}

/// As it is written in YAML, in small letters.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.below { "*." } else { "" };
        write!(f, "{star}{}", self.name)
    }
}

/// The text is not a pattern of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseHostPatternError {
    /// It names no host.
    #[error(
        "a host is a name such as api.example.com, an address, or *.example.com for all below it"
    )]
    Name,
    /// It has a port.
    #[error("a host is matched without its port, as in api.example.com")]
    Port,
    /// A `*` that is not the first label.
    #[error("* stands at the start alone, for one label or more, as in *.example.com")]
    Star,
}

/// Patterns by their names: how many values a name has costs a request next to nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HeaderSet(Vec<(HeaderName, Values)>);

/// Which values fit.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Values {
    Any,
    These(BTreeSet<Box<[u8]>>),
}

impl FromIterator<HeaderPattern> for HeaderSet {
    fn from_iter<I: IntoIterator<Item = HeaderPattern>>(patterns: I) -> Self {
        let mut places = HashMap::new();
        let mut set = Vec::new();
        for HeaderPattern { name, value } in patterns {
            let place = *places.entry(name.clone()).or_insert(set.len());
            if place == set.len() {
                set.push((name, Values::These(BTreeSet::new())));
            }
            match (value, &mut set[place].1) {
                (None, values) => *values = Values::Any,
                (Some(value), Values::These(values)) => {
                    values.insert(value.into_boxed_bytes());
                }
                (Some(_), Values::Any) => {}
            }
        }
        Self(set)
    }
}

impl HeaderSet {
    /// Whether of each name one is there that fits.
    fn all_are_in(&self, head: &Parts) -> bool {
        self.0.iter().all(|pattern| Self::fits(pattern, head))
    }

    /// Whether one is there that fits.
    fn any_is_in(&self, head: &Parts) -> bool {
        self.0.iter().any(|pattern| Self::fits(pattern, head))
    }

    /// Whether a request with all of `other` has all of these: `other` allows no name more values.
    fn holds_wherever(&self, other: &Self) -> bool {
        self.0.iter().all(|(name, wide)| {
            let mut others = other.0.iter();
            let narrow = others.find(|(other, _)| other == name);
            narrow.is_some_and(|(_, narrow)| match (wide, narrow) {
                (Values::Any, _) => true,
                (Values::These(wide), Values::These(narrow)) => narrow.is_subset(wide),
                (Values::These(_), Values::Any) => false,
            })
        })
    }

    fn fits((name, values): &(HeaderName, Values), head: &Parts) -> bool {
        let mut lines = head.headers.get_all(name).iter();
        lines.any(|line| match values {
            Values::Any => true,
            Values::These(values) => values.contains(line.as_bytes().trim_ascii()),
        })
    }
}

impl HeaderPattern {
    /// Whether every request with `other` has this.
    pub fn covers(&self, other: &Self) -> bool {
        self.name == other.name && (self.value.is_none() || self.value == other.value)
    }
}

impl FromStr for HeaderPattern {
    type Err = ParseHeaderPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| ParseHeaderPatternError::Syntax)?;
        match name.as_str() {
            "host" => return Err(ParseHeaderPatternError::Host),
            "x-forwarded-for" | "x-real-ip" | "forwarded" => {
                return Err(ParseHeaderPatternError::Client);
            }
            _ => {}
        }
        if value.is_some_and(|value| value.trim_ascii() != value || value.is_empty()) {
            return Err(ParseHeaderPatternError::Value);
        }
        if value.is_some_and(|value| HeaderValue::from_str(value).is_err()) {
            return Err(ParseHeaderPatternError::Value);
        }
        let value = value.map(Into::into);
        Ok(Self { name, value })
    }
}

/// As it is written in YAML.
/// Without the value, which may be what lets a request in.
impl fmt::Display for HeaderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(_) => write!(f, "{}=***", self.name),
            None => self.name.fmt(f),
        }
    }
}

/// The text is not a pattern of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseHeaderPatternError {
    /// No header name.
    #[error("a header is written by its name, or with its whole value: x-debug, x-plan=gold")]
    Syntax,
    /// Nothing, blanks around it, or what no header holds.
    #[error(
        "a header's value is one line without blanks around it, as in x-plan=gold; x-plan alone is any"
    )]
    Value,
    /// It has a key of its own.
    #[error("the host has a key of its own, as in host: [api.example.com]")]
    Host,
    /// It names an address that anyone may invent.
    #[error("anyone may invent this header; client_ip is the address behind trusted proxies")]
    Client,
}
