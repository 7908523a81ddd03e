//! Nodes that have ended before the cluster notices it, and too few replicas in sync (spec 6.9, recorded from a Kafka 4.4.0).

use std::sync::Arc;

use fletchlog_api::*;
use fletchlog_broker::{Broker, ElectionType, NewTopic};
use fletchlog_protocol::messages::fetch_response::PartitionData;
use fletchlog_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use fletchlog_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use fletchlog_protocol::messages::produce_response::PartitionProduceResponse;
use fletchlog_protocol::messages::{DescribeQuorumRequest, describe_quorum_request};

use crate::common::*;

const NONE: ErrorCode = ErrorCode::NONE;
const CHECKPOINT: &str = "recovery-point-offset-checkpoint";

/// Three nodes, and a topic with these replicas and min.insync.replicas.
fn cluster(replicas: &[NodeId], min_isr: &str) -> (Arc<Broker>, Arc<VirtualClock>) {
    let clock = VirtualClock::new();
    let config = [
        ("offsets.topic.num.partitions", "1"),
        ("transaction.state.log.num.partitions", "1"),
    ];
    let broker = Broker::in_memory(options(Some(3), false, &config), clock.clone()).unwrap();
    let new = NewTopic {
        assignments: vec![(0, replicas.to_vec())],
        config: vec![("min.insync.replicas".to_owned(), Some(min_isr.to_owned()))],
        ..NewTopic::default()
    };
    broker.create_topic_with("t", &new).unwrap();
    (broker, clock)
}

fn produce(acks: i16, timeout_ms: i32) -> Request {
    Request::Produce(ProduceRequest {
        acks,
        timeout_ms,
        topic_data: topic_data([(tp("t", 0), batch(1, 1))]),
        ..Default::default()
    })
}

fn produced(response: Response) -> PartitionProduceResponse {
    let Response::Produce(mut response) = response else {
        panic!("{response:?}")
    };
    response.responses[0].partition_responses.remove(0)
}

fn outcome(response: Response) -> (ErrorCode, i64, i64) {
    let p = produced(response);
    (p.error_code, p.base_offset, p.log_start_offset)
}

fn fetch(client: &mut Client, node: NodeId) -> PartitionData {
    nth(&client.fetch(node, fetch_of(&[(&tp("t", 0), 0, 1 << 20)])), 0).clone()
}

fn latest(client: &mut Client, node: NodeId) -> (ErrorCode, i64) {
    client.list_offset(node, &tp("t", 0), ListOffsetsRequest::LATEST_TIMESTAMP)
}

/// Leader, epoch, ISR of the partition, and the live nodes.
fn shown(client: &mut Client, node: NodeId) -> (NodeId, i32, Vec<NodeId>, Vec<NodeId>) {
    let request = MetadataRequest::for_topics(Some(vec!["t".into()]), false);
    let Response::Metadata(answer) = client.ask(node, Request::Metadata(request)) else {
        panic!()
    };
    let p = &answer.topics[0].partitions[0];
    let brokers = answer.brokers.iter().map(|broker| broker.node_id).collect();
    (p.leader_id, p.leader_epoch, p.isr_nodes.clone(), brokers)
}

fn pass(broker: &Broker, clock: &VirtualClock, ms: i64) {
    clock.advance(ms);
    broker.run_due();
}

#[test]
fn until_the_end_of_a_node_is_detected_acks_all_waits_and_nothing_new_is_seen() {
    let (broker, clock) = cluster(&[1, 2, 3], "2");
    let mut client = Client::new(&broker);
    assert_eq!(outcome(client.ask(1, produce(-1, 1000))), (NONE, 0, 0));
    broker.crash_node(3, 9000).unwrap();
    assert!(!broker.is_node_up(3) && !broker.is_node_fenced(3));
    assert_eq!(shown(&mut client, 1), (1, 0, vec![1, 2, 3], vec![1, 2, 3]));
    assert_eq!(outcome(client.ask(1, produce(1, 1000))), (NONE, 1, 0), "acks=1");
    client.send(1, produce(-1, 1500));
    let mut patient = Client::new(&broker);
    patient.send(1, produce(-1, 60_000));
    assert_eq!(client.take(1).map(outcome), None, "it waits");
    assert_eq!(broker.next_deadline(), Some(clock.monotonic_ms() + 1500));
    assert_eq!(
        (
            fetch(&mut patient, 2).high_watermark,
            latest(&mut Client::new(&broker), 1)
        ),
        (1, (NONE, 1))
    );
    pass(&broker, &clock, 1500);
    let late = produced(client.take(1).unwrap());
    assert_eq!((late.error_code, late.base_offset), (ErrorCode::REQUEST_TIMED_OUT, 2));
    assert_eq!((late.log_start_offset, late.current_leader.leader_id), (0, -1));
    pass(&broker, &clock, 7499);
    assert_eq!(
        (patient.take(1).map(outcome), fetch(&mut client, 1).high_watermark),
        (None, 1)
    );
    pass(&broker, &clock, 1);
    assert_eq!(patient.take(1).map(outcome), Some((NONE, 3, 0)));
    assert_eq!(shown(&mut client, 1), (1, 0, vec![1, 2], vec![1, 2]));
    assert_eq!(
        (fetch(&mut client, 1).high_watermark, latest(&mut client, 1)),
        (4, (NONE, 4))
    );
    assert!(broker.is_node_fenced(3));
}

#[test]
fn an_ended_leader_is_named_until_its_end_is_detected() {
    let (broker, clock) = cluster(&[3, 1, 2], "2");
    let mut client = Client::new(&broker);
    assert_eq!(outcome(client.ask(3, produce(-1, 1000))), (NONE, 0, 0));
    broker.crash_node(3, 9000).unwrap();
    let refused = produced(client.ask(1, produce(1, 1000)));
    assert_eq!(
        (refused.error_code, refused.base_offset),
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, -1)
    );
    assert_eq!(
        (refused.current_leader.leader_id, refused.current_leader.leader_epoch),
        (3, 0)
    );
    assert_eq!(fetch(&mut client, 2).high_watermark, 1, "followers answer");
    pass(&broker, &clock, 9000);
    assert_eq!(shown(&mut client, 1), (1, 1, vec![1, 2], vec![1, 2]));
    assert_eq!(outcome(client.ask(1, produce(-1, 1000))), (NONE, 1, 0));
    assert_eq!(latest(&mut client, 1), (NONE, 2));
}

#[test]
fn a_second_kill_or_the_start_of_a_node_detects_its_end() {
    let (broker, _clock) = cluster(&[1, 2, 3], "1");
    broker.crash_node(3, 9000).unwrap();
    broker.crash_node(2, 9000).unwrap();
    broker.crash_node(3, 9000).unwrap();
    assert!(broker.is_node_fenced(3) && !broker.is_node_fenced(2));
    broker.start_node(2).unwrap();
    assert!(broker.is_node_up(2));
    assert_eq!(shown(&mut Client::new(&broker), 1).2, [1, 2]);
}

/// The active controller and its epoch, as a response to DescribeQuorum has them.
fn controller(response: Response) -> (NodeId, i32) {
    let Response::DescribeQuorum(response) = response else {
        panic!("{response:?}")
    };
    let quorum = &response.topics[0].partitions[0];
    (quorum.leader_id, quorum.leader_epoch)
}

fn describe_quorum() -> Request {
    Request::DescribeQuorum(DescribeQuorumRequest {
        topics: vec![describe_quorum_request::TopicData {
            topic_name: "__cluster_metadata".into(),
            partitions: vec![describe_quorum_request::PartitionData { partition_index: 0 }],
        }],
    })
}

#[test]
fn an_election_ends_when_its_time_is_over_with_a_node_that_runs_then() {
    let (broker, clock) = cluster(&[1, 2, 3], "1");
    let (mut client, mut other) = (Client::new(&broker), Client::new(&broker));
    broker.set_election_ms(2, 9000); // it is not the active controller
    broker.set_election_ms(1, 1000);
    assert_eq!(controller(client.ask(3, describe_quorum())), (1, 0));
    broker.crash_node(1, 60_000).unwrap();
    client.send(3, describe_quorum());
    assert_eq!(broker.next_deadline(), Some(clock.monotonic_ms() + 1000));
    pass(&broker, &clock, 999);
    broker.stop_node(2).unwrap();
    other.send(3, describe_quorum());
    assert!(client.take(3).is_none() && other.take(3).is_none());
    pass(&broker, &clock, 1);
    let answers = [client.take(3), other.take(3)].map(|answer| answer.map(controller));
    assert_eq!(answers, [Some((3, 1)); 2]);
    // Without a node that runs there is no election until one starts.
    broker.stop_node(3).unwrap();
    assert_eq!(
        broker.next_deadline(),
        Some(clock.monotonic_ms() + 59_000),
        "node 1 is fenced"
    );
    broker.start_node(1).unwrap();
    assert_eq!(controller(client.ask(1, describe_quorum())), (1, 2));
    broker.start_node(3).unwrap();
    assert_eq!(
        controller(client.ask(3, describe_quorum())),
        (1, 2),
        "nothing comes back by itself"
    );
}

#[test]
fn below_min_isr_the_high_watermark_stands_still_and_pending_records_wait() {
    let (broker, clock) = cluster(&[1, 2], "2");
    let mut client = Client::new(&broker);
    assert_eq!(outcome(client.ask(1, produce(-1, 1000))), (NONE, 0, 0));
    broker.crash_node(2, 1000).unwrap();
    let mut patient = Client::new(&broker);
    patient.send(1, produce(-1, 60_000));
    pass(&broker, &clock, 1000);
    assert_eq!(
        patient.take(1).map(outcome),
        None,
        "never NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    );
    assert_eq!(
        outcome(client.ask(1, produce(-1, 1000))),
        (ErrorCode::NOT_ENOUGH_REPLICAS, -1, 0)
    );
    assert_eq!(outcome(client.ask(1, produce(1, 1000))), (NONE, 2, 0));
    assert_eq!(
        (fetch(&mut client, 1).high_watermark, latest(&mut client, 1)),
        (1, (NONE, 1))
    );
    broker.start_node(2).unwrap();
    assert_eq!(patient.take(1).map(outcome), Some((NONE, 1, 0)));
    assert_eq!(
        (fetch(&mut client, 1).high_watermark, latest(&mut client, 1)),
        (3, (NONE, 3))
    );
}

#[test]
fn a_new_leader_does_not_know_the_end_of_the_log_while_its_high_watermark_is_below() {
    let (broker, _clock) = cluster(&[1, 2, 3], "2");
    let mut client = Client::new(&broker);
    client.ask(1, produce(-1, 1000));
    broker.kill_node(3).unwrap();
    broker.kill_node(1).unwrap();
    assert_eq!(latest(&mut client, 2), (NONE, 1), "it had all of it");
    broker.start_node(1).unwrap();
    broker.crash_node(1, 9000).unwrap();
    client.ask(2, produce(1, 1000));
    broker.start_node(3).unwrap();
    broker.move_leader(&tp("t", 0), 3).unwrap();
    assert_eq!(latest(&mut client, 3), (ErrorCode::OFFSET_NOT_AVAILABLE, -1));
    assert_eq!(
        client.list_offset(3, &tp("t", 0), ListOffsetsRequest::EARLIEST_TIMESTAMP),
        (NONE, 0)
    );
    broker.start_node(1).unwrap();
    assert_eq!(latest(&mut client, 3), (NONE, 2));
}

#[test]
fn a_killed_node_that_leads_again_does_not_know_the_end_of_the_log_below_min_isr() {
    let (broker, _clock) = cluster(&[1, 2], "2");
    let mut client = Client::new(&broker);
    client.ask(1, produce(-1, 1000));
    broker.kill_node(2).unwrap();
    broker.kill_node(1).unwrap();
    broker.start_node(2).unwrap();
    assert_eq!(shown(&mut client, 2).0, -1, "node 1 is eligible");
    broker.kill_node(2).unwrap();
    broker.start_node(1).unwrap();
    assert_eq!(shown(&mut client, 1).0, 1, "the last leader");
    assert_eq!(latest(&mut client, 1), (ErrorCode::OFFSET_NOT_AVAILABLE, -1));
    broker.start_node(2).unwrap();
    assert_eq!(latest(&mut client, 1), (NONE, 1));
}

/// As recorded: leaders move 0.2 to 0.7 s after SIGTERM, connections are closed 1.6 to 4.1 s later, and the node is fenced then.
#[test]
fn a_node_that_is_shut_down_answers_as_a_follower_before_it_ends() {
    let (broker, clock) = cluster(&[1, 2, 3], "2");
    let mut client = Client::new(&broker);
    assert_eq!(outcome(client.ask(1, produce(-1, 1000))), (NONE, 0, 0));
    broker.shut_down_node(1, 3000).unwrap();
    assert!(broker.is_node_up(1) && !broker.is_node_fenced(1));
    assert_eq!(shown(&mut client, 1), (2, 1, vec![2, 3], vec![1, 2, 3]));
    let refused = produced(client.ask(1, produce(-1, 1000)));
    assert_eq!(refused.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(refused.current_leader.leader_id, 2);
    assert_eq!(fetch(&mut client, 1).high_watermark, 1);
    assert_eq!(outcome(client.ask(2, produce(-1, 1000))), (NONE, 1, 0), "no gap");
    assert_eq!(
        broker.move_leader(&tp("t", 0), 1).unwrap_err().code(),
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    assert_eq!(broker.next_deadline(), Some(clock.monotonic_ms() + 3000));
    pass(&broker, &clock, 2999);
    assert!(broker.is_node_up(1));
    pass(&broker, &clock, 1);
    assert!(!broker.is_node_up(1) && broker.is_node_fenced(1));
    assert_eq!(shown(&mut client, 2), (2, 1, vec![2, 3], vec![2, 3]));
    broker.start_node(1).unwrap();
    assert_eq!(shown(&mut client, 2), (2, 1, vec![1, 2, 3], vec![1, 2, 3]));
    broker.shut_down_node(2, 3000).unwrap();
    broker.start_node(2).unwrap();
    assert_eq!(
        shown(&mut client, 2),
        (1, 2, vec![1, 2, 3], vec![1, 2, 3]),
        "it has ended and started"
    );
    broker.shut_down_node(2, 3000).unwrap();
    broker.shut_down_node(2, 3000).unwrap();
    assert!(!broker.is_node_up(2), "a second time ends it");
    assert_eq!(broker.next_deadline(), None);
}

/// As recorded: acks=all is answered 0.1 or 1.1 s after a move, and OFFSET_NOT_AVAILABLE until then.
#[test]
fn followers_that_are_late_hold_what_needs_all_replicas() {
    let (broker, clock) = cluster(&[1, 2, 3], "2");
    let mut client = Client::new(&broker);
    assert_eq!(outcome(client.ask(1, produce(-1, 1000))), (NONE, 0, 0));
    broker.move_leader_slowly(&tp("t", 0), 2, 1100).unwrap();
    assert_eq!(outcome(client.ask(2, produce(1, 1000))), (NONE, 1, 0), "acks=1");
    assert_eq!(latest(&mut client, 2), (ErrorCode::OFFSET_NOT_AVAILABLE, -1));
    let mut patient = Client::new(&broker);
    patient.send(2, produce(-1, 60_000));
    assert_eq!(
        (patient.take(2).map(outcome), broker.next_deadline()),
        (None, Some(clock.monotonic_ms() + 1100))
    );
    pass(&broker, &clock, 1099);
    assert_eq!(
        (patient.take(2).map(outcome), fetch(&mut client, 2).high_watermark),
        (None, 1)
    );
    pass(&broker, &clock, 1);
    assert_eq!(patient.take(2).map(outcome), Some((NONE, 2, 0)));
    assert_eq!(latest(&mut client, 2), (NONE, 3));
    assert!(broker.move_leader_slowly(&tp("t", 0), 9, 1100).is_err());
    assert_eq!(
        outcome(client.ask(2, produce(-1, 1000))),
        (NONE, 3, 0),
        "nothing is held"
    );
}

#[test]
fn raising_min_insync_replicas_holds_the_high_watermark() {
    let (broker, _clock) = cluster(&[1, 2], "1");
    let mut client = Client::new(&broker);
    client.ask(1, produce(-1, 1000));
    broker.kill_node(2).unwrap();
    assert_eq!(outcome(client.ask(1, produce(-1, 1000))), (NONE, 1, 0));
    let raised = [("min.insync.replicas".to_owned(), Some("2".to_owned()))];
    broker
        .replace_config(&ConfigResource::Topic("t".to_owned()), &raised, false)
        .unwrap();
    assert_eq!(
        outcome(client.ask(1, produce(-1, 1000))).0,
        ErrorCode::NOT_ENOUGH_REPLICAS
    );
    assert_eq!(outcome(client.ask(1, produce(1, 1000))), (NONE, 2, 0));
    assert_eq!(latest(&mut client, 1), (NONE, 2));
}

#[test]
fn an_append_that_waits_ends_with_the_leadership_and_keeps_its_offset() {
    let (broker, _clock) = cluster(&[1, 2, 3], "1");
    let mut client = Client::new(&broker);
    broker.crash_node(3, 9000).unwrap();
    client.send(1, produce(-1, 60_000));
    broker.move_leader(&tp("t", 0), 2).unwrap();
    let moved = produced(client.take(1).unwrap());
    assert_eq!(
        (moved.error_code, moved.base_offset, moved.log_start_offset),
        (ErrorCode::NOT_LEADER_OR_FOLLOWER, 0, 0)
    );
    assert_eq!(
        (moved.current_leader.leader_id, moved.current_leader.leader_epoch),
        (2, 1)
    );
    client.send(2, produce(-1, 60_000));
    broker.delete_topic("t").unwrap();
    assert_eq!(
        client.take(2).map(|answer| outcome(answer).0),
        Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    );
}

fn commit() -> Request {
    let partitions = vec![OffsetCommitRequestPartition {
        partition_index: 0,
        committed_offset: 5,
        committed_leader_epoch: -1,
        ..Default::default()
    }];
    Request::OffsetCommit(OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            partitions,
            ..Default::default()
        }],
        ..Default::default()
    })
}

fn committed(response: Response) -> ErrorCode {
    let Response::OffsetCommit(response) = response else {
        panic!("{response:?}")
    };
    response.topics[0].partitions[0].error_code
}

fn offsets(require_stable: bool) -> Request {
    Request::OffsetFetch(OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "g".into(),
            topics: None,
            ..Default::default()
        }],
        require_stable,
        ..Default::default()
    })
}

fn group_error(response: Response) -> ErrorCode {
    let Response::OffsetFetch(response) = response else {
        panic!("{response:?}")
    };
    response.groups[0].error_code
}

#[test]
fn a_coordinator_waits_for_its_records_and_what_stands_behind_them_waits_too() {
    let (broker, clock) = cluster(&[1, 2, 3], "2");
    let mut client = Client::new(&broker);
    assert_eq!(committed(client.ask(1, commit())), NONE);
    broker.crash_node(3, 9000).unwrap();
    assert_eq!(
        group_error(client.ask(1, offsets(true))),
        NONE,
        "nothing is written yet"
    );
    client.send(1, commit());
    let mut reader = Client::new(&broker);
    reader.send(1, offsets(true));
    assert_eq!(group_error(Client::new(&broker).ask(1, offsets(false))), NONE);
    pass(&broker, &clock, 4999);
    assert!(client.take(1).is_none() && reader.take(1).is_none());
    pass(&broker, &clock, 1);
    assert_eq!(
        client.take(1).map(committed),
        Some(ErrorCode::COORDINATOR_NOT_AVAILABLE)
    );
    assert_eq!(reader.take(1).map(group_error), Some(ErrorCode::NOT_COORDINATOR));
    client.send(1, commit());
    pass(&broker, &clock, 4000);
    assert_eq!(client.take(1).map(committed), Some(NONE), "at the detection");
    assert_eq!(group_error(client.ask(1, offsets(true))), NONE);
}

#[test]
fn an_unclean_election_cuts_the_log_to_that_of_the_elected_replica() {
    let (broker, _clock) = cluster(&[2, 3], "1");
    let mut client = Client::new(&broker);
    client.produce(2, &tp("t", 0), batch(10, 1), 1);
    broker.kill_node(3).unwrap();
    for _ in 0..2 {
        client.produce(2, &tp("t", 0), batch(10, 1), 1);
    }
    broker.kill_node(2).unwrap();
    assert_eq!(shown(&mut client, 1), (-1, 1, vec![], vec![1]));
    broker.start_node(3).unwrap();
    assert_eq!(
        shown(&mut client, 1),
        (-1, 1, vec![], vec![1, 3]),
        "records would be lost"
    );
    let follower = fetch(&mut client, 3);
    assert_eq!((follower.error_code, follower.high_watermark), (NONE, 10));
    assert_eq!(
        follower.records.map(|records| records.len()),
        Some(batch(10, 1).len()),
        "what it has"
    );
    let asked = |client: &mut Client, offset, epoch, last| {
        let mut request = fetch_of(&[(&tp("t", 0), offset, 1 << 20)]);
        let partition = &mut request.topics[0].partitions[0];
        (partition.current_leader_epoch, partition.last_fetched_epoch) = (epoch, last);
        nth(&client.fetch(3, request), 0).clone()
    };
    assert_eq!(
        asked(&mut client, 15, 1, -1).error_code,
        ErrorCode::OFFSET_OUT_OF_RANGE,
        "beyond its own end"
    );
    assert_eq!(asked(&mut client, 15, 1, 0).diverging_epoch(), Some((0, 10)));
    let elect = |how| broker.elect_leaders(how, Some(&[tp("t", 0)])).unwrap().remove(0).1;
    let refused = elect(ElectionType::Preferred).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE);
    elect(ElectionType::Unclean).unwrap();
    assert_eq!(shown(&mut client, 1), (3, 2, vec![3], vec![1, 3]));
    assert_eq!(latest(&mut client, 3), (NONE, 10));
    let end = |epoch| broker.partition_log(&tp("t", 0)).unwrap().end_offset_for_epoch(epoch);
    assert_eq!([0, 1, 2].map(end), [(0, 10), (0, 10), (2, 10)]);
    assert_eq!(asked(&mut client, 15, 1, -1).error_code, ErrorCode::FENCED_LEADER_EPOCH);
    assert_eq!(asked(&mut client, 15, 2, -1).error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
    let diverging = asked(&mut client, 15, 2, 0);
    let from = diverging.diverging_epoch().unwrap();
    assert_eq!((diverging.error_code, from), (NONE, (0, 10)));
    assert_eq!(client.produce(3, &tp("t", 0), batch(1, 1), -1).base_offset, 10);
    broker.start_node(2).unwrap();
    assert_eq!(shown(&mut client, 1), (3, 2, vec![2, 3], vec![1, 2, 3]));
    broker.move_leader(&tp("t", 0), 2).unwrap();
    assert_eq!(latest(&mut client, 2), (NONE, 11), "it has followed");
}

#[test]
fn an_unclean_election_leaves_what_the_elected_replica_has_and_a_shorter_one_lacks() {
    let (broker, _clock) = cluster(&[2, 3, 1], "1");
    let mut client = Client::new(&broker);
    for ends in [3, 1, 2] {
        client.produce(2, &tp("t", 0), batch(10, 1), 1);
        broker.kill_node(ends).unwrap();
    }
    broker.start_node(1).unwrap();
    broker.elect_leaders(ElectionType::Unclean, None).unwrap();
    assert_eq!(shown(&mut client, 1), (1, 2, vec![1], vec![1]));
    assert_eq!(latest(&mut client, 1), (NONE, 20), "node 3 has 10, node 2 had 30");
}

#[test]
fn a_topic_can_allow_unclean_elections() {
    let (broker, _clock) = cluster(&[2, 3], "1");
    let allowed = [("unclean.leader.election.enable".to_owned(), Some("true".to_owned()))];
    broker
        .replace_config(&ConfigResource::Topic("t".to_owned()), &allowed, false)
        .unwrap();
    let mut client = Client::new(&broker);
    broker.kill_node(3).unwrap();
    client.produce(2, &tp("t", 0), batch(10, 1), 1);
    broker.kill_node(2).unwrap();
    broker.start_node(3).unwrap();
    assert_eq!(shown(&mut client, 1), (3, 2, vec![3], vec![1, 3]));
    assert_eq!(
        latest(&mut client, 3),
        (NONE, 0),
        "it was opened when the replica had gone"
    );
}

/// Recovery checks nothing below the recovery point. Kafka: `LogManager#truncateTo`.
#[test]
fn the_recovery_point_of_a_log_that_is_cut_goes_back_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path(), options(Some(2), false, &[]), VirtualClock::new()).unwrap();
    let new = NewTopic {
        assignments: vec![(0, vec![1, 2])],
        ..NewTopic::default()
    };
    broker.create_topic_with("t", &new).unwrap();
    let mut client = Client::new(&broker);
    let mut append = || client.produce(1, &tp("t", 0), batch(10, 1), 1).base_offset;
    assert_eq!(append(), 0);
    broker.kill_node(2).unwrap();
    assert_eq!(append(), 10);
    broker.flush().unwrap();
    let recovery_point = || {
        let node = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let files = node.flat_map(|path| [path.join(CHECKPOINT), dir.path().join(CHECKPOINT)]);
        let texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
        let lines: Vec<String> = texts
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        lines.into_iter().find(|line| line.starts_with("t 0 "))
    };
    assert_eq!(recovery_point().as_deref(), Some("t 0 20"));
    broker.kill_node(1).unwrap();
    broker.start_node(2).unwrap();
    let elected = broker
        .elect_leaders(ElectionType::Unclean, Some(&[tp("t", 0)]))
        .unwrap();
    assert!(elected[0].1.is_ok());
    assert_eq!(recovery_point().as_deref(), Some("t 0 10"));
}

/// What a node does not have is cut only by an unclean election. (A seed of the simulation lost acknowledged records.)
#[test]
fn a_leader_that_comes_back_or_gets_its_replica_again_loses_nothing() {
    let (broker, _clock) = cluster(&[1], "1");
    let mut client = Client::new(&broker);
    let mut append = |node, offset| {
        assert_eq!(outcome(client.ask(node, produce(-1, 1_000))), (NONE, offset, 0));
    };
    append(1, 0);
    broker.crash_node(1, 9_000).unwrap();
    // The partition gets another node, and its former one again.
    broker.move_leader(&tp("t", 0), 2).unwrap();
    append(2, 1);
    broker.start_node(1).unwrap();
    broker.move_leader(&tp("t", 0), 1).unwrap();
    append(1, 2);
    // What is written without the node, as a marker of a transaction is, while the only replica is away.
    broker.crash_node(1, 9_000).unwrap();
    broker.append_batches(&tp("t", 0), batch(1, 1)).unwrap();
    broker.start_node(1).unwrap();
    append(1, 4);
}

/// Until the end of a node is detected, it can be chosen as the leader, being in sync: nothing is cut for it.
#[test]
fn a_leader_that_has_ended_unnoticed_cuts_nothing() {
    let (broker, clock) = cluster(&[2, 3, 1], "1");
    let mut client = Client::new(&broker);
    broker.crash_node(3, 9_000).unwrap();
    assert_eq!(outcome(client.ask(2, produce(1, 1_000))), (NONE, 0, 0));
    broker.kill_node(2).unwrap();
    assert_eq!(shown(&mut client, 1).0, 3);
    pass(&broker, &clock, 9_000);
    assert_eq!(shown(&mut client, 1).0, 1);
    assert_eq!(outcome(client.ask(1, produce(1, 1_000))), (NONE, 1, 0));
}
