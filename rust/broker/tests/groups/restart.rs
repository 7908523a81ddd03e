//! Groups of members behind sockets over a restart of the broker: each goes on as its record says. Kafka:
//! `GroupMetadataManager#replay`, `#onLoaded` (spec 8.7).

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::Broker;

use super::wire::*;
use crate::common::*;

fn open(dir: &Path, config: &[(&str, &str)], read_only: bool) -> World {
    let clock = VirtualClock::new();
    let broker = Broker::open(dir, options(None, read_only, config), clock.clone()).unwrap();
    World { broker, clock }
}

/// The same member over a new connection.
fn back(world: &World, of: &Conn) -> Conn {
    let mut conn = world.connect();
    (conn.id, conn.generation, conn.instance) = (of.id.clone(), of.generation, of.instance.clone());
    conn
}

/// A stable group of two, the second of them static.
fn two(world: &World) -> (Conn, Conn) {
    let (mut a, mut b) = (world.stable(), world.static_member("i"));
    b.begin_join();
    a.join();
    b.joined().unwrap();
    b.begin_sync(&[]);
    a.sync(&[(a.id.clone(), "one"), (b.id.clone(), "two")]);
    assert_eq!(b.synced().unwrap().assignment, Bytes::from_static(b"two"));
    (a, b)
}

#[test]
fn members_go_on_after_a_restart_without_a_rebalance() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), &[], false);
    world.broker.create_topic("t", 2, &[]).unwrap();
    let (a, b) = two(&world);
    let before = world.broker.describe_group("g").unwrap();
    world.broker.close().unwrap();
    let world = open(dir.path(), &[], false);
    // Whatever a member sends first finds the group.
    let (mut a, b) = (back(&world, &a), back(&world, &b));
    assert_eq!(a.heartbeat(), ErrorCode::NONE);
    assert_eq!(world.broker.describe_group("g").unwrap(), before);
    assert_eq!(
        world.broker.describe_group("g").unwrap().members[0].client_host,
        "/10.0.0.7".into()
    );
    b.begin_sync(&[]);
    assert_eq!(b.synced().unwrap().assignment, Bytes::from_static(b"two"));
    let committed = super::commits::commit(&b, "g", b.generation, &b.id, Some("i"), &[("t", 0, 1)]);
    assert_eq!(committed, [0]);
    // Each session began when the group was loaded.
    world.clock.advance(i64::from(SESSION) - 1);
    assert_eq!((a.heartbeat(), b.heartbeat()), (ErrorCode::NONE, ErrorCode::NONE));
    world.clock.advance(1);
    assert_eq!((a.heartbeat(), b.heartbeat()), (ErrorCode::NONE, ErrorCode::NONE));
    // A follower with the same metadata is answered at once; the leader's join begins a generation.
    let generation = a.generation;
    a.begin_join();
    assert_eq!(b.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    assert!(a.joined().is_none());
    let mut b = b;
    b.join();
    assert_eq!(a.joined().unwrap().generation_id, generation + 1);
}

#[test]
fn a_member_that_does_not_come_back_is_missed_after_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), &[], false);
    world.broker.create_topic("t", 2, &[]).unwrap();
    let (a, b) = two(&world);
    world.broker.close().unwrap();
    let world = open(dir.path(), &[], false);
    let b = back(&world, &b);
    assert_eq!(b.heartbeat(), ErrorCode::NONE);
    world.clock.advance(i64::from(SESSION) - 1);
    assert_eq!(b.heartbeat(), ErrorCode::NONE);
    world.clock.advance(1);
    assert_eq!(b.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(world.group(), ("PreparingRebalance", 1));
    assert_eq!(back(&world, &a).heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn an_embedded_member_ends_with_its_process_and_the_others_rebalance() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), &[], false);
    world.broker.create_topic("t", 2, &[]).unwrap();
    let mut socket = world.connect();
    let mut embedded = Client::new(&world.broker);
    let Response::JoinGroup(first) = embedded.ask(1, Request::JoinGroup(socket.join_request())) else {
        panic!()
    };
    socket.begin_join();
    let mut again = socket.join_request();
    again.member_id = first.member_id.clone();
    embedded.send(1, Request::JoinGroup(again));
    socket.joined().unwrap();
    embedded.take(1).unwrap();
    socket.begin_sync(&[]);
    let sync = SyncGroupRequest {
        group_id: "g".into(),
        generation_id: socket.generation,
        member_id: first.member_id.clone(),
        group_instance_id: None,
        protocol_type: None,
        protocol_name: None,
        assignments: vec![assigned(&socket.id, "half")],
    };
    embedded.ask(1, Request::SyncGroup(sync));
    assert_eq!(socket.synced().unwrap().assignment, Bytes::from_static(b"half"));
    drop(embedded);
    world.broker.close().unwrap();
    let world = open(dir.path(), &[], false);
    let mut socket = back(&world, &socket);
    assert_eq!(socket.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    let joined = socket.join();
    assert_eq!((joined.generation_id, joined.members.len()), (3, 1));
}

#[test]
fn a_group_that_is_too_large_for_a_new_limit_rebalances() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), &[], false);
    world.broker.create_topic("t", 2, &[]).unwrap();
    let (a, b) = two(&world);
    world.broker.close().unwrap();
    let world = open(dir.path(), &[("group.max.size", "1")], false);
    let (a, mut b) = (back(&world, &a), back(&world, &b));
    assert_eq!(a.heartbeat(), ErrorCode::REBALANCE_IN_PROGRESS);
    a.begin_join();
    assert_eq!(b.join().error_code, ErrorCode::GROUP_MAX_SIZE_REACHED);
}

#[test]
fn a_group_is_stored_as_soon_as_a_join_has_made_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), &[], false);
    let conn = world.connect();
    let mut request = conn.join_request();
    request.sender.version = 9;
    for _ in 0..2 {
        let Response::JoinGroup(asked) = conn.ask(Request::JoinGroup(request.clone())) else {
            panic!()
        };
        assert_eq!(asked.error_code, ErrorCode::MEMBER_ID_REQUIRED);
    }
    assert_eq!(
        records(&world.broker),
        1,
        "one empty record, as a 4.3.1 writes (tests/golden/directories)"
    );
    world.broker.close().unwrap();
    let world = open(dir.path(), &[], false);
    assert_eq!(world.group(), ("Empty", 0));
}

#[test]
fn a_read_only_broker_knows_the_protocol_type() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path(), &[], false);
    writer.broker.create_topic("t", 2, &[]).unwrap();
    let _members = two(&writer);
    let reader = open(dir.path(), &[], true);
    let groups = reader.broker.groups().unwrap();
    let listed: Vec<_> = groups.iter().map(|g| (&*g.protocol_type, g.state)).collect();
    assert_eq!(listed, [("consumer", "Empty")], "the members are the other broker's");
}

/// Records in the partitions of `__consumer_offsets`.
fn records(broker: &Arc<Broker>) -> i64 {
    let topic = broker.describe_topic("__consumer_offsets").unwrap();
    topic.partitions.iter().map(|p| p.high_watermark).sum()
}
