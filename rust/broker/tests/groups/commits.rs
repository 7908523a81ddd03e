//! Commits and fetches of clients behind sockets, and what an administrator does with groups and their offsets. Recorded as in
//! `wire.rs`.

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_records::TopicPartition;

use super::wire::{Conn, World};
use crate::common::*;

/// The code of each (topic, partition, offset).
pub fn commit(
    conn: &Conn,
    group: &str,
    generation: i32,
    member: &str,
    instance: Option<&str>,
    offsets: &[(&str, i32, i64)],
) -> Vec<i16> {
    commit_with(conn, offsets, |request| {
        (request.group_id, request.generation_id_or_member_epoch) = (group.into(), generation);
        (request.member_id, request.group_instance_id) = (member.into(), instance.map(Into::into));
    })
}

fn commit_with(conn: &Conn, offsets: &[(&str, i32, i64)], change: impl Fn(&mut OffsetCommitRequest)) -> Vec<i16> {
    let mut request = OffsetCommitRequest {
        group_id: "g".into(),
        knows_group_id_not_found: true,
        topics: OffsetCommitRequest::topics_of(
            offsets
                .iter()
                .map(|(topic, partition, offset)| (tp(topic, *partition), value(*offset))),
        ),
        ..Default::default()
    };
    change(&mut request);
    let Response::OffsetCommit(answer) = conn.ask(Request::OffsetCommit(request)) else {
        panic!()
    };
    answer.errors().map(|(_, code)| code.code()).collect()
}

fn value(offset: i64) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "".into(),
    }
}

/// Offsets of `t` in a group; `None`: nothing committed.
pub fn fetch(broker: &std::sync::Arc<Broker>, group: &str) -> Vec<Option<i64>> {
    let request = OffsetFetchRequest::of(group.into(), Some(&[tp("t", 0), tp("t", 1)]), true);
    let Response::OffsetFetch(answer) = Client::new(broker).ask(1, Request::OffsetFetch(request)) else {
        panic!()
    };
    let partitions = &answer.groups[0].topics[0].partitions;
    assert!(partitions.iter().all(|p| p.error_code == ErrorCode::NONE));
    let offsets = partitions.iter().map(|p| p.committed_offset);
    offsets.map(|offset| (offset != -1).then_some(offset)).collect()
}

fn code<T: std::fmt::Debug>(result: Result<T, BrokerError>) -> i16 {
    result.unwrap_err().code().code()
}

#[test]
fn a_commit_is_judged_by_group_member_generation_and_state_in_kafkas_order() {
    let world = World::new(&[]);
    let conn = world.connect();
    let of =
        |group: &str, generation: i32, member: &str| commit(&conn, group, generation, member, None, &[("t", 0, 5)]);
    // No group (groups-003): a generation needs one.
    assert_eq!(of("g", 3, "nobody"), [69]);
    assert_eq!(
        commit_with(&conn, &[("t", 0, 5)], |r| (
            r.generation_id_or_member_epoch,
            r.knows_group_id_not_found
        ) = (3, false)),
        [22]
    );
    // Empty (groups-043): any member, any instance, but no generation.
    assert_eq!(of("g", -1, "nobody"), [0]);
    assert_eq!(commit(&conn, "g", -1, "", Some("i"), &[("t", 0, 5)]), [0]);
    assert_eq!(of("g", 6, "nobody"), [25]);
    // Members, Completing and Stable (groups-027, -019).
    let mut member = world.connect();
    member.join();
    let id = member.id.clone();
    for (generation, who, expected) in [
        (1, &*id, 27),
        (8, &id, 22),
        (1, "nobody", 25),
        (-1, "", 25),
        (-1, &id, 22),
    ] {
        assert_eq!(of("g", generation, who), [expected], "{generation} {who}");
    }
    member.sync(&[]);
    assert_eq!(of("g", 1, &id), [0]);
    assert_eq!(commit(&conn, "g", 1, &id, Some("i"), &[("t", 0, 5)]), [25]);
}

#[test]
fn partitions_are_judged_one_by_one_and_unknown_ones_before_the_group() {
    let world = World::new(&[]);
    let conn = world.connect();
    // groups-130: an unknown topic is 3 even for a member that is fenced; nothing is known of the group then.
    assert_eq!(
        commit(&conn, "g", 7, "nobody", None, &[("nope", 0, 5), ("t", 9, 5)]),
        [3, 3]
    );
    assert_eq!(
        commit(&conn, "g", 7, "nobody", None, &[("nope", 0, 5), ("t", 0, 5)]),
        [3, 69]
    );
    assert_eq!(world.broker.groups().unwrap(), []);
    // groups-148, -149, -151: too much metadata for one; offsets below 0; no group id.
    let long = |len: usize| -> std::sync::Arc<str> { "\u{e9}".repeat(len).into() };
    let codes = commit_with(&conn, &[("t", 0, -7), ("t", 1, 2)], |request| {
        request.group_id = "".into();
        request.topics[0].partitions[0].committed_metadata = Some(long(4096));
        request.topics[0].partitions[1].committed_metadata = Some(long(4097));
    });
    assert_eq!(codes, [0, 12]);
    assert_eq!(fetch(&world.broker, ""), [Some(-7), None]);
    assert_eq!(world.broker.describe_group("").unwrap().state, "Empty");
}

#[test]
fn an_offset_with_a_retention_of_its_own_expires_by_it_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let config = &[("offsets.retention.check.interval.ms", "1000")];
    let open = |clock: &std::sync::Arc<VirtualClock>| {
        Broker::open(dir.path(), options(None, false, config), clock.clone()).unwrap()
    };
    let clock = VirtualClock::new();
    let world = World {
        broker: open(&clock),
        clock: clock.clone(),
    };
    world.broker.create_topic("t", 2, &[]).unwrap();
    let conn = world.connect();
    assert_eq!(
        commit_with(&conn, &[("t", 0, 5)], |r| r.retention_time_ms = 60_000),
        [0]
    );
    assert_eq!(commit_with(&conn, &[("t", 1, 6)], |_| ()), [0]);
    drop(conn);
    drop(world);
    let broker = open(&clock);
    assert_eq!(fetch(&broker, "g"), [Some(5), Some(6)]);
    clock.advance(60_000);
    assert_eq!(fetch(&broker, "g"), [None, Some(6)]);
}

#[test]
fn offsets_of_topics_that_nobody_subscribes_to_expire_and_empty_groups_go() {
    let config = [
        ("offsets.retention.check.interval.ms", "1000"),
        ("offsets.retention.minutes", "1"),
    ];
    let world = World::new(&config);
    world.broker.create_topic("u", 1, &[]).unwrap();
    let mut member = world.connect();
    member.metadata = Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff");
    member.join();
    member.sync(&[]);
    assert_eq!(
        commit(&member, "g", 1, &member.id, None, &[("t", 0, 1), ("u", 0, 1)]),
        [0, 0]
    );
    let mut request = world.connect().join_request();
    (request.group_id, request.sender.version) = ("asked".into(), 9);
    member.ask(Request::JoinGroup(request));
    assert_eq!(world.broker.groups().unwrap().len(), 2);
    for _ in 0..7 {
        world.clock.advance(9_000);
        assert_eq!(member.heartbeat(), ErrorCode::NONE);
    }
    assert_eq!(world.broker.groups().unwrap().len(), 1);
    let all = OffsetFetchRequest::of("g".into(), None, false);
    let Response::OffsetFetch(all) = member.ask(Request::OffsetFetch(all)) else {
        panic!()
    };
    assert_eq!(
        all.offsets().unwrap().map(|(tp, _)| tp).collect::<Vec<_>>(),
        [tp("t", 0)]
    );
}

#[test]
fn a_group_is_described_as_kafka_does_it_in_each_state() {
    let world = World::new(&[]);
    assert_eq!(code(world.broker.describe_group("g")), 69);
    let mut a = world.stable();
    let stable = world.broker.describe_group("g").unwrap();
    assert_eq!(
        (stable.state, &*stable.protocol_type, &*stable.protocol),
        ("Stable", "consumer", "range")
    );
    let member = &stable.members[0];
    assert_eq!((&*member.client_id, &*member.client_host), ("c", "/10.0.0.7"));
    assert_eq!((&*member.metadata, &*member.assignment), (&b"m"[..], &b"mine"[..]));
    let mut b = world.connect();
    b.begin_join();
    // groups-019: no metadata, no protocol, but the assignment of the old generation.
    let preparing = world.broker.describe_group("g").unwrap();
    assert_eq!((preparing.state, &*preparing.protocol), ("PreparingRebalance", ""));
    let members = preparing
        .members
        .iter()
        .map(|m| (&*m.metadata, &*m.assignment))
        .collect::<Vec<_>>();
    assert_eq!(members, [(&b""[..], &b"mine"[..]), (b"", b"")]);
    a.join();
    b.joined().unwrap();
    assert_eq!(world.group(), ("CompletingRebalance", 2));
}

#[test]
fn a_group_is_deleted_with_its_offsets_once_nobody_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Broker::open(dir.path(), options(None, false, &[]), VirtualClock::new()).unwrap();
    let world = World {
        broker: open(),
        clock: VirtualClock::new(),
    };
    world.broker.create_topic("t", 2, &[]).unwrap();
    assert_eq!(code(world.broker.delete_group("g")), 69);
    let member = world.stable();
    assert_eq!(commit(&member, "g", 1, &member.id, None, &[("t", 0, 5)]), [0]);
    assert_eq!(code(world.broker.delete_group("g")), 68, "groups-037");
    assert_eq!(
        code(world.broker.alter_offsets(&"g".into(), &[(tp("t", 0), value(1))])),
        68
    );
    member.leave(&[(&member.id, None)]);
    world.broker.delete_group("g").unwrap();
    assert_eq!(world.broker.groups().unwrap(), []);
    assert_eq!(member.heartbeat(), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(fetch(&world.broker, "g"), [None, None]);
    // One that never had members, and none of whose offsets is left.
    world
        .broker
        .alter_offsets(&"simple".into(), &[(tp("t", 0), value(1))])
        .unwrap();
    world.broker.delete_offsets("simple", &[tp("t", 0)]).unwrap();
    world.broker.delete_group("simple").unwrap();
    drop(member);
    world.broker.close().unwrap();
    drop(world);
    let broker = open();
    assert_eq!(broker.groups().unwrap(), []);
    assert_eq!(fetch(&broker, "g"), [None, None]);
}

#[test]
fn a_commit_of_which_nothing_is_kept_makes_no_group() {
    let world = World::new(&[]);
    let member = world.connect();
    let too_large = |request: &mut OffsetCommitRequest| {
        request.topics[0].partitions[0].committed_metadata = Some("x".repeat(4097).into());
    };
    assert_eq!(commit_with(&member, &[("t", 0, 5)], too_large), [12]);
    assert_eq!(world.broker.groups().unwrap(), []);
    // The group that has an offset already stays.
    assert_eq!(commit(&member, "g", -1, "", None, &[("t", 0, 5)]), [0]);
    assert_eq!(commit_with(&member, &[("t", 0, 6)], too_large), [12]);
    assert_eq!(fetch(&world.broker, "g"), [Some(5), None]);
}

#[test]
fn offsets_are_deleted_unless_a_member_may_read_them() {
    let world = World::new(&[]);
    let delete = |tps: &[TopicPartition]| {
        let deleted = world.broker.delete_offsets("g", tps)?;
        Ok(deleted.into_iter().map(|(_, code)| code.code()).collect::<Vec<_>>())
    };
    let (t0, t1, t7) = (tp("t", 0), tp("t", 1), tp("t", 7));
    assert_eq!(code(delete(std::slice::from_ref(&t0))), 69);
    assert_eq!(code(delete(&[tp("nope", 0)])), 69, "the group is asked first");
    let mut member = world.connect();
    assert_eq!(commit(&member, "g", -1, "", None, &[("t", 0, 5)]), [0]);
    assert_eq!(delete(&[tp("nope", 0)]).unwrap(), [3]);
    // groups-046
    assert_eq!(delete(&[t0.clone(), t1.clone(), t7.clone()]).unwrap(), [0, 0, 3]);
    assert_eq!(fetch(&world.broker, "g"), [None, None]);
    // Consumers whose subscription cannot be read may read all (groups-022); others only what they subscribe to.
    member.join();
    member.sync(&[]);
    assert_eq!(delete(&[t0.clone(), t7]).unwrap(), [86, 3]);
    member.metadata = Bytes::from_static(b"\0\x01\0\0\0\x01\0\x01u\xff\xff\xff\xff");
    member.join();
    assert_eq!(delete(std::slice::from_ref(&t0)).unwrap(), [0]);
    // Members that are no consumers: nothing can be said.
    member.leave(&[(&member.id, None)]);
    let mut request = member.join_request();
    (request.member_id, request.protocol_type) = ("".into(), "connect".into());
    member.ask(Request::JoinGroup(request));
    assert_eq!(code(delete(&[t0])), 68);
}

#[test]
fn offsets_of_a_group_without_members_are_altered_all_or_none() {
    let world = World::new(&[]);
    let alter = |offsets: &[(TopicPartition, OffsetAndMetadata)]| world.broker.alter_offsets(&"g".into(), offsets);
    assert_eq!(code(alter(&[(tp("t", 0), value(1)), (tp("t", 9), value(1))])), 3);
    assert_eq!(fetch(&world.broker, "g"), [None, None]);
    alter(&[(tp("t", 0), value(1)), (tp("t", 1), value(2))]).unwrap();
    assert_eq!(fetch(&world.broker, "g"), [Some(1), Some(2)]);
    let mut member = world.connect();
    member.join();
    assert_eq!(code(alter(&[(tp("t", 0), value(7))])), 68);
}
