//! Consumer groups (spec 8.9, 8.10) over restarts, with timers, many members and expressions: what the recordings of a real broker, which
//! `tests/wire/test_consumer_groups.py` runs, do not show.

use std::path::Path;

use fletchlog_api::*;
use fletchlog_broker::{Acl, AclOperation, Broker, PatternType, PermissionType, ResourceType};
use fletchlog_protocol::messages::consumer_group_describe_response::DescribedGroup;
use fletchlog_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use fletchlog_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::wire::*;
use crate::common::*;

const SESSION_MS: i64 = 45_000;

/// Targets are computed at once.
const AT_ONCE: &[(&str, &str)] = &[("group.consumer.assignment.interval.ms", "0")];

fn open(dir: &Path, config: &[(&str, &str)]) -> World {
    let clock = VirtualClock::new();
    let broker = Broker::open(dir, options(None, false, config), clock.clone()).unwrap();
    World { broker, clock }
}

fn heartbeat(id: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: id.into(),
        member_epoch: epoch,
        sender: sender(1),
        ..Default::default()
    }
}

fn join(id: &str, topics: &[&str]) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        rebalance_timeout_ms: 5_000,
        subscribed_topic_names: Some(topics.iter().map(|&name| name.into()).collect()),
        topic_partitions: Some(Vec::new()),
        ..heartbeat(id, 0)
    }
}

fn beat(conn: &Conn, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
    let Response::ConsumerGroupHeartbeat(response) = conn.ask(Request::ConsumerGroupHeartbeat(request)) else {
        panic!("another response");
    };
    response
}

/// (error, epoch, partitions of the one topic)
fn answer(response: &ConsumerGroupHeartbeatResponse) -> (i16, i32, Option<Vec<i32>>) {
    let topics = response
        .assignment
        .as_ref()
        .map(|assignment| &assignment.topic_partitions);
    let partitions = topics.map(|topics| topics.iter().flat_map(|topic| topic.partitions.clone()).collect());
    (response.error_code.code(), response.member_epoch, partitions)
}

fn owned(world: &World, partitions: &[i32]) -> Option<Vec<TopicPartitions>> {
    let topic_id = world.broker.topic_id("t").unwrap().unwrap();
    Some(vec![TopicPartitions {
        topic_id,
        partitions: partitions.to_vec(),
    }])
}

fn described(world: &World) -> DescribedGroup {
    let mut group = world.broker.describe_consumer_group("g").unwrap();
    group.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
    group
}

/// Two members, the first of which has to give up partitions; the second is static.
fn two(world: &World) -> (Conn, Conn) {
    world.broker.create_topic("t", 4, &[]).unwrap();
    let (a, b) = (world.connect(), world.connect());
    assert_eq!(answer(&beat(&a, join("a", &["t"]))), (0, 2, Some(vec![0, 1, 2, 3])));
    let joins = ConsumerGroupHeartbeatRequest {
        instance_id: Some("i".into()),
        ..join("b", &["t"])
    };
    assert_eq!(answer(&beat(&b, joins)), (0, 3, Some(vec![])));
    assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 2, Some(vec![0, 1])));
    (a, b)
}

#[test]
fn a_group_goes_on_after_a_stop_and_after_a_kill() {
    for closes in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let world = open(dir.path(), AT_ONCE);
        drop(two(&world));
        let before = described(&world);
        assert_eq!(before.group_state, "Reconciling".into());
        if closes {
            world.broker.close().unwrap();
        }
        drop(world);
        let world = open(dir.path(), AT_ONCE);
        assert_eq!(described(&world), before);
        // What was to be given up still is; then the other member gets it.
        let (a, b) = (world.connect(), world.connect());
        assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 2, None));
        let tells = ConsumerGroupHeartbeatRequest {
            topic_partitions: owned(&world, &[0, 1]),
            ..heartbeat("a", 2)
        };
        assert_eq!(answer(&beat(&a, tells)), (0, 3, None));
        assert_eq!(answer(&beat(&b, heartbeat("b", 3))), (0, 3, Some(vec![2, 3])));
        assert_eq!(described(&world).group_state, "Stable".into());
        assert_eq!(
            (described(&world).group_epoch, described(&world).assignment_epoch),
            (3, 3)
        );
    }
}

#[test]
fn sessions_and_rebalance_time_outs_begin_anew_when_a_group_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), AT_ONCE);
    drop(two(&world));
    world.clock.advance(4_999);
    world.broker.close().unwrap();
    drop(world);
    let world = open(dir.path(), AT_ONCE);
    let b = world.connect();
    assert_eq!(beat(&b, heartbeat("b", 3)).error_code, ErrorCode::NONE);
    world.clock.advance(4_999);
    assert_eq!(described(&world).members.len(), 2);
    world.clock.advance(1);
    world.broker.run_due();
    assert_eq!(described(&world).members.len(), 1, "it has not given up partitions");
    world.clock.advance(SESSION_MS - 5_001);
    world.broker.run_due();
    assert_eq!(described(&world).members.len(), 1);
    world.clock.advance(1);
    world.broker.run_due();
    let group = described(&world);
    assert_eq!(
        (group.group_state, group.group_epoch, group.assignment_epoch),
        ("Empty".into(), 5, 5)
    );
}

#[test]
fn an_embedded_member_ends_with_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), AT_ONCE);
    world.broker.create_topic("t", 4, &[]).unwrap();
    let mut embedded = Client::new(&world.broker);
    let request = Request::ConsumerGroupHeartbeat(join("a", &["t"]));
    let Response::ConsumerGroupHeartbeat(joined) = embedded.ask(1, request) else {
        panic!("another response");
    };
    assert_eq!(answer(&joined), (0, 2, Some(vec![0, 1, 2, 3])));
    // Between two polls it sends nothing.
    world.clock.advance(SESSION_MS - 1);
    world.broker.run_due();
    assert_eq!(described(&world).members.len(), 1);
    let socket = world.connect();
    assert_eq!(answer(&beat(&socket, join("s", &["t"]))), (0, 3, Some(vec![])));
    drop((socket, embedded, world));
    let world = open(dir.path(), AT_ONCE);
    let group = described(&world);
    let members: Vec<_> = group.members.iter().map(|member| &*member.member_id).collect();
    assert_eq!((members, group.group_epoch), (vec!["s"], 4));
}

#[test]
fn what_cannot_be_written_changes_nothing() {
    let world = World::new(&[("message.max.bytes", "2000"), AT_ONCE[0]]);
    let conn = world.connect();
    let long = "x".repeat(3_000);
    let refused = beat(&conn, join("a", &["t", &long]));
    assert_eq!(refused.error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert!(world.broker.groups().unwrap().is_empty());
    assert_eq!(answer(&beat(&conn, join("a", &["t"]))), (0, 2, Some(vec![0, 1])));
    let before = described(&world);
    let refused = beat(&conn, join("b", &["t", &long]));
    assert_eq!(refused.error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    let changed = ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: Some(vec![long.as_str().into()]),
        ..heartbeat("a", 2)
    };
    assert_eq!(beat(&conn, changed).error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!(described(&world), before);
    assert_eq!(answer(&beat(&conn, heartbeat("a", 2))), (0, 2, None));
}

#[test]
fn what_is_refused_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path(), AT_ONCE);
    let (a, b) = two(&world);
    let before = described(&world);
    // A name that no record can hold is refused before anything is changed.
    let long = "x".repeat(40_000);
    let refused = beat(&a, join("a", &["t", &long]));
    assert_eq!(refused.error_code, ErrorCode::INVALID_REQUEST);
    let unknown = beat(&b, heartbeat("nobody", 3));
    assert_eq!(unknown.error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    let no_regex = ConsumerGroupHeartbeatRequest {
        subscribed_topic_regex: Some("(".into()),
        instance_id: Some("new".into()),
        ..join("c", &[])
    };
    assert_eq!(beat(&a, no_regex).error_code, ErrorCode::INVALID_REGULAR_EXPRESSION);
    assert_eq!(described(&world), before);
}

#[test]
fn an_expression_is_resolved_apart_from_the_heartbeats_and_again_for_new_topics() {
    let world = World::new(AT_ONCE);
    world.broker.create_topic("u-1", 1, &[]).unwrap();
    let a = world.connect();
    let joins = ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: None,
        subscribed_topic_regex: Some("u-.*".into()),
        ..join("a", &[])
    };
    assert_eq!(answer(&beat(&a, joins)), (0, 1, Some(vec![])));
    world.broker.run_due();
    assert_eq!(described(&world).group_epoch, 2);
    assert_eq!(answer(&beat(&a, heartbeat("a", 1))), (0, 2, Some(vec![0])));
    // New topics are looked at when ten seconds have passed.
    world.broker.create_topic("u-2", 1, &[]).unwrap();
    world.clock.advance(10_000);
    assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 2, None));
    world.broker.run_due();
    assert_eq!(described(&world).group_epoch, 2);
    world.clock.advance(1);
    assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 2, None));
    world.broker.run_due();
    assert_eq!(described(&world).group_epoch, 3);
    assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 3, Some(vec![0, 0])));
}

/// Members that share an expression are resolved for the one whose heartbeat starts it, as with Kafka.
#[test]
fn an_expression_matches_what_the_client_may_describe_whose_heartbeat_has_it_resolved() {
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    let world = World::new(&[AT_ONCE[0], ("authorizer.class.name", authorizer)]);
    let allow = |principal: &str, topic: &str, host: &str| Acl {
        resource_type: ResourceType::Topic,
        resource_name: topic.into(),
        pattern_type: PatternType::Literal,
        principal: principal.into(),
        host: host.into(),
        operation: AclOperation::Describe,
        permission_type: PermissionType::Allow,
    };
    // An ACL for other addresses allows nothing.
    let acls = [
        allow("User:a", "u-1", "*"),
        allow("User:b", "u-2", "10.0.0.7"),
        allow("User:a", "u-3", "10.0.0.1"),
    ];
    world.broker.create_acls(&acls).unwrap();
    for topic in ["u-1", "u-2", "u-3"] {
        world.broker.create_topic(topic, 1, &[]).unwrap();
    }
    let names = |group: DescribedGroup| -> Vec<Vec<String>> {
        let members = group
            .members
            .iter()
            .map(|member| member.target_assignment.topic_partitions.iter());
        members
            .map(|topics| topics.map(|topic| topic.topic_name.to_string()).collect())
            .collect()
    };
    let conn = world.connect();
    let by = |id: &str, request: ConsumerGroupHeartbeatRequest| {
        let mut request = request;
        request.sender.principal = Some(format!("User:{id}").into());
        beat(&conn, request)
    };
    let joins = |id: &str| ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: None,
        subscribed_topic_regex: Some("u-.*".into()),
        ..join(id, &[])
    };
    assert_eq!(answer(&by("a", joins("a"))), (0, 1, Some(vec![])));
    world.broker.run_due();
    assert_eq!(answer(&by("a", heartbeat("a", 1))), (0, 2, Some(vec![0])));
    assert_eq!(names(described(&world)), [["u-1"]]);
    // A new topic has it resolved again, by the heartbeat of another client: what that one may not describe is gone for both.
    assert_eq!(answer(&by("b", joins("b"))), (0, 3, Some(vec![])));
    world.broker.create_topic("u-4", 1, &[]).unwrap();
    world.clock.advance(10_001);
    assert_eq!(answer(&by("b", heartbeat("b", 3))), (0, 3, None));
    world.broker.run_due();
    // It has to give up what it had.
    assert_eq!(answer(&by("a", heartbeat("a", 2))), (0, 2, Some(vec![])));
    assert_eq!(names(described(&world)).concat(), ["u-2"]);
}

#[test]
fn a_group_of_thousands_of_members_is_loaded_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    // The target is computed for the first member and then a minute later.
    let slow = [("group.consumer.assignment.interval.ms", "15000")];
    let world = open(dir.path(), &slow);
    world.broker.create_topic("t", 1_000, &[]).unwrap();
    let conn = world.connect();
    for i in 0..1_000 {
        let joined = beat(&conn, join(&format!("m-{i:04}"), &["t"]));
        assert_eq!(joined.error_code, ErrorCode::NONE);
    }
    world.clock.advance(15_000);
    let tells = ConsumerGroupHeartbeatRequest {
        topic_partitions: Some(Vec::new()),
        ..heartbeat("m-0000", 2)
    };
    let answered = answer(&beat(&conn, tells));
    assert_eq!(
        (answered.0, answered.1, answered.2.map(|all| all.len())),
        (0, 1_001, Some(1))
    );
    let before = described(&world);
    assert!(
        before
            .members
            .iter()
            .all(|member| member.target_assignment.topic_partitions[0].partitions.len() == 1)
    );
    drop((conn, world));
    let world = open(dir.path(), &slow);
    assert_eq!(described(&world), before);
}

#[test]
fn a_group_is_that_of_the_records_that_an_election_has_left() {
    let (broker, clock) = cut::cluster(AT_ONCE);
    let world = World { broker, clock };
    let (a, b) = (world.connect(), world.connect());
    assert_eq!(answer(&beat(&a, join("a", &["t"]))), (0, 2, Some(vec![0, 1])));
    let before = described(&world);
    cut::begin(&world.broker);
    assert_eq!(answer(&beat(&b, join("b", &["t"]))), (0, 3, Some(vec![])));
    assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 2, Some(vec![0])));
    world.clock.advance(SESSION_MS - 1);
    cut::lose(&world.broker);
    assert_eq!(described(&world), before);
    assert_eq!(beat(&b, heartbeat("b", 3)).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    // Its session begins anew.
    world.clock.advance(SESSION_MS - 1);
    world.broker.run_due();
    assert_eq!(answer(&beat(&a, heartbeat("a", 2))), (0, 2, None));
    world.clock.advance(SESSION_MS);
    world.broker.run_due();
    assert_eq!(described(&world).group_state, "Empty".into());
}

#[test]
fn an_embedded_member_continues_after_an_election_that_cuts_the_log() {
    let (broker, clock) = cut::cluster(AT_ONCE);
    let world = World { broker, clock };
    let (mut embedded, mut late) = (Client::new(&world.broker), Client::new(&world.broker));
    embedded.ask(1, Request::ConsumerGroupHeartbeat(join("a", &["t"])));
    cut::begin(&world.broker);
    late.ask(1, Request::ConsumerGroupHeartbeat(join("b", &["t"])));
    assert_eq!(described(&world).members.len(), 2);
    cut::lose(&world.broker);
    world.clock.advance(SESSION_MS - 1);
    world.broker.run_due();
    let group = described(&world);
    let members: Vec<_> = group.members.iter().map(|member| &*member.member_id).collect();
    assert_eq!((members, group.group_epoch), (vec!["a"], 2));
}
