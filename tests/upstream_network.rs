//! Names that lead to several upstreams, and machines that go without a word.
//!
//! Each of these tests has a network of its own.

use crate::support::{
    app::App,
    name_server::NameServer,
    namespace::{BlackHole, in_a_namespace},
    redis::eventually,
    upstream::Upstream,
};

const POLICIES: &str =
    "policies: [{name: per-key, identifier: [header:x-api-key], limits: [100000/1h]}]\n";

async fn is_answered(app: &App) -> bool {
    let response = reqwest::get(app.url("/")).await.expect("a response");
    response.status() == 200
}

/// How many of ten requests each got; all are answered.
async fn shares<const MANY: usize>(app: &App, upstreams: [&Upstream; MANY]) -> [usize; MANY] {
    let before = upstreams.map(|upstream| upstream.seen().len());
    for _ in 0..10 {
        assert!(is_answered(app).await);
    }
    let after = upstreams.map(|upstream| upstream.seen().len());
    std::array::from_fn(|place| after[place] - before[place])
}

#[test]
fn all_addresses_of_a_name_get_requests_and_those_that_it_leads_to_no_more_none() {
    in_a_namespace(async {
        let names = NameServer::start();
        let [one, two, three] =
            ["127.0.0.2:80", "127.0.0.3:80", "127.0.0.4:80"].map(Upstream::start_at);
        names.tell_all(&["127.0.0.2", "127.0.0.3"]);
        let app = App::start(&format!(
            "upstream: {{address: \"{}:80\", resolve_interval: 100ms}}\n{POLICIES}",
            NameServer::NAME
        ));
        eventually("both are found", async || {
            app.metrics()
                .await
                .contains("{state=\"in_rotation\",upstream=\"default\"} 2")
        })
        .await;
        assert_eq!(shares(&app, [&one, &two, &three]).await, [5, 5, 0]);

        names.tell_all(&["127.0.0.3", "127.0.0.4"]);
        eventually("the new one is found", async || {
            assert!(is_answered(&app).await);
            !three.seen().is_empty()
        })
        .await;
        assert_eq!(shares(&app, [&one, &two, &three]).await, [0, 5, 5]);

        // A name server that knows nothing any more changes nothing.
        names.tell_all(&[]);
        names.pause();
        assert_eq!(shares(&app, [&one, &two, &three]).await, [0, 5, 5]);
    });
}

#[test]
fn a_machine_that_is_gone_without_a_word_costs_no_request_that_finds_no_connection() {
    in_a_namespace(async {
        let [one, two] = ["127.0.0.2:3001", "127.0.0.3:3002"].map(Upstream::start_at);
        let hole = BlackHole::to(3002);
        let app = App::start(&format!(
            "upstream: {{addresses: [\"{}\", \"{}\"], connect_timeout: 500ms, eject: {{for: 100ms}}}}\n{POLICIES}",
            one.address, two.address
        ));
        let ejected = "slidegate_upstream_addresses{state=\"ejected\",upstream=\"default\"}";
        eventually("it is left out", async || {
            assert!(is_answered(&app).await);
            app.metric(ejected).await == 1.0
        })
        .await;
        assert_eq!(two.seen().len(), 0);
        hole.lift();
        eventually("it is back", async || {
            assert!(is_answered(&app).await);
            app.metric(ejected).await == 0.0
        })
        .await;
        assert_eq!(shares(&app, [&one, &two]).await, [5, 5]);
    });
}
