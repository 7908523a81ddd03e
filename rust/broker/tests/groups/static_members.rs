//! Static members that come back under a new id.

use bytes::Bytes;
use fletchlog_api::*;

use super::member::*;

#[test]
fn a_static_member_returns_without_a_rebalance_and_its_old_id_is_fenced() {
    let world = World::new(&[]);
    let (mut a, mut s) = (world.static_member("leader"), world.static_member("i"));
    a.join();
    s.begin_join();
    a.join();
    s.joined().unwrap();
    let s_id = s.id.clone();
    assert!(s_id.starts_with("i-"));
    a.begin_sync(&[(&s_id, "for s")]);
    a.synced().unwrap();
    let mut again = world.static_member("i");
    // As a sticky member's is after a restart; what counts is which protocol the group has.
    again.protocols[0].metadata = Bytes::from_static(b"other meta");
    let response = again.join();
    assert_eq!(response.generation_id, 2);
    assert_ne!(again.id, s_id);
    again.begin_sync(&[]);
    assert_eq!(again.synced().unwrap().assignment, Bytes::from_static(b"for s"));
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    assert_eq!(s.heartbeat(), ErrorCode::FENCED_INSTANCE_ID);
    assert_eq!(s.leave(), ErrorCode::FENCED_INSTANCE_ID);
    let (generation, id) = (s.generation, s.id.clone());
    assert_eq!(s.commit_as(generation, &id, 1), ErrorCode::FENCED_INSTANCE_ID);
}

#[test]
fn a_static_member_whose_return_cannot_be_stored_stays_who_it_was() {
    let world = World::new(&[("message.max.bytes", "600")]);
    let mut a = world.static_member("i");
    a.join();
    a.begin_sync(&[]);
    a.synced().unwrap();
    let mut again = world.static_member("i");
    again.protocols[0].metadata = Bytes::from_static(&[b'm'; 1_000]);
    again.begin_join();
    assert_eq!(again.joined().unwrap().error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    again.protocols[0].metadata = Bytes::from_static(b"short");
    assert_eq!(again.join().generation_id, 1);
    assert_eq!(a.heartbeat(), ErrorCode::FENCED_INSTANCE_ID);
}
