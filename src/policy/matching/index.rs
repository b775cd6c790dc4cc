//! Finds the policies that may be for a request, without looking at the others.
//!
//! Each policy is filed once, under the kind of its conditions that fewest policies share: its hosts, its paths,
//! its headers or its methods, each alternative on its own. A request looks up what it has of each kind; what it
//! finds are candidates, whose whole rules are then asked. Policies without such a condition are candidates
//! always. Ranges of addresses are not filed: a thousand policies for a thousand ranges are each asked.

use std::collections::{HashMap, HashSet};

use http::{HeaderName, Method};
use smallvec::SmallVec;

use super::{
    super::path::{PathPattern, PathSegment, segments},
    Conditions, Facts, HeaderPattern, HostPattern, MatchRule, Wanted,
};

/// Places of policies, ascending.
pub type Candidates = SmallVec<[usize; 8]>;

/// Which policies to ask about a request.
#[derive(Debug, Default)]
pub struct Index {
    wanted: Wanted,
    always: Vec<usize>,
    hosts: Hosts,
    paths: PathTree,
    headers: HashMap<HeaderName, ByValue>,
    methods: HashMap<Method, Vec<usize>>,
}

#[derive(Debug, Default)]
struct Hosts {
    exact: HashMap<Box<str>, Vec<usize>>,
    below: HashMap<Box<str>, Vec<usize>>,
    /// The most labels of a name in `below`: how far into a host it is worth looking.
    labels: usize,
}

#[derive(Debug, Default)]
struct ByValue {
    any: Vec<usize>,
    values: HashMap<Box<[u8]>, Vec<usize>>,
}

/// Patterns by their segments.
#[derive(Debug, Default)]
struct PathTree {
    literals: HashMap<Box<[u8]>, PathTree>,
    any: Option<Box<PathTree>>,
    /// Whose pattern ends here.
    here: Vec<usize>,
    /// Whose pattern holds all that is below, too.
    below: Vec<usize>,
}

/// The kinds that policies are filed under.
#[derive(Clone, Copy)]
enum Kind {
    Host,
    Path,
    Header,
    Method,
}

impl Index {
    /// An index of `rules`; their places are those of the policies.
    pub fn new<'r>(rules: impl Iterator<Item = &'r MatchRule> + Clone) -> Self {
        let mut index = Self::default();
        let shares = Shares::of(rules.clone());
        for (place, rule) in rules.enumerate() {
            let Wanted { host, path } = rule.wants();
            index.wanted.host |= host;
            index.wanted.path |= path;
            index.file(place, &rule.all, &shares);
        }
        index
    }

    /// What rules look at.
    pub fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// The policies that may match, ascending; all that match are among them.
    pub fn candidates(&self, facts: &Facts<'_>) -> Candidates {
        let mut found = Candidates::from_slice(&self.always);
        if let Some(host) = &facts.host {
            self.hosts.find(host, &mut found);
        }
        for path in facts.paths.iter().flat_map(|paths| paths.iter()) {
            self.paths.find(segments(path), &mut found);
        }
        if !self.headers.is_empty() {
            self.find_headers(facts, &mut found);
        }
        if !self.methods.is_empty()
            && let Some(places) = self.methods.get(&facts.head.method)
        {
            found.extend_from_slice(places);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// By its names or by the request's, whichever are fewer.
    fn find_headers(&self, facts: &Facts<'_>, found: &mut Candidates) {
        let headers = &facts.head.headers;
        if self.headers.len() <= headers.keys_len() {
            for (name, by_value) in &self.headers {
                for line in headers.get_all(name) {
                    by_value.find(line.as_bytes(), found);
                }
            }
        } else {
            for (name, line) in headers {
                if let Some(by_value) = self.headers.get(name) {
                    by_value.find(line.as_bytes(), found);
                }
            }
        }
    }

    fn file(&mut self, place: usize, conditions: &Conditions, shares: &Shares<'_>) {
        match shares.rarest(conditions) {
            None => self.always.push(place),
            Some(Kind::Host) => {
                for host in &conditions.hosts {
                    self.hosts.file(host, place);
                }
            }
            Some(Kind::Path) => {
                for path in &conditions.paths {
                    self.paths.file(path, place);
                }
            }
            Some(Kind::Method) => {
                for method in &conditions.methods {
                    self.methods.entry(method.clone()).or_default().push(place);
                }
            }
            Some(Kind::Header) => {
                for header in shares.rarest_name(conditions) {
                    let by_value = self.headers.entry(header.name.clone()).or_default();
                    by_value.file(header, place);
                }
            }
        }
    }
}

impl Hosts {
    fn file(&mut self, host: &HostPattern, place: usize) {
        let map = if host.below {
            self.labels = self.labels.max(host.name.split('.').count());
            &mut self.below
        } else {
            &mut self.exact
        };
        map.entry(host.name.clone()).or_default().push(place);
    }

    fn find(&self, host: &str, found: &mut Candidates) {
        if let Some(places) = self.exact.get(host) {
            found.extend_from_slice(places);
        }
        if !self.below.is_empty() {
            let dots = host.rmatch_indices('.').take(self.labels);
            for (dot, _) in dots {
                if let Some(places) = self.below.get(&host[dot + 1..]) {
                    found.extend_from_slice(places);
                }
            }
        }
    }
}

impl ByValue {
    fn file(&mut self, header: &HeaderPattern, place: usize) {
        match &header.value {
            None => self.any.push(place),
            Some(value) => {
                let value = value.as_bytes().into();
                self.values.entry(value).or_default().push(place);
            }
        }
    }

    fn find(&self, line: &[u8], found: &mut Candidates) {
        found.extend_from_slice(&self.any);
        if let Some(places) = self.values.get(line.trim_ascii()) {
            found.extend_from_slice(places);
        }
    }
}

impl PathTree {
    fn file(&mut self, pattern: &PathPattern, place: usize) {
        let mut tree = self;
        for segment in &pattern.segments {
            tree = match segment {
                PathSegment::Literal(literal) => tree.literals.entry(literal.clone()).or_default(),
                PathSegment::Any => tree.any.get_or_insert_default(),
            };
        }
        let places = if pattern.below {
            &mut tree.below
        } else {
            &mut tree.here
        };
        places.push(place);
    }

    /// As deep as the longest pattern at most, and into no more branches than patterns have.
    fn find<'s>(&self, mut rest: impl Iterator<Item = &'s [u8]> + Clone, found: &mut Candidates) {
        found.extend_from_slice(&self.below);
        let Some(segment) = rest.next() else {
            found.extend_from_slice(&self.here);
            return;
        };
        if let Some(tree) = self.literals.get(segment) {
            tree.find(rest.clone(), found);
        }
        if let Some(tree) = &self.any {
            tree.find(rest, found);
        }
    }
}

/// How many policies have a condition.
#[derive(Default)]
struct Shares<'r> {
    hosts: HashMap<&'r HostPattern, usize>,
    paths: HashMap<(&'r [PathSegment], bool), usize>,
    headers: HashMap<&'r HeaderPattern, usize>,
    methods: HashMap<&'r Method, usize>,
}

impl<'r> Shares<'r> {
    fn of(rules: impl Iterator<Item = &'r MatchRule>) -> Self {
        let mut shares = Self::default();
        for MatchRule { all, .. } in rules {
            for host in &all.hosts {
                *shares.hosts.entry(host).or_default() += 1;
            }
            for path in &all.paths {
                *shares
                    .paths
                    .entry((&path.segments, path.below))
                    .or_default() += 1;
            }
            for header in &all.headers {
                *shares.headers.entry(header).or_default() += 1;
            }
            for method in &all.methods {
                *shares.methods.entry(method).or_default() += 1;
            }
        }
        shares
    }

    /// The kind whose most shared alternative is the least shared; of equals the first.
    fn rarest(&self, conditions: &Conditions) -> Option<Kind> {
        let hosts = most(conditions.hosts.iter().map(|host| self.hosts[host]));
        let paths = conditions.paths.iter();
        let paths = most(paths.map(|path| self.paths[&(&*path.segments, path.below)]));
        let methods = most(conditions.methods.iter().map(|method| self.methods[method]));
        let headers = most(
            self.rarest_name(conditions)
                .map(|header| self.headers[header]),
        );
        let kinds = [
            (hosts, Kind::Host),
            (paths, Kind::Path),
            (headers, Kind::Header),
            (methods, Kind::Method),
        ];
        let asked = kinds
            .into_iter()
            .filter_map(|(most, kind)| Some((most?, kind)));
        asked.min_by_key(|(most, _)| *most).map(|(_, kind)| kind)
    }

    /// Of headers all names must be there, so one of them is enough to be found by.
    fn rarest_name<'c>(
        &self,
        conditions: &'c Conditions,
    ) -> impl Iterator<Item = &'c HeaderPattern> {
        let names: HashSet<&HeaderName> = conditions
            .headers
            .iter()
            .map(|header| &header.name)
            .collect();
        let rarest = names.into_iter().min_by_key(|name| {
            let same_name = conditions
                .headers
                .iter()
                .filter(|header| header.name == **name);
            let most = most(same_name.map(|header| self.headers[header]));
            (most, name.as_str().to_owned())
        });
        conditions
            .headers
            .iter()
            .filter(move |header| Some(&header.name) == rarest)
    }
}

fn most(shares: impl Iterator<Item = usize>) -> Option<usize> {
    shares.max()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Cidr, Client, RequestView};

    fn parsed<T: std::str::FromStr>(words: &[&str]) -> Vec<T> {
        let parse = |word: &&str| word.parse().ok().unwrap_or_else(|| panic!("{word}"));
        words.iter().map(parse).collect()
    }

    fn rule(host: &[&str], path: &[&str], method: &[&str], header: &[&str]) -> MatchRule {
        MatchRule {
            all: conditions(host, path, method, header, &[]),
            none: Conditions::default(),
        }
    }

    fn conditions(
        host: &[&str],
        path: &[&str],
        method: &[&str],
        header: &[&str],
        client: &[&str],
    ) -> Conditions {
        let mut conditions = Conditions::default()
            .with_clients(parsed::<Cidr>(client))
            .with_headers(parsed(header));
        conditions.hosts = parsed(host);
        conditions.paths = parsed(path);
        conditions.methods = parsed(method);
        conditions
    }

    fn with_facts<T>(
        request: &http::Request<()>,
        wanted: Wanted,
        look: impl FnOnce(&Facts<'_>) -> T,
    ) -> T {
        let (head, ()) = request.clone().into_parts();
        let view = RequestView {
            head: &head,
            client: Client::Address("192.0.2.7".parse().expect("an address")),
            peer_is_trusted: false,
        };
        look(&Facts::new(&view, wanted))
    }

    fn request(
        method: &str,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> http::Request<()> {
        let mut request = http::Request::builder().method(method).uri(path);
        request = request.header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request")
    }

    fn candidates(rules: &[MatchRule], request: &http::Request<()>) -> Vec<usize> {
        let index = Index::new(rules.iter());
        with_facts(request, index.wanted(), |facts| {
            index.candidates(facts).to_vec()
        })
    }

    #[test]
    fn of_a_thousand_policies_only_those_with_the_host_path_or_header_of_a_request_are_looked_at() {
        let many = |make: &dyn Fn(&str) -> MatchRule| -> Vec<MatchRule> {
            (0..1000).map(|number| make(&number.to_string())).collect()
        };
        let host =
            |number: &str| rule(&[&format!("h{number}.example.com")], &["/api/**"], &[], &[]);
        let below = |number: &str| rule(&[&format!("*.h{number}.example.com")], &[], &["GET"], &[]);
        let path = |number: &str| {
            rule(
                &["example.com"],
                &[&format!("/v1/p{number}")],
                &["GET"],
                &[],
            )
        };
        let inner = |number: &str| rule(&[], &[&format!("/users/*/p{number}/**")], &[], &[]);
        let header = |number: &str| rule(&[], &["/**"], &[], &["x-plan", &format!("x-t={number}")]);
        let ours = request("GET", "h7.example.com", "/api/x", &[]);
        assert_eq!(candidates(&many(&host), &ours), [7]);
        let ours = request("GET", "a.b.h7.example.com:80", "/", &[]);
        assert_eq!(candidates(&many(&below), &ours), [7]);
        let ours = request("GET", "example.com", "/v1//p7/", &[]);
        assert_eq!(candidates(&many(&path), &ours), [7]);
        let ours = request("GET", "example.com", "/users/me/p7/x", &[]);
        assert_eq!(candidates(&many(&inner), &ours), [7]);
        let ours = request(
            "GET",
            "example.com",
            "/",
            &[("x-t", "7"), ("x-plan", "gold")],
        );
        assert_eq!(candidates(&many(&header), &ours), [7]);
        let others = request("POST", "example.org", "/other", &[("x-t", "other")]);
        for rules in [
            many(&host),
            many(&below),
            many(&path),
            many(&inner),
            many(&header),
        ] {
            assert!(candidates(&rules, &others).is_empty());
        }
    }

    #[test]
    fn a_policy_without_a_literal_is_always_looked_at_and_found_once() {
        let mut not = rule(&[], &[], &[], &[]);
        not.none = conditions(&[], &["/health"], &[], &[], &[]);
        let twice = rule(&["a.example.com", "*.example.com"], &[], &[], &[]);
        let ours = request("GET", "a.example.com", "/", &[]);
        assert_eq!(candidates(&[twice, not], &ours), [0, 1]);
    }

    #[test]
    fn a_path_is_read_only_where_a_rule_asks_for_one() {
        let by_host = [rule(&["a"], &[], &[], &[])];
        assert!(!Index::new(by_host.iter()).wanted().path);
        let mut not = rule(&[], &[], &[], &[]);
        not.none = conditions(&[], &["/health"], &[], &[], &[]);
        let wanted = Index::new([not].iter()).wanted();
        assert!(wanted.path && !wanted.host);
    }

    const HOSTS: &[&str] = &["a", "b.a", "c.b.a", "*.a", "*.b.a"];
    const PATHS: &[&str] = &[
        "/", "/**", "/*", "/x", "/x/**", "/x/*", "/*/y", "/x/y", "/*/*/**",
    ];
    const METHODS: &[&str] = &["GET", "POST"];
    const HEADERS: &[&str] = &["p", "p=1", "p=2", "q=1", "q"];
    const CLIENTS: &[&str] = &["192.0.2.0/24", "198.51.100.0/24"];

    fn some(words: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
        prop_oneof![
            Just(Vec::new()),
            proptest::sample::subsequence(words, 1..=2.min(words.len())),
        ]
    }

    fn any_conditions() -> impl Strategy<Value = Conditions> {
        let kinds = (
            some(HOSTS),
            some(PATHS),
            some(METHODS),
            some(HEADERS),
            some(CLIENTS),
        );
        kinds.prop_map(|(host, path, method, header, client)| {
            conditions(&host, &path, &method, &header, &client)
        })
    }

    fn any_rule() -> impl Strategy<Value = MatchRule> {
        let nothing = Just(Conditions::default());
        let none = prop_oneof![3 => nothing, 1 => any_conditions()];
        (any_conditions(), none).prop_map(|(all, none)| MatchRule { all, none })
    }

    fn any_request() -> impl Strategy<Value = http::Request<()>> {
        let hosts = ["a", "B.a", "c.b.a:80", "d.c.b.a", "other"];
        let paths = [
            "/", "/x", "/x/", "/x/y", "/z/y", "/x%2Fy", "/z/../x", "/x;v/y", "/x/y/z",
        ];
        let header = (
            proptest::sample::select(vec!["p", "q", "r"]),
            proptest::sample::select(vec!["1", "2", " 1"]),
        );
        (
            proptest::sample::select(METHODS),
            proptest::sample::select(hosts.to_vec()),
            proptest::sample::select(paths.to_vec()),
            proptest::collection::vec(header, 0..3),
        )
            .prop_map(|(method, host, path, headers)| request(method, host, path, &headers))
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_loop_over_all_policies_finds(
            rules in proptest::collection::vec(any_rule(), 1..12),
            request in any_request(),
        ) {
            let index = Index::new(rules.iter());
            with_facts(&request, index.wanted(), |facts| {
                let matches = |place: &usize| rules[*place].matches(facts);
                let naive: Vec<_> = (0..rules.len()).filter(matches).collect();
                let found: Vec<_> = index.candidates(facts).into_iter().filter(matches).collect();
                prop_assert_eq!(found, naive);
                Ok(())
            })?;
        }

        #[test]
        fn a_rule_that_covers_another_matches_whatever_that_one_matches(
            wide in any_rule(),
            narrow in any_rule(),
            request in any_request(),
        ) {
            let wanted = Wanted { host: true, path: true };
            let narrow_matches = with_facts(&request, wanted, |facts| narrow.matches(facts));
            if wide.covers(&narrow) && narrow_matches {
                prop_assert!(with_facts(&request, wanted, |facts| wide.matches(facts)));
            }
        }
    }
}
