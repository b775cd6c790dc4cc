//! Passwords: where they come from, that a rotated one is found without a restart, and that none is shown.

use std::{fs, time::Duration};

use slidegate::{
    clock::Clock,
    store::{At, RedisStore, Store, StoreError},
};

use crate::support::{demand::*, redis::*, sentinel::Sentinel, trace::Trace};

async fn decides(store: &Store) {
    eventually("a decision", async || {
        let reply = take_group(store, &[demand("p", 1, "1000/366d")], At::Now).await;
        reply.is_ok()
    })
    .await;
}

fn run(client: &mut redis::Connection, command: &str) {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().expect("a command"));
    for word in words {
        command.arg(word);
    }
    command.exec(client).expect("OK");
}

fn end_connections(client: &mut redis::Connection) {
    run(client, "CLIENT KILL TYPE normal SKIPME yes");
}

#[tokio::test]
async fn a_password_that_was_rotated_in_its_file_is_found_without_a_restart() {
    let server = RedisServer::start_with(&["--requirepass", "first"]);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().display();
    let mut client =
        redis::Client::open(server.unix_url().replace("unix:", "unix://") + "?pass=first")
            .and_then(|client| client.get_connection())
            .expect("the server answers");
    fs::write(file.path(), "first\n").expect("written");
    let store = configured_store(&format!(
        "{{url: '{}', password_file: {path}}}",
        server.url()
    ));
    decides(&store).await;

    for password in ["second", "third/@:#%"] {
        run(&mut client, &format!("CONFIG SET requirepass {password}"));
        // What is connected stays so, whatever the file says.
        decides(&store).await;
        end_connections(&mut client);
        eventually("the loss is noticed", async || store.health().tripped).await;
        let reply = take_group(&store, &[demand("p", 1, "9/366d")], At::Now).await;
        assert_eq!(reply, Err(StoreError::Disconnected), "the file is behind");
        fs::write(file.path(), password).expect("written");
        decides(&store).await;
    }
}

#[tokio::test]
async fn the_password_of_a_user_comes_from_a_file_over_a_socket_too() {
    let server = RedisServer::start();
    let mut client = server.client();
    run(&mut client, "ACL SETUSER slidegate on >first ~rl:* +@all");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().display();
    fs::write(file.path(), "first").expect("written");
    let socket = server.unix_url().replace("unix:", "unix://");
    let urls = [
        server.url().replace("//", "//slidegate@"),
        format!("{socket}?user=slidegate"),
    ];
    let stores =
        urls.map(|url| configured_store(&format!("{{url: '{url}', password_file: {path}}}")));
    for store in &stores {
        decides(store).await;
    }
    run(&mut client, "ACL SETUSER slidegate resetpass >second");
    fs::write(file.path(), "second").expect("written");
    end_connections(&mut client);
    // The old connections are gone, so whatever decides is a new one.
    for store in &stores {
        decides(store).await;
    }
}

#[tokio::test]
async fn a_password_beside_the_url_needs_no_escapes() {
    let server = RedisServer::start_with(&["--requirepass", "a/b@c:d#e%41"]);
    let url = server.url();
    let store = configured_store(&format!("{{url: '{url}', password: 'a/b@c:d#e%41'}}"));
    decides(&store).await;
}

#[tokio::test]
async fn sentinels_have_a_user_and_a_password_of_their_own_with_the_rights_that_are_told() {
    let server = RedisServer::start_with(&["--requirepass", "ours"]);
    let rights = "+hello +auth +sentinel|get-master-addr-by-name";
    let document = include_str!("../docs/redis.md");
    assert!(document.contains(rights), "it tells these rights");
    let lines = format!("user default off\nuser watcher on >theirs {rights}");
    let sentinel = Sentinel::start(server.port(), 1, &lines);
    let section = |password: &str| {
        format!(
            "{{url: 'redis://:ours@mymaster', sentinel: {{addresses: ['{}'], user: watcher, \
             password: {password}}}}}",
            sentinel.address()
        )
    };
    decides(&configured_store(&section("theirs"))).await;

    let trace = Trace::start();
    let _wrong = configured_store(&section("hunter2"));
    eventually("it is refused", async || trace.text().contains("WRONGPASS")).await;
    assert!(!trace.text().contains("hunter2"), "{}", trace.text());
}

#[tokio::test]
async fn a_password_of_its_own_key_or_file_is_never_shown() {
    const PASSWORD: &str = "hunter2";
    let trace = Trace::start();
    let server = RedisServer::start_with(&["--requirepass", "another"]);
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), PASSWORD).expect("written");
    let url = server.url();
    let passwords = [
        format!("password: {PASSWORD}"),
        format!("password_file: {}", file.path().display()),
    ];
    let mut shown = Vec::new();
    for (place, password) in passwords.iter().enumerate() {
        let settings = settings(&format!(
            "{{url: '{url}', {password}, budget: 10s, namespace: n{place}}}"
        ));
        assert_eq!(settings.budget, Duration::from_secs(10));
        shown.push(format!("{settings:?}"));
        let runtime = tokio::runtime::Handle::current();
        let store = Store::Redis(RedisStore::open(settings, Clock::system(), &runtime));
        let error = take_group(&store, &[demand("p", 1, "9/1m")], At::Now)
            .await
            .expect_err("no way in");
        shown.push(format!("{error} {error:?} {store:?}"));
    }
    shown.push(trace.text());
    let shown = shown.join("\n");
    assert!(
        shown.contains("WRONGPASS"),
        "what is wrong is told: {shown}"
    );
    assert!(!shown.contains(PASSWORD), "{shown}");
}
