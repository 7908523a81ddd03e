//! Share groups (spec 14.1 to 14.3) over restarts, with timers and deleted topics: what the recordings of a real broker, which
//! `tests/wire/test_share_groups.py` runs, do not show.

use std::path::Path;
use std::sync::Arc;

use fletchlog_api::*;
use fletchlog_broker::Broker;
use fletchlog_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use fletchlog_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use fletchlog_protocol::messages::share_group_describe_response::DescribedGroup;
use fletchlog_protocol::messages::{
    AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest, ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
};

use super::wire::*;
use crate::common::*;

const SESSION_MS: i64 = 45_000;

/// Targets are computed at once.
const AT_ONCE: &[(&str, &str)] = &[("group.share.assignment.interval.ms", "0")];

fn open(dir: &Path) -> World {
    let clock = VirtualClock::new();
    let broker = Broker::open(dir, options(None, false, AT_ONCE), clock.clone()).unwrap();
    World { broker, clock }
}

fn heartbeat(id: &str, epoch: i32) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: id.into(),
        member_epoch: epoch,
        sender: sender(1),
        ..Default::default()
    }
}

fn join(id: &str, topics: &[&str]) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        subscribed_topic_names: Some(topics.iter().map(|&name| name.into()).collect()),
        ..heartbeat(id, 0)
    }
}

fn beat(conn: &Conn, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse {
    let Response::ShareGroupHeartbeat(response) = conn.ask(Request::ShareGroupHeartbeat(request)) else {
        panic!("another response");
    };
    response
}

/// (error, epoch, partitions of all topics)
fn answer(response: &ShareGroupHeartbeatResponse) -> (i16, i32, Option<Vec<i32>>) {
    let topics = response
        .assignment
        .as_ref()
        .map(|assignment| &assignment.topic_partitions);
    let partitions = topics.map(|topics| topics.iter().flat_map(|topic| topic.partitions.clone()).collect());
    (response.error_code.code(), response.member_epoch, partitions)
}

fn described(world: &World) -> DescribedGroup {
    let mut group = world.broker.describe_share_group("g").unwrap();
    group.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
    group
}

/// Two members that share two partitions of a topic.
fn two(world: &World) -> (Conn, Conn) {
    world.broker.create_topic("t", 2, &[]).unwrap();
    let (a, b) = (world.connect(), world.connect());
    assert_eq!(answer(&beat(&a, join("a", &["t"]))), (0, 2, Some(vec![])));
    assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 3, Some(vec![0, 1])));
    let joined = answer(&beat(&b, join("b", &["t"])));
    assert_eq!((joined.0, joined.1, joined.2.unwrap().len()), (0, 4, 1));
    assert_eq!(answer(&beat(&a, heartbeat("a", 3))).2.unwrap().len(), 1);
    (a, b)
}

/// Starts of the partitions of `t`, as (start, lag).
fn starts(world: &World) -> Vec<(i64, i64)> {
    let topics = world.broker.share_group_offsets(&"g".into(), None).unwrap();
    let partitions = topics.into_iter().flat_map(|topic| topic.partitions);
    partitions.map(|p| (p.start_offset, p.lag)).collect()
}

fn set_starts(world: &World, starts: &[(i32, i64)]) -> Result<Vec<ErrorCode>, ErrorCode> {
    let partitions = starts.iter().map(
        |(partition_index, start_offset)| AlterShareGroupOffsetsRequestPartition {
            partition_index: *partition_index,
            start_offset: *start_offset,
        },
    );
    let altered = world.broker.alter_share_group_offsets(&AlterShareGroupOffsetsRequest {
        group_id: "g".into(),
        topics: vec![AlterShareGroupOffsetsRequestTopic {
            topic_name: "t".into(),
            partitions: partitions.collect(),
        }],
    });
    let topics = altered.map_err(|error| error.code())?;
    Ok(topics
        .iter()
        .flat_map(|t| &t.partitions)
        .map(|p| p.error_code)
        .collect())
}

fn delete_starts(world: &World, topics: &[&str]) -> Result<Vec<ErrorCode>, ErrorCode> {
    let topics = topics.iter().map(|name| DeleteShareGroupOffsetsRequestTopic {
        topic_name: Arc::from(*name),
    });
    let deleted = world
        .broker
        .delete_share_group_offsets(&DeleteShareGroupOffsetsRequest {
            group_id: "g".into(),
            topics: topics.collect(),
        });
    Ok(deleted
        .map_err(|error| error.code())?
        .iter()
        .map(|t| t.error_code)
        .collect())
}

#[test]
fn members_keep_their_epochs_and_partitions_after_a_stop_and_after_a_kill() {
    for closes in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let world = open(dir.path());
        drop(two(&world));
        let before = described(&world);
        assert_eq!((before.group_epoch, before.members.len()), (4, 2));
        if closes {
            world.broker.close().unwrap();
        }
        drop(world);
        let world = open(dir.path());
        assert_eq!(described(&world), before);
        let a = world.connect();
        assert_eq!(answer(&beat(&a, heartbeat("a", 4))), (0, 4, None));
        assert_eq!(world.broker.groups().unwrap()[0].group_type, "share".into());
    }
}

#[test]
fn sessions_begin_anew_when_a_group_is_loaded_and_end_on_the_clock() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    drop(two(&world));
    world.clock.advance(SESSION_MS - 1);
    drop(world);
    let world = open(dir.path());
    let a = world.connect();
    assert_eq!(beat(&a, heartbeat("a", 4)).error_code, ErrorCode::NONE);
    world.clock.advance(SESSION_MS - 1);
    world.broker.run_due();
    assert_eq!(described(&world).members.len(), 2);
    assert_eq!(beat(&a, heartbeat("a", 4)).error_code, ErrorCode::NONE);
    world.clock.advance(1);
    world.broker.run_due();
    let left = described(&world);
    assert_eq!((left.members.len(), left.group_epoch), (1, 5));
    assert_eq!(answer(&beat(&a, heartbeat("a", 4))), (0, 5, Some(vec![0, 1])));
}

fn open_in_memory() -> World {
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(None, false, AT_ONCE), clock.clone()).unwrap();
    World { broker, clock }
}

#[test]
fn new_partitions_are_assigned_once_they_have_a_state() {
    let world = open_in_memory();
    let (a, _b) = two(&world);
    assert_eq!(
        beat(
            &a,
            ShareGroupHeartbeatRequest {
                member_epoch: -1,
                ..heartbeat("a", 4)
            }
        )
        .error_code,
        ErrorCode::NONE
    );
    world.broker.create_partitions("t", 4, None, false).unwrap();
    let b = world.connect();
    // The first heartbeat sees the partitions, the second one brings them.
    assert_eq!(answer(&beat(&b, heartbeat("b", 4))), (0, 6, Some(vec![0, 1])));
    assert_eq!(answer(&beat(&b, heartbeat("b", 6))), (0, 7, Some(vec![0, 1, 2, 3])));
}

#[test]
fn a_deleted_topic_leaves_the_group_and_one_of_its_name_begins_anew() {
    let world = open_in_memory();
    let (_, b) = two(&world);
    world.broker.delete_topic("t").unwrap();
    assert_eq!(answer(&beat(&b, heartbeat("b", 4))), (0, 5, Some(vec![])));
    assert_eq!(starts(&world), []);
    world.broker.create_topic("t", 1, &[]).unwrap();
    assert_eq!(answer(&beat(&b, heartbeat("b", 5))), (0, 6, None));
    assert_eq!(starts(&world), [(-1, -1)]);
    let brought = answer(&beat(&b, heartbeat("b", 6)));
    assert_eq!((brought.0, brought.1), (0, 7));
}

#[test]
fn starts_are_set_and_deleted_while_there_are_no_members() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    world.broker.create_topic("t", 2, &[]).unwrap();
    assert_eq!(delete_starts(&world, &["t"]), Err(ErrorCode::GROUP_ID_NOT_FOUND));
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(
        set_starts(&world, &[(0, 3), (7, 1)]),
        Ok(vec![ErrorCode::NONE, unknown])
    );
    assert_eq!(starts(&world), [(3, -3)]);
    drop(world);
    // A group that only has starts is there again after a kill.
    let world = open(dir.path());
    assert_eq!((described(&world).group_epoch, starts(&world)), (1, vec![(3, -3)]));
    let a = world.connect();
    // The partition with a state at once, the other one with the next heartbeat.
    assert_eq!(answer(&beat(&a, join("a", &["t"]))), (0, 2, Some(vec![0])));
    assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 3, Some(vec![0, 1])));
    assert_eq!(set_starts(&world, &[(0, 0)]), Err(ErrorCode::NON_EMPTY_GROUP));
    assert_eq!(delete_starts(&world, &["t"]), Err(ErrorCode::NON_EMPTY_GROUP));
    let leaves = ShareGroupHeartbeatRequest {
        member_epoch: -1,
        ..heartbeat("a", 3)
    };
    assert_eq!(beat(&a, leaves).error_code, ErrorCode::NONE);
    assert_eq!(delete_starts(&world, &["t", "u"]), Ok(vec![ErrorCode::NONE, unknown]));
    assert_eq!(starts(&world), []);
    assert_eq!(delete_starts(&world, &["t"]), Ok(vec![unknown]));
    world.broker.delete_group("g").unwrap();
    assert_eq!(world.broker.groups().unwrap(), []);
    drop((world, a));
    assert_eq!(open(dir.path()).broker.groups().unwrap(), []);
}

#[test]
fn an_empty_share_group_does_not_expire() {
    let world = open_in_memory();
    world.broker.create_topic("t", 1, &[]).unwrap();
    set_starts(&world, &[(0, 0)]).unwrap();
    world.clock.advance(8 * 24 * 3_600_000);
    world.broker.run_due();
    assert_eq!(world.broker.groups().unwrap().len(), 1);
}

#[test]
fn a_group_is_that_of_the_records_that_an_election_has_left() {
    let (broker, clock) = cut::cluster(AT_ONCE);
    let world = World { broker, clock };
    let (a, b) = (world.connect(), world.connect());
    assert_eq!(answer(&beat(&a, join("a", &["t"]))), (0, 2, Some(vec![])));
    assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 3, Some(vec![0, 1])));
    let before = described(&world);
    cut::begin(&world.broker);
    assert_eq!(beat(&b, join("b", &["t"])).member_epoch, 4);
    assert_eq!(answer(&beat(&a, heartbeat("a", 3))).1, 4);
    world.clock.advance(SESSION_MS - 1);
    cut::lose(&world.broker);
    assert_eq!(described(&world), before);
    assert_eq!(beat(&b, heartbeat("b", 4)).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    world.clock.advance(SESSION_MS - 1);
    world.broker.run_due();
    assert_eq!(described(&world).members.len(), 1, "its session begins anew");
    world.clock.advance(1);
    world.broker.run_due();
    assert_eq!(described(&world).group_state, "Empty".into());
}

#[test]
fn an_embedded_member_continues_after_an_election_that_cuts_the_log() {
    let (broker, clock) = cut::cluster(AT_ONCE);
    let world = World { broker, clock };
    let mut embedded = Client::new(&world.broker);
    embedded.ask(1, Request::ShareGroupHeartbeat(join("a", &["t"])));
    cut::begin(&world.broker);
    beat(&world.connect(), join("b", &["t"]));
    assert_eq!(described(&world).members.len(), 2);
    cut::lose(&world.broker);
    world.clock.advance(SESSION_MS - 1);
    world.broker.run_due();
    let members = described(&world).members;
    let ids: Vec<_> = members.iter().map(|member| &*member.member_id).collect();
    assert_eq!(ids, ["a"]);
}
