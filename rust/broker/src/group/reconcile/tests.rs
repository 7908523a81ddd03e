use std::collections::{BTreeMap, BTreeSet};

use super::*;

const T: TopicId = [1; 16];

fn partitions(all: &[i32]) -> Partitions {
    match all {
        [] => Partitions::new(),
        all => Partitions::from([(T, all.iter().copied().collect::<BTreeSet<i32>>())]),
    }
}

fn assigned(all: &[(i32, i32)]) -> Assigned {
    match all {
        [] => Assigned::new(),
        all => Assigned::from([(T, all.iter().copied().collect::<BTreeMap<i32, i32>>())]),
    }
}

fn member(epoch: i32, state: MemberState, has: &[(i32, i32)], pending: &[(i32, i32)]) -> CurrentAssignment {
    CurrentAssignment {
        epoch,
        previous_epoch: epoch - 1,
        state,
        assigned: assigned(has),
        pending_revocation: assigned(pending),
    }
}

/// A step towards the target at epoch 3; `taken`: partitions that others have.
fn step(current: &CurrentAssignment, target: &[i32], owned: Option<&[i32]>, taken: &[i32]) -> CurrentAssignment {
    let (target, owned) = (partitions(target), owned.map(partitions));
    CurrentAssignmentBuilder {
        current,
        target_epoch: 3,
        target: &target,
        is_subscribed: &|_| true,
        subscription_changed: false,
        owned: owned.as_ref(),
        is_free: &|_, p| !taken.contains(&p),
    }
    .build()
}

fn outcome(of: &CurrentAssignment) -> (i32, i32, MemberState, Assigned, Assigned) {
    let (has, pending) = (of.assigned.clone(), of.pending_revocation.clone());
    (of.epoch, of.previous_epoch, of.state, has, pending)
}

#[test]
fn a_stable_member_of_the_targets_epoch_stays_as_it_is() {
    let current = member(3, MemberState::Stable, &[(0, 2)], &[]);
    assert_eq!(step(&current, &[1], Some(&[]), &[]), current);
}

#[test]
fn what_is_to_be_given_up_is_asked_for_at_the_old_epoch_and_nothing_is_added() {
    let current = member(2, MemberState::Stable, &[(0, 1), (1, 2)], &[]);
    let asked = step(&current, &[0, 2], None, &[]);
    let expected = (
        2,
        2,
        MemberState::UnrevokedPartitions,
        assigned(&[(0, 1)]),
        assigned(&[(1, 2)]),
    );
    assert_eq!(outcome(&asked), expected);
    // Told without it in the same request: no waiting.
    let told = step(&current, &[0, 2], Some(&[0]), &[]);
    let expected = (3, 2, MemberState::Stable, assigned(&[(0, 1), (2, 3)]), Assigned::new());
    assert_eq!(outcome(&told), expected);
}

#[test]
fn a_member_that_must_give_up_waits_until_it_tells_that_it_has() {
    let current = member(2, MemberState::UnrevokedPartitions, &[(0, 1)], &[(1, 2)]);
    assert_eq!(step(&current, &[0, 2], None, &[]), current);
    assert_eq!(step(&current, &[0, 2], Some(&[0, 1]), &[]), current);
    let done = step(&current, &[0, 2], Some(&[]), &[2]);
    let expected = (
        3,
        2,
        MemberState::UnreleasedPartitions,
        assigned(&[(0, 1)]),
        Assigned::new(),
    );
    assert_eq!(outcome(&done), expected);
    // What it has to give up and is to have again is its own.
    let again = step(&current, &[0, 1], Some(&[0]), &[1]);
    let expected = (3, 2, MemberState::Stable, assigned(&[(0, 1), (1, 3)]), Assigned::new());
    assert_eq!(outcome(&again), expected);
}

#[test]
fn a_waiting_member_looks_again_at_each_heartbeat() {
    let current = member(3, MemberState::UnreleasedPartitions, &[], &[]);
    let waits = step(&current, &[0, 1], None, &[0, 1]);
    let expected = (
        3,
        3,
        MemberState::UnreleasedPartitions,
        Assigned::new(),
        Assigned::new(),
    );
    assert_eq!(outcome(&waits), expected);
    let some = step(&waits, &[0, 1], None, &[1]);
    let expected = (
        3,
        3,
        MemberState::UnreleasedPartitions,
        assigned(&[(0, 3)]),
        Assigned::new(),
    );
    assert_eq!(outcome(&some), expected);
    let all = step(&some, &[0, 1], None, &[]);
    let expected = (3, 3, MemberState::Stable, assigned(&[(0, 3), (1, 3)]), Assigned::new());
    assert_eq!(outcome(&all), expected);
}

#[test]
fn a_topic_that_is_no_longer_subscribed_is_taken_at_once() {
    let current = member(3, MemberState::Stable, &[(0, 2)], &[]);
    let (target, told) = (partitions(&[0]), partitions(&[]));
    let trimmed = |owned| {
        CurrentAssignmentBuilder {
            current: &current,
            target_epoch: 3,
            target: &target,
            is_subscribed: &|_| false,
            subscription_changed: true,
            owned,
            is_free: &|_, _| true,
        }
        .build()
    };
    let expected = (
        3,
        3,
        MemberState::UnrevokedPartitions,
        Assigned::new(),
        assigned(&[(0, 2)]),
    );
    assert_eq!(outcome(&trimmed(None)), expected);
    let expected = (3, 3, MemberState::Stable, Assigned::new(), Assigned::new());
    assert_eq!(outcome(&trimmed(Some(&told))), expected);
}
