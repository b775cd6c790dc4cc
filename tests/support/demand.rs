//! Demands and their decisions, in few words.

use std::net::{IpAddr, Ipv4Addr};

use slidegate::{
    policy::Identifier,
    ratelimit::{Algorithm, Cost, Decision},
    store::{Action, At, Demand, Group, GroupReply, Store, StoreError},
};

/// One unit by the identifier number `who`, under a policy and a limit such as `5/1m`.
pub fn demand<'a>(policy: &'a str, who: u8, limit: &str) -> Demand<'a> {
    Demand {
        policy,
        identifier: Identifier::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, who))),
        limit: limit.parse().expect(limit),
        algorithm: Algorithm::SlidingWindowCounter,
        cost: Cost::ONE,
        action: Action::Take,
        audited: false,
    }
}

/// The same demand at another cost.
pub fn costing(units: u32, demand: Demand<'_>) -> Demand<'_> {
    let cost = Cost::new(units).expect("a cost is at least 1");
    Demand { cost, ..demand }
}

/// The same demand, only asked.
pub fn peek(demand: Demand<'_>) -> Demand<'_> {
    Demand {
        action: Action::Peek,
        ..demand
    }
}

/// The same demand, charged whatever the counts say.
pub fn charge(demand: Demand<'_>) -> Demand<'_> {
    Demand {
        action: Action::Charge,
        ..demand
    }
}

/// A group of demands.
pub fn group<'a>(demands: &[Demand<'a>]) -> Group<'a> {
    demands.iter().copied().collect()
}

/// What the store says about one group.
pub async fn take_group(store: &Store, demands: &[Demand<'_>], at: At) -> GroupReply {
    let mut replies = store.take(&[group(demands)], at).await;
    assert_eq!(replies.len(), 1, "one reply per group");
    replies.remove(0)
}

/// The decision on a demand that is alone in its group.
///
/// Should the window turn in the middle of it, it is asked again: nothing was charged.
pub async fn take(store: &Store, demand: Demand<'_>, at: At) -> Decision {
    for _ in 0..100 {
        match take_group(store, &[demand], at).await {
            Ok(decisions) => {
                assert_eq!(decisions.len(), 1, "one decision per demand");
                return decisions[0];
            }
            Err(StoreError::WindowTurned) => {}
            Err(error) => panic!("no decision: {error}"),
        }
    }
    panic!("the window turns and turns");
}

/// The counts, current and previous, without a charge.
pub async fn counts(store: &Store, demand: Demand<'_>, at: At) -> (u64, u64) {
    let counts = take(store, peek(demand), at).await.counts;
    (counts.current, counts.previous)
}
