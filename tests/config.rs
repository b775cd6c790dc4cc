//! What a configuration promises: the files that ship are accepted, mistakes are told whole, and nothing
//! that a file can hold brings the loader down.

mod check;
mod files;
mod hostile;
mod mistakes;
mod schema;
mod shipped;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use slidegate::{
    config::{Config, ConfigError},
    policy::{
        Charge, ClientHeader, FailureMode, IdentifierEntry, IdentifierSource, MissingIdentifier,
        Mode, TrustedProxies,
    },
    proxy::response::{ErrorBody, ResetFormat},
    store::{ClientFiles, Password, Topology},
};

#[test]
fn every_example_is_accepted() {
    let files = files("valid", "yaml");
    assert!(files.len() >= 26, "found only {}", files.len());
    for file in &files {
        if let Err(error) = Config::load(file, &env) {
            panic!("{error}");
        }
    }
}

#[test]
fn the_examples_mean_what_they_say() {
    let example = |name: &str| {
        let file = root().join("tests/config/valid").join(name);
        Config::load(&file, &env).expect(name)
    };
    let limits = |config: &Config| -> Vec<String> {
        let limits = config.policies.iter().flat_map(|policy| policy.tiers.own());
        limits
            .map(|limit| format!("{}={}", limit.name, limit.limit))
            .collect()
    };

    let burst = example("five_per_five_seconds_per_address.yaml");
    assert_eq!(limits(&burst), ["burst=5/5s"]);
    assert_eq!(
        burst.policies[0].identifier.entries,
        [IdentifierEntry::One(IdentifierSource::ClientIp)]
    );

    let two = example("ten_a_second_and_a_thousand_an_hour.yaml");
    assert_eq!(limits(&two), ["per-ip-1s=10/1s", "per-ip-1h=1000/1h"]);

    let shadow = example("shadow_beside_enforce.yaml");
    let modes: Vec<_> = shadow.policies.iter().map(|policy| policy.mode).collect();
    assert_eq!(modes, [Mode::Enforce, Mode::Shadow]);
    assert_eq!(shadow.limiter.expected_replicas.get(), 3);
    assert!(shadow.redis.is_some());

    let key = &example("key_required.yaml").policies[0];
    assert_eq!(key.identifier.missing, MissingIdentifier::Deny);
    assert_eq!(key.failure_mode, FailureMode::Deny);
    assert_eq!(
        key.identifier.entries[0].to_string(),
        "header:authorization"
    );

    let logins = example("failed_logins.yaml");
    let Charge::AtResponse { statuses } = &logins.policies[0].charge else {
        panic!("charged by response");
    };
    assert_eq!(*statuses, [401, 403]);

    let tenants = example("tenant_and_user.yaml");
    let entry = &tenants.policies[0].identifier.entries[0];
    assert_eq!(entry.to_string(), "header:x-tenant + header:x-user");
    for name in [
        "tenant_and_user.yaml",
        "failed_logins_per_user.yaml",
        "global_ceiling.yaml",
        "each_path_and_method.yaml",
        "session_cookie_or_query_key.yaml",
        "per_key_with_plans.yaml",
    ] {
        assert_eq!(example(name).warnings, Vec::<String>::new(), "{name}");
    }

    let quota = example("thirty_day_quota.yaml");
    assert_eq!(limits(&quota)[0], "monthly=100000/30d");
    let take_back = Charge::AtRequest {
        take_back_5xx: true,
    };
    assert_eq!(quota.policies[0].charge, take_back);
    assert_eq!(quota.responses.error_body, ErrorBody::Text);
    assert_eq!(quota.responses.x_ratelimit_reset, ResetFormat::Seconds);

    let fresh = example("every_denial_from_redis.yaml");
    assert_eq!(fresh.limiter.denial_cache, Duration::ZERO);

    let quoted = example("everything_in_quotes_and_from_the_environment.yaml");
    assert_eq!(quoted.server.threads, 2);
    assert_eq!(quoted.upstreams[0].told(), "[::1]:3000");
    assert_eq!(quoted.upstreams[0].read_timeout, Duration::from_secs(5));
    assert_eq!(quoted.limiter.near_limit_edges, [0.5, 1.0]);
    assert!(!quoted.responses.ratelimit && quoted.log.json);
    assert_eq!(quoted.policies[0].cost.fixed.units(), 2);
}

#[test]
fn a_cluster_is_found_by_its_url_and_further_addresses() {
    let cluster = |section: &str| {
        let yaml = format!(
            "upstream: {{address: app:6}}\npolicies: [{{name: p, limits: [1/1s]}}]\n\
             store: {{url: 'redis://redis-0', cluster: {section}}}"
        );
        match parse(&yaml)
            .expect("accepted")
            .redis
            .expect("Redis")
            .topology
        {
            Topology::Cluster(cluster) => cluster.addresses,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(cluster("{}"), []);
    let told: Vec<_> = cluster("{addresses: [redis-1, 'redis-2:7', '[::1]:8']}")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(told, ["redis-1:6379", "redis-2:7", "[::1]:8"]);
}

#[test]
fn every_setting_arrives_where_it_belongs() {
    let config = parse(
        "listen: 127.0.0.1:1\nmetrics_listen: 127.0.0.1:2\nthreads: 3\n\
         shutdown: {drain_delay: 4s, grace: 5s}\n\
         upstream: {address: app:6, connect_timeout: 7s, read_timeout: 8s, write_timeout: 9s,\n\
           \x20idle_timeout: 10s, resolve_interval: 11s}\n\
         store: {url: 'rediss://user@name/2', password_file: /3, tls: {ca: /4, certificate: /5, key: /6},\n\
           \x20sentinel: {addresses: [s7, 's8:9', '[::1]:10'], user: u11, password: p12}, budget: 12ms, denial_cache: 20s, namespace: n13, max_counters: 14,\n\
           \x20expected_replicas: 15}\n\
         identity: {secret: sixteen, ipv6_prefix: 17, trusted_proxies: [10.18.0.0/16], client_ip_header: forwarded}\n\
         responses: {x_ratelimit: false, ratelimit: false}\n\
         policies: [{name: p, limits: [18/19s], algorithm: sliding_window_counter, cost: 2,\n\
           \x20failure_mode: allow}]",
    )
    .expect("accepted");
    let seconds = |duration: Duration| duration.as_secs();
    let server = &config.server;
    assert_eq!(
        (
            server.listen[0].address.tcp().map(|listen| listen.port()),
            server.metrics_listen.port()
        ),
        (Some(1), 2)
    );
    assert_eq!(server.threads, 3);
    assert_eq!((seconds(server.drain_delay), seconds(server.grace)), (4, 5));
    let upstream = &config.upstreams[0];
    assert_eq!(upstream.told(), "app:6");
    assert_eq!(seconds(upstream.connect_timeout), 7);
    assert_eq!(seconds(upstream.read_timeout), 8);
    assert_eq!(seconds(upstream.write_timeout), 9);
    assert_eq!(seconds(upstream.idle_timeout), 10);
    assert_eq!(seconds(upstream.resolve_interval), 11);
    let redis = config.redis.as_ref().expect("Redis");
    assert_eq!(redis.budget, Duration::from_millis(12));
    assert_eq!(redis.namespace, "n13");
    assert_eq!(redis.url.to_string(), "name:6379");
    assert_eq!(redis.password, Some(Password::File("/3".into())));
    let client = ClientFiles {
        certificate: "/5".into(),
        key: "/6".into(),
    };
    assert_eq!(redis.tls.ca, Some("/4".into()));
    assert_eq!(redis.tls.client, Some(client));
    let Topology::Sentinel(sentinel) = &redis.topology else {
        panic!("sentinels are asked");
    };
    let addresses = sentinel.addresses.iter().map(ToString::to_string);
    let addresses: Vec<_> = addresses.collect();
    assert_eq!(addresses, ["s7:26379", "s8:9", "[::1]:10"]);
    assert_eq!(sentinel.user.as_deref(), Some("u11"));
    assert_eq!(sentinel.password, Some(Password::Known("p12".to_owned())));
    assert_eq!(config.memory.max_counters, 14);
    assert_eq!(config.limiter.expected_replicas.get(), 15);
    assert_eq!(seconds(config.limiter.denial_cache), 20);
    assert!(format!("{:?}", config.hasher).contains("17"));
    assert_eq!(config.clients.header, ClientHeader::Forwarded);
    let ranges = match &config.clients.trusted {
        TrustedProxies::Ranges(ranges) => ranges.to_string(),
        TrustedProxies::Hops(hops) => hops.to_string(),
    };
    assert_eq!(ranges, "10.18.0.0/16");
    assert!(!config.responses.x_ratelimit && !config.responses.ratelimit);
    let policy = &config.policies[0];
    assert_eq!(policy.tiers.own()[0].limit.to_string(), "18/19s");
    assert_eq!(policy.cost.fixed.units(), 2);
    assert_eq!(policy.failure_mode, FailureMode::Allow);
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn what_is_allowed_and_risky_is_warned_about() {
    let warnings = |text: &str| {
        let text = format!("upstream: {{address: app:3000}}\n{text}");
        parse(&text).expect("accepted").warnings
    };
    let by_key = "policies: [{name: a, limits: [10/1m], identifier: [header:x-api-key]}";
    let told = warnings(&format!("{by_key}]"));
    assert!(
        matches!(told.as_slice(), [one] if one.contains("invents values")),
        "{told:?}"
    );
    let told = warnings(&format!("{by_key}, {{name: b, limits: [10/1m]}}]"));
    assert!(told.is_empty(), "a ceiling by address: {told:?}");
    let told = warnings(&format!(
        "{by_key}, {{name: b, limits: [10/1m], mode: shadow}}]"
    ));
    assert_eq!(told.len(), 1, "a shadow is no ceiling");
    for (gate, word) in [
        ("exempt: {client_ip: ['::/0']}", "no policy is asked"),
        ("block: {client_ip: [0.0.0.0/0]}", "answered 403"),
    ] {
        let told = warnings(&format!("{gate}\npolicies: [{{name: a, limits: [10/1m]}}]"));
        assert!(
            matches!(told.as_slice(), [one] if one.contains(word)),
            "{told:?}"
        );
    }
    let by_path = "policies: [{name: a, limits: [10/1m], identifier: [header:x-api-key], match: {path: [/api/x]}}";
    for (ceiling, capped) in [
        ("", true),
        ("match: {path: [/api/**]}", true),
        ("match: {path: [/other]}", false),
        ("match: {not: {client_ip: [10.0.0.0/8]}}", false),
    ] {
        let ceiling = format!("{{name: b, limits: [10/1m], {ceiling}}}]");
        let told = warnings(&format!("{by_path}, {ceiling}"));
        assert_eq!(told.is_empty(), capped, "{ceiling}: {told:?}");
        let told = warnings(&format!("apply: first\n{by_path}, {ceiling}"));
        assert_eq!(told.len(), 1, "only one of them applies: {ceiling}");
    }
    let told = warnings("store: {expected_replicas: 3}\npolicies: [{name: a, limits: [10/1m]}]");
    assert!(
        matches!(told.as_slice(), [one] if one.contains("counts alone")),
        "{told:?}"
    );
    let exact = "{name: a, algorithm: sliding_log, limits: [10/1m]}";
    let redis = "store: {url: 'redis://redis:6379'}\nidentity: {secret: hush}";
    for (audit, other, warned) in [
        ("audit: {sample: 0.1}", "", true),
        (
            "audit: {sample: 0.1}",
            ", {name: b, limits: [20/1m]}",
            false,
        ),
        ("", "", false),
    ] {
        let told = warnings(&format!("{redis}\n{audit}\npolicies: [{exact}{other}]"));
        let is_told = matches!(told.as_slice(), [one] if one.contains("nothing is compared"));
        assert_eq!(
            (is_told, told.len()),
            (warned, usize::from(warned)),
            "{told:?}"
        );
    }
    let told =
        warnings("policies: [{name: a, limits: [10/1m], match: {method: [GTE, PUT, MKCOL]}}]");
    assert_eq!(
        told,
        ["policy a: GTE is no registered method; did you mean GET?"]
    );
    let everybody = "identity: {trusted_proxies: [0.0.0.0/0]}";
    let told = warnings(&format!(
        "{everybody}\npolicies: [{{name: a, limits: [10/1m]}}]"
    ));
    assert!(
        matches!(told.as_slice(), [one] if one.contains("any address as its own")),
        "{told:?}"
    );
    let told = warnings("policies: [{name: a, limits: [10/1m, 3/1s], cost: 5}]");
    assert!(
        matches!(told.as_slice(), [one] if one.contains("no request is ever admitted")),
        "{told:?}"
    );
    let audited = "store: {url: \"redis://r:6379\"}\nidentity: {secret: s}\naudit: {sample: 0.01}";
    let limits = "policies: [{name: a, limits: [10/1m, 10001/1h, 20000/1d]}]";
    assert_eq!(
        warnings(&format!("{audited}\n{limits}")),
        [
            "policy a: 10001/1h, 20000/1d is not audited, since a log holds at most twice 10000 units"
        ]
    );
}

#[test]
fn a_policy_by_what_a_client_can_invent_without_end_wants_a_ceiling_and_no_other_does() {
    let warnings = |policies: &str| {
        let text = format!("upstream: {{address: app:3000}}\npolicies: [{policies}]");
        parse(&text).expect("accepted").warnings
    };
    let by = |identifier: &str, more: &str| {
        format!("{{name: a, limits: [10/1m], identifier: [{identifier}]{more}}}")
    };
    for (identifier, invented) in [
        ("cookie:session", "cookie:session"),
        ("query:api_key", "query:api_key"),
        ("host", "host"),
        ("path", "path"),
        ("[client_ip, header:x-user]", "header:x-user"),
        ("[path, method, header:x-user]", "path + header:x-user"),
        ("[host, method]", "host"),
        ("header:x-api-key, constant", "header:x-api-key"),
    ] {
        let told = warnings(&by(identifier, ""));
        let expected = format!("policy a: a client that invents values for {invented} gets");
        assert!(
            matches!(told.as_slice(), [one] if one.starts_with(&expected)),
            "{identifier}: {told:?}"
        );
        for ceiling in ["constant", "client_ip", "method", "[client_ip, method]"] {
            let ceiling = format!("{{name: b, limits: [99/1m], identifier: [{ceiling}]}}");
            let told = warnings(&format!("{}, {ceiling}", by(identifier, "")));
            assert_eq!(told, Vec::<String>::new(), "{identifier}: {ceiling}");
        }
        let no_ceiling = "{name: b, limits: [99/1m], identifier: [path]}";
        let told = warnings(&format!("{}, {no_ceiling}", by(identifier, "")));
        assert_eq!(told.len(), 2, "{identifier}: {told:?}");
    }
    for (identifier, rule) in [
        ("constant", ""),
        ("method", ""),
        ("[client_ip, method]", ""),
        ("path", ", match: {path: [/login, /logout]}"),
        (
            "[path, host]",
            ", match: {path: [/login], host: [a.example.com]}",
        ),
    ] {
        let told = warnings(&by(identifier, rule));
        assert_eq!(told, Vec::<String>::new(), "{identifier}{rule}");
    }
    for (identifier, rule) in [
        ("path", ", match: {path: [/login, /api/**]}"),
        ("path", ", match: {path: [/users/*]}"),
        ("path", ", match: {not: {path: [/login]}}"),
        ("host", ", match: {host: ['*.example.com']}"),
    ] {
        let told = warnings(&by(identifier, rule));
        assert_eq!(told.len(), 1, "{identifier}{rule}: {told:?}");
    }
    let failed = |statuses: &str| {
        let logins = by("[client_ip, header:x-user]", ", charge_on: [401, 403]");
        let ceiling = format!("{{name: b, limits: [99/1m], charge_on: [{statuses}]}}");
        warnings(&format!("{logins}, {ceiling}")).len()
    };
    assert_eq!(failed("401, 403, 429"), 0);
    assert_eq!(failed("401"), 1, "it does not count what the policy does");
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, "config.yaml", &env)
}

/// The environment of the examples and mistakes.
fn env(name: &str) -> Option<String> {
    let value = match name {
        "TWO" => "2",
        "EMPTY" => "",
        "COMMENT" => "10 # x",
        "FILE" => concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        "LINES" => "10\nthreads: 99",
        "BAD_REDIS_URL" => "redis://:hunter2@redis:6379/zero",
        _ => return None,
    };
    Some(value.to_owned())
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let folder = root().join("tests/config").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{file:?}: {error}"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
