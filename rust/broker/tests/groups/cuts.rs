//! Elections that cut `__consumer_offsets` (spec 8.14): groups and offsets are those of the records that are left. Consumer groups and share
//! groups are in `consumer_groups.rs`, `share_groups.rs` and `share_partitions.rs`, offsets of transactions in `transactions/cuts.rs`.

use fletchlog_api::*;

use super::commits::{commit, fetch};
use super::member;
use super::wire::*;
use crate::common::cut;
use crate::transactions::client::Txn;

const AT_ONCE: (&str, &str) = ("group.initial.rebalance.delay.ms", "0");

fn world(config: &[(&str, &str)]) -> World {
    let (broker, clock) = cut::cluster(&[&[AT_ONCE], config].concat());
    World { broker, clock }
}

#[test]
fn offsets_are_those_of_the_records_that_are_left() {
    let world = world(&[]);
    let conn = world.connect();
    let commit_of = |group: &str, offsets: &[_]| commit(&conn, group, -1, "", None, offsets);
    assert_eq!(commit_of("g", &[("t", 0, 5)]), [0]);
    assert_eq!(commit_of("deleted", &[("t", 1, 3)]), [0]);
    cut::begin(&world.broker);
    assert_eq!(commit_of("g", &[("t", 0, 109), ("t", 1, 7)]), [0, 0]);
    assert_eq!(commit_of("new", &[("t", 0, 1)]), [0]);
    world.broker.delete_group("deleted").unwrap();
    assert_eq!(fetch(&world.broker, "g"), [Some(109), Some(7)]);
    cut::lose(&world.broker);
    assert_eq!(fetch(&world.broker, "g"), [Some(5), None]);
    assert_eq!(fetch(&world.broker, "new"), [None, None]);
    assert_eq!(fetch(&world.broker, "deleted"), [None, Some(3)]);
    let groups = world.broker.groups().unwrap();
    let mut ids: Vec<&str> = groups.iter().map(|group| &*group.group_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["deleted", "g"]);
    assert_eq!(commit_of("g", &[("t", 0, 6)]), [0]);
    assert_eq!(fetch(&world.broker, "g"), [Some(6), None]);
}

/// A second member joins the stable group of the first one.
fn joins(first: &mut Conn, second: &mut Conn) {
    second.begin_join();
    first.join();
    second.joined().unwrap();
    second.begin_sync(&[]);
    assert_eq!(first.sync(&[]), ErrorCode::NONE);
    assert_eq!(second.synced().unwrap().error_code, ErrorCode::NONE);
}

#[test]
fn a_classic_group_has_the_generation_that_is_left_and_its_sessions_begin_anew() {
    let world = world(&[]);
    let (mut first, mut second) = (world.stable(), world.connect());
    let before = (first.generation, world.broker.describe_group("g").unwrap());
    cut::begin(&world.broker);
    joins(&mut first, &mut second);
    assert_eq!(world.group(), ("Stable", 2));
    world.clock.advance(i64::from(SESSION) - 1);
    cut::lose(&world.broker);
    assert_eq!(world.broker.describe_group("g").unwrap(), before.1);
    assert_eq!(second.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(first.heartbeat(), ErrorCode::ILLEGAL_GENERATION);
    first.generation = before.0;
    assert_eq!(commit(&first, "g", before.0, &first.id, None, &[("t", 0, 7)]), [0]);
    world.clock.advance(i64::from(SESSION) - 1);
    world.broker.run_due();
    assert_eq!(world.group(), ("Stable", 1));
    world.clock.advance(1);
    world.broker.run_due();
    assert_eq!(world.group(), ("Empty", 0));
}

#[test]
fn a_group_of_which_no_record_is_left_does_not_exist() {
    let world = world(&[]);
    assert_eq!(commit(&world.connect(), "other", -1, "", None, &[("t", 0, 1)]), [0]);
    cut::begin(&world.broker);
    let (first, mut second) = (world.stable(), world.connect());
    second.begin_join();
    cut::lose(&world.broker);
    assert_eq!(second.joined().unwrap().error_code, ErrorCode::NOT_COORDINATOR);
    let left: Vec<_> = world.broker.groups().unwrap().into_iter().map(|g| g.group_id).collect();
    assert_eq!(left, ["other".into()]);
    assert_eq!(first.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
}

/// Nobody sends heartbeats of a member in this process: its client's liveness is in no record.
#[test]
fn a_classic_member_in_this_process_continues_to_live_by_its_client() {
    let (broker, clock) = cut::cluster(&[AT_ONCE]);
    let world = member::World { broker, clock };
    let (mut first, mut second) = (world.member(), world.member());
    first.join();
    let id = first.id.clone();
    first.begin_sync(&[(&id, "mine")]);
    assert_eq!(first.synced().unwrap().error_code, ErrorCode::NONE);
    cut::begin(&world.broker);
    second.begin_join();
    first.join();
    second.joined().unwrap();
    first.begin_sync(&[]);
    assert_eq!(first.synced().unwrap().error_code, ErrorCode::NONE);
    assert_eq!(world.broker.describe_group("g").unwrap().members.len(), 2);
    cut::lose(&world.broker);
    world.clock.advance(i64::from(member::REBALANCE) - 1);
    world.broker.run_due();
    let group = world.broker.describe_group("g").unwrap();
    assert_eq!((group.state, group.members.len()), ("Stable", 1));
    assert_eq!(first.heartbeat_as(1, &id), ErrorCode::NONE);
    let other = second.id.clone();
    assert_eq!(second.heartbeat_as(2, &other), ErrorCode::UNKNOWN_MEMBER_ID);
}

/// Its record is gone, whatever later records take its offset.
#[test]
fn a_commit_that_waits_for_replicas_is_refused_when_an_election_cuts_it_off() {
    let world = world(&[("min.insync.replicas", "2")]);
    let (first, second) = (world.connect(), world.connect_to(2));
    let commit_of = |conn: &Conn, offset| commit(conn, "g", -1, "", None, &[("t", 0, offset)]);
    assert_eq!(commit_of(&first, 5), [0]);
    world.broker.stop_node(2).unwrap();
    let value = OffsetAndMetadata {
        offset: 109,
        leader_epoch: -1,
        metadata: "".into(),
    };
    first.send(Request::OffsetCommit(OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics: OffsetCommitRequest::topics_of([(crate::common::tp("t", 0), value)]),
        ..Default::default()
    }));
    assert!(first.take().is_none(), "it waits");
    world.broker.shut_down_node(1, 3_000).unwrap();
    // An eligible leader replica, which has all that was on every replica in sync.
    world.broker.start_node(2).unwrap();
    let Some(Response::OffsetCommit(refused)) = first.take() else {
        panic!("it waits for a record that is gone");
    };
    let codes: Vec<_> = refused.errors().map(|(_, code)| code).collect();
    assert_eq!(codes, [ErrorCode::COORDINATOR_NOT_AVAILABLE]);
    let request = OffsetFetchRequest::of("g".into(), Some(&[crate::common::tp("t", 0)]), false);
    let Response::OffsetFetch(found) = second.ask(Request::OffsetFetch(request)) else {
        panic!()
    };
    let (_, committed) = found.offsets().unwrap().next().unwrap();
    assert_eq!(committed.unwrap().map(|committed| committed.offset), Some(5));
}

/// Groups, offsets and transactions, in an order.
fn known(world: &World) -> String {
    let broker = &world.broker;
    let offsets = ["g", "new", "deleted"].map(|group| fetch(broker, group));
    let mut groups = broker.groups().unwrap();
    groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    let transactions = broker.transactions().unwrap();
    format!(
        "{offsets:?}\n{groups:?}\n{:?}\n{transactions:?}",
        broker.describe_group("g")
    )
}

#[test]
fn what_coordinators_have_in_memory_is_what_a_restart_reads() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock) = cut::cluster_in(dir.path());
    let world = World { broker, clock };
    let (mut first, mut second) = (world.stable(), world.connect());
    assert_eq!(commit(&first, "g", 1, &first.id, None, &[("t", 0, 5)]), [0]);
    assert_eq!(commit(&second, "deleted", -1, "", None, &[("t", 1, 3)]), [0]);
    let t = crate::common::tp("t", 0);
    let mut old = Txn::new(&world.broker, "old");
    old.write(&t, "a");
    assert_eq!((old.add_offsets("x"), old.commit_offset("x", &t, 1)), (0, 0));
    cut::begin(&world.broker);
    joins(&mut first, &mut second);
    assert_eq!(commit(&first, "g", 2, &first.id, None, &[("t", 0, 109)]), [0]);
    assert_eq!(commit(&second, "new", -1, "", None, &[("t", 1, 3)]), [0]);
    world.broker.delete_group("deleted").unwrap();
    assert_eq!(old.end(true), 0);
    Txn::new(&world.broker, "new").write(&t, "b");
    let before = known(&world);
    cut::lose(&world.broker);
    let after = known(&world);
    assert_ne!(before, after);
    drop((world, first, second, old));
    let (broker, clock) = cut::cluster_in(dir.path());
    assert_eq!(known(&World { broker, clock }), after);
}
