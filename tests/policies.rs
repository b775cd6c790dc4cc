//! Which requests a policy is for, through the whole proxy, by bytes on a connection: a client library would
//! tidy a path up.

mod identity;

use http::Uri;
use proptest::prelude::*;
use slidegate::{
    config::Config,
    policy::{Client, Identifier, PolicySet, Readings, Refusal, RequestView},
};

use crate::support::{app::App, upstream::Upstream, wire::Wire};

struct Setup {
    app: App,
    upstream: Upstream,
}

impl Setup {
    fn new(policies: &str) -> Self {
        let upstream = Upstream::start();
        let address = upstream.address;
        let app = App::start(&format!(
            "upstream: {{address: \"{address}\"}}\n\
             identity: {{trusted_proxies: [127.0.0.0/8]}}\n{policies}"
        ));
        Self { app, upstream }
    }

    /// One policy of two requests with this `match`.
    fn matching(rule: &str) -> Self {
        Self::new(&format!(
            "policies: [{{name: p, limits: [2/366d], match: {{{rule}}}}}]"
        ))
    }

    /// An example as it is, before this upstream.
    fn example(name: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/valid");
        let text = std::fs::read_to_string(format!("{folder}/{name}")).expect(name);
        let upstream = Upstream::start();
        let app = App::start(&text.replace("app:3000", &upstream.address.to_string()));
        Self { app, upstream }
    }

    /// The statuses of so many equal requests.
    fn statuses<const N: usize>(&self, line: &str, headers: &[&str]) -> [u16; N] {
        [(); N].map(|()| self.status(line, headers))
    }

    /// The answer to a request with this line, and these header lines.
    fn answer(&self, line: &str, headers: &[&str]) -> String {
        let host = headers.iter().any(|header| header.starts_with("Host:"));
        let host = if host {
            ""
        } else {
            "Host: api.example.com\r\n"
        };
        let headers: String = headers
            .iter()
            .map(|header| format!("{header}\r\n"))
            .collect();
        let request = format!("{line} HTTP/1.1\r\n{host}{headers}\r\n");
        let method = line.split(' ').next().unwrap_or_default();
        Wire::open(self.app.proxy)
            .send(request.as_bytes())
            .response_to(method)
    }

    fn status(&self, line: &str, headers: &[&str]) -> u16 {
        let answer = self.answer(line, headers);
        let status = answer.get(9..12).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no response: {answer:?}"))
    }

    /// Whether the policy is for this request: its answer tells of a limit, be it denied or not.
    fn counts(&self, line: &str, headers: &[&str]) -> bool {
        let answer = self.answer(line, headers).to_ascii_lowercase();
        let status = answer.get(9..12).unwrap_or_default();
        assert!(matches!(status, "200" | "429"), "{answer}");
        answer.contains("x-ratelimit-limit")
    }
}

#[test]
fn a_policy_is_for_its_paths_and_methods_alone() {
    let setup = Setup::matching("path: [/login, /api/**, /users/*/avatar], method: [POST, PUT]");
    for path in [
        "/login",
        "/api",
        "/api/x/y",
        "/users/7/avatar",
        "/login?next=/x",
    ] {
        assert!(setup.counts(&format!("POST {path}"), &[]), "{path}");
        assert!(setup.counts(&format!("PUT {path}"), &[]), "{path}");
        assert!(!setup.counts(&format!("GET {path}"), &[]), "{path}");
        assert!(!setup.counts(&format!("HEAD {path}"), &[]), "{path}");
    }
    for path in [
        "/",
        "/login/x",
        "/Login",
        "/apis",
        "/users/avatar",
        "/users/7/8/avatar",
        "/x/api",
    ] {
        assert!(!setup.counts(&format!("POST {path}"), &[]), "{path}");
    }
}

#[test]
fn a_policy_is_for_its_hosts_whatever_their_case_and_port() {
    let setup = Setup::matching("host: [api.example.com, '*.example.org', '[::1]']");
    for host in [
        "api.example.com",
        "API.Example.COM:8080",
        "api.example.com.",
        "api.example.com.:80",
        "api.example.com:",
        "a.example.org",
        "[::1]:8080",
        "a.b.example.org",
    ] {
        assert!(setup.counts("GET /", &[&format!("Host: {host}")]), "{host}");
    }
    for host in [
        "example.com",
        "www.example.com",
        "example.org",
        "aexample.org",
        "api.example.com.evil",
    ] {
        assert!(
            !setup.counts("GET /", &[&format!("Host: {host}")]),
            "{host}"
        );
    }
    // Of these servers make different hosts, so that a policy could be passed by.
    for host in [
        "api.example.com:80:80",
        "api.example.com:any",
        "api.example.com:99999",
        "other@api.example.com",
    ] {
        assert_eq!(
            setup.status("GET /", &[&format!("Host: {host}")]),
            400,
            "{host}"
        );
    }
    let absolute = "GET http://api.example.com/";
    assert!(setup.counts(absolute, &["Host: api.example.com"]));
    let twice = ["Host: other", "Host: api.example.com"];
    assert_eq!(setup.status("GET /", &twice), 400);
    assert_eq!(setup.status(absolute, &["Host: other"]), 400);
}

#[test]
fn a_request_whose_target_alone_names_its_host_is_refused() {
    let setup = Setup::matching("host: [api.example.com]");
    for version in ["1.0", "1.1"] {
        let request = format!("GET http://api.example.com/ HTTP/{version}\r\n\r\n");
        let answer = Wire::open(setup.app.proxy)
            .send(request.as_bytes())
            .response();
        assert!(answer.contains(" 400 "), "{version}: {answer}");
    }
    assert!(setup.upstream.seen().is_empty());
}

/// Some upstreams find `/login` in each of them.
#[test]
fn a_request_whose_target_has_no_path_is_refused() {
    let setup = Setup::matching("path: [/login]");
    for target in [
        "login",
        "\\login",
        "x:/login",
        "x:login",
        "?/login",
        "*/login",
        "api.example.com/login",
        "api.example.com:80/login",
        " /login",
    ] {
        assert_eq!(setup.status(&format!("GET {target}"), &[]), 400, "{target}");
    }
    assert!(setup.upstream.seen().is_empty());
    assert_eq!(setup.status("OPTIONS *", &[]), 200);
    for target in [
        "http://api.example.com/login",
        "x://api.example.com/login?a:b",
    ] {
        assert!(setup.counts(&format!("GET {target}"), &[]), "{target}");
    }
}

#[test]
fn a_policy_is_for_headers_by_presence_or_by_value() {
    let setup = Setup::matching("header: [x-plan=gold, x-plan=silver, x-debug]");
    let debug = "X-Debug: 0";
    assert!(setup.counts("GET /", &["X-Plan: gold", debug]));
    assert!(setup.counts("GET /", &["x-plan: bronze", "x-plan:  silver ", debug]));
    for headers in [
        &[][..],
        &["X-Plan: gold"],
        &[debug],
        &["X-Plan: Gold", debug],
        &["X-Plan: gold, x", debug],
        &["X-Plan:", debug],
    ] {
        assert!(!setup.counts("GET /", headers), "{headers:?}");
    }
}

#[test]
fn a_header_may_have_a_thousand_values_to_be_asked_for_and_another_its_own() {
    let tenants: Vec<_> = (0..1000).map(|number| format!("x-t={number}")).collect();
    let tenants = tenants.join(", ");
    let setup = Setup::matching(&format!(
        "header: [x-plan=gold, {tenants}, x-plan=silver], not: {{header: [x-off=1, x-on]}}"
    ));
    let plan = "X-Plan: silver";
    for headers in [
        &["X-T: 0", plan][..],
        &["X-T: 999", plan],
        &["X-T: none", "X-T:  500 ", plan, "X-Off: 2"],
    ] {
        assert!(setup.counts("GET /", headers), "{headers:?}");
    }
    for headers in [
        &["X-T: 1000", plan][..],
        &["X-T: 8"],
        &[plan],
        &["X-T: silver", "X-Plan: 8"],
        &["X-T: 8", plan, "X-Off: 1"],
        &["X-T: 8", plan, "X-On: 0"],
    ] {
        assert!(!setup.counts("GET /", headers), "{headers:?}");
    }
}

#[test]
fn a_policy_is_for_everyone_but_one_range() {
    let setup = Setup::matching("not: {client_ip: [10.0.0.0/8, 'fd00::/8']}");
    for client in ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1"] {
        let from = format!("X-Forwarded-For: {client}");
        assert!(!setup.counts("GET /", &[&from]), "{client}");
    }
    for client in ["11.0.0.1", "2001:db8::1", "unknown"] {
        let from = format!("X-Forwarded-For: {client}");
        assert!(setup.counts("GET /", &[&from]), "{client}");
    }
}

#[test]
fn what_a_request_is_not_to_have_is_denied_by_any_one_of_it() {
    let setup = Setup::matching(
        "path: [/api/**], not: {path: [/api/health], method: [OPTIONS], header: [x-internal=yes], host: [in.example.com]}",
    );
    assert!(setup.counts("GET /api/x", &["X-Internal: no"]));
    assert!(!setup.counts("GET /api/health/", &[]));
    assert!(!setup.counts("OPTIONS /api/x", &[]));
    assert!(!setup.counts("GET /api/x", &["X-Internal: yes"]));
    assert!(!setup.counts("GET /api/x", &["Host: IN.example.com:80"]));
    assert!(!setup.counts("GET /x", &[]));
}

#[test]
fn no_way_to_write_a_path_leads_past_its_policy() {
    for target in [
        "/api/x",
        "/./api/x",
        "//api/x",
        "/api//x",
        "/api/x/",
        "/api/./x/.",
        "/%61pi/x",
        "/%41pi/../api/x",
        "/api/%78?y=1",
        "/api%2fx",
        "/api%2Fx",
        "/api%5cx",
        "/api\\x",
        "/api;v=1/x",
        "/api/x;v=1",
        "/api%3bv/x",
        "/;/api/x",
        "/info/../api/x",
        "/info/%2e%2E/api/x",
        "http://api.example.com/api/x",
        "http://api.example.com//api/x",
    ] {
        let setup = Setup::matching("path: [/api/x]");
        let statuses = [(); 3].map(|()| setup.status(&format!("GET {target}"), &[]));
        assert_eq!(statuses, [200, 200, 429], "{target}");
    }
}

#[test]
fn a_policy_is_not_left_by_a_path_that_only_some_upstreams_take_for_another() {
    let setup = Setup::matching("not: {path: [/public/**]}");
    assert!(!setup.counts("GET /public/x", &[]));
    for target in [
        "/public/../admin",
        "/admin/../public",
        "/public%2fx",
        "/public;/x",
        "/public\\x",
    ] {
        assert!(setup.counts(&format!("GET {target}"), &[]), "{target}");
    }
}

#[test]
fn a_path_that_can_be_read_in_too_many_ways_is_refused_where_policies_go_by_paths() {
    let targets = [
        "/admin/..%2fpublic/x",
        "/a/..;/api/x",
        "/a//../api/x",
        "/a/..\\api/x",
        "/api;%2fx",
    ];
    let setup = Setup::matching("path: [/api/**]");
    for target in targets {
        let answer = setup.answer(&format!("GET {target}"), &[]);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{target}: {answer}");
        assert!(answer.contains("The path is ambiguous"), "{answer}");
    }
    assert!(setup.upstream.seen().is_empty());
    assert_eq!(setup.status("GET /api/x", &[]), 200, "nothing was charged");
    let shadow = "policies: [{name: p, limits: [2/366d], mode: shadow, match: {path: [/api/**]}}]";
    for setup in [Setup::matching("method: [POST]"), Setup::new(shadow)] {
        for target in targets {
            assert_eq!(setup.status(&format!("GET {target}"), &[]), 200, "{target}");
        }
    }
}

#[tokio::test]
async fn all_policies_that_match_apply_or_the_first_and_shadow_ones_beside_it() {
    let policies = "policies:\n\
        - {name: trial, limits: [1/366d], mode: shadow}\n\
        - {name: login, limits: [3/366d], match: {path: [/login]}}\n\
        - {name: late, limits: [1/366d], mode: shadow, match: {method: [POST]}}\n\
        - {name: rest, limits: [1/366d]}";
    let all = Setup::new(policies);
    let statuses = [(); 2].map(|()| all.status("POST /login", &[]));
    assert_eq!(statuses, [200, 429]);
    let first = Setup::new(&format!("apply: first\n{policies}"));
    let statuses = [(); 4].map(|()| first.status("POST /login", &[]));
    assert_eq!(statuses, [200, 200, 200, 429]);
    let statuses = [(); 2].map(|()| first.status("GET /other", &[]));
    assert_eq!(statuses, [200, 429], "what no other takes is for the last");
    let decided = |policy: &str, decision: &str, mode: &str| {
        format!(
            "slidegate_decisions_total{{decided_by=\"store\",decision=\"{decision}\",mode=\"{mode}\",\
             plan=\"\",policy=\"{policy}\"}}"
        )
    };
    for (policy, decision, mode, times) in [
        ("trial", "deny", "shadow", 5.0),
        ("late", "deny", "shadow", 3.0),
        ("rest", "deny", "enforce", 1.0),
        ("login", "deny", "enforce", 1.0),
    ] {
        assert_eq!(
            first.app.metric(&decided(policy, decision, mode)).await,
            times,
            "{policy}"
        );
    }
}

#[test]
fn a_request_that_no_policy_is_for_passes_and_is_told_of_no_limit() {
    let setup = Setup::new("policies: [{name: p, limits: [0/1m], match: {path: [/closed]}}]");
    assert_eq!(setup.status("GET /closed", &[]), 429);
    let answer = setup.answer("GET /open", &[]);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(
        !answer.to_ascii_lowercase().contains("x-ratelimit-limit"),
        "{answer}"
    );
}

#[test]
fn a_policy_that_is_for_others_refuses_nobody_for_want_of_a_key() {
    let setup = Setup::new(
        "policies: [{name: p, limits: [9/1m], identifier: [header:x-api-key], missing_identifier: deny, \
         match: {path: [/api/**]}}]",
    );
    assert_eq!(setup.status("GET /api/x", &[]), 401);
    assert_eq!(setup.status("GET /", &[]), 200);
}

#[test]
fn reads_and_writes_of_one_path_have_limits_of_their_own() {
    let setup = Setup::example("per_path_and_method.yaml");
    assert_eq!(setup.statuses("POST /api/x", &[]), [200, 200, 429]);
    assert_eq!(setup.statuses("DELETE /api/y", &[]), [429]);
    assert_eq!(setup.statuses("GET /api/x", &[]), [200, 200, 200]);
    assert_eq!(setup.statuses("OPTIONS /api/x", &[]), [200]);
    assert_eq!(setup.statuses("POST /other", &[]), [200, 200, 200]);
}

#[test]
fn each_host_has_limits_of_its_own() {
    let setup = Setup::example("per_host.yaml");
    let shop = ["Host: shop.example.com"];
    assert_eq!(setup.statuses("GET /", &shop), [200, 200, 200, 429]);
    let tenant = ["Host: a.tenants.example.com"];
    assert_eq!(setup.statuses("GET /", &tenant), [200, 200, 429]);
    let other = ["Host: tenants.example.com"];
    assert_eq!(
        setup.statuses("GET /", &other),
        [200, 429],
        "not below itself"
    );
    let another = ["Host: elsewhere.example.com"];
    assert_eq!(
        setup.statuses("GET /", &another),
        [429],
        "and of the same kind"
    );
}

#[test]
fn one_range_of_addresses_is_counted_by_nobody() {
    let setup = Setup::example("everyone_but_one_range.yaml");
    let office = ["X-Forwarded-For: 203.0.113.9"];
    assert_eq!(setup.statuses("GET /", &office), [200, 200, 200]);
    let other = ["X-Forwarded-For: 203.0.114.9"];
    assert_eq!(setup.statuses("GET /", &other), [200, 429]);
}

#[test]
fn an_expensive_endpoint_takes_ten() {
    let setup = Setup::example("expensive_endpoint.yaml");
    assert_eq!(setup.statuses("GET /reports/7", &[]), [200, 200, 200, 429]);
    let answer = setup.answer("GET /", &[]).to_ascii_lowercase();
    assert!(answer.contains("x-ratelimit-remaining: 29"), "{answer}");
    let told = "ratelimit-policy: \"rest\";q=30;w=86400\r\n";
    assert!(
        answer.contains(told),
        "no limit of another's is told: {answer}"
    );
}

#[test]
fn failed_logins_close_the_login_and_nothing_else() {
    let setup = Setup::example("failed_logins_by_path.yaml");
    let statuses = setup.statuses("POST /status/401", &[]);
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429]);
    assert_eq!(
        setup.statuses("GET /status/401", &[]),
        [401],
        "another method"
    );
    assert_eq!(setup.statuses("POST /", &[]), [200]);
}

#[tokio::test]
async fn a_limit_on_trial_for_a_path_denies_nobody() {
    let setup = Setup::example("shadow_beside_enforce_by_path.yaml");
    assert_eq!(setup.statuses("GET /search", &[]), [200, 200, 429]);
    assert_eq!(setup.statuses("GET /", &[]), [200, 200, 200]);
    let denied = "slidegate_decisions_total{decided_by=\"store\",decision=\"deny\",mode=\"shadow\",\
                  plan=\"\",policy=\"search-next\"}";
    assert_eq!(setup.app.metric(denied).await, 2.0);
}

#[tokio::test]
async fn what_is_exempt_is_counted_by_no_policy() {
    let setup = Setup::example("probes_and_an_office_exempt_and_a_range_blocked.yaml");
    let office = ["X-Forwarded-For: 203.0.113.9"];
    assert_eq!(setup.statuses("GET /", &office), [200, 200, 200]);
    assert!(!setup.counts("GET /", &office));
    let client = ["X-Forwarded-For: 192.0.2.9"];
    for target in [
        "/health",
        "//health/?x=1",
        "/%68ealth",
        "/status/200",
        "/x/../health",
    ] {
        let exempt = target != "/x/../health";
        assert_eq!(
            !setup.counts(&format!("GET {target}"), &client),
            exempt,
            "{target}"
        );
    }
    assert_eq!(setup.statuses("GET /", &client), [429]);
    let decided = "slidegate_decisions_total{decided_by=\"store\",decision=\"allow\",mode=\"enforce\",\
                   plan=\"\",policy=\"per-ip\"}";
    assert_eq!(setup.app.metric(decided).await, 1.0);
}

#[test]
fn a_path_is_exempt_only_if_it_is_however_it_is_read() {
    let exempt = "exempt: {path: [/public/**, /health]}\n";
    let all = Setup::new(&format!(
        "{exempt}policies: [{{name: p, limits: [9/366d]}}]"
    ));
    for target in [
        "/public/../admin",
        "/admin/../public",
        "/public%2f..%2fadmin",
        // To who keeps %2F this is /admin, which is neither of its two readings.
        "/public/x%2fy/../../admin",
        "/public/..;/admin",
        "/public/..\\admin",
        "/public%2Fx",
        "/public;/x",
        "/health;x",
        "/Public/x",
    ] {
        assert!(all.counts(&format!("GET {target}"), &[]), "{target}");
    }
    for target in [
        "/public/x",
        "/public/a/../b",
        "/public/a%2Fb",
        "/public/x;v=1",
    ] {
        assert!(!all.counts(&format!("GET {target}"), &[]), "{target}");
    }
}

#[test]
fn a_blocked_client_gets_403_and_is_charged_and_sent_on_nowhere() {
    let setup = Setup::example("probes_and_an_office_exempt_and_a_range_blocked.yaml");
    let blocked = ["X-Forwarded-For: 198.51.100.7"];
    for target in ["/", "/health", "/..%2f"] {
        let answer = setup.answer(&format!("GET {target}"), &blocked);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
        assert!(answer.contains("\"title\":\"Forbidden\""), "{answer}");
        assert!(
            !answer.to_ascii_lowercase().contains("ratelimit"),
            "{answer}"
        );
    }
    assert!(setup.upstream.seen().is_empty());
    let spoofed = ["X-Forwarded-For: 203.0.113.9, 198.51.100.7"];
    assert_eq!(
        setup.statuses("GET /", &spoofed),
        [403],
        "the exempt address is hearsay"
    );
    let other = ["X-Forwarded-For: 198.51.101.7"];
    assert_eq!(setup.statuses("GET /", &other), [200, 429]);
}

#[test]
fn a_block_and_an_exemption_come_before_identity() {
    let setup = Setup::new(
        "block: {client_ip: [198.51.100.0/24]}\nexempt: {client_ip: [203.0.113.0/24]}\n\
         policies: [{name: p, limits: [9/1m], identifier: [header:x-api-key], missing_identifier: deny}]",
    );
    let from = |client: &str| {
        let headers = format!("X-Forwarded-For: {client}");
        setup.status("GET /", &[&headers])
    };
    assert_eq!(from("192.0.2.1"), 401);
    assert_eq!(from("203.0.113.1"), 200);
    assert_eq!(from("198.51.100.1"), 403);
}

/// How many policies of `yaml` ask about a request for this target.
fn asked(policies: &PolicySet, target: &str) -> Result<usize, Refusal> {
    identified(policies, target).map(|identifiers| identifiers.len())
}

/// Whom they count.
fn identified(policies: &PolicySet, target: &str) -> Result<Vec<Identifier>, Refusal> {
    let uri = Uri::builder().path_and_query(target).build().expect(target);
    let (head, ()) = http::Request::builder()
        .uri(uri)
        .body(())
        .expect(target)
        .into_parts();
    let view = RequestView {
        head: &head,
        client: Client::Unix,
        peer_is_trusted: false,
    };
    let asked = policies.asked(&view)?;
    Ok(asked.iter().map(|asked| asked.identifier).collect())
}

fn policies(rule: &str) -> PolicySet {
    policy(&format!("match: {{{rule}}}"))
}

fn policy(settings: &str) -> PolicySet {
    let yaml = format!(
        "upstream: {{address: app:1}}\npolicies: [{{name: p, limits: [1/1s], {settings}}}]"
    );
    let config = Config::parse(&yaml, "test.yaml", &|_| None).expect("accepted");
    PolicySet::new(config.policies, config.hasher)
}

/// A character as it is, or escaped in capital or small letters.
fn written(byte: u8) -> impl Strategy<Value = String> {
    let plain = char::from(byte).to_string();
    let capital = format!("%{byte:02X}");
    prop_oneof![2 => Just(plain), 1 => Just(capital.clone()), 1 => Just(capital.to_ascii_lowercase())]
}

/// Every way to write the path of these segments that all upstreams read as that path.
fn ways(segments: &[&str]) -> impl Strategy<Value = String> {
    let separator = || proptest::sample::select(vec!["/", "//", "/./", "/%2e/", "/.//%2E///"]);
    let mut way = Just(String::new()).boxed();
    for segment in segments {
        let bytes: Vec<_> = segment.bytes().map(written).collect();
        way = (way, separator(), bytes)
            .prop_map(|(before, separator, bytes)| format!("{before}{separator}{}", bytes.concat()))
            .boxed();
    }
    let end = proptest::sample::select(vec!["", "/", "//", "/.", "/./", "?", "?x=/../y", "/?a;b"]);
    (way, end).prop_map(|(way, end)| format!("{way}{end}"))
}

proptest! {
    #[test]
    fn a_policy_is_not_left_by_writing_its_path_in_another_way(
        target in ways(&["api", "v1.0-b~_", "users", "7"]),
    ) {
        for rule in ["/api/v1.0-b~_/users/7", "/api/**", "/*/v1.0-b~_/*/7", "/api/v1.0-b~_/users/*/**"] {
            let policies = policies(&format!("path: ['{rule}']"));
            prop_assert_eq!(asked(&policies, &target), Ok(1), "{}", rule);
        }
        let others = policies("not: {path: [/api/**]}");
        prop_assert_eq!(asked(&others, &target), Ok(0));
    }

    #[test]
    fn a_path_is_one_counter_however_it_is_written(
        target in ways(&["api", "v1.0-b~_", "users", "7"]),
    ) {
        let policies = policy("identifier: [path]");
        let counted = identified(&policies, "/api/v1.0-b~_/users/7");
        prop_assert_eq!(identified(&policies, &target), counted);
    }

    #[test]
    fn an_upstream_s_reading_of_a_path_is_counted_as_the_path(path in "/[/.%25FfcCe;\\\\a]{0,24}") {
        let policies = policy("identifier: [path]");
        let readings = Readings::of(path.as_bytes());
        let counted = identified(&policies, &path);
        prop_assert_eq!(counted.is_err(), readings.is_ambiguous());
        // One whose escapes are no UTF-8 can not be sent as it is.
        let texts = readings.iter().filter_map(|reading| std::str::from_utf8(reading).ok());
        for reading in texts.filter(|_| counted.is_ok()) {
            prop_assert_eq!(&identified(&policies, reading), &counted, "{}", reading);
        }
    }

    #[test]
    fn a_reading_of_a_path_is_read_as_itself(path in "/[/.%25FfcCe;\\\\aé]{0,24}") {
        for reading in Readings::of(path.as_bytes()).iter() {
            let again = Readings::of(reading);
            prop_assert!(again.iter().any(|again| again == reading), "{:?} {:?}", reading, again);
        }
    }
}
