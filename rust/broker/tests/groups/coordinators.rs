//! Coordinators that move to another node (spec 8.14, recorded from a Kafka 4.4.0).

use fletchlog_api::*;
use fletchlog_broker::Broker;
use fletchlog_protocol::messages::{ConsumerGroupHeartbeatRequest, ShareGroupHeartbeatRequest};

use super::commits::commit;
use super::member;
use super::wire::*;
use crate::common::{VirtualClock, options, sender};

/// A broker of three nodes without an initial delay.
fn world() -> World {
    World::of_nodes(3, &[("group.initial.rebalance.delay.ms", "0")])
}

fn coordinator(world: &World) -> NodeId {
    world.broker.group_coordinator("g")
}

/// Moves the group to the next node; returns it.
fn move_on(world: &World, loading_ms: i64) -> NodeId {
    let next = coordinator(world) % 3 + 1;
    let moved = world
        .broker
        .move_coordinator(CoordinatorType::Group, "g", next, loading_ms);
    moved.unwrap();
    assert_eq!(coordinator(world), next);
    next
}

/// A member of a stable group of its own, at its coordinator.
fn stable(world: &World) -> Conn {
    let mut conn = world.connect_to(coordinator(world));
    conn.join();
    assert_eq!(conn.sync(&[(conn.id.clone(), "mine")]), ErrorCode::NONE);
    conn
}

#[test]
fn members_generations_and_offsets_are_at_the_new_coordinator_and_the_old_one_refuses() {
    let world = world();
    let old = stable(&world);
    let commit_of = |conn: &Conn| commit(conn, "g", conn.generation, &conn.id, None, &[("t", 0, 7)]);
    assert_eq!(commit_of(&old), [0]);
    let new = old.at(&world, move_on(&world, 0));
    assert_eq!(old.heartbeat(), ErrorCode::NOT_COORDINATOR);
    assert_eq!(commit_of(&old), [16]);
    let mut late = world.connect_to(old_node(&world));
    late.begin_join();
    let refused = late.joined().unwrap();
    assert_eq!(
        (refused.error_code, &*refused.member_id),
        (ErrorCode::NOT_COORDINATOR, "")
    );
    assert_eq!(new.heartbeat(), ErrorCode::NONE);
    assert_eq!(commit_of(&new), [0]);
    assert_eq!(world.group(), ("Stable", 1));
}

/// The node before the current coordinator.
fn old_node(world: &World) -> NodeId {
    (coordinator(world) + 1) % 3 + 1
}

#[test]
fn sessions_begin_anew_in_full() {
    let world = world();
    let old = stable(&world);
    world.clock.advance(i64::from(SESSION) - 1);
    let new = old.at(&world, move_on(&world, 0));
    world.clock.advance(i64::from(SESSION) - 1);
    world.broker.run_due();
    assert_eq!(world.group(), ("Stable", 1));
    world.clock.advance(2);
    world.broker.run_due();
    assert_eq!(world.group(), ("Empty", 0));
    assert_eq!(new.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_rebalance_in_progress_is_undone_and_a_waiting_join_refused_with_its_member_id() {
    let world = world();
    let first = stable(&world);
    let mut second = world.connect_to(coordinator(&world));
    second.begin_join();
    assert_eq!(first.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    let node = move_on(&world, 0);
    let refused = second.joined().expect("answered at once");
    assert_eq!(
        (refused.error_code, refused.generation_id),
        (ErrorCode::NOT_COORDINATOR, -1)
    );
    assert!(!refused.member_id.is_empty());
    let first = first.at(&world, node);
    assert_eq!(first.heartbeat(), ErrorCode::NONE, "the generation before");
    assert_eq!(world.group(), ("Stable", 1));
    let mut again = second.at(&world, node);
    again.id = refused.member_id;
    again.begin_join();
    assert_eq!(again.joined().unwrap().error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_sync_that_waits_is_refused_and_the_generation_is_the_one_before() {
    let world = world();
    let mut first = stable(&world);
    let before = first.generation;
    let mut second = world.connect_to(coordinator(&world));
    second.begin_join();
    first.begin_join();
    assert_eq!(first.joined().unwrap().error_code, ErrorCode::NONE);
    assert_eq!(second.joined().unwrap().error_code, ErrorCode::NONE);
    second.begin_sync(&[]);
    assert!(second.synced().is_none(), "it waits for the leader");
    let node = move_on(&world, 0);
    assert_eq!(second.synced().unwrap().error_code, ErrorCode::NOT_COORDINATOR);
    let mut first = first.at(&world, node);
    assert_eq!(first.heartbeat(), ErrorCode::ILLEGAL_GENERATION);
    first.generation = before;
    assert_eq!(first.heartbeat(), ErrorCode::NONE);
    assert_eq!(world.group(), ("Stable", 1));
}

#[test]
fn while_the_new_coordinator_loads_only_heartbeats_succeed() {
    let world = world();
    let old = stable(&world);
    let new = old.at(&world, move_on(&world, 200));
    assert_eq!(new.heartbeat(), ErrorCode::NONE);
    assert_eq!(commit(&new, "g", new.generation, &new.id, None, &[("t", 0, 7)]), [14]);
    new.begin_join();
    let mut refused = new;
    assert_eq!(
        refused.joined().unwrap().error_code,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
    );
    world.clock.advance(200);
    assert_eq!(
        commit(&refused, "g", refused.generation, &refused.id, None, &[("t", 0, 7)]),
        [0]
    );
}

/// Kafka: `CoordinatorOperationExceptionHelper`: a text of an error itself is no message.
#[test]
fn a_heartbeat_at_a_node_that_does_not_coordinate_has_an_error_and_no_text() {
    let world = world();
    let old = stable(&world);
    let new = old.at(&world, move_on(&world, 200));
    let beat = |conn: &Conn| {
        let consumer = ConsumerGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: "m".into(),
            member_epoch: 1,
            sender: sender(1),
            ..Default::default()
        };
        let share = ShareGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: "m".into(),
            member_epoch: 1,
            sender: sender(1),
            ..Default::default()
        };
        let Response::ConsumerGroupHeartbeat(of_consumer) = conn.ask(Request::ConsumerGroupHeartbeat(consumer)) else {
            panic!()
        };
        let Response::ShareGroupHeartbeat(of_share) = conn.ask(Request::ShareGroupHeartbeat(share)) else {
            panic!()
        };
        let texts = of_consumer.error_message.is_some() || of_share.error_message.is_some();
        (of_consumer.error_code.code(), of_share.error_code.code(), texts)
    };
    assert_eq!((beat(&old), beat(&new)), ((16, 16, false), (14, 14, false)));
}

#[test]
fn a_stopped_coordinator_is_followed_by_the_next_replica() {
    let world = world();
    let old = stable(&world);
    let node = coordinator(&world);
    world.broker.stop_node(node).unwrap();
    let next = coordinator(&world);
    assert_eq!(next, node % 3 + 1);
    assert_eq!(old.at(&world, next).heartbeat(), ErrorCode::NONE);
}

/// A cluster of three nodes that embedded clients use, whose first node coordinates the group.
fn embedded() -> member::World {
    let clock = VirtualClock::new();
    let config = [("group.initial.rebalance.delay.ms", "0")];
    let broker = Broker::in_memory(options(Some(3), false, &config), clock.clone()).unwrap();
    broker.create_topic("t", 4, &[]).unwrap();
    broker.move_coordinator(CoordinatorType::Group, "g", 1, 0).unwrap();
    member::World { broker, clock }
}

/// A node with a replica of the group's log ends, which is noticed after 9 s.
fn crash(world: &member::World) {
    world.broker.crash_node(2, 9_000).unwrap();
}

fn passes(world: &member::World, ms: i64) {
    world.clock.advance(ms);
    world.broker.run_due();
}

fn state(world: &member::World) -> &'static str {
    world.broker.describe_group("g").unwrap().state
}

#[test]
fn an_assignment_waits_for_the_replicas_of_the_groups_log() {
    let world = embedded();
    let mut leader = world.member();
    assert_eq!(leader.join().error_code, ErrorCode::NONE);
    passes(&world, 5_000);
    crash(&world);
    passes(&world, 6_000);
    let id = leader.id.clone();
    leader.begin_sync(&[(&id, "mine")]);
    assert!(leader.synced().is_none(), "the record is not on all replicas in sync");
    assert_eq!(state(&world), "CompletingRebalance");
    passes(&world, 3_000);
    let synced = leader.synced().expect("the node is fenced");
    assert_eq!(
        (synced.error_code, &*synced.assignment),
        (ErrorCode::NONE, &b"mine"[..])
    );
    assert_eq!(state(&world), "Stable");
    assert_eq!(leader.heartbeat(), ErrorCode::NONE);
}

#[test]
fn an_assignment_that_is_not_replicated_in_time_fails_and_the_group_rebalances() {
    let world = embedded();
    let mut leader = world.member();
    leader.join();
    crash(&world);
    let id = leader.id.clone();
    leader.begin_sync(&[(&id, "mine")]);
    passes(&world, 4_999);
    assert!(leader.synced().is_none());
    passes(&world, 1);
    let synced = leader.synced().unwrap();
    assert_eq!(
        (synced.error_code, synced.assignment.len()),
        (ErrorCode::COORDINATOR_NOT_AVAILABLE, 0)
    );
    assert_eq!(state(&world), "PreparingRebalance");
    passes(&world, 4_000);
    assert_eq!(leader.join().generation_id, 2);
}

#[test]
fn a_static_member_that_returns_waits_for_its_new_id() {
    let world = embedded();
    let mut first = world.static_member("i");
    first.join();
    let id = first.id.clone();
    first.begin_sync(&[(&id, "mine")]);
    assert_eq!(first.synced().unwrap().error_code, ErrorCode::NONE);
    crash(&world);
    let mut second = world.static_member("i");
    second.begin_join();
    assert!(second.joined().is_none(), "its id is not on all replicas in sync");
    passes(&world, 5_000);
    assert_eq!(
        second.joined().unwrap().error_code,
        ErrorCode::COORDINATOR_NOT_AVAILABLE
    );
    let mut third = world.static_member("i");
    third.begin_join();
    passes(&world, 4_000);
    assert_eq!(third.joined().expect("the node is fenced").error_code, ErrorCode::NONE);
}
