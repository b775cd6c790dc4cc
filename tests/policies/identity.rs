//! Who is counted, through the whole proxy: each source, several together, and what a hostile client tries.

use super::Setup;
use crate::support::wire::Wire;

fn by(identifier: &str) -> Setup {
    Setup::new(&format!(
        "policies: [{{name: p, limits: [2/366d], identifier: {identifier}}}]"
    ))
}

/// Its request is one more for the policy, whose answer tells that so many are left.
fn remaining(setup: &Setup, line: &str, headers: &[&str]) -> String {
    let answer = setup.answer(line, headers).to_ascii_lowercase();
    let told = answer.lines().find_map(|line| {
        let name = "x-ratelimit-remaining: ";
        line.strip_prefix(name).map(str::to_owned)
    });
    told.unwrap_or_else(|| panic!("{line}: {answer}"))
}

#[test]
fn each_user_of_each_tenant_has_a_limit_of_its_own_below_that_of_the_tenant() {
    let setup = Setup::example("tenant_and_user.yaml");
    let of = |tenant: &str, user: &str| {
        let (tenant, user) = (format!("X-Tenant: {tenant}"), format!("X-User: {user}"));
        setup.status("GET /", &[&tenant, &user])
    };
    assert_eq!([of("a", "1"), of("a", "1"), of("a", "1")], [200, 200, 429]);
    assert_eq!([of("a", "2"), of("a", "2"), of("a", "2")], [200, 200, 429]);
    assert_eq!(
        [of("a", "3"), of("a", "4")],
        [200, 429],
        "the tenant's five"
    );
    assert_eq!([of("b", "1"), of("b", "1"), of("b", "1")], [200, 200, 429]);
    assert_eq!(setup.status("GET /", &["X-Tenant: b"]), 401);
    assert_eq!(setup.status("GET /", &["X-Tenant: b", "X-User:"]), 401);
}

#[test]
fn a_composite_of_which_a_part_is_missing_is_no_other_client_s() {
    let setup = by("[[header:x-tenant, header:x-user], header:x-user, client_ip]");
    let (tenant, user) = ("X-Tenant: a", "X-User: u");
    assert_eq!(remaining(&setup, "GET /", &[tenant, user]), "1");
    assert_eq!(remaining(&setup, "GET /", &[user]), "1");
    assert_eq!(remaining(&setup, "GET /", &["X-Tenant:", user]), "0");
    assert_eq!(remaining(&setup, "GET /", &[tenant]), "1");
    assert_eq!(remaining(&setup, "GET /", &[]), "0");
    let swapped = ["X-Tenant: u", "X-User: a"];
    assert_eq!(remaining(&setup, "GET /", &swapped), "1");
    let merged = ["X-Tenant: au", "X-User: "];
    assert_eq!(
        setup.status("GET /", &merged),
        429,
        "by address, which is used up"
    );
}

#[test]
fn five_failed_logins_close_a_user_s_login_for_one_address_and_twenty_all_of_it() {
    let setup = Setup::example("failed_logins_per_user.yaml");
    let fail = |user: &str| setup.status("POST /status/401", &[&format!("X-User: {user}")]);
    assert_eq!([(); 6].map(|()| fail("a")), [401, 401, 401, 401, 401, 429]);
    assert_eq!(setup.status("POST /", &["X-User: a"]), 429);
    assert_eq!(setup.status("POST /", &["X-User: b"]), 200);
    for guess in 0..15 {
        assert_eq!(fail(&format!("u{guess}")), 401);
    }
    assert_eq!(fail("one-more"), 429);
}

#[test]
fn a_user_whose_login_one_address_has_closed_gets_in_from_another() {
    let setup = Setup::new(
        "policies: [{name: p, limits: [2/366d], identifier: [[client_ip, header:x-user]], charge_on: [401]}]",
    );
    let hostile = ["X-User: a", "X-Forwarded-For: 198.51.100.7"];
    assert_eq!(
        setup.statuses("POST /status/401", &hostile),
        [401, 401, 429]
    );
    let owner = ["X-User: a", "X-Forwarded-For: 203.0.113.7"];
    assert_eq!(setup.statuses("POST /", &owner), [200]);
}

#[test]
fn a_global_ceiling_holds_for_everybody_together() {
    let setup = Setup::example("global_ceiling.yaml");
    let from = |address: &str| {
        let from = format!("X-Forwarded-For: {address}");
        setup.status("GET /", &[&from])
    };
    let greedy = [(); 4].map(|()| from("192.0.2.1"));
    assert_eq!(greedy, [200, 200, 200, 429], "a share of its own");
    let others = ["192.0.2.2", "192.0.2.3", "192.0.2.4"].map(from);
    assert_eq!(others, [200, 200, 429], "five in all");

    let everybody = by("[constant]");
    let from = |client: &str| {
        let client = format!("X-Forwarded-For: {client}");
        everybody.status("GET /", &[&client, &format!("X-Api-Key: {client}")])
    };
    let statuses = ["192.0.2.1", "2001:db8::1", "198.51.100.1"].map(from);
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn a_session_cookie_or_a_key_in_the_query_has_a_limit_of_its_own() {
    let setup = Setup::example("session_cookie_or_query_key.yaml");
    let session = ["Cookie: theme=dark; session=abc"];
    assert_eq!(setup.statuses("GET /?api_key=k", &session), [200, 200, 429]);
    assert_eq!(setup.statuses("GET /", &["Cookie: session=\"abc\""]), [429]);
    assert_eq!(setup.statuses("GET /", &["Cookie: session=%61bc"]), [429]);
    assert_eq!(
        setup.statuses("GET /?api_key=k", &["Cookie: session="]),
        [200]
    );
    assert_eq!(setup.statuses("GET /?x=1&api%5Fkey=%6B", &[]), [200, 429]);
    assert_eq!(setup.statuses("GET /?api_key=", &[]), [200, 200, 429]);
    assert_eq!(setup.upstream.last().target, "/?api_key=");
}

#[test]
fn a_header_cookie_or_parameter_that_is_sent_twice_is_400_and_charged_to_nobody() {
    let setup = by("[header:x-key, cookie:session, query:api_key]");
    for (line, headers, told) in [
        (
            "GET /",
            &["X-Key: hunter2", "X-Key: hunter3"][..],
            "the header x-key",
        ),
        (
            "GET /",
            &["Cookie: session=hunter2; session=hunter2"],
            "the cookie session",
        ),
        (
            "GET /",
            &["Cookie: session=hunter2", "Cookie: a=1; session=hunter3"],
            "the cookie session",
        ),
        (
            "GET /?api_key=hunter2&api%5Fkey=hunter3",
            &[],
            "the query parameter api_key",
        ),
    ] {
        let answer = setup.answer(line, headers);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(
            answer.contains(&format!("{told} was sent more than once")),
            "{answer}"
        );
        assert!(!answer.contains("hunter"), "{answer}");
        assert!(
            !answer.to_ascii_lowercase().contains("x-ratelimit"),
            "{answer}"
        );
    }
    let long = "v".repeat(8 * 1024 + 1);
    let cookie = format!("Cookie: session={long}");
    assert_eq!(setup.status("GET /", &[&cookie]), 400);
    assert_eq!(setup.status(&format!("GET /?api_key={long}"), &[]), 400);
    assert!(setup.upstream.seen().is_empty());
    assert_eq!(
        remaining(&setup, "GET /", &["Cookie: session=hunter2"]),
        "1"
    );
}

#[test]
fn what_is_required_and_missing_is_named_in_the_401() {
    for (identifier, challenge, told) in [
        (
            "[cookie:session]",
            "cookie=\"session\"",
            "the cookie session",
        ),
        (
            "[query:api_key]",
            "query=\"api_key\"",
            "the query parameter api_key",
        ),
        (
            "[[header:x-tenant, client_ip, header:x-user, cookie:s], header:x-api-key]",
            "header=\"x-tenant x-user\", cookie=\"s\"",
            "the header x-tenant and the header x-user and the cookie s",
        ),
    ] {
        let setup = Setup::new(&format!(
            "policies: [{{name: p, limits: [2/1m], identifier: {identifier}, missing_identifier: deny}}]"
        ));
        let answer = setup.answer("GET /?x=hunter2", &["X-Tenant: hunter2"]);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        let challenge = format!("www-authenticate: ApiKey {challenge}\r\n");
        assert!(answer.contains(&challenge), "{answer}");
        let detail = format!("an identifier is required: {told}\"");
        assert!(answer.contains(&detail), "{answer}");
        assert!(!answer.contains("hunter"), "{answer}");
    }
}

#[test]
fn each_path_and_method_is_counted_on_its_own_for_each_address() {
    let setup = Setup::example("each_path_and_method.yaml");
    assert_eq!(setup.statuses("GET /a", &[]), [200, 200, 429]);
    assert_eq!(setup.statuses("POST /a", &[]), [200, 200, 429]);
    assert_eq!(setup.statuses("GET /b", &[]), [200, 200, 429]);
    let statuses = ["X1", "X2", "X3"].map(|method| setup.status(&format!("{method} /a"), &[]));
    assert_eq!(statuses, [200, 200, 429], "invented methods are one");
}

#[test]
fn no_way_to_write_a_path_gets_a_counter_of_its_own() {
    let setup = Setup::new("policies: [{name: p, limits: [1/366d], identifier: [path]}]");
    assert_eq!(setup.status("GET /api/x", &[]), 200);
    for target in [
        "/api/x",
        "/./api/x",
        "//api///x/",
        "/api/%2e/x/.",
        "/%61p%69/%78",
        "/api/x?y=1",
        "/api%2fx",
        "/api%5Cx",
        "/api\\x",
        "/api;v=1/x;w",
        "/y/../api/x",
        "/y/z/%2e%2E/../api/x",
        "http://api.example.com/api/x",
        "/api/x#y",
    ] {
        assert_eq!(setup.status(&format!("GET {target}"), &[]), 429, "{target}");
    }
    for target in ["/y%2fz/../api/x", "/api//../api/x", "/y/..;/api/x"] {
        assert_eq!(setup.status(&format!("GET {target}"), &[]), 400, "{target}");
    }
    assert_eq!(setup.upstream.seen().len(), 1);
    assert_eq!(
        setup.status("GET /api/X", &[]),
        200,
        "case is part of a path"
    );
}

#[test]
fn each_host_is_counted_whatever_its_case_and_port() {
    let setup = by("[host]");
    let of = |host: &str| setup.status("GET /", &[&format!("Host: {host}")]);
    let same = ["a.example.com", "A.Example.com:8080", "a.example.com."].map(of);
    assert_eq!(same, [200, 200, 429]);
    assert_eq!(of("b.example.com"), 200);
}

#[test]
fn an_invented_key_mints_no_quota_past_an_address_ceiling_and_a_missing_one_is_counted_by_address()
{
    let setup = Setup::new(
        "policies:\n\
         - {name: per-key, limits: [3/366d], identifier: [[header:x-tenant, header:x-api-key]]}\n\
         - {name: per-ip, limits: [5/366d]}",
    );
    let statuses: Vec<_> = (0..30)
        .map(|number| {
            let key = format!("X-API-Key: rot-{number}");
            setup.status("GET /", &["X-Tenant: a", &key])
        })
        .collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5);
    let other = |address: &str| {
        let from = format!("X-Forwarded-For: {address}");
        setup.statuses("GET /", &[&from, "X-Tenant: a"])
    };
    assert_eq!(other("192.0.2.1"), [200, 200, 200, 429]);
    assert_eq!(
        other("192.0.2.2"),
        [200, 200, 200, 429],
        "not one bucket for all without"
    );
}

#[tokio::test]
async fn who_is_counted_by_address_for_want_of_a_source_shows_in_the_metric() {
    let setup = Setup::new(
        "policies:\n\
         - {name: keyed, limits: [2/366d], identifier: [header:x-api-key, [cookie:session, header:x-user]]}\n\
         - {name: listed, limits: [99/366d], identifier: [header:x-api-key, client_ip]}\n\
         - {name: trial, limits: [1/366d], mode: shadow, identifier: [query:key]}",
    );
    for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        let from = format!("X-Forwarded-For: {address}");
        let statuses = setup.statuses("GET /", &[&from, "X-Api-Key: ", "Cookie: session=s"]);
        assert_eq!(statuses, [200, 200, 429], "{address} is not the others");
    }
    assert_eq!(setup.statuses("GET /?key=k", &["X-Api-Key: K"]), [200]);
    for (policy, source, requests) in [
        ("keyed", "fallback", 9.0),
        ("keyed", "header:x-api-key", 1.0),
        ("keyed", "cookie:session + header:x-user", 0.0),
        ("listed", "client_ip", 9.0),
        ("listed", "header:x-api-key", 1.0),
        ("trial", "fallback", 9.0),
        ("trial", "query:key", 1.0),
    ] {
        let labels = format!("policy=\"{policy}\",source=\"{source}\"");
        let series = format!("slidegate_identified_total{{{labels}}}");
        assert_eq!(setup.app.metric(&series).await, requests, "{labels}");
    }
    let exposition = setup.app.metrics().await;
    let never = "policy=\"listed\",source=\"fallback\"";
    assert!(!exposition.contains(never), "client_ip is never missing");
}

#[test]
fn a_key_is_counted_by_its_bytes_whatever_they_are_and_sent_on_as_it_came() {
    let setup = Setup::new(
        "policies: [{name: p, limits: [1/366d], identifier: [header:x-api-key, cookie:session], \
         missing_identifier: deny}]",
    );
    let ask = |name: &str, before: &[u8], key: &[u8]| {
        let line = [name.as_bytes(), b": ", before, key].concat();
        let request = [b"GET / HTTP/1.1\r\nHost: x\r\n", &line[..], b"\r\n\r\n"].concat();
        let answer = Wire::open(setup.app.proxy).send(&request).response();
        answer[9..12].to_owned()
    };
    let keys = [
        "тест".as_bytes(),
        "kéy".as_bytes(),
        b"k\xe9y",
        b"k\xe8y",
        b"key",
        b"\xff",
        b"\xfe",
        "\u{fffd}".as_bytes(),
    ];
    for (name, before) in [("x-api-key", &b""[..]), ("cookie", b"session=")] {
        for key in keys {
            let told = format!("{name}: {}", key.escape_ascii());
            assert_eq!(ask(name, before, key), "200", "{told}");
            let seen = setup.upstream.last().headers[name].clone();
            assert_eq!(seen.as_bytes(), [before, key].concat(), "{told}");
            assert_eq!(ask(name, before, key), "429", "{told}");
        }
    }
}

#[test]
fn the_scheme_before_a_key_makes_no_other_client() {
    let setup = Setup::new(
        "policies: [{name: p, limits: [4/366d], identifier: [header:authorization], missing_identifier: deny}]",
    );
    for (key, left) in [
        ("bearer K", "3"),
        ("BEARER   K", "2"),
        ("Bearer K", "1"),
        (" bEARER\tK ", "0"),
        ("Bearer k", "3"),
        ("BearerK", "3"),
    ] {
        let line = format!("Authorization: {key}");
        assert_eq!(remaining(&setup, "GET /", &[&line]), left, "{key:?}");
    }
    for absent in ["Bearer", "Bearer ", "bearer \t ", "", " "] {
        let line = format!("Authorization: {absent}");
        assert_eq!(setup.status("GET /", &[&line]), 401, "{absent:?}");
    }
}

#[test]
fn what_is_counted_is_what_the_upstream_gets() {
    let setup = by("[header:x-api-key]");
    let line = ["X-API-Key:  A, B "];
    assert_eq!(remaining(&setup, "GET /", &line), "1");
    let seen = setup.upstream.last().headers;
    let values: Vec<_> = seen.get_all("x-api-key").iter().collect();
    assert_eq!(values, ["A, B"], "a comma makes no list of it");
    assert_eq!(remaining(&setup, "GET /", &["X-API-Key: A"]), "1");
}

#[test]
fn a_header_that_is_not_sent_on_identifies_nobody_and_is_400() {
    let setup = by("[header:x-api-key, cookie:session]");
    for (header, told) in [
        ("X-API-Key: hunter2", "the header x-api-key"),
        ("Cookie: session=hunter2", "the cookie session"),
    ] {
        let seen = setup.upstream.seen().len();
        for connection in [
            "Connection: x-api-key, cookie",
            "Connection: keep-alive,X-API-KEY\t,Cookie",
            "Connection: close\r\nConnection: Cookie, X-Api-Key",
        ] {
            let answer = setup.answer("GET /", &[header, connection]);
            assert!(
                answer.starts_with("HTTP/1.1 400 "),
                "{connection}: {answer}"
            );
            let detail = format!("{told} is for the connection alone: Connection names it");
            assert!(answer.contains(&detail), "{answer}");
            assert!(!answer.contains("hunter"), "{answer}");
        }
        assert_eq!(setup.upstream.seen().len(), seen);
        assert_eq!(
            remaining(&setup, "GET /", &[header]),
            "1",
            "it was not charged"
        );
        let other = [header, "Connection: keep-alive, x-api-keys, my-cookie"];
        assert_eq!(remaining(&setup, "GET /", &other), "0");
    }
    let absent = ["Connection: x-api-key, cookie"];
    assert_eq!(remaining(&setup, "GET /", &absent), "1", "by address");
}
