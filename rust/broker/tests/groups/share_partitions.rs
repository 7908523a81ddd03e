//! Share groups at the leaders of partitions (spec 14.4 to 14.10), without members: over restarts, with locks, connections and dead letters. The
//! recordings of a real broker are in `tests/wire/test_share_groups.py`.

use std::path::Path;

use fletchlog_api::*;
use fletchlog_broker::{
    Acl, AclOperation, AlterConfig, AlterConfigOp, Broker, NewTopic, PatternType, PermissionType, ResourceType,
};
use fletchlog_protocol::local::ClientName;
use fletchlog_protocol::messages::{
    DeleteShareGroupStateRequest, InitializeShareGroupStateRequest, ReadShareGroupStateSummaryRequest,
    ShareAcknowledgeRequest, ShareFetchRequest, ShareFetchResponse, delete_share_group_state_request,
    initialize_share_group_state_request, read_share_group_state_summary_request, share_acknowledge_request,
    share_fetch_request,
};

use super::wire::*;
use crate::common::*;

const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;

fn open(dir: &Path) -> World {
    let clock = VirtualClock::new();
    let broker = Broker::open(dir, options(None, false, &[]), clock.clone()).unwrap();
    World { broker, clock }
}

impl World {
    /// A topic whose state is initialized for the group "g", which begins at the earliest offset.
    fn share(&self, batches: &[usize]) -> [u8; 16] {
        self.set_share("share.auto.offset.reset", "earliest");
        let id = self.topic_id();
        assert_eq!(self.initialize(1, -1), ErrorCode::NONE);
        for count in batches {
            self.broker.append_batches(&tp("t", 0), batch(*count, 10)).unwrap();
        }
        id
    }

    fn topic_id(&self) -> [u8; 16] {
        self.broker.describe_topic("t").unwrap().topic_id
    }

    fn set_share(&self, name: &str, value: &str) {
        let group = ConfigResource::Group("g".to_owned());
        let change = AlterConfig {
            name: name.to_owned(),
            op: AlterConfigOp::Set,
            value: Some(value.to_owned()),
        };
        self.broker.alter_config(&group, &[change], false).unwrap();
    }

    fn initialize(&self, state_epoch: i32, start_offset: i64) -> ErrorCode {
        use initialize_share_group_state_request::{InitializeStateData, PartitionData};
        let partition = PartitionData {
            partition: 0,
            state_epoch,
            start_offset,
        };
        let request = InitializeShareGroupStateRequest {
            group_id: "g".into(),
            topics: vec![InitializeStateData {
                topic_id: self.topic_id(),
                partitions: vec![partition],
            }],
        };
        let response = self.broker.initialize_state(&request).unwrap();
        response.results[0].partitions[0].error_code
    }

    /// (start offset, records that are done)
    fn persisted(&self) -> (i64, i32) {
        use read_share_group_state_summary_request::{PartitionData, ReadStateSummaryData};
        let request = ReadShareGroupStateSummaryRequest {
            group_id: "g".into(),
            topics: vec![ReadStateSummaryData {
                topic_id: self.topic_id(),
                partitions: vec![PartitionData::default()],
            }],
        };
        let response = self.broker.read_state_summary(&request).unwrap();
        let found = &response.results[0].partitions[0];
        (found.start_offset, found.delivery_complete_count)
    }

    fn run(&self, ms: i64) {
        self.clock.advance(ms);
        self.broker.run_due();
    }

    /// (first, last, state, deliveries)
    fn in_flight(&self) -> Vec<(i64, i64, &'static str, u16)> {
        let states = self.broker.share_state("g", "t").unwrap().into_iter();
        states
            .map(|s| (s.first_offset, s.last_offset, s.state, s.delivery_count))
            .collect()
    }
}

/// A member of the group with a connection of its own.
struct Member {
    conn: Conn,
    id: &'static str,
    topic_id: [u8; 16],
    epoch: i32,
}

/// What a fetch of one partition found: its error, and (first, last, deliveries) of what was acquired.
type Fetched = (ErrorCode, Vec<(i64, i64, i16)>);

impl Member {
    fn new(world: &World, id: &'static str) -> Self {
        Self {
            conn: world.connect(),
            id,
            topic_id: world.topic_id(),
            epoch: 0,
        }
    }

    fn begin_fetch(&mut self, max_wait_ms: i32) {
        self.begin_fetch_that_accepts(Vec::new(), max_wait_ms);
    }

    /// `offsets`: first and last ones.
    fn begin_fetch_that_accepts(&mut self, offsets: Vec<(i64, i64)>, max_wait_ms: i32) {
        let accepted = |(first_offset, last_offset)| share_fetch_request::AcknowledgementBatch {
            first_offset,
            last_offset,
            acknowledge_types: vec![ACCEPT],
        };
        let topics = vec![share_fetch_request::FetchTopic {
            topic_id: self.topic_id,
            partitions: vec![share_fetch_request::FetchPartition {
                acknowledgement_batches: offsets.into_iter().map(accepted).collect(),
                ..Default::default()
            }],
        }];
        self.conn.send(Request::ShareFetch(ShareFetchRequest {
            group_id: Some("g".into()),
            member_id: Some(self.id.into()),
            share_session_epoch: self.epoch,
            max_wait_ms,
            min_bytes: 1,
            max_records: 500,
            batch_size: 500,
            topics,
            ..Default::default()
        }));
        self.epoch += 1;
    }

    fn fetched(&self) -> Option<Fetched> {
        let Response::ShareFetch(response) = self.conn.take()? else {
            panic!("another response")
        };
        if response.error_code != ErrorCode::NONE {
            return Some((response.error_code, Vec::new()));
        }
        let found = response.responses.first().map(|topic| &topic.partitions[0]);
        let Some(found) = found else {
            return Some((ErrorCode::NONE, Vec::new()));
        };
        let acquired = found.acquired_records.iter();
        let acquired = acquired.map(|r| (r.first_offset, r.last_offset, r.delivery_count));
        Some((found.error_code, acquired.collect()))
    }

    fn fetch(&mut self) -> Fetched {
        self.begin_fetch(500);
        self.fetched().expect("answered at once")
    }

    fn acknowledge(&mut self, first_offset: i64, last_offset: i64, acknowledge_type: i8) -> ErrorCode {
        self.begin_acknowledge(first_offset, last_offset, acknowledge_type);
        self.acknowledged().expect("answered at once")
    }

    fn begin_acknowledge(&mut self, first_offset: i64, last_offset: i64, acknowledge_type: i8) {
        let batch = share_acknowledge_request::AcknowledgementBatch {
            first_offset,
            last_offset,
            acknowledge_types: vec![acknowledge_type],
        };
        let request = ShareAcknowledgeRequest {
            group_id: Some("g".into()),
            member_id: Some(self.id.into()),
            share_session_epoch: self.epoch,
            topics: vec![share_acknowledge_request::AcknowledgeTopic {
                topic_id: self.topic_id,
                partitions: vec![share_acknowledge_request::AcknowledgePartition {
                    partition_index: 0,
                    acknowledgement_batches: vec![batch],
                }],
            }],
            ..Default::default()
        };
        self.epoch += 1;
        self.conn.send(Request::ShareAcknowledge(request));
    }

    fn acknowledged(&self) -> Option<ErrorCode> {
        let Response::ShareAcknowledge(response) = self.conn.take()? else {
            panic!("another response")
        };
        assert_eq!(response.error_code, ErrorCode::NONE);
        Some(response.responses[0].partitions[0].error_code)
    }
}

const NONE: ErrorCode = ErrorCode::NONE;

#[test]
fn a_fetch_that_does_not_wait_has_nothing_of_a_new_group_and_the_next_one_has_it() {
    let world = World::new(&[]);
    world.share(&[3]);
    let mut member = Member::new(&world, "a");
    member.begin_fetch(0);
    assert_eq!(member.fetched(), Some((NONE, Vec::new())));
    member.begin_fetch(0);
    assert_eq!(member.fetched(), Some((NONE, vec![(0, 2, 1)])));
}

#[test]
fn what_is_acknowledged_is_done_after_a_restart_and_what_is_not_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    world.broker.create_topic("t", 1, &[]).unwrap();
    world.share(&[2, 2, 2]);
    let mut member = Member::new(&world, "a");
    assert_eq!(member.fetch(), (NONE, vec![(0, 5, 1)]));
    assert_eq!(member.acknowledge(0, 1, ACCEPT), NONE);
    assert_eq!(member.acknowledge(4, 4, RELEASE), NONE);
    assert_eq!(world.persisted(), (2, 0));
    // As a killed process leaves it: the connection has not released anything.
    drop(world);
    drop(member);
    let world = open(dir.path());
    assert_eq!(world.persisted(), (2, 0));
    let mut member = Member::new(&world, "a");
    assert_eq!(member.fetch(), (NONE, vec![(2, 3, 1), (4, 4, 2), (5, 5, 1)]));
    assert_eq!(member.acknowledge(2, 5, ACCEPT), NONE);
    world.broker.close().unwrap();
    let world = open(dir.path());
    world.broker.append_batches(&tp("t", 0), batch(1, 10)).unwrap();
    assert_eq!(Member::new(&world, "b").fetch(), (NONE, vec![(6, 6, 1)]));
}

#[test]
fn a_lock_that_ends_gives_the_records_to_a_waiting_fetch() {
    let world = World::new(&[]);
    world.share(&[3]);
    let [mut a, mut b] = ["a", "b"].map(|id| Member::new(&world, id));
    assert_eq!(a.fetch(), (NONE, vec![(0, 2, 1)]));
    world.run(10_000);
    b.begin_fetch(60_000);
    assert_eq!(b.fetched(), None);
    assert_eq!(world.in_flight(), [(0, 2, "Acquired", 1)]);
    world.run(19_999);
    assert_eq!(b.fetched(), None);
    world.run(1);
    assert_eq!(b.fetched(), Some((NONE, vec![(0, 2, 2)])));
    assert_eq!(a.acknowledge(0, 2, ACCEPT), ErrorCode::INVALID_RECORD_STATE, "too late");
    assert_eq!(b.acknowledge(0, 2, ACCEPT), NONE);
    assert_eq!(world.in_flight(), []);
}

#[test]
fn records_that_are_produced_end_the_wait_and_a_time_out_does() {
    let world = World::new(&[]);
    world.share(&[]);
    let mut member = Member::new(&world, "a");
    member.begin_fetch(300);
    assert_eq!(member.fetched(), None);
    world.broker.append_batches(&tp("t", 0), batch(2, 10)).unwrap();
    assert_eq!(member.fetched(), Some((NONE, vec![(0, 1, 1)])));
    member.begin_fetch(300);
    world.run(299);
    assert_eq!(member.fetched(), None);
    world.run(1);
    assert_eq!(member.fetched(), Some((NONE, vec![])));
}

#[test]
fn a_connection_that_closes_releases_what_its_member_has() {
    let world = World::new(&[]);
    world.share(&[2]);
    let [mut a, mut b] = ["a", "b"].map(|id| Member::new(&world, id));
    assert_eq!(a.fetch(), (NONE, vec![(0, 1, 1)]));
    b.begin_fetch(500);
    drop(a);
    world.broker.run_due();
    assert_eq!(world.in_flight(), [(0, 1, "Available", 1)]);
    assert_eq!(
        b.fetched(),
        None,
        "as in Kafka it is found when the time of the fetch is over"
    );
    world.run(500);
    assert_eq!(b.fetched(), Some((NONE, vec![(0, 1, 2)])));
    drop(b);
    world.broker.run_due();
    assert_eq!(
        world.in_flight(),
        [],
        "with its last session the group is dropped from memory"
    );
    assert_eq!(Member::new(&world, "c").fetch(), (NONE, vec![(0, 1, 3)]));
}

#[test]
fn a_client_in_this_process_that_is_dropped_releases_what_it_has() {
    let world = World::new(&[]);
    let topic_id = world.share(&[2]);
    let mut client = Client::new(&world.broker);
    let request = ShareFetchRequest {
        group_id: Some("g".into()),
        member_id: Some("embedded".into()),
        max_wait_ms: 500,
        min_bytes: 1,
        max_records: 10,
        batch_size: 10,
        topics: vec![share_fetch_request::FetchTopic {
            topic_id,
            partitions: vec![share_fetch_request::FetchPartition::default()],
        }],
        ..Default::default()
    };
    client.ask(1, Request::ShareFetch(request));
    assert_eq!(world.in_flight(), [(0, 1, "Acquired", 1)]);
    let to_coordinator = fletchlog_api::transport::coordinator_connection(1);
    client.ask(to_coordinator, Request::Heartbeat(HeartbeatRequest::default()));
    client.transport.disconnect(to_coordinator);
    assert_eq!(
        world.in_flight(),
        [(0, 1, "Acquired", 1)],
        "the session is of the other one"
    );
    drop(client);
    assert_eq!(Member::new(&world, "b").fetch(), (NONE, vec![(0, 1, 2)]));
}

#[test]
fn a_start_offset_that_was_altered_counts_once_a_write_is_refused() {
    let world = World::new(&[]);
    world.share(&[4]);
    let mut member = Member::new(&world, "a");
    assert_eq!(member.fetch(), (NONE, vec![(0, 3, 1)]));
    assert_eq!(world.initialize(2, 2), NONE);
    assert_eq!(world.initialize(1, 0), ErrorCode::FENCED_STATE_EPOCH);
    assert_eq!(member.acknowledge(0, 3, ACCEPT), ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(member.fetch(), (NONE, vec![(2, 3, 1)]));
}

#[test]
fn many_updates_are_one_snapshot_that_a_restart_reads() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    world.broker.create_topic("t", 1, &[]).unwrap();
    world.share(&[1000]);
    let mut member = Member::new(&world, "a");
    assert_eq!(member.fetch(), (NONE, vec![(0, 999, 1)]));
    for offset in 0..600 {
        assert_eq!(member.acknowledge(offset, offset, ACCEPT), NONE);
    }
    drop(world);
    drop(member);
    let world = open(dir.path());
    assert_eq!(world.persisted(), (599, 1));
    assert_eq!(Member::new(&world, "a").fetch(), (NONE, vec![(600, 999, 1)]));
}

/// Start and end of the only partition of `__share_group_state`.
fn state_log(world: &World) -> (i64, i64) {
    let log = world.broker.partition_log(&tp("__share_group_state", 0)).unwrap();
    (log.log_start_offset(), log.log_end_offset())
}

const ONE_LOG: (&str, &str) = ("share.coordinator.state.topic.num.partitions", "1");

#[test]
fn records_that_no_state_needs_are_pruned_and_states_that_rest_are_written_anew() {
    let world = World::new(&[
        ONE_LOG,
        ("share.coordinator.snapshot.update.records.per.snapshot", "6"),
        ("share.coordinator.state.topic.prune.interval.ms", "3000"),
        ("share.coordinator.cold.partition.snapshot.interval.ms", "8000"),
    ]);
    world.share(&[30]);
    let mut member = Member::new(&world, "a");
    assert_eq!(member.fetch(), (NONE, vec![(0, 29, 1)]));
    for offset in 0..7 {
        assert_eq!(member.acknowledge(2 * offset, 2 * offset, ACCEPT), NONE);
    }
    world.run(2_999);
    assert_eq!(state_log(&world), (0, 8), "a snapshot, six updates, a snapshot");
    world.run(1);
    assert_eq!(state_log(&world), (7, 8));
    assert_eq!(member.acknowledge(1, 1, ACCEPT), NONE);
    world.run(3_000);
    assert_eq!(state_log(&world), (7, 9), "the update needs its snapshot");
    world.run(2_000);
    assert_eq!(state_log(&world), (7, 10), "the snapshot is 8 s old");
    world.run(1_000);
    assert_eq!(state_log(&world), (9, 10));
    world.run(8_000);
    assert_eq!(state_log(&world), (9, 10), "nothing has happened");
    assert_eq!(world.initialize(1, -1), NONE);
    world.run(8_000);
    assert_eq!(state_log(&world), (10, 12), "a new state is not a cold one; then it is");
    let deleted = DeleteShareGroupStateRequest {
        group_id: "g".into(),
        topics: vec![delete_share_group_state_request::DeleteStateData {
            topic_id: world.topic_id(),
            partitions: vec![delete_share_group_state_request::PartitionData { partition: 0 }],
        }],
    };
    world.broker.delete_state(&deleted).unwrap();
    world.run(3_000);
    assert_eq!(state_log(&world), (12, 13), "only the tombstone is left");
}

#[test]
fn a_pruned_log_has_what_a_restart_needs() {
    let dir = tempfile::tempdir().unwrap();
    let config = [
        ONE_LOG,
        ("share.coordinator.snapshot.update.records.per.snapshot", "2"),
        ("share.coordinator.state.topic.prune.interval.ms", "1000"),
    ];
    let open = || {
        let clock = VirtualClock::new();
        let broker = Broker::open(dir.path(), options(None, false, &config), clock.clone()).unwrap();
        World { broker, clock }
    };
    let world = open();
    world.broker.create_topic("t", 1, &[]).unwrap();
    world.share(&[10]);
    let mut member = Member::new(&world, "a");
    assert_eq!(member.fetch(), (NONE, vec![(0, 9, 1)]));
    for offset in [0, 2, 4, 6] {
        assert_eq!(member.acknowledge(offset, offset, ACCEPT), NONE);
    }
    world.run(1_000);
    assert_eq!(state_log(&world), (3, 5));
    drop((world, member));
    let world = open();
    assert_eq!(state_log(&world), (3, 5));
    let found = vec![(1, 1, 1), (3, 3, 1), (5, 5, 1), (7, 9, 1)];
    assert_eq!(Member::new(&world, "a").fetch(), (NONE, found));
}

/// A member, and records that it has, of a topic and a group whose state is kept by three nodes.
fn replicated() -> (World, Member) {
    let world = World::of_nodes(3, &[ONE_LOG]);
    world.broker.move_leader(&tp("t", 0), 1).unwrap();
    world.share(&[4]);
    let mut member = Member::new(&world, "a");
    assert_eq!(member.fetch(), (NONE, vec![(0, 3, 1)]));
    (world, member)
}

#[test]
fn acknowledgements_wait_for_the_replicas_of_the_states() {
    let (world, mut member) = replicated();
    world.broker.crash_node(2, 9_000).unwrap();
    member.begin_acknowledge(0, 1, ACCEPT);
    world.run(8_999);
    assert_eq!(member.acknowledged(), None);
    world.run(1);
    assert_eq!(member.acknowledged(), Some(NONE));
    assert_eq!(member.acknowledge(2, 2, ACCEPT), NONE);
}

#[test]
fn acknowledgements_of_a_fetch_without_records_wait_for_the_replicas_too() {
    let (world, mut member) = replicated();
    world.broker.crash_node(2, 9_000).unwrap();
    member.begin_fetch_that_accepts(vec![(0, 1)], 500);
    world.run(8_999);
    assert!(member.conn.take().is_none());
    world.run(1);
    let Some(Response::ShareFetch(response)) = member.conn.take() else {
        panic!("no response")
    };
    assert_eq!(response.responses[0].partitions[0].acknowledge_error_code, NONE);
    assert_eq!(world.in_flight(), [(2, 3, "Acquired", 1)]);
}

#[test]
fn acknowledgements_whose_states_are_not_replicated_in_time_fail() {
    let (world, mut member) = replicated();
    world.broker.crash_node(2, 60_000).unwrap();
    assert_eq!(
        member.acknowledge(7, 7, ACCEPT),
        ErrorCode::INVALID_REQUEST,
        "nothing is written"
    );
    member.begin_acknowledge(0, 1, ACCEPT);
    world.run(24_999);
    assert_eq!(member.acknowledged(), None);
    world.run(1);
    assert_eq!(member.acknowledged(), Some(ErrorCode::COORDINATOR_NOT_AVAILABLE));
}

/// Of partition 0 of "t", and what acknowledging offset 0 of it with the fetch gave.
fn one_of_two(response: ShareFetchResponse, topic: [u8; 16]) -> Vec<(ErrorCode, usize, ErrorCode)> {
    let topics = response.responses.into_iter().filter(|found| found.topic_id == topic);
    let partitions = topics.flat_map(|found| found.partitions);
    let parts = partitions.map(|p| (p.error_code, p.acquired_records.len(), p.acknowledge_error_code));
    parts.collect()
}

/// Recorded with a real 4.4.0: `tests/golden/share-groups/borders.jsonl`, auth-002 to auth-004.
#[test]
fn a_partition_that_the_client_may_not_read_has_an_error_as_long_as_it_is_in_the_session() {
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    let world = World::new(&[
        ("authorizer.class.name", authorizer),
        ("allow.everyone.if.no.acl.found", "true"),
    ]);
    let open = world.share(&[]);
    world.broker.create_topic("secret", 1, &[]).unwrap();
    let secret = world.broker.describe_topic("secret").unwrap().topic_id;
    let conn = world.connect();
    let fetch = |epoch: i32, reader: Option<&str>, acknowledges: bool| {
        let topic = |topic_id: [u8; 16]| share_fetch_request::FetchTopic {
            topic_id,
            partitions: vec![share_fetch_request::FetchPartition {
                acknowledgement_batches: match acknowledges {
                    true => vec![share_fetch_request::AcknowledgementBatch {
                        acknowledge_types: vec![ACCEPT],
                        ..Default::default()
                    }],
                    false => Vec::new(),
                },
                ..Default::default()
            }],
        };
        let topics = [open, secret].map(topic);
        conn.send(Request::ShareFetch(ShareFetchRequest {
            group_id: Some("g".into()),
            member_id: Some("a".into()),
            share_session_epoch: epoch,
            max_wait_ms: 500,
            min_bytes: 1,
            max_records: 500,
            batch_size: 500,
            topics: topics.into_iter().filter(|_| epoch == 0 || acknowledges).collect(),
            reader: reader.map(|name| ClientName {
                principal: name.into(),
                host: "10.0.0.7".into(),
            }),
            ..Default::default()
        }));
    };
    let take = || match conn.take() {
        Some(Response::ShareFetch(response)) => Some(response),
        Some(_) => panic!("another response"),
        None => None,
    };
    let deny = Acl {
        resource_type: ResourceType::Topic,
        resource_name: "secret".into(),
        pattern_type: PatternType::Literal,
        principal: "User:a".into(),
        host: "*".into(),
        operation: AclOperation::Read,
        permission_type: PermissionType::Deny,
    };
    world.broker.create_acls(&[deny]).unwrap();
    let refused = ErrorCode::TOPIC_AUTHORIZATION_FAILED;
    // The other partition is waited for.
    fetch(0, Some("User:a"), false);
    assert_eq!(take(), None);
    world.broker.append_batches(&tp("t", 0), batch(2, 10)).unwrap();
    let response = take().unwrap();
    assert_eq!(one_of_two(response.clone(), open), [(NONE, 1, NONE)]);
    assert_eq!(one_of_two(response, secret), [(refused, 0, NONE)]);
    // It stays in the session, and is in each response.
    fetch(1, Some("User:a"), true);
    world.run(500);
    let response = take().unwrap();
    assert_eq!(one_of_two(response.clone(), open), [(NONE, 0, NONE)]);
    assert_eq!(one_of_two(response, secret), [(refused, 0, refused)]);
    // Who asks counts, not who opened the session; a client of this process may do everything.
    fetch(2, None, false);
    world.run(500);
    assert_ne!(one_of_two(take().unwrap(), secret), [(refused, 0, NONE)]);
    fetch(3, Some("User:a"), false);
    world.run(500);
    assert_eq!(one_of_two(take().unwrap(), secret), [(refused, 0, NONE)]);
}

#[test]
fn rejected_records_and_those_without_deliveries_left_are_dead_letters() {
    let world = World::new(&[ONE_LOG]);
    world.share(&[3]);
    let enabled = (
        "errors.deadletterqueue.group.enable".to_owned(),
        Some("true".to_owned()),
    );
    let new = NewTopic {
        partitions: 1,
        config: vec![enabled],
        ..NewTopic::default()
    };
    world
        .broker
        .create_topics(&[("dlq.t", &new)])
        .unwrap()
        .remove(0)
        .unwrap();
    world.set_share("errors.deadletterqueue.topic.name", "dlq.t");
    world.set_share("errors.deadletterqueue.copy.record.enable", "true");
    world.set_share("share.delivery.count.limit", "2");
    let mut member = Member::new(&world, "a");
    assert_eq!(member.fetch(), (NONE, vec![(0, 2, 1)]));
    assert_eq!(member.acknowledge(0, 0, REJECT), NONE);
    assert_eq!(member.acknowledge(1, 2, RELEASE), NONE);
    assert_eq!(member.fetch(), (NONE, vec![(1, 2, 2)]));
    assert_eq!(member.acknowledge(1, 2, RELEASE), NONE);
    assert_eq!(world.in_flight(), []);
    // A snapshot; the rejection, and its end; the first release; the second one, and the end of each record.
    assert_eq!(state_log(&world), (0, 7));
    assert_eq!(
        world.persisted(),
        (2, 1),
        "the start offset moves after each of these ends"
    );
    let log = world.broker.partition_log(&tp("dlq.t", 0)).unwrap();
    let read = log.read(0, 1 << 20, true, fletchlog_log::FetchBound::LogEnd).unwrap();
    let mut letters = Vec::new();
    for batch in fletchlog_records::BatchIter::new(read.records) {
        let slice = batch.unwrap().records(usize::MAX).unwrap();
        let mut cursor = fletchlog_records::RecordCursor::new();
        while let Some(record) = cursor.next(&slice).unwrap() {
            let header = |key: &str| {
                let found = record.headers().find(|header| header.key == key);
                String::from_utf8(found.unwrap().value.unwrap().to_vec()).unwrap()
            };
            assert_eq!(record.value.map(<[u8]>::len), Some(10), "the record itself");
            letters.push((header("__dlq.errors.offset"), header("__dlq.errors.message")));
        }
    }
    let [rejected, used_up] = [
        "Offset rejected by client.",
        "Offset delivery count exceeded the threshold.",
    ];
    let expected = [("0", rejected), ("1", used_up), ("2", used_up)];
    assert_eq!(
        letters,
        expected.map(|(offset, text)| (offset.to_owned(), text.to_owned()))
    );
}

#[test]
fn a_session_has_its_epochs_and_the_listener_its_limits() {
    let world = World::new(&[("group.share.max.share.sessions", "1")]);
    world.share(&[2]);
    let [mut a, mut b] = ["a", "b"].map(|id| Member::new(&world, id));
    assert_eq!(a.fetch(), (NONE, vec![(0, 1, 1)]));
    b.begin_fetch(500);
    assert_eq!(b.fetched(), None);
    world.run(500);
    assert_eq!(b.fetched(), Some((ErrorCode::SHARE_SESSION_LIMIT_REACHED, vec![])));
    a.epoch = 7;
    assert_eq!(a.fetch(), (ErrorCode::INVALID_SHARE_SESSION_EPOCH, vec![]));
    a.epoch = -1;
    assert_eq!(a.fetch(), (NONE, vec![]));
    a.epoch = 1;
    assert_eq!(a.fetch(), (ErrorCode::SHARE_SESSION_NOT_FOUND, vec![]));
    b.epoch = 0;
    assert_eq!(b.fetch(), (NONE, vec![(0, 1, 2)]), "released by the end of the session");
}

/// A share group in a partition that node 3 leads, which keeps what it has in memory.
fn world_of_node_3() -> World {
    let (broker, clock) = cut::cluster_of(&[], &[3]);
    World { broker, clock }
}

fn member_at_node_3(world: &World) -> Member {
    Member {
        conn: world.connect_to(3),
        ..Member::new(world, "a")
    }
}

#[test]
fn a_leader_writes_on_top_of_the_state_that_an_election_has_left() {
    let world = world_of_node_3();
    world.share(&[2, 2, 2]);
    let mut member = member_at_node_3(&world);
    assert_eq!(member.fetch(), (NONE, vec![(0, 5, 1)]));
    assert_eq!(member.acknowledge(0, 0, ACCEPT), NONE);
    let before = world.persisted();
    cut::begin(&world.broker);
    assert_eq!(member.acknowledge(1, 3, ACCEPT), NONE);
    assert_eq!(member.acknowledge(4, 4, RELEASE), NONE);
    let lost = world.persisted();
    assert_ne!(lost, before);
    cut::lose(&world.broker);
    assert_eq!(world.persisted(), before);
    assert_eq!(world.in_flight(), [(4, 4, "Available", 1), (5, 5, "Acquired", 1)]);
    assert_eq!(member.acknowledge(5, 5, RELEASE), NONE);
    assert_eq!(world.persisted(), lost, "the start is in every write");
}

#[test]
fn a_state_of_which_no_record_is_left_is_not_initialized() {
    let world = world_of_node_3();
    world.broker.create_topic("other", 1, &[]).unwrap();
    world.set_share("share.auto.offset.reset", "earliest");
    assert_eq!(world.initialize(1, -1), NONE);
    cut::begin(&world.broker);
    assert_eq!(world.initialize(2, 3), NONE);
    assert_eq!(world.persisted(), (3, 0));
    cut::lose(&world.broker);
    assert_eq!(world.persisted(), (-1, -1));
}
