//! A network that loses what is said to Redis, and names that lead elsewhere: no request is lost by it, and
//! Redis decides again without a restart.
//!
//! Each of these tests has a network of its own.

use crate::support::{
    name_server::NameServer,
    namespace::{BlackHole, in_a_namespace},
    redis::{RedisServer, eventually},
    under_requests::{SILENT, UnderRequests},
};

#[test]
fn a_connection_whose_calls_are_lost_is_given_up_and_redis_decides_again_once_it_is_reached() {
    in_a_namespace(async {
        let server = RedisServer::start();
        let mut slidegate = UnderRequests::start(&server.url());
        for _ in 0..2 {
            slidegate.redis_decides().await;
            let hole = BlackHole::to(server.port());
            slidegate.gives_up().await;
            hole.lift();
        }
        slidegate.redis_decides().await;
        slidegate.each_was_counted_once(&server).await;
    });
}

#[test]
fn a_connection_whose_answers_are_lost_is_given_up_and_what_redis_counted_is_counted_once() {
    in_a_namespace(async {
        let server = RedisServer::start();
        let mut slidegate = UnderRequests::start(&server.url());
        for _ in 0..2 {
            slidegate.redis_decides().await;
            let hole = BlackHole::from(server.port());
            slidegate.gives_up().await;
            hole.lift();
        }
        slidegate.redis_decides().await;
        let undecided = slidegate.each_was_counted_once(&server).await;
        assert!(undecided > 0, "no call was heard");
    });
}

#[test]
fn a_redis_that_is_out_of_reach_at_start_costs_no_request_and_decides_once_it_is_reached() {
    in_a_namespace(async {
        let server = RedisServer::start();
        let hole = BlackHole::to(server.port());
        let mut slidegate = UnderRequests::start(&server.url());
        slidegate.trips(SILENT).await;
        hole.lift();
        slidegate.redis_decides().await;
        slidegate.each_was_counted_once(&server).await;
    });
}

#[test]
fn a_redis_that_is_out_of_reach_when_it_is_connected_to_again_costs_no_request_and_heals() {
    in_a_namespace(async {
        let mut server = RedisServer::start();
        let mut slidegate = UnderRequests::start(&server.url());
        slidegate.redis_decides().await;
        server.kill();
        slidegate.trips("Connection refused").await;
        let hole = BlackHole::to(server.port());
        server.restart();
        slidegate.trips(SILENT).await;
        hole.lift();
        slidegate.redis_decides().await;
    });
}

#[test]
fn a_name_that_nobody_knows_at_start_is_found_and_followed_to_each_new_address() {
    in_a_namespace(async {
        let names = NameServer::start();
        let mut slidegate = UnderRequests::start(&url());
        slidegate.trips("failed to lookup address").await;
        for address in ["127.0.0.2", "127.0.0.3", "127.0.0.2"] {
            let server = at(address);
            names.tell(address);
            slidegate.redis_decides().await;
            let counters: u64 = redis::cmd("DBSIZE")
                .query(&mut server.client())
                .expect("a number");
            assert_eq!(counters, 1, "this one decided");
        }
    });
}

#[test]
fn a_name_server_that_is_silent_costs_no_request_and_is_listened_to_when_it_speaks_again() {
    in_a_namespace(async {
        let names = NameServer::start();
        names.tell("127.0.0.2");
        let mut server = at("127.0.0.2");
        let mut slidegate = UnderRequests::start(&url());
        slidegate.redis_decides().await;
        names.pause();
        server.kill();
        slidegate.trips(SILENT).await;
        names.resume();
        server.restart();
        slidegate.redis_decides().await;
    });
}

#[test]
fn a_name_server_that_is_silent_does_not_hold_up_the_end() {
    in_a_namespace(async {
        let names = NameServer::start();
        names.pause();
        let mut slidegate = UnderRequests::start(&url());
        slidegate.trips(SILENT).await;
        slidegate.clients_end();
        slidegate.binary.signal("TERM");
        eventually("it ends", async || slidegate.binary.has_ended()).await;
    });
}

fn url() -> String {
    format!("redis://{}:6379", NameServer::NAME)
}

/// A Redis at this address of this network.
fn at(address: &str) -> RedisServer {
    RedisServer::start_with(&["--bind", address, "--port", "6379"])
}
