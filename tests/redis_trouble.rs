//! A Redis that is killed, or answers and says no: it is paused, busy, full, loading, a replica, or keeps the
//! proxy out. What each trouble costs requests, and that it heals without a restart of the proxy.
//!
//! All of it is real, and happens under requests through the binary.

use std::{fs, path::Path, thread};

use crate::support::{
    redis::RedisServer,
    under_requests::{SILENT, UnderRequests},
};

/// The user that `lua/README.md` tells to make.
const USER: &str = "slidegate:password@";

const NOBODY: &str = "";

const END_CONNECTIONS: &str = "CLIENT KILL TYPE normal SKIPME yes";

/// What a server needs to answer while it loads, and to load more slowly than anybody waits.
const LOADS_IN_STEPS: [&str; 4] = [
    "--loading-process-events-interval-bytes",
    "1024",
    "--rdbcompression",
    "no",
];

#[tokio::test]
async fn a_server_that_is_killed_under_load_costs_no_request_and_decides_again_when_it_is_started()
{
    let mut server = RedisServer::start();
    let mut slidegate = UnderRequests::start(&server.url());
    for _ in 0..3 {
        slidegate.redis_decides().await;
        server.kill();
        slidegate.trips("Connection refused").await;
        server.restart();
    }
    slidegate.redis_decides().await;
}

#[tokio::test]
async fn a_replica_is_left_alone_until_it_takes_writes() {
    let begin = ["REPLICAOF 127.0.0.1 1"];
    trips_and_heals(USER, &begin, "READONLY", "REPLICAOF NO ONE").await;
}

#[tokio::test]
async fn a_replica_that_does_not_show_what_it_holds_is_left_alone_until_it_takes_writes() {
    let begin = [
        "CONFIG SET replica-serve-stale-data no",
        "REPLICAOF 127.0.0.1 1",
    ];
    trips_and_heals(USER, &begin, "MASTERDOWN", "REPLICAOF NO ONE").await;
}

#[tokio::test]
async fn a_primary_without_its_replicas_is_left_alone_until_it_takes_writes() {
    let begin = ["CONFIG SET min-replicas-to-write 1"];
    let end = "CONFIG SET min-replicas-to-write 0";
    trips_and_heals(USER, &begin, "NOREPLICAS", end).await;
}

#[tokio::test]
async fn a_server_whose_writes_are_paused_is_left_alone_until_they_go_on() {
    let begin = ["CLIENT PAUSE 3600000 WRITE"];
    trips_and_heals(USER, &begin, SILENT, "CLIENT UNPAUSE").await;
}

#[tokio::test]
async fn a_server_that_wants_a_password_that_was_not_configured_is_asked_again_when_it_does_not() {
    let begin = ["CONFIG SET requirepass theirs", END_CONNECTIONS];
    trips_and_heals(NOBODY, &begin, "NOAUTH", "CONFIG SET requirepass ").await;
}

#[tokio::test]
async fn a_password_that_is_refused_is_tried_again_until_it_is_right() {
    let begin = ["ACL SETUSER slidegate resetpass >theirs", END_CONNECTIONS];
    let end = "ACL SETUSER slidegate resetpass >password";
    trips_and_heals(USER, &begin, "WRONGPASS", end).await;
}

#[tokio::test]
async fn a_user_that_is_switched_off_is_tried_again_until_it_is_on() {
    let begin = ["ACL SETUSER slidegate off", END_CONNECTIONS];
    trips_and_heals(USER, &begin, "WRONGPASS", "ACL SETUSER slidegate on").await;
}

#[tokio::test]
async fn a_connection_without_the_right_to_load_scripts_is_tried_again_until_it_is_granted() {
    let begin = ["ACL SETUSER slidegate -script|load", END_CONNECTIONS];
    let end = "ACL SETUSER slidegate +script|load";
    trips_and_heals(USER, &begin, "NOPERM", end).await;
}

/// It says so at once, and says it of single calls: the breaker is not for that.
#[tokio::test]
async fn a_right_that_is_withdrawn_in_the_middle_of_work_is_told_and_charges_nothing_until_it_is_back()
 {
    let server = RedisServer::start();
    let (mut client, mut slidegate) = (server.client(), begin_as(USER, &server));
    for (withdraw, grant) in [
        ("-evalsha", "+evalsha"),
        ("-time", "+time"),
        ("-get", "+get"),
        ("-incrby", "+incrby"),
        ("resetkeys", "~rl:*"),
    ] {
        slidegate.redis_decides().await;
        run(&mut client, &format!("ACL SETUSER slidegate {withdraw}"));
        slidegate.is_refused("the store refused").await;
        run(&mut client, &format!("ACL SETUSER slidegate {grant}"));
    }
    slidegate.redis_decides().await;
    slidegate.each_was_counted_once(&server).await;
}

/// It still reads, so what it denies is denied: the breaker is not for that.
#[tokio::test]
async fn a_full_server_is_told_and_charges_nothing_until_it_has_room() {
    let server = RedisServer::start();
    let (mut client, mut slidegate) = (server.client(), begin_as(USER, &server));
    for _ in 0..2 {
        slidegate.redis_decides().await;
        run(&mut client, "CONFIG SET maxmemory 1");
        slidegate.is_refused("OOM").await;
        run(&mut client, "CONFIG SET maxmemory 0");
    }
    slidegate.redis_decides().await;
    slidegate.each_was_counted_once(&server).await;
}

#[tokio::test]
async fn a_server_that_can_not_save_is_left_alone_until_it_can() {
    let server = RedisServer::start();
    let (mut client, mut slidegate) = (server.client(), begin_as(USER, &server));
    let mut save = redis::cmd("CONFIG");
    save.arg("SET").arg("save").arg("3600 100000000");
    save.exec(&mut client).expect("OK");
    let (_, directory): (String, String) =
        words("CONFIG GET dir").query(&mut client).expect("a place");
    let in_its_place = Path::new(&directory).join("dump.rdb");
    for _ in 0..2 {
        slidegate.redis_decides().await;
        // The first time there is none yet.
        let _ = fs::remove_file(&in_its_place);
        fs::create_dir(&in_its_place).expect("created");
        run(&mut client, "BGSAVE");
        slidegate.trips("MISCONF").await;
        fs::remove_dir(&in_its_place).expect("removed");
        run(&mut client, "BGSAVE");
    }
    slidegate.redis_decides().await;
    slidegate.each_was_counted_once(&server).await;
}

#[tokio::test]
async fn a_server_that_loads_in_the_middle_of_work_is_left_alone_until_it_has() {
    let options = [&LOADS_IN_STEPS[..], &["--enable-debug-command", "yes"]].concat();
    let server = RedisServer::start_with(&options);
    let (mut client, mut slidegate) = (server.client(), begin_as(USER, &server));
    fill(&mut client);
    for _ in 0..2 {
        slidegate.redis_decides().await;
        run(&mut client, "CONFIG SET key-load-delay 50000");
        let reload = run_meanwhile(&server, words("DEBUG RELOAD"));
        slidegate.trips("LOADING").await;
        run(&mut client, "CONFIG SET key-load-delay 0");
        reload.join().expect("no panic").expect("it has loaded");
    }
    slidegate.redis_decides().await;
    slidegate.each_was_counted_once(&server).await;
}

#[tokio::test]
async fn a_server_that_comes_back_loading_decides_as_soon_as_it_has() {
    let options = [&LOADS_IN_STEPS[..], &["--key-load-delay", "50000"]].concat();
    let mut server = RedisServer::start_with(&options);
    let mut slidegate = UnderRequests::start(&server.url());
    fill(&mut server.client());
    slidegate.redis_decides().await;
    run(&mut server.client(), "SAVE");
    server.restart();
    slidegate.trips("LOADING").await;
    run(&mut server.client(), "CONFIG SET key-load-delay 0");
    slidegate.redis_decides().await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_of_others_is_left_alone_until_it_is_killed() {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "5"]);
    let (mut client, mut slidegate) = (server.client(), begin_as(USER, &server));
    for _ in 0..2 {
        slidegate.redis_decides().await;
        let mut endless = redis::cmd("EVAL");
        endless.arg("while true do end").arg(0);
        let script = run_meanwhile(&server, endless);
        slidegate.trips("BUSY").await;
        run(&mut client, "SCRIPT KILL");
        script.join().expect("no panic").expect_err("it was killed");
    }
    slidegate.redis_decides().await;
    slidegate.each_was_counted_once(&server).await;
}

/// Redis decides; the trouble begins, the log has Redis's word for it, no request asks it; the trouble ends,
/// Redis decides, and has counted each request once.
async fn trips_and_heals(login: &str, begin: &[&str], told: &str, end: &str) {
    let server = RedisServer::start();
    let (mut client, mut slidegate) = (server.client(), begin_as(login, &server));
    for _ in 0..2 {
        slidegate.redis_decides().await;
        begin.iter().for_each(|command| run(&mut client, command));
        slidegate.trips(told).await;
        run(&mut client, end);
    }
    slidegate.redis_decides().await;
    slidegate.each_was_counted_once(&server).await;
}

/// Starts slidegate as this user, which is made.
fn begin_as(login: &str, server: &RedisServer) -> UnderRequests {
    let readme = include_str!("../lua/README.md");
    let user = readme.lines().find(|line| line.contains("ACL SETUSER"));
    run(&mut server.client(), user.expect("the line").trim());
    UnderRequests::start(&server.url().replace("//", &format!("//{login}")))
}

/// So much that loading takes a minute, at 50 ms for each key.
fn fill(client: &mut redis::Connection) {
    let mut fill = redis::cmd("EVAL");
    fill.arg("for i = 1, 1200 do redis.call('SET', i, string.rep('x', 2000)) end");
    fill.arg(0).exec(client).expect("OK");
}

fn run(client: &mut redis::Connection, command: &str) {
    let done = words(command).exec(client);
    done.unwrap_or_else(|error| panic!("{command}: {error}"));
}

/// Runs what Redis is long in answering.
fn run_meanwhile(
    server: &RedisServer,
    command: redis::Cmd,
) -> thread::JoinHandle<redis::RedisResult<()>> {
    let mut client = server.client();
    thread::spawn(move || command.exec(&mut client))
}

/// A command of words without blanks in them.
fn words(command: &str) -> redis::Cmd {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().expect("a command"));
    for word in words {
        command.arg(word);
    }
    command
}
