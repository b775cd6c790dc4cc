//! Which address is next: round robin over those in rotation, and over all where none is.

use std::{sync::Arc, time::Duration};

use super::{EjectSettings, Standing, State, Target};

/// A target, and how it stands.
#[derive(Debug)]
pub struct Member {
    /// Where it is.
    pub target: Target,
    /// Whether it gets requests.
    pub standing: Standing,
}

/// The addresses that an upstream has at a moment.
#[derive(Debug, Default)]
pub struct Rotation {
    members: Vec<Arc<Member>>,
}

impl Rotation {
    /// Of `targets`, each once. Those that `before` has stand as they do there.
    pub fn new(targets: impl IntoIterator<Item = Target>, before: &Self) -> Self {
        let mut members: Vec<Arc<Member>> = Vec::new();
        for target in targets {
            if members.iter().any(|member| member.target == target) {
                continue;
            }
            let known = before.members.iter();
            let mut known = known.filter(|member| member.target == target);
            members.push(known.next().cloned().unwrap_or_else(|| {
                Arc::new(Member {
                    target,
                    standing: Standing::default(),
                })
            }));
        }
        Self { members }
    }

    /// All of them.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// How many stand in each state, in the order of [`State::ALL`].
    pub fn counts(&self) -> [usize; State::ALL.len()] {
        State::ALL.map(|state| {
            let members = self.members.iter();
            members
                .filter(|member| member.standing.state() == state)
                .count()
        })
    }

    /// Where the next attempt of a request goes that has been at `tried`; `None` if there is no address at all.
    ///
    /// `turn` is the request's own number, so that what other requests do does not send it where it was. The first
    /// attempt may be the one that tries an ejected address again: at once if it can be repeated elsewhere (`repeats`),
    /// else only when no such one has come for as long again. Where no address is in rotation all are: one that
    /// was given up wrongly is better than none.
    pub fn choose(
        &self,
        turn: usize,
        tried: &[Arc<Member>],
        repeats: bool,
        eject: Option<&EjectSettings>,
        now: Duration,
    ) -> Option<Arc<Member>> {
        if let [only] = &*self.members {
            return Some(only.clone());
        }
        if tried.is_empty()
            && let Some(rule) = eject
        {
            let mut members = self.members.iter();
            let due = members.find(|member| member.standing.takes_trial(rule, repeats, now));
            if due.is_some() {
                return due.cloned();
            }
        }
        let untried = |member: &&Arc<Member>| !tried.iter().any(|one| one.target == member.target);
        let in_rotation = |member: &&Arc<Member>| member.standing.state() == State::InRotation;
        let best = self.nth(turn, |member| untried(member) && in_rotation(member));
        let any = || self.nth(turn, untried);
        let again = || self.nth(turn.wrapping_add(tried.len()), |_| true);
        best.or_else(any).or_else(again)
    }

    /// The one whose turn it is among those that are `wanted`.
    fn nth(&self, turn: usize, wanted: impl Fn(&&Arc<Member>) -> bool) -> Option<Arc<Member>> {
        let many = self.members.iter().filter(&wanted).count();
        let place = turn.checked_rem(many)?;
        // Another thread may have put one out meanwhile.
        let mut members = self.members.iter().filter(&wanted);
        members.nth(place).or_else(|| self.members.first()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Address;

    const RULE: EjectSettings = EjectSettings {
        after: 1,
        lasts: Duration::from_secs(2),
    };

    fn targets(many: u8) -> impl Iterator<Item = Target> {
        (1..=many).map(|last| {
            let address: Address = format!("192.0.2.{last}:80").parse().expect("an address");
            address.target().expect("no name")
        })
    }

    fn rotation(many: u8) -> Rotation {
        Rotation::new(targets(many), &Rotation::default())
    }

    /// The places of what so many requests are sent to at first.
    fn chosen(rotation: &Rotation, requests: usize, now: Duration) -> Vec<usize> {
        let place = |member: Arc<Member>| {
            let mut members = rotation.members().iter();
            members.position(|one| Arc::ptr_eq(one, &member))
        };
        (0..requests)
            .map(|turn| {
                let member = rotation.choose(turn, &[], true, Some(&RULE), now);
                member.and_then(place).expect("one of them")
            })
            .collect()
    }

    #[test]
    fn addresses_take_turns() {
        assert_eq!(chosen(&rotation(3), 6, Duration::ZERO), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn each_attempt_of_a_request_goes_to_another_address_whatever_other_requests_do() {
        let rotation = rotation(3);
        for turn in 0..7 {
            let mut tried = Vec::new();
            for _ in 0..3 {
                let next = rotation.choose(turn, &tried, true, Some(&RULE), Duration::ZERO);
                tried.push(next.expect("one of them"));
                // Meanwhile.
                chosen(&rotation, 5, Duration::ZERO);
            }
            tried.sort_by_key(|member| member.target.socket.to_string());
            tried.dedup_by(|one, other| Arc::ptr_eq(one, other));
            assert_eq!(tried.len(), 3);
            assert!(
                rotation
                    .choose(turn, &tried, true, None, Duration::ZERO)
                    .is_some(),
                "all were tried: begin anew"
            );
        }
    }

    #[test]
    fn what_is_out_gets_nothing_and_the_others_share_its_turns() {
        let rotation = rotation(3);
        rotation.members()[1].standing.failed(&RULE, Duration::ZERO);
        assert_eq!(
            chosen(&rotation, 6, Duration::from_secs(1)),
            [0, 2, 0, 2, 0, 2]
        );
        assert_eq!(rotation.counts(), [2, 1, 0]);
    }

    #[test]
    fn one_request_tries_what_was_ejected_and_an_answer_brings_it_back() {
        let rotation = rotation(3);
        let ejected = &rotation.members()[1].standing;
        ejected.failed(&RULE, Duration::ZERO);
        let later = Duration::from_secs(2);
        assert_eq!(chosen(&rotation, 4, later), [1, 2, 0, 2]);
        ejected.answered();
        assert_eq!(chosen(&rotation, 3, later), [0, 1, 2]);
    }

    #[test]
    fn a_second_attempt_is_no_trial() {
        let rotation = rotation(2);
        rotation.members()[1].standing.failed(&RULE, Duration::ZERO);
        let first = rotation.members()[0].clone();
        let later = Duration::from_secs(9);
        let second = rotation.choose(0, &[first], true, Some(&RULE), later);
        assert_eq!(
            second.map(|member| member.target.clone()),
            Some(rotation.members()[1].target.clone()),
            "there is no other"
        );
        assert!(
            rotation.members()[1]
                .standing
                .takes_trial(&RULE, true, later),
            "and the trial is still to be had"
        );
    }

    #[test]
    fn where_all_are_out_all_are_tried_in_turn() {
        let rotation = rotation(3);
        for member in rotation.members() {
            member.standing.failed(&RULE, Duration::ZERO);
        }
        assert_eq!(chosen(&rotation, 4, Duration::from_secs(1)), [0, 1, 2, 0]);
    }

    #[test]
    fn an_address_that_stays_stands_as_it_did() {
        let before = rotation(3);
        before.members()[2].standing.failed(&RULE, Duration::ZERO);
        let after = Rotation::new(targets(4).skip(1).chain(targets(3)), &before);
        assert_eq!(after.members().len(), 4, "each once");
        assert!(Arc::ptr_eq(&after.members()[1], &before.members()[2]));
        assert_eq!(after.counts(), [3, 1, 0]);
    }

    #[test]
    fn an_upstream_without_addresses_has_no_next() {
        assert!(
            rotation(0)
                .choose(3, &[], true, Some(&RULE), Duration::ZERO)
                .is_none()
        );
    }
}
