//! Where requests go, by host and path: the first route that is for one, as policies are read under `apply: first`.
//!
//! Hosts and paths are read as policies read them, so that a limit for a path holds wherever requests for that path
//! go. A path whose two readings lead to different places leads nowhere.

use http::request::Parts;

use super::{Facts, MatchRule, Wanted};
use crate::policy::{Client, RequestView};

/// Routes in configuration order, each with the place of what it leads to in a list of the caller's.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    routes: Vec<(MatchRule, usize)>,
    wanted: Wanted,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    /// To what is in this place.
    To(usize),
    /// No route is for it.
    Nowhere,
    /// Its path can be read in several ways, which do not all lead to one place.
    Ambiguous,
}

impl Routes {
    /// These, of which only hosts and paths are looked at.
    pub fn new(routes: Vec<(MatchRule, usize)>) -> Self {
        let wanted = routes.iter().map(|(rule, _)| rule.wants());
        let wanted = wanted.fold(Wanted::default(), |all, one| Wanted {
            host: all.host || one.host,
            path: all.path || one.path,
        });
        Self { routes, wanted }
    }

    /// One way for every request.
    pub fn everything() -> Self {
        Self::new(vec![(MatchRule::default(), 0)])
    }

    /// Each route and what it leads to.
    pub fn all(&self) -> &[(MatchRule, usize)] {
        &self.routes
    }

    /// Where a request with this head goes.
    pub fn route(&self, head: &Parts) -> Routed {
        let view = RequestView {
            head,
            client: Client::Unix,
            peer_is_trusted: false,
        };
        let facts = Facts::new(&view, self.wanted);
        let Some(readings) = &facts.paths else {
            return self.by(&facts, b"/");
        };
        let mut ways = readings.iter().map(|path| self.by(&facts, path));
        let first = ways.next().unwrap_or(Routed::Nowhere);
        if facts.path_is_ambiguous() || ways.any(|way| way != first) {
            return Routed::Ambiguous;
        }
        first
    }

    fn by(&self, facts: &Facts<'_>, path: &[u8]) -> Routed {
        let mut routes = self.routes.iter();
        let found = routes.find(|(rule, _)| rule.all.all_hold(facts, path));
        found.map_or(Routed::Nowhere, |(_, to)| Routed::To(*to))
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::policy::Conditions;

    fn rule(hosts: &[&str], paths: &[&str]) -> MatchRule {
        let parse_host = |text: &&str| text.parse().expect("a host");
        let parse_path = |text: &&str| text.parse().expect("a path");
        MatchRule {
            all: Conditions {
                hosts: hosts.iter().map(parse_host).collect(),
                paths: paths.iter().map(parse_path).collect(),
                ..Conditions::default()
            },
            none: Conditions::default(),
        }
    }

    fn route(routes: &Routes, host: &str, path: &str) -> Routed {
        let request = Request::get(path).header("host", host).body(());
        routes.route(&request.expect("a request").into_parts().0)
    }

    fn example() -> Routes {
        Routes::new(vec![
            (rule(&["api.example.com"], &["/v1/**"]), 0),
            (rule(&["api.example.com"], &[]), 1),
            (rule(&["*.example.com"], &[]), 2),
        ])
    }

    #[test]
    fn the_first_route_that_is_for_a_request_decides() {
        let routes = example();
        let to = |host, path| route(&routes, host, path);
        assert_eq!(to("api.example.com", "/v1/users"), Routed::To(0));
        assert_eq!(to("API.example.com:8443", "//v1/"), Routed::To(0));
        assert_eq!(to("api.example.com", "/v10"), Routed::To(1));
        assert_eq!(to("www.example.com", "/v1/users"), Routed::To(2));
        assert_eq!(to("example.org", "/v1/users"), Routed::Nowhere);
    }

    #[test]
    fn a_path_whose_readings_lead_to_different_places_leads_nowhere() {
        let routes = example();
        let to = |path| route(&routes, "api.example.com", path);
        for path in ["/v1/../admin", "/v1/%2e%2e/admin", "/x/..%2fv1/y"] {
            assert_eq!(to(path), Routed::Ambiguous, "{path}");
        }
        for path in ["/v1/a%2Fb", "/v1/x;y=1", "/v1/a/../b"] {
            assert_eq!(to(path), Routed::To(0), "{path}");
        }
    }

    #[test]
    fn where_no_route_asks_for_a_path_none_is_ambiguous() {
        let everything = Routes::everything();
        assert_eq!(route(&everything, "x", "/a/..%2f;b/.."), Routed::To(0));
    }
}
