//! Joining: who is taken in, under which id, and with which protocol.

use bytes::Bytes;
use fletchlog_api::*;

use super::member::*;
use crate::common::protocol;

#[test]
fn a_session_timeout_outside_the_limits_is_refused() {
    let world = World::new(&[]);
    for (timeout, code) in [
        (5_999, ErrorCode::INVALID_SESSION_TIMEOUT),
        (1_800_001, ErrorCode::INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode::MEMBER_ID_REQUIRED),
    ] {
        assert_eq!(join_code(&world, |r| r.session_timeout_ms = timeout), code, "{timeout}");
    }
}

#[test]
fn unknown_members_empty_groups_and_foreign_protocols_are_refused() {
    let world = World::new(&[]);
    let code = |change: fn(&mut JoinGroupRequest)| join_code(&world, change);
    assert_eq!(code(|r| r.member_id = "nobody".into()), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(code(|r| r.group_id = "".into()), ErrorCode::INVALID_GROUP_ID);
    let (_a, _b) = two(&world);
    assert_eq!(code(|r| r.member_id = "nobody".into()), ErrorCode::UNKNOWN_MEMBER_ID);
    let changes: [fn(&mut JoinGroupRequest); 3] = [
        |r| r.protocol_type = "connect".into(),
        |r| r.protocols = vec![protocol("sticky", Bytes::new())],
        |r| r.protocols.clear(),
    ];
    assert_eq!(changes.map(code), [ErrorCode::INCONSISTENT_GROUP_PROTOCOL; 3]);
}

#[test]
fn a_first_join_gets_an_id_of_its_client_and_ids_sort_in_the_order_they_were_given() {
    let world = World::new(&[]);
    let (a, b) = two(&world);
    assert!(a.id.starts_with("c-") && a.id.len() == 38, "{}", a.id);
    assert!(a.id < b.id);
}

#[test]
fn the_group_uses_the_protocol_that_all_know_and_most_prefer() {
    let world = World::new(&[]);
    let list = |names: &[&'static str]| names.iter().map(|name| protocol(name, *name)).collect();
    let (mut a, mut b, mut c) = (world.member(), world.member(), world.member());
    a.protocols = list(&["range", "roundrobin"]);
    b.protocols = list(&["sticky", "roundrobin", "range"]);
    c.protocols = list(&["roundrobin", "range"]);
    a.join();
    b.begin_join();
    c.begin_join();
    let response = a.join();
    assert_eq!(response.protocol_name.as_deref(), Some("roundrobin"));
    assert_eq!(response.members[1].metadata, Bytes::from_static(b"roundrobin"));
}

#[test]
fn an_initial_delay_gathers_members_into_the_first_generation() {
    let world = World::new(&[("group.initial.rebalance.delay.ms", "3000")]);
    let (mut a, mut b) = (world.member(), world.member());
    a.begin_join();
    world.clock.advance(2000);
    assert!(a.joined().is_none());
    b.begin_join();
    // A member that came in the meantime extends the wait once more.
    world.clock.advance(1000);
    assert!(a.joined().is_none());
    world.clock.advance(3000);
    assert_eq!(a.joined().unwrap().members.len(), 2);
    assert_eq!(b.joined().unwrap().generation_id, 1);
}

#[test]
fn a_full_group_takes_nobody_in() {
    let world = World::new(&[("group.max.size", "2")]);
    let (_a, _b) = two(&world);
    assert_eq!(join_code(&world, |_| {}), ErrorCode::GROUP_MAX_SIZE_REACHED);
}
