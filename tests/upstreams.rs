//! Several upstreams, several addresses of one: which requests go where, and what becomes of them when some are away.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crate::support::{
    app::App,
    nginx::Nginx,
    redis::eventually,
    upstream::{Nobody, Upstream},
    wire::Wire,
};

const POLICIES: &str =
    "policies: [{name: per-key, identifier: [header:x-api-key], limits: [100000/1h]}]\n";

/// In front of one upstream at these addresses, with these further settings of it.
fn in_front_of(nginxes: &[&Nginx], more: &str) -> App {
    let addresses: Vec<_> = nginxes.iter().map(|one| one.address.to_string()).collect();
    let addresses = addresses.join(", ");
    App::start(&format!(
        "upstream: {{addresses: [{addresses}]{more}}}\n{POLICIES}"
    ))
}

async fn get(app: &App, host: &str, path: &str) -> (u16, String) {
    let request = reqwest::Client::new()
        .get(app.url(path))
        .header("host", host);
    let response = request.send().await.expect("a response");
    let status = response.status().as_u16();
    (status, response.text().await.expect("a body"))
}

/// How often each answered so many requests, which all are answered.
async fn answers(app: &App, requests: usize) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    for _ in 0..requests {
        let (status, body) = get(app, "x", "/").await;
        assert_eq!(status, 200, "{body}");
        *answers.entry(body).or_default() += 1;
    }
    answers
}

fn addresses(state: &str) -> String {
    format!("slidegate_upstream_addresses{{state=\"{state}\",upstream=\"default\"}}")
}

fn outcome(upstream: &str, outcome: &str) -> String {
    format!("slidegate_upstream_requests_total{{outcome=\"{outcome}\",upstream=\"{upstream}\"}}")
}

#[tokio::test]
async fn addresses_take_turns() {
    let nginxes = ["a", "b", "c"].map(Nginx::named);
    let app = in_front_of(&nginxes.each_ref(), "");
    let expected = ["a", "b", "c"].map(|name| (name.to_owned(), 4));
    assert_eq!(answers(&app, 12).await, BTreeMap::from(expected));
    app.metric_becomes(&addresses("in_rotation"), 3.0).await;
    app.metric_becomes(&outcome("default", "answered"), 12.0)
        .await;
}

/// Requests without an end, until told to stop: how many were answered with each status.
fn load(app: &App, stop: &Arc<AtomicBool>) -> Vec<tokio::task::JoinHandle<BTreeMap<u16, usize>>> {
    let client = reqwest::Client::new();
    let tasks = (0..8).map(|_| {
        let (client, url, stop) = (client.clone(), app.url("/"), stop.clone());
        tokio::spawn(async move {
            let mut statuses = BTreeMap::new();
            while !stop.load(Ordering::SeqCst) {
                let response = client.get(&url).send().await.expect("a response");
                *statuses.entry(response.status().as_u16()).or_default() += 1;
            }
            statuses
        })
    });
    tasks.collect()
}

#[tokio::test]
async fn one_of_three_that_is_killed_is_left_out_and_comes_back_and_no_request_that_may_be_repeated_fails()
 {
    let [one, two, mut three] = ["a", "b", "c"].map(Nginx::named);
    let app = in_front_of(&[&one, &two, &three], ", eject: {for: 500ms}");
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = load(&app, &stop);
    app.metric_becomes(&addresses("in_rotation"), 3.0).await;

    three.kill();
    app.metric_becomes(&addresses("ejected"), 1.0).await;
    three.restart();
    app.metric_becomes(&addresses("in_rotation"), 3.0).await;
    eventually("it is asked again", async || {
        get(&app, "x", "/").await.1 == "c"
    })
    .await;

    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        let statuses = task.await.expect("no panic");
        assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200]);
    }
    assert!(
        app.metric("slidegate_upstream_ejections_total{upstream=\"default\"}")
            .await
            >= 1.0
    );
    assert!(
        app.metric("slidegate_upstream_retries_total{upstream=\"default\"}")
            .await
            >= 1.0
    );
}

#[tokio::test]
async fn where_all_are_away_all_are_tried_and_one_that_comes_back_is_found() {
    let [mut one, mut two] = ["a", "b"].map(Nginx::named);
    let app = in_front_of(&[&one, &two], ", eject: {after: 1, for: 1h}");
    one.kill();
    two.kill();
    eventually("both are left out", async || {
        assert_eq!(get(&app, "x", "/").await.0, 502);
        app.metric(&addresses("ejected")).await == 2.0
    })
    .await;
    two.restart();
    eventually(
        "it is found, though it would be left out for an hour",
        async || get(&app, "x", "/").await == (200, "b".to_owned()),
    )
    .await;
    assert_eq!(answers(&app, 3).await["b"], 3, "and the other is left out");
}

#[tokio::test]
async fn a_post_that_found_no_connection_goes_to_another_address_once() {
    let upstream = Upstream::start();
    let gone = Nobody::new();
    let app = App::start(&format!(
        "upstream: {{addresses: [\"{}\", \"{}\"], eject: off}}\n{POLICIES}",
        gone.address, upstream.address
    ));
    for _ in 0..4 {
        let post = reqwest::Client::new().post(app.url("/")).body("once");
        let response = post.send().await.expect("a response");
        assert_eq!(response.status(), 200);
    }
    assert_eq!(upstream.seen().len(), 4);
    assert_eq!(
        app.metric(&addresses("in_rotation")).await,
        2.0,
        "eject: off"
    );
    app.metric_becomes("slidegate_upstream_retries_total", 2.0)
        .await;
}

/// Each counts its requests, reads them whole, and closes.
fn rude() -> (String, Arc<AtomicUsize>) {
    use std::io::Read as _;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound listener").to_string();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let (mut read, mut bytes) = (Vec::new(), [0; 1024]);
            while !read.ends_with(b"\r\n\r\n") && !read.ends_with(b"once") {
                match stream.read(&mut bytes) {
                    Ok(0) | Err(_) => break,
                    Ok(many) => read.extend_from_slice(&bytes[..many]),
                }
            }
            if !read.is_empty() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (address, requests)
}

#[tokio::test]
async fn what_was_sent_and_not_answered_is_sent_again_once_if_it_may_be_and_a_post_never() {
    let ((first, at_first), (second, at_second)) = (rude(), rude());
    let app = App::start(&format!(
        "upstream: {{addresses: [\"{first}\", \"{second}\"]}}\n{POLICIES}"
    ));
    let sent = || at_first.load(Ordering::SeqCst) + at_second.load(Ordering::SeqCst);
    let request = Wire::open(app.proxy)
        .send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .response();
    assert!(request.starts_with("HTTP/1.1 502 "), "{request}");
    assert_eq!(sent(), 2);
    let request = Wire::open(app.proxy)
        .send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nonce")
        .response();
    assert!(request.starts_with("HTTP/1.1 502 "), "{request}");
    assert_eq!(sent(), 3);
    app.metric_becomes(&outcome("default", "failed"), 2.0).await;
}

/// As requests are answered by such an upstream (RFC 9110, 15.2).
#[tokio::test]
async fn an_interim_answer_before_that_of_a_check_is_passed_over() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (asked, checks) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accepted");
            let read = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let answer =
                b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            let written = std::io::Write::write_all(&mut stream, answer);
            if read.is_err() || written.is_err() || asked.send(()).is_err() {
                return;
            }
        }
    });
    let app = App::start(&format!(
        "upstream: {{address: \"{address}\", health_check: {{path: /, interval: 100ms, unhealthy_after: 1}}}}\n{POLICIES}"
    ));
    // The answer to one is read before the next is asked.
    for _ in 0..4 {
        checks
            .recv_timeout(std::time::Duration::from_secs(20))
            .expect("it is checked");
    }
    assert_eq!(app.metric(&addresses("unhealthy")).await, 0.0);
}

#[tokio::test]
async fn an_address_that_is_not_well_by_its_checks_gets_nothing_until_it_is() {
    let well = "location = /healthz { try_files /well =503; } location / { return 200 ";
    let [one, two] = ["a", "b"].map(|name| Nginx::start_with("", &format!("{well} '{name}'; }}")));
    fs::write(one.folder().join("well"), "").expect("written");
    let check = ", health_check: {path: /healthz, interval: 100ms}";
    let app = in_front_of(&[&one, &two], check);

    app.metric_becomes(&addresses("unhealthy"), 1.0).await;
    assert_eq!(
        answers(&app, 4).await,
        BTreeMap::from([("a".to_owned(), 4)])
    );
    fs::write(two.folder().join("well"), "").expect("written");
    app.metric_becomes(&addresses("in_rotation"), 2.0).await;
    assert_eq!(answers(&app, 4).await.len(), 2);

    fs::remove_file(one.folder().join("well")).expect("removed");
    fs::remove_file(two.folder().join("well")).expect("removed");
    app.metric_becomes(&addresses("unhealthy"), 2.0).await;
    assert_eq!(answers(&app, 4).await.len(), 2, "both are better than none");
}

#[tokio::test]
async fn a_check_without_a_path_connects() {
    let [one, mut two] = ["a", "b"].map(Nginx::named);
    let app = in_front_of(&[&one, &two], ", health_check: {interval: 100ms}");
    two.kill();
    app.metric_becomes(&addresses("unhealthy"), 1.0).await;
    two.restart();
    app.metric_becomes(&addresses("in_rotation"), 2.0).await;
}

#[tokio::test]
async fn an_upstream_may_be_at_a_unix_socket() {
    let nginx = Nginx::named("by a socket");
    let socket = nginx.folder().join("socket");
    let app = App::start(&format!(
        "upstream: {{address: \"unix:{}\", health_check: {{path: /, interval: 100ms, unhealthy_after: 1}}}}\n{POLICIES}",
        socket.display()
    ));
    assert_eq!(answers(&app, 3).await["by a socket"], 3);
    fs::remove_file(&socket).expect("removed");
    app.metric_becomes(&addresses("unhealthy"), 1.0).await;
}

/// Three upstreams, and routes to them; further lines come behind.
fn routed(nginxes: &[Nginx; 3]) -> String {
    let [api, web, assets] = nginxes.each_ref().map(|nginx| nginx.address);
    format!(
        "upstreams: {{api: {{address: \"{api}\"}}, web: {{address: \"{web}\"}}, assets: {{address: \"{assets}\"}}}}\n\
         routes:\n\
         - {{host: api.example.com, path: /v1/**, upstream: api}}\n\
         - {{host: [www.example.com, \"*.example.org\"], path: [/static/**, /favicon.ico], upstream: assets}}\n\
         - {{host: [www.example.com, \"*.example.org\"], upstream: web}}\n{POLICIES}"
    )
}

#[tokio::test]
async fn requests_go_where_the_first_route_that_is_for_them_leads() {
    let nginxes = ["api", "web", "assets"].map(Nginx::named);
    let app = App::start(&routed(&nginxes));
    for (host, path, upstream) in [
        ("api.example.com", "/v1", "api"),
        ("API.example.com.:80", "//v1/users?x=/static", "api"),
        ("www.example.com", "/v1/users", "web"),
        ("www.example.com", "/static/app.js", "assets"),
        ("shop.example.org", "/%73tatic/app.js", "assets"),
        ("shop.example.org", "/favicon.ico/", "assets"),
        ("shop.example.org", "/staticx", "web"),
    ] {
        let answer = get(&app, host, path).await;
        assert_eq!(answer, (200, upstream.to_owned()), "{host}{path}");
    }
    app.metric_becomes(&outcome("api", "answered"), 2.0).await;
}

#[tokio::test]
async fn a_request_for_which_there_is_no_route_is_counted_and_answered_404() {
    let nginxes = ["api", "web", "assets"].map(Nginx::named);
    let app = App::start(&routed(&nginxes));
    for (number, (host, path)) in [("api.example.com", "/v2"), ("example.net", "/v1")]
        .into_iter()
        .enumerate()
    {
        let request = reqwest::Client::new()
            .get(app.url(path))
            .header("host", host);
        let response = request.send().await.expect("a response");
        assert_eq!(response.status(), 404);
        let remaining = &response.headers()["x-ratelimit-remaining"];
        assert_eq!(remaining, &(99_999 - number).to_string());
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        let body = response.text().await.expect("a body");
        assert!(body.contains("\"status\":404"), "{body}");
    }
}

/// Whatever an upstream makes of the path, no other upstream than the one that the limits were chosen for gets it.
#[tokio::test]
async fn a_path_that_leads_elsewhere_by_another_reading_is_answered_400() {
    let nginxes = ["api", "web", "assets"].map(Nginx::named);
    let app = App::start(&routed(&nginxes));
    for path in [
        "/static/../admin",
        "/static/%2e%2e/admin",
        "/static%2f../admin",
    ] {
        let answer = Wire::open(app.proxy)
            .send(format!("GET {path} HTTP/1.1\r\nHost: www.example.com\r\n\r\n").as_bytes())
            .response();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{path}: {answer}");
    }
    let answer = Wire::open(app.proxy)
        .send(b"GET /static/a/../b HTTP/1.1\r\nHost: www.example.com\r\n\r\n")
        .response();
    assert!(answer.ends_with("assets"), "{answer}");
}

#[tokio::test]
async fn upstreams_and_routes_change_with_a_reload_and_what_stays_the_same_goes_on() {
    let nginxes = ["api", "web", "assets"].map(Nginx::named);
    let [api, web, _] = nginxes.each_ref().map(|nginx| nginx.address);
    let app = App::start(&routed(&nginxes));
    assert_eq!(get(&app, "www.example.com", "/static/").await.1, "assets");
    assert_eq!(get(&app, "www.example.com", "/").await.1, "web");
    app.reload(&format!(
        "upstreams: {{api: {{address: \"{api}\"}}, web: {{address: \"{web}\", idle_timeout: 1s}}}}\n\
         routes: [{{path: /static/**, upstream: api}}, {{upstream: web}}]\n{POLICIES}"
    ))
    .await;
    assert_eq!(get(&app, "www.example.com", "/static/").await.1, "api");
    assert_eq!(get(&app, "example.net", "/").await.1, "web");
    app.metric_becomes(&outcome("web", "answered"), 2.0).await;
    let told = app.metrics().await;
    assert!(!told.contains("upstream=\"assets\""), "{told}");
    let ready = reqwest::get(format!("http://{}/readyz", app.metrics)).await;
    let ready = ready.expect("a response").text().await.expect("a text");
    assert!(!ready.contains("restart"), "{ready}");
}

#[tokio::test]
async fn readyz_tells_how_many_addresses_are_in_rotation_and_stays_ready() {
    let nginx = Nginx::named("a");
    let gone = Nobody::new();
    let app = App::start(&format!(
        "upstream: {{addresses: [\"{}\", \"{}\"], eject: {{after: 1, for: 1h}}}}\n{POLICIES}",
        gone.address, nginx.address
    ));
    answers(&app, 4).await;
    app.metric_becomes(&addresses("ejected"), 1.0).await;
    let ready = reqwest::get(format!("http://{}/readyz", app.metrics)).await;
    let ready = ready.expect("a response");
    assert_eq!(ready.status(), 200);
    let told = ready.text().await.expect("a text");
    assert!(
        told.contains("\nupstream default: 1 of 2 addresses in rotation\n"),
        "{told}"
    );
}

/// Requests may still be on their way to the one before, for hours if it is a WebSocket's.
#[tokio::test]
async fn what_is_told_of_an_upstream_is_of_the_one_in_force() {
    let (slow, gone, mut nginx) = (Upstream::start(), Nobody::new(), Nginx::named("a"));
    let yaml = |addresses: &str, check: &str| {
        format!("upstream: {{addresses: [{addresses}], health_check: {{{check}}}}}\n{POLICIES}")
    };
    let both = format!("\"{}\", \"{}\"", slow.address, nginx.address);
    let app = App::start(&yaml(&both, "interval: 100ms, unhealthy_after: 1"));
    let clients = [(); 2].map(|()| tokio::spawn(reqwest::get(app.url("/slow/60000"))));
    eventually("one is on its way", async || !slow.seen().is_empty()).await;
    let alone = format!("\"{}\"", gone.address);
    app.reload(&yaml(&alone, "interval: 1h, unhealthy_after: 1"))
        .await;
    app.metric_becomes(&addresses("unhealthy"), 1.0).await;

    // The one before would have found out by the time that this one has.
    let patient = yaml(&both, "interval: 100ms, unhealthy_after: 4");
    let patient = App::start(&patient);
    nginx.kill();
    patient.metric_becomes(&addresses("unhealthy"), 1.0).await;
    assert_eq!(app.metric(&addresses("in_rotation")).await, 0.0);
    assert!(clients.iter().any(|client| !client.is_finished()));
    for client in clients {
        client.abort();
    }
}

#[tokio::test]
async fn guesses_at_routes_can_be_counted_alone() {
    let nginx = Nginx::named("a");
    let app = App::start(&format!(
        "upstreams: {{a: {{address: \"{}\"}}}}\nroutes: [{{path: /known/**, upstream: a}}]\n\
         policies: [{{name: guesses, limits: [2/366d], charge_on: [404]}}]",
        nginx.address
    ));
    for (path, status) in [
        ("/known/1", 200),
        ("/guess/1", 404),
        ("/known/2", 200),
        ("/guess/2", 404),
        ("/guess/3", 429),
        ("/known/3", 429),
    ] {
        assert_eq!(get(&app, "x", path).await.0, status, "{path}");
    }
}

/// Else whoever sends them could empty the rotation.
#[tokio::test]
async fn requests_that_can_not_be_sent_on_are_no_failure_of_an_address() {
    let (one, two) = (Upstream::start(), Upstream::start());
    let h2 = [(); 2].map(|()| Nginx::start_with("http2", "location / { return 200; }"));
    let app = App::start(&format!(
        "upstreams: {{default: {{addresses: [\"{}\", \"{}\"]}}, h2: {{addresses: [\"{}\", \"{}\"], http: 2}}}}\n\
         routes: [{{path: /h2, upstream: h2}}, {{upstream: default}}]\n{POLICIES}",
        one.address, two.address, h2[0].address, h2[1].address
    ));
    for path in ["/", "/h2"] {
        for fields in [
            "Host: x\r\nConnection: X-Forwarded-For",
            "Host: x\r\nConnection: Host",
            "Host: a@b",
            "Host: a b",
            "Host: x\r\nTransfer-Encoding: gzip",
            "Host: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "Host: x\r\nUpgrade: h2c\r\nConnection: Upgrade",
            "Host: x\r\nTE: gzip",
        ] {
            for _ in 0..8 {
                let answer = Wire::open(app.proxy)
                    .send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n0\r\n\r\n").as_bytes())
                    .response();
                let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
                assert!(!status.starts_with('5'), "{path} {fields}: {answer}");
            }
            for upstream in ["default", "h2"] {
                let series =
                    format!("slidegate_upstream_ejections_total{{upstream=\"{upstream}\"}}");
                assert_eq!(app.metric(&series).await, 0.0, "{path} {fields}");
            }
        }
    }
}
