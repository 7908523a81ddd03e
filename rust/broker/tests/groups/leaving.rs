//! Members that leave, and members that are missed.

use fletchlog_api::*;

use super::member::*;

#[test]
fn a_client_that_vanishes_is_missed_after_its_session_timeout_and_the_rest_goes_on() {
    let world = World::new(&[]);
    let (mut a, b) = two(&world);
    drop(b);
    world.clock.advance(i64::from(SESSION) - 1);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    world.clock.advance(1);
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    let response = a.join();
    assert_eq!((response.generation_id, response.members.len()), (3, 1));
}

#[test]
fn a_connected_client_that_does_something_in_time_is_alive_and_a_silent_one_is_not() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    for _ in 0..5 {
        world.clock.advance(i64::from(REBALANCE) - 1);
        b.client.transport.keep_alive();
        assert_eq!(a.heartbeat(), ErrorCode::NONE);
    }
    world.clock.advance(i64::from(REBALANCE) - 1);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    world.clock.advance(1);
    assert_eq!(
        a.heartbeat(),
        ErrorCode::REBALANCE_IN_PROGRESS,
        "b was silent for max.poll.interval.ms"
    );
}

#[test]
fn a_waiting_join_is_woken_by_the_end_of_a_vanished_members_session() {
    let world = World::new(&[]);
    let (a, b) = two(&world);
    let mut c = world.member();
    c.begin_join();
    drop((a, b));
    world.clock.advance(i64::from(SESSION));
    assert_eq!(c.joined().unwrap().generation_id, 3);
}

#[test]
fn leaving_begins_a_rebalance_and_the_last_one_empties_the_group() {
    let world = World::new(&[]);
    let (mut a, mut b) = two(&world);
    assert_eq!(b.leave(), ErrorCode::NONE);
    assert_eq!(b.leave(), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(a.join().generation_id, 3);
    assert_eq!(a.leave(), ErrorCode::NONE);
    assert_eq!(a.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(world.member().join().generation_id, 5, "4 was the empty generation");
}
