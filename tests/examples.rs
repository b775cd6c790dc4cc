//! What the examples of `tests/config/valid` say, they decide: each file is started as it is, but for where its
//! upstream and its Redis are. Those that go by parts of a request are in `tests/policies.rs` and below it.

use std::net::IpAddr;

use redis::Commands;
use reqwest::{Client, RequestBuilder, Response};
use slidegate::{clock::Clock, ratelimit::Timestamp};

use crate::support::{
    app::App,
    redis::{RedisServer, eventually},
    upstream::Upstream,
};

/// The variable that examples have.
fn env(name: &str) -> Option<String> {
    (name == "TWO").then(|| "2".to_owned())
}

/// The start of an hour, and so of a minute and of five seconds.
const NOW: u64 = 1_800_000_000;

struct Setup {
    app: App,
    clock: Clock,
    client: Client,
    _upstream: Upstream,
}

impl Setup {
    fn example(name: &str) -> Self {
        Self::with(name, None)
    }

    /// The example, with other words in the place of some of its own.
    fn with(name: &str, replaced: Option<(&str, &str)>) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/valid");
        let mut text = std::fs::read_to_string(format!("{folder}/{name}")).expect(name);
        let upstream = Upstream::start();
        let address = upstream.address.to_string();
        for (old, new) in replaced.into_iter().chain([("app:3000", address.as_str())]) {
            assert_eq!(text.matches(old).count(), 1, "{old}: {text}");
            text = text.replace(old, new);
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("written");
        let clock = Clock::manual(Timestamp::from_seconds(NOW));
        Self {
            app: App::start_file_at(file.path(), &env, clock.clone()),
            clock,
            client: Client::new(),
            _upstream: upstream,
        }
    }

    /// So many seconds after [`NOW`].
    fn after(&self, seconds: u64) {
        self.clock.set(Timestamp::from_seconds(NOW + seconds));
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(self.app.url(path))
    }

    fn with_key(&self, key: &str) -> RequestBuilder {
        self.get("/").header("x-api-key", key)
    }
}

async fn answer(request: RequestBuilder) -> Response {
    request.send().await.expect("answered")
}

async fn status(request: RequestBuilder) -> u16 {
    answer(request).await.status().as_u16()
}

/// Sends the request so often, which is answered each time, and once more, which is denied.
async fn admits_no_more_than(times: usize, request: &RequestBuilder) {
    let again = || request.try_clone().expect("it has no body");
    for time in 1..=times {
        assert_eq!(status(again()).await, 200, "{time} of {times}");
    }
    assert_eq!(status(again()).await, 429, "{times}");
}

#[tokio::test]
async fn five_requests_in_five_seconds_are_for_each_address() {
    let setup = Setup::example("five_per_five_seconds_per_address.yaml");
    admits_no_more_than(5, &setup.get("/")).await;
    let other = Client::builder().local_address(IpAddr::from([127, 0, 0, 2]));
    let other = other.build().expect("a client");
    admits_no_more_than(5, &other.get(setup.app.url("/"))).await;
    setup.after(4);
    assert_eq!(status(setup.get("/")).await, 429, "the same five seconds");
    setup.after(6);
    admits_no_more_than(1, &setup.get("/")).await;
    setup.after(20);
    admits_no_more_than(5, &setup.get("/")).await;
}

#[tokio::test]
async fn a_hundred_a_minute_are_for_each_key_and_more_for_one_of_a_plan() {
    let setup = Setup::example("per_key_with_plans.yaml");
    for (key, limit) in [
        ("gold-key", 1000),
        ("silver-key", 300),
        ("plain-key", 100),
        ("other-plain-key", 100),
    ] {
        admits_no_more_than(limit, &setup.with_key(key)).await;
    }
    assert_eq!(status(setup.with_key("second-gold-key")).await, 429);
    assert_eq!(status(setup.with_key("nobody's-key")).await, 401);
    assert_eq!(status(setup.get("/")).await, 401);
    let denied = answer(setup.with_key("silver-key")).await;
    assert_eq!(
        denied.headers()["ratelimit-policy"],
        "\"per-key\";q=300;w=60"
    );
    setup.after(120);
    assert_eq!(status(setup.with_key("silver-key")).await, 200);
}

#[tokio::test]
async fn ten_a_second_and_a_thousand_an_hour_hold_together() {
    let setup = Setup::example("ten_a_second_and_a_thousand_an_hour.yaml");
    for tens in 1..=100 {
        setup.after(2 * tens);
        admits_no_more_than(10, &setup.get("/")).await;
    }
    setup.after(1_000);
    let denied = answer(setup.get("/")).await;
    assert_eq!(denied.status(), 429, "the thousand of the hour");
    let remaining = &denied.headers()["x-ratelimit-limit"];
    assert_eq!(remaining, "1000", "those denied were charged to neither");
    setup.after(2 * 3_600);
    admits_no_more_than(10, &setup.get("/")).await;
}

#[tokio::test]
async fn a_tighter_limit_on_trial_shows_whom_it_would_deny_and_denies_nobody() {
    let here = Some(("redis://redis:6379/0", "memory:"));
    let setup = Setup::with("shadow_beside_enforce.yaml", here);
    admits_no_more_than(1000, &setup.get("/")).await;
    let decided = async |mode, policy, decision| {
        let labels = format!("mode=\"{mode}\",plan=\"\",policy=\"{policy}\"");
        let series = format!(
            "slidegate_decisions_total{{decided_by=\"store\",decision=\"{decision}\",{labels}}}"
        );
        setup.app.metric(&series).await
    };
    assert_eq!(decided("shadow", "per-ip-next", "allow").await, 200.0);
    assert_eq!(decided("shadow", "per-ip-next", "deny").await, 801.0);
    assert_eq!(decided("enforce", "per-ip", "deny").await, 1.0);
}

#[tokio::test]
async fn five_failed_logins_in_a_quarter_of_an_hour_are_one_too_many_and_others_are_free() {
    let setup = Setup::example("failed_logins.yaml");
    for status_of_login in [401, 200, 403, 200, 401, 404, 403, 401] {
        let login = setup.get(&format!("/status/{status_of_login}"));
        assert_eq!(status(login).await, status_of_login);
    }
    admits_no_more_than(0, &setup.get("/")).await;
    setup.after(2 * 900);
    assert_eq!(status(setup.get("/")).await, 200);
}

#[tokio::test]
async fn without_a_key_nobody_gets_in_where_one_is_required() {
    let setup = Setup::example("key_required.yaml");
    assert_eq!(status(setup.get("/")).await, 401);
    for key in ["Bearer K", "Bearer L"] {
        let request = setup.get("/").header("authorization", key);
        admits_no_more_than(100, &request).await;
    }
}

/// What the quota leaves is set in Redis, since a hundred thousand requests would take long.
#[tokio::test]
async fn a_quota_of_thirty_days_ends_with_its_last_unit_and_a_failure_of_the_upstream_is_free() {
    let redis = RedisServer::start();
    let here = format!("\"{}\", budget: 10s", redis.unix_url());
    let setup = Setup::with(
        "thirty_day_quota.yaml",
        Some(("\"unix:/run/redis.sock\"", here.as_str())),
    );
    setup.app.store_decides().await;
    let first = answer(setup.with_key("K")).await;
    assert_eq!(first.headers()["x-ratelimit-limit"], "1000", "the minute's");
    let mut client = redis.client();
    let of_key: Vec<String> = client.keys("rl:{billing:monthly:*").expect("Redis answers");
    let [counter] = &of_key[..] else {
        panic!("{of_key:?}");
    };
    assert!(counter.contains("}:2592000:"), "{counter}");
    let () = client.set(counter, 99_998).expect("Redis answers");

    let failed = answer(setup.get("/status/503").header("x-api-key", "K")).await;
    assert_eq!(failed.status(), 503);
    eventually("the failure is given back", async || {
        let left: u64 = redis.client().get(counter).expect("Redis answers");
        left == 99_998
    })
    .await;
    let left = answer(setup.with_key("K")).await;
    assert_eq!(left.status(), 200);
    assert_eq!(left.headers()["x-ratelimit-remaining"], "1");
    assert_eq!(status(setup.with_key("K")).await, 200);
    let denied = answer(setup.with_key("K")).await;
    assert_eq!(denied.status(), 429);
    let days = denied.headers()["x-ratelimit-reset"]
        .to_str()
        .expect("text");
    assert!(
        days.parse::<u64>().expect("seconds") <= 30 * 86_400,
        "{days}"
    );
    let body = denied.text().await.expect("text");
    assert!(!body.starts_with('{'), "{body}");
    assert_eq!(status(setup.with_key("L")).await, 200);
    assert_eq!(status(setup.get("/")).await, 200, "without a key");
}

#[tokio::test]
async fn requests_are_limited_wherever_their_route_leads() {
    use crate::support::nginx::Nginx;

    let answering = |name: &str| format!("location / {{ return 200 '{name}'; }}");
    let apis = [(); 2].map(|()| Nginx::start_with("http2", &answering("api")));
    let web = Nginx::start_with("", &answering("web"));
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/valid");
    let text = std::fs::read_to_string(format!("{folder}/several_upstreams.yaml"));
    let text = text
        .expect("the example")
        .replace("api-1:3000", &format!("\"{}\"", apis[0].address))
        .replace("api-2:3000", &format!("\"{}\"", apis[1].address))
        .replace(
            "/run/web.sock",
            &web.folder().join("socket").display().to_string(),
        );
    let config = slidegate::config::Config::parse(&text, "example", &env).expect("accepted");
    let app = App::start_config(config);
    let answer = async |host: &str, path: &str| {
        let request = Client::new().get(app.url(path)).header("host", host);
        let response = answer(request).await;
        (
            response.status().as_u16(),
            response.text().await.expect("a text"),
        )
    };
    let api = "api.example.com";
    assert_eq!(answer(api, "/v1/users").await, (200, "api".to_owned()));
    assert_eq!(answer(api, "/v2/users").await, (200, "web".to_owned()));
    for (host, path) in [(api, "/v1/login"), ("www.example.com", "/login")] {
        assert_eq!(answer(host, path).await.0, 200);
    }
    for _ in 0..3 {
        assert_eq!(answer(api, "/v1/login").await.0, 200);
    }
    assert_eq!(answer("www.example.com", "/login").await.0, 429);
}
