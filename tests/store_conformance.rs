//! What every store promises, run over each of them.
//!
//! Time is given ([`At::Stamp`]), so that every promise is about exact moments.

use std::time::Duration;

use slidegate::{
    clock::Clock,
    ratelimit::{Algorithm, Decision, Timestamp, Wait},
    store::{At, Demand, GiveBack, MemorySettings, MemoryStore, Store},
};

use crate::support::{cluster::Cluster, demand::*, redis::RedisServer};

/// Runs each promise over each store; over a cluster those whose groups are of one policy and identifier.
macro_rules! conformance {
    (
        of_one { $($promise:ident)* }
        across { $($across:ident)* }
    ) => {
        mod redis {
            conformance!(@over [super::RedisServer::start()] $($promise)* $($across)*);
        }

        mod cluster {
            conformance!(@over [super::Cluster::of_one().await] $($promise)*);
        }

        mod memory {
            conformance!(@over [super::Memory] $($promise)* $($across)*);
        }
    };
    (@over [$server:expr] $($promise:ident)*) => {
        $(
            #[tokio::test]
            async fn $promise() {
                let server = $server;
                super::$promise(&server.store()).await;
            }
        )*
    };
}

/// This process's.
struct Memory;

impl Memory {
    fn store(&self) -> Store {
        let settings = MemorySettings {
            max_counters: 1_000,
        };
        Store::Memory(MemoryStore::new(settings, Clock::system()))
    }
}

conformance! {
    of_one {
        a_fresh_identifier_has_its_whole_quota_and_counts_from_the_first_unit
        groups_of_one_call_are_decided_and_charged_each_on_its_own
        a_denied_request_charges_nothing
        a_charge_is_made_whatever_the_counts_say
        a_cost_is_admitted_if_all_of_it_fits
        a_quota_of_0_and_a_cost_above_the_quota_are_never_admitted
        the_last_moment_of_a_window_counts_in_it_and_the_next_one_in_the_next
        the_previous_window_weighs_by_what_the_trailing_window_covers
        a_fixed_window_counts_nothing_of_the_one_before
        a_limit_keeps_its_counter_when_its_algorithm_changes
        a_log_counts_each_unit_for_a_window_and_no_longer
        a_log_tells_the_moment_at_which_a_cost_fits_and_the_one_of_the_next_unit
        a_log_charged_beyond_its_quota_waits_for_the_newest_units
        a_log_charged_far_beyond_its_quota_keeps_twice_as_many_units
        a_log_is_asked_without_a_charge
        a_log_above_a_day_counts_in_seconds
        a_log_drops_what_has_left_and_counts_what_comes_later
        a_unit_given_back_to_a_log_is_one_of_the_moment_charged
        a_log_that_is_forgotten_starts_anew_and_others_do_not
        a_log_begins_with_nothing_that_counters_count_and_they_with_nothing_of_it
        a_raised_or_lowered_quota_keeps_the_log
        a_window_two_ago_is_forgotten
        windows_above_a_day_are_counted_in_seconds
        a_client_below_its_rate_is_never_denied
        stamps_that_go_back_are_decided_at_their_own_time
        two_policies_count_one_identifier_apart
        two_windows_of_one_policy_count_apart
        a_raised_or_lowered_quota_keeps_the_counter
        units_are_given_back_in_the_window_charged
        a_forgotten_identifier_starts_anew_and_others_do_not
        the_epochs_first_window_has_no_previous_one
        no_groups_have_no_replies
    }
    across {
        a_request_denied_by_one_limit_is_charged_to_none
        every_demand_of_a_denied_group_tells_its_own_outcome
        a_peek_charges_nothing_and_its_denial_stops_the_group
        a_charge_is_not_made_in_a_group_that_is_denied
        giving_back_never_goes_below_0_and_creates_no_counter
        logs_and_counters_are_charged_together_or_not_at_all
    }
}

/// A moment in window 28,000,000 of 1 m.
fn at(elapsed_ms: u64) -> At {
    At::Stamp(Timestamp::from_millis(28_000_000 * 60_000 + elapsed_ms))
}

async fn a_fresh_identifier_has_its_whole_quota_and_counts_from_the_first_unit(store: &Store) {
    let mut seen = Vec::new();
    for _ in 0..5 {
        let decision = take(store, demand("p", 1, "3/1m"), at(0)).await;
        assert_eq!(decision.charged, decision.allowed);
        assert_eq!(
            At::Stamp(decision.now),
            at(0),
            "the time of the decision is the store's"
        );
        seen.push((
            decision.allowed,
            decision.counts.current,
            decision.remaining(),
        ));
    }
    let expected = [
        (true, 0, 2),
        (true, 1, 1),
        (true, 2, 0),
        (false, 3, 0),
        (false, 3, 0),
    ];
    assert_eq!(seen, expected);
}

async fn a_request_denied_by_one_limit_is_charged_to_none(store: &Store) {
    let (wide, narrow) = (demand("wide", 1, "10/1m"), demand("narrow", 1, "1/1h"));
    for (order, name) in [([wide, narrow], "last"), ([narrow, wide], "first")] {
        take_group(store, &order, at(0)).await.expect(name);
        assert_eq!(
            counts(store, wide, at(0)).await,
            (1, 0),
            "the narrow one {name}"
        );
        assert_eq!(
            counts(store, narrow, at(0)).await,
            (1, 0),
            "the narrow one {name}"
        );
    }
}

async fn every_demand_of_a_denied_group_tells_its_own_outcome(store: &Store) {
    let group = [
        demand("wide", 1, "10/1m"),
        demand("none", 1, "0/1m"),
        demand("last", 1, "1/1m"),
    ];
    let decisions = take_group(store, &group, at(0)).await.expect("a decision");
    let outcomes: Vec<_> = decisions
        .iter()
        .map(|one| (one.allowed, one.charged))
        .collect();
    assert_eq!(outcomes, [(true, false), (false, false), (true, false)]);
}

async fn groups_of_one_call_are_decided_and_charged_each_on_its_own(store: &Store) {
    let (enforced, shadow) = (demand("enforced", 1, "1/1m"), demand("shadow", 1, "2/1m"));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let replies = store
            .take(&[group(&[enforced]), group(&[shadow])], at(0))
            .await;
        let charged = |index: usize| replies[index].as_ref().expect("a decision")[0].charged;
        outcomes.push((charged(0), charged(1)));
    }
    assert_eq!(outcomes, [(true, true), (false, true), (false, false)]);
}

async fn a_denied_request_charges_nothing(store: &Store) {
    for _ in 0..10 {
        take(store, demand("p", 1, "4/1m"), at(0)).await;
    }
    assert_eq!(counts(store, demand("p", 1, "4/1m"), at(0)).await, (4, 0));
}

async fn a_peek_charges_nothing_and_its_denial_stops_the_group(store: &Store) {
    let (asked, taken) = (demand("asked", 1, "1/1m"), demand("taken", 1, "5/1m"));
    let open = take_group(store, &[peek(asked), taken], at(0))
        .await
        .expect("a decision");
    assert!(open[0].allowed && !open[0].charged && open[1].charged);
    assert_eq!(open[0].remaining(), 1, "it is still to be had");

    take(store, asked, at(0)).await;
    let shut = take_group(store, &[peek(asked), taken], at(0))
        .await
        .expect("a decision");
    assert!(!shut[0].allowed && shut[1].allowed && !shut[1].charged);
    assert_eq!(counts(store, taken, at(0)).await, (1, 0));
}

async fn a_charge_is_made_whatever_the_counts_say(store: &Store) {
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let decision = take(store, charge(demand("p", 1, "1/1m")), at(0)).await;
        outcomes.push((decision.counts.current, decision.allowed, decision.charged));
    }
    assert_eq!(
        outcomes,
        [(0, true, true), (1, false, true), (2, false, true)]
    );
}

async fn a_charge_is_not_made_in_a_group_that_is_denied(store: &Store) {
    let charged = charge(demand("charged", 1, "9/1m"));
    let group = [charged, demand("none", 1, "0/1m")];
    take_group(store, &group, at(0)).await.expect("a decision");
    assert_eq!(counts(store, charged, at(0)).await, (0, 0));
}

async fn a_cost_is_admitted_if_all_of_it_fits(store: &Store) {
    let ten = |units| costing(units, demand("p", 1, "10/1m"));
    assert_eq!(take(store, ten(7), at(0)).await.remaining(), 3);
    assert!(!take(store, ten(4), at(0)).await.allowed);
    assert_eq!(take(store, ten(3), at(0)).await.remaining(), 0);
    assert_eq!(counts(store, ten(1), at(0)).await, (10, 0));
}

async fn a_quota_of_0_and_a_cost_above_the_quota_are_never_admitted(store: &Store) {
    for never in [demand("ban", 1, "0/1m"), costing(4, demand("p", 1, "3/1m"))] {
        let decision = take(store, never, at(0)).await;
        assert_eq!(
            (decision.allowed, decision.retry_after()),
            (false, Some(Wait::Never))
        );
        assert_eq!(counts(store, never, at(0)).await, (0, 0));
    }
}

async fn the_last_moment_of_a_window_counts_in_it_and_the_next_one_in_the_next(store: &Store) {
    let one = demand("p", 1, "9/1m");
    take(store, one, at(0)).await;
    take(store, one, at(59_999)).await;
    assert_eq!(counts(store, one, at(59_999)).await, (2, 0));
    assert_eq!(counts(store, one, at(60_000)).await, (0, 2));
    take(store, one, at(60_000)).await;
    assert_eq!(counts(store, one, at(60_000)).await, (1, 2));
    assert_eq!(counts(store, one, at(119_999)).await, (1, 2));
    assert_eq!(counts(store, one, at(120_000)).await, (0, 1));
}

async fn the_previous_window_weighs_by_what_the_trailing_window_covers(store: &Store) {
    let one = demand("p", 1, "1/1m");
    assert!(take(store, one, at(59_900)).await.allowed);
    assert!(
        !take(store, one, at(60_000)).await.allowed,
        "all of it is covered"
    );
    assert!(
        take(store, one, at(60_001)).await.allowed,
        "not quite all of it"
    );
}

async fn a_fixed_window_counts_nothing_of_the_one_before(store: &Store) {
    let two = Demand {
        algorithm: Algorithm::FixedWindow,
        ..demand("p", 1, "2/1m")
    };
    for moment in [59_998, 59_999, 60_000, 60_001] {
        assert!(take(store, two, at(moment)).await.allowed, "{moment}");
    }
    let third = take(store, two, at(60_002)).await;
    assert!(!third.allowed);
    let wait = Duration::from_millis(59_998);
    assert_eq!(third.retry_after(), Some(Wait::For(wait)));
    assert!(take(store, two, at(120_000)).await.allowed);
}

async fn a_limit_keeps_its_counter_when_its_algorithm_changes(store: &Store) {
    let sliding = demand("p", 1, "2/1m");
    let fixed = Demand {
        algorithm: Algorithm::FixedWindow,
        ..sliding
    };
    assert!(take(store, fixed, at(0)).await.allowed);
    assert!(take(store, sliding, at(1)).await.allowed);
    assert!(!take(store, fixed, at(2)).await.allowed);
    assert!(!take(store, sliding, at(60_000)).await.allowed);
    assert!(take(store, fixed, at(60_000)).await.allowed);
}

/// The same demand, by a log.
fn logged(demand: Demand<'_>) -> Demand<'_> {
    Demand {
        algorithm: Algorithm::SlidingLog,
        ..demand
    }
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn a_log_counts_each_unit_for_a_window_and_no_longer(store: &Store) {
    let two = logged(demand("p", 1, "2/1m"));
    let mut seen = Vec::new();
    // Around a turn of the window, which is nothing to it.
    for moment in [59_000, 59_001, 60_000, 118_999, 119_000, 119_000, 119_001] {
        let decision = take(store, two, at(moment)).await;
        assert_eq!(decision.charged, decision.allowed);
        assert_eq!(decision.counts.previous, 0);
        seen.push((
            decision.allowed,
            decision.counts.current,
            decision.remaining(),
        ));
    }
    let expected = [
        (true, 0, 1),
        (true, 1, 0),
        (false, 2, 0),
        (false, 2, 0),
        (true, 1, 0),
        (false, 2, 0),
        (true, 1, 0),
    ];
    assert_eq!(seen, expected);
}

async fn a_log_tells_the_moment_at_which_a_cost_fits_and_the_one_of_the_next_unit(store: &Store) {
    let ten = |units| costing(units, logged(demand("p", 1, "10/1m")));
    let told = |decision: &Decision| (decision.retry_after(), decision.next_unit());
    let reset = |decision: &Decision| decision.reset().since(decision.now);

    let untouched = take(store, peek(ten(1)), at(0)).await;
    assert_eq!(
        (told(&untouched), reset(&untouched)),
        ((None, None), millis(0))
    );
    let first = take(store, ten(2), at(0)).await;
    assert_eq!(told(&first), (None, Some(millis(60_000))));
    assert_eq!(reset(&first), millis(60_000));
    let second = take(store, ten(4), at(1_000)).await;
    assert_eq!(told(&second), (None, Some(millis(59_000))));
    assert_eq!(second.remaining(), 4);

    // Four are free: five fit with the first two gone, and so do six; seven with one of the next four.
    for (cost, wait) in [(5, 57_000), (6, 57_000), (7, 58_000), (10, 58_000)] {
        let denied = take(store, ten(cost), at(3_000)).await;
        let wait = Some(Wait::For(millis(wait)));
        assert_eq!(told(&denied), (wait, Some(millis(57_000))), "{cost}");
        assert_eq!(denied.remaining(), 4);
    }
    let never = take(store, ten(11), at(3_000)).await;
    assert_eq!(never.retry_after(), Some(Wait::Never));
    assert!(!take(store, ten(7), at(60_999)).await.allowed);
    assert!(take(store, ten(7), at(61_000)).await.allowed);
}

async fn a_log_charged_beyond_its_quota_waits_for_the_newest_units(store: &Store) {
    let three = logged(demand("p", 1, "3/1m"));
    for moment in 0..5 {
        let decision = take(store, charge(three), at(moment)).await;
        assert_eq!((decision.allowed, decision.charged), (moment < 3, true));
        assert_eq!(decision.counts.current, moment);
    }
    // Of five, three must leave until another fits; those of the moments 0, 1 and 2.
    let denied = take(store, three, at(10)).await;
    assert_eq!(denied.retry_after(), Some(Wait::For(millis(59_992))));
    assert_eq!(denied.next_unit(), Some(millis(59_992)));
    assert!(!take(store, three, at(60_001)).await.allowed);
    assert!(take(store, three, at(60_002)).await.allowed);
}

async fn a_log_charged_far_beyond_its_quota_keeps_twice_as_many_units(store: &Store) {
    let many = |units| charge(costing(units, logged(demand("p", 1, "3/1m"))));
    take(store, many(2), at(0)).await;
    take(store, many(u32::MAX), at(1)).await;
    assert_eq!(counts(store, many(1), at(1)).await, (6, 0));
    take(store, many(4), at(2)).await;
    assert_eq!(counts(store, many(1), at(2)).await, (6, 0));
    assert_eq!(counts(store, many(1), at(60_001)).await, (4, 0));
    let banned = charge(logged(demand("ban", 1, "0/1m")));
    take(store, banned, at(0)).await;
    assert_eq!(counts(store, banned, at(0)).await, (0, 0));
}

async fn a_log_is_asked_without_a_charge(store: &Store) {
    let one = logged(demand("p", 1, "1/1m"));
    let open = take(store, peek(one), at(0)).await;
    assert_eq!(
        (open.allowed, open.charged, open.remaining()),
        (true, false, 1)
    );
    take(store, one, at(0)).await;
    let shut = take(store, peek(one), at(1)).await;
    assert_eq!((shut.allowed, shut.counts.current), (false, 1));
    assert_eq!(shut.retry_after(), Some(Wait::For(millis(59_999))));
}

async fn logs_and_counters_are_charged_together_or_not_at_all(store: &Store) {
    let (log, counter) = (
        logged(demand("log", 1, "2/1m")),
        demand("counter", 1, "3/1h"),
    );
    let ban = logged(demand("ban", 1, "0/1m"));
    for order in [[log, counter], [counter, log]] {
        take_group(store, &order, at(0)).await.expect("a decision");
        for stopped in [[order[0], order[1], ban], [ban, order[0], order[1]]] {
            let decisions = take_group(store, &stopped, at(1)).await;
            let decisions = decisions.expect("a decision");
            assert!(decisions.iter().all(|decision| !decision.charged));
        }
    }
    assert_eq!(counts(store, log, at(2)).await, (2, 0));
    assert_eq!(counts(store, counter, at(2)).await, (2, 0));
    let denied = take_group(store, &[counter, log], at(2)).await;
    let outcomes = denied.expect("a decision");
    let outcomes = [0, 1].map(|place| (outcomes[place].allowed, outcomes[place].charged));
    assert_eq!(outcomes, [(true, false), (false, false)], "by the log");
    assert_eq!(counts(store, counter, at(2)).await, (2, 0));
    take(store, counter, at(2)).await;
    let denied = take_group(store, &[log, counter], at(60_000)).await;
    assert!(denied.expect("a decision")[0].allowed, "by the counter");
    assert_eq!(counts(store, log, at(60_000)).await, (0, 0));
}

async fn a_log_above_a_day_counts_in_seconds(store: &Store) {
    let one = logged(demand("p", 1, "1/2d"));
    let second = |elapsed: u64, ms: u64| {
        let start = 10_000 * 2 * 86_400;
        At::Stamp(Timestamp::from_millis((start + elapsed) * 1000 + ms))
    };
    let window = 2 * 86_400;
    assert!(take(store, one, second(100, 700)).await.allowed);
    let denied = take(store, one, second(100 + window - 1, 999)).await;
    assert_eq!(denied.retry_after(), Some(Wait::For(millis(1))));
    assert!(take(store, one, second(100 + window, 0)).await.allowed);
}

async fn a_log_drops_what_has_left_and_counts_what_comes_later(store: &Store) {
    let two = logged(demand("p", 1, "2/1m"));
    take(store, two, at(0)).await;
    take(store, two, at(50_000)).await;
    let back = take(store, two, at(20_000)).await;
    assert_eq!(
        (back.allowed, back.counts.current),
        (false, 2),
        "one is later"
    );
    let admitted = take(store, two, at(60_000)).await;
    assert!(admitted.allowed, "the first has left");
    let back = take(store, two, at(20_000)).await;
    assert_eq!(
        (back.allowed, back.counts.current),
        (false, 2),
        "both are later"
    );
    let wait = Some(Wait::For(millis(90_000)));
    assert_eq!(back.retry_after(), wait);
}

async fn a_unit_given_back_to_a_log_is_one_of_the_moment_charged(store: &Store) {
    let (two, other) = (
        costing(2, logged(demand("p", 1, "9/1m"))),
        logged(demand("p", 2, "9/1m")),
    );
    let early = take(store, two, at(0)).await.now;
    take(store, two, at(0)).await;
    let late = take(store, two, at(10_000)).await.now;
    let give_back = |demand, charged_at| GiveBack { demand, charged_at };
    let none = [
        give_back(other, early),
        give_back(two, Timestamp::from_millis(7)),
    ];
    for charged in none {
        store.give_back(&[charged]).await.expect("an answer");
    }
    assert_eq!(counts(store, two, at(10_000)).await, (6, 0));
    store
        .give_back(&[give_back(two, early)])
        .await
        .expect("an answer");
    assert_eq!(counts(store, two, at(10_000)).await, (4, 0));
    assert_eq!(counts(store, two, at(60_000)).await, (2, 0));
    let more = give_back(costing(5, two), late);
    store.give_back(&[more]).await.expect("an answer");
    assert_eq!(counts(store, two, at(60_000)).await, (0, 0));
    take(store, two, at(60_000)).await;
    assert_eq!(counts(store, two, at(60_000)).await, (2, 0), "it counts on");
}

async fn a_log_that_is_forgotten_starts_anew_and_others_do_not(store: &Store) {
    let (one, other) = (
        logged(demand("p", 1, "9/1m")),
        logged(demand("p", 2, "9/1m")),
    );
    for demand in [one, other] {
        take(store, demand, at(0)).await;
        take(store, demand, at(50_000)).await;
    }
    store.forget(&[one], at(50_000)).await.expect("an answer");
    assert_eq!(counts(store, one, at(50_000)).await, (0, 0));
    assert_eq!(counts(store, other, at(50_000)).await, (2, 0));
    // Whatever it is counted by: the one before may be there still.
    store
        .forget(&[demand("p", 2, "9/1m")], at(50_000))
        .await
        .expect("an answer");
    assert_eq!(counts(store, other, at(50_000)).await, (0, 0));
}

async fn a_log_begins_with_nothing_that_counters_count_and_they_with_nothing_of_it(store: &Store) {
    let counted = demand("p", 1, "2/1m");
    let logged = logged(counted);
    take(store, counted, at(0)).await;
    assert_eq!(counts(store, logged, at(0)).await, (0, 0));
    take(store, logged, at(0)).await;
    take(store, logged, at(0)).await;
    assert_eq!(counts(store, logged, at(0)).await, (2, 0));
    assert_eq!(counts(store, counted, at(0)).await, (1, 0));
}

async fn a_raised_or_lowered_quota_keeps_the_log(store: &Store) {
    let of = |limit| logged(demand("p", 1, limit));
    for moment in 0..5 {
        take(store, of("5/1m"), at(moment)).await;
    }
    assert!(take(store, of("6/1m"), at(5)).await.allowed);
    let lowered = take(store, of("2/1m"), at(6)).await;
    assert_eq!(
        (lowered.allowed, lowered.counts.current, lowered.remaining()),
        (false, 6, 0)
    );
    // One of the newest two must leave.
    assert_eq!(lowered.retry_after(), Some(Wait::For(millis(59_998))));
}

async fn a_window_two_ago_is_forgotten(store: &Store) {
    let five = demand("p", 1, "5/1m");
    for window in [0, 2, 4, 6] {
        for units in 0..8 {
            let decision = take(store, five, at(window * 60_000)).await;
            assert_eq!(
                decision.allowed,
                units < 5,
                "unit {units} of window {window}"
            );
            assert_eq!(decision.counts.previous, 0);
        }
    }
}

async fn windows_above_a_day_are_counted_in_seconds(store: &Store) {
    let one = demand("p", 1, "1/2d");
    let second = |elapsed: u64, ms: u64| {
        let start = 10_000 * 2 * 86_400;
        At::Stamp(Timestamp::from_millis((start + elapsed) * 1000 + ms))
    };
    assert!(take(store, one, second(100, 0)).await.allowed);
    let turn = 2 * 86_400;
    assert_eq!(counts(store, one, second(turn - 1, 999)).await, (1, 0));
    assert!(
        !take(store, one, second(turn, 999)).await.allowed,
        "still second 0"
    );
    assert!(take(store, one, second(turn + 1, 0)).await.allowed);
}

async fn a_client_below_its_rate_is_never_denied(store: &Store) {
    for tick in 0..90 {
        let decision = take(store, demand("p", 1, "7/1m"), at(tick * 10_000)).await;
        assert!(decision.allowed, "request {tick}, one every ten seconds");
    }
}

async fn stamps_that_go_back_are_decided_at_their_own_time(store: &Store) {
    let two = demand("p", 1, "2/1m");
    take(store, two, at(0)).await;
    take(store, two, at(300_000)).await;
    take(store, two, at(300_000)).await;
    assert!(!take(store, two, at(300_000)).await.allowed);
    let back = take(store, two, at(1)).await;
    assert_eq!((back.allowed, back.counts.current), (true, 1));
    assert!(!take(store, two, at(2)).await.allowed);
    assert_eq!(counts(store, two, at(300_000)).await, (2, 0));
}

async fn two_policies_count_one_identifier_apart(store: &Store) {
    take(store, demand("a", 1, "5/1m"), at(0)).await;
    assert_eq!(counts(store, demand("a", 1, "5/1m"), at(0)).await, (1, 0));
    assert_eq!(counts(store, demand("b", 1, "5/1m"), at(0)).await, (0, 0));
    assert_eq!(counts(store, demand("a", 2, "5/1m"), at(0)).await, (0, 0));
}

async fn two_windows_of_one_policy_count_apart(store: &Store) {
    let (minute, hour) = (demand("p", 1, "9/1m"), demand("p", 1, "9/1h"));
    take_group(store, &[minute, hour], at(0))
        .await
        .expect("a decision");
    take(store, hour, at(0)).await;
    assert_eq!(counts(store, minute, at(0)).await, (1, 0));
    assert_eq!(counts(store, hour, at(0)).await, (2, 0));
}

async fn a_raised_or_lowered_quota_keeps_the_counter(store: &Store) {
    for _ in 0..5 {
        take(store, demand("p", 1, "5/1m"), at(0)).await;
    }
    assert!(take(store, demand("p", 1, "6/1m"), at(0)).await.allowed);
    let lowered = take(store, demand("p", 1, "2/1m"), at(0)).await;
    assert_eq!(
        (lowered.allowed, lowered.counts.current, lowered.remaining()),
        (false, 6, 0)
    );
}

async fn units_are_given_back_in_the_window_charged(store: &Store) {
    let three = costing(3, demand("p", 1, "9/1m"));
    let early = take(store, three, at(0)).await;
    take(store, three, at(60_000)).await;
    let charged = GiveBack {
        demand: three,
        charged_at: early.now,
    };
    store.give_back(&[charged]).await.expect("an answer");
    assert_eq!(counts(store, three, at(60_000)).await, (3, 0));
}

async fn giving_back_never_goes_below_0_and_creates_no_counter(store: &Store) {
    let (one, absent) = (demand("p", 1, "9/1m"), demand("p", 2, "9/1m"));
    let charged_at = take(store, one, at(0)).await.now;
    let charged = |demand| GiveBack { demand, charged_at };
    let more = [charged(costing(5, one)), charged(absent), charged(one)];
    store.give_back(&more).await.expect("an answer");
    assert_eq!(counts(store, one, at(0)).await, (0, 0));
    assert_eq!(counts(store, absent, at(0)).await, (0, 0));
    take(store, one, at(0)).await;
    assert_eq!(counts(store, one, at(0)).await, (1, 0), "it counts on");
}

async fn a_forgotten_identifier_starts_anew_and_others_do_not(store: &Store) {
    let (one, other) = (demand("p", 1, "9/1m"), demand("p", 2, "9/1m"));
    for demand in [one, other] {
        take(store, demand, at(0)).await;
        take(store, demand, at(60_000)).await;
    }
    store.forget(&[one], at(60_000)).await.expect("an answer");
    assert_eq!(counts(store, one, at(60_000)).await, (0, 0));
    assert_eq!(counts(store, other, at(60_000)).await, (1, 1));
}

async fn the_epochs_first_window_has_no_previous_one(store: &Store) {
    let one = demand("p", 1, "9/1m");
    let epoch = At::Stamp(Timestamp::from_millis(0));
    take(store, one, epoch).await;
    assert_eq!(counts(store, one, epoch).await, (1, 0));
}

async fn no_groups_have_no_replies(store: &Store) {
    assert!(store.take(&[], at(0)).await.is_empty());
    store.give_back(&[]).await.expect("nothing to do");
    store.forget(&[], at(0)).await.expect("nothing to do");
}
