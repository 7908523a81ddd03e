//! Rebalances: what begins one, who has to wait, and what it answers to the calls of others.

use bytes::Bytes;
use fletchlog_api::*;

use super::member::*;
use crate::common::protocol;

#[test]
fn the_leaders_sync_releases_the_followers_with_their_assignment() {
    two(&World::new(&[]));
}

#[test]
fn a_heartbeat_reports_the_generation_the_rebalance_and_the_unknown() {
    let world = World::new(&[]);
    let (mut a, b) = two(&world);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    let id = a.id.clone();
    assert_eq!(a.heartbeat_as(1, &id), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(a.heartbeat_as(2, "nobody"), ErrorCode::UNKNOWN_MEMBER_ID);
    drop(b);
    let mut c = world.member();
    c.begin_join();
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(a.heartbeat_as(2, "nobody"), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_sync_of_another_generation_or_member_is_refused_and_one_in_a_stable_group_answered() {
    let world = World::new(&[]);
    let (_a, mut b) = two(&world);
    b.begin_sync(&[]);
    assert_eq!(b.synced().unwrap().assignment, Bytes::from_static(b"for b"));
    b.generation = 1;
    b.begin_sync(&[]);
    assert_eq!(b.synced().unwrap().error_code, ErrorCode::ILLEGAL_GENERATION);
    b.generation = 2;
    b.id = "nobody".into();
    b.begin_sync(&[]);
    assert_eq!(b.synced().unwrap().error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_follower_that_joins_again_unchanged_keeps_the_generation_and_one_with_a_change_begins_a_rebalance() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    assert_eq!(b.join().generation_id, 2);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    b.protocols = vec![protocol("range", "other topics")];
    b.begin_join();
    assert!(b.joined().is_none());
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(a.join().generation_id, 3);
    assert_eq!(b.joined().unwrap().generation_id, 3);
}

#[test]
fn a_leader_that_joins_again_begins_a_rebalance() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    a.begin_join();
    assert_eq!(b.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn a_rebalance_interrupts_the_syncs_of_the_one_before() {
    let world = World::new(&[]);
    let mut a = world.member();
    a.join();
    let mut b = world.member();
    b.begin_join();
    a.join();
    b.joined().unwrap();
    b.begin_sync(&[]);
    let mut c = world.member();
    c.begin_join();
    assert_eq!(b.synced().unwrap().error_code, ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn a_member_that_does_not_rejoin_in_time_is_left_behind() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    let mut c = world.member();
    c.begin_join();
    b.begin_join();
    world.clock.advance(i64::from(REBALANCE) - 1);
    assert!(b.joined().is_none());
    // The silent one is seen as alive, but the rebalance does not wait for it any longer.
    a.client.transport.keep_alive();
    world.clock.advance(1);
    let response = b.joined().unwrap();
    assert_eq!((response.generation_id, &response.leader), (3, &b.id));
    assert_eq!(c.joined().unwrap().generation_id, 3);
    assert_eq!(a.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
}
