//! Leaders that move and nodes that stop and start, as requests see them (spec 6.8, recorded from a Kafka 4.4.0).

use std::sync::Arc;

use fletchlog_api::*;
use fletchlog_broker::{Broker, ElectionType, NewTopic, Outcome, Port};
use fletchlog_protocol::messages::fetch_response::PartitionData;
use fletchlog_protocol::messages::list_offsets_request::ListOffsetsPartition;
use fletchlog_protocol::messages::metadata_response::MetadataResponsePartition;
use fletchlog_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};

use crate::common::*;

const NOT_LEADER: ErrorCode = ErrorCode::NOT_LEADER_OR_FOLLOWER;
const FENCED: ErrorCode = ErrorCode::FENCED_LEADER_EPOCH;

/// A broker of three nodes and a topic with a partition for each of these lists of replicas.
fn cluster(replicas: &[&[NodeId]]) -> Arc<Broker> {
    let broker = in_memory(3);
    create(&broker, "t", replicas, &[]);
    broker
}

fn create(broker: &Broker, name: &str, replicas: &[&[NodeId]], config: &[(&str, &str)]) {
    let placed = (0..).zip(replicas.iter().map(|nodes| nodes.to_vec()));
    let new = NewTopic {
        assignments: placed.collect(),
        config: config
            .iter()
            .map(|(k, v)| ((*k).to_owned(), Some((*v).to_owned())))
            .collect(),
        ..NewTopic::default()
    };
    broker.create_topic_with(name, &new).unwrap();
}

/// A fetch of one partition that waits for data for a minute.
fn long_poll(offset: i64, epoch: i32) -> FetchRequest {
    let mut request = fetch_of(&[(&tp("t", 0), offset, 1 << 20)]);
    request.topics[0].partitions[0].current_leader_epoch = epoch;
    request.max_wait_ms = 60_000;
    request
}

fn fetch(client: &mut Client, node: NodeId, offset: i64, epoch: i32) -> PartitionData {
    let request = FetchRequest {
        max_wait_ms: 0,
        ..long_poll(offset, epoch)
    };
    nth(&client.fetch(node, request), 0).clone()
}

fn hint(data: &PartitionData) -> (NodeId, i32) {
    (data.current_leader.leader_id, data.current_leader.leader_epoch)
}

fn metadata(broker: &Arc<Broker>, node: NodeId, partition: usize) -> MetadataResponsePartition {
    let request = MetadataRequest::for_topics(Some(vec!["t".into()]), false);
    let Response::Metadata(answer) = Client::new(broker).ask(node, Request::Metadata(request)) else {
        panic!()
    };
    answer.topics[0].partitions[partition].clone()
}

/// Leader, epoch, ISR, offline replicas.
fn shown(broker: &Arc<Broker>, partition: usize) -> (NodeId, i32, Vec<NodeId>, Vec<NodeId>) {
    let node = (1..=3).find(|node| broker.is_node_up(*node)).unwrap();
    let p = metadata(broker, node, partition);
    (p.leader_id, p.leader_epoch, p.isr_nodes, p.offline_replicas)
}

/// The error and the offset.
fn list_offset(client: &mut Client, node: NodeId, epoch: i32) -> (ErrorCode, i64) {
    let asked = ListOffsetsPartition {
        partition_index: 0,
        timestamp: ListOffsetsRequest::LATEST_TIMESTAMP,
        current_leader_epoch: epoch,
    };
    let request = ListOffsetsRequest::for_consumer(IsolationLevel::ReadUncommitted, [("t".into(), asked)]);
    let Response::ListOffsets(answer) = client.ask(node, Request::ListOffsets(request)) else {
        panic!()
    };
    let found = &answer.topics[0].partitions[0];
    (found.error_code, found.offset)
}

/// The error, and epoch and end offset.
fn end_of_epoch(client: &mut Client, node: NodeId, current: i32, epoch: i32) -> (ErrorCode, i32, i64) {
    let partitions = vec![OffsetForLeaderPartition {
        partition: 0,
        current_leader_epoch: current,
        leader_epoch: epoch,
    }];
    let topics = vec![OffsetForLeaderTopic {
        topic: "t".into(),
        partitions,
    }];
    let request = OffsetForLeaderEpochRequest {
        topics,
        ..Default::default()
    };
    let Response::OffsetForLeaderEpoch(answer) = client.ask(node, Request::OffsetForLeaderEpoch(request)) else {
        panic!()
    };
    let found = &answer.topics[0].partitions[0];
    (found.error_code, found.leader_epoch, found.end_offset)
}

#[test]
fn after_a_move_the_new_leader_answers_and_the_old_one_names_it() {
    let broker = cluster(&[&[1, 2]]);
    let mut client = Client::new(&broker);
    assert_eq!(client.produce(1, &tp("t", 0), batch(3, 1), -1).base_offset, 0);
    assert_eq!(shown(&broker, 0), (1, 0, vec![1, 2], vec![]));
    broker.move_leader(&tp("t", 0), 2).unwrap();
    assert_eq!(shown(&broker, 0), (2, 1, vec![1, 2], vec![]));
    assert_eq!(metadata(&broker, 3, 0).replica_nodes, [2, 1]);
    for (node, leader) in [(1, (2, 1)), (3, (2, 1))] {
        let refused = client.produce(node, &tp("t", 0), batch(1, 1), 1);
        assert_eq!(
            (refused.error_code, refused.base_offset, refused.log_start_offset),
            (NOT_LEADER, -1, -1)
        );
        assert_eq!(
            (refused.current_leader.leader_id, refused.current_leader.leader_epoch),
            leader
        );
    }
    assert_eq!(client.produce(2, &tp("t", 0), batch(2, 1), -1).base_offset, 3);
    // Nothing changes if the leader is to lead.
    broker.move_leader(&tp("t", 0), 2).unwrap();
    assert_eq!(shown(&broker, 0), (2, 1, vec![1, 2], vec![]));
}

#[test]
fn a_replica_checks_the_epoch_before_it_says_that_it_does_not_lead() {
    let broker = cluster(&[&[1, 2]]);
    let mut client = Client::new(&broker);
    client.produce(1, &tp("t", 0), batch(3, 1), -1);
    broker.move_leader(&tp("t", 0), 2).unwrap();
    client.produce(2, &tp("t", 0), batch(2, 1), -1);
    let unknown = ErrorCode::UNKNOWN_LEADER_EPOCH;
    // Node, known epoch, what ListOffsets and OffsetForLeaderEpoch say, what Fetch says.
    for (node, epoch, question, read) in [
        (3, -1, NOT_LEADER, NOT_LEADER),
        (3, 0, NOT_LEADER, NOT_LEADER),
        (3, 9, NOT_LEADER, NOT_LEADER),
        (1, 0, FENCED, FENCED),
        (1, 9, unknown, unknown),
        (1, 1, NOT_LEADER, ErrorCode::NONE),
        (1, -1, NOT_LEADER, ErrorCode::NONE),
        (2, 0, FENCED, FENCED),
        (2, 9, unknown, unknown),
        (2, 1, ErrorCode::NONE, ErrorCode::NONE),
    ] {
        let at = format!("node {node}, epoch {epoch}");
        assert_eq!(list_offset(&mut client, node, epoch).0, question, "{at}");
        assert_eq!(end_of_epoch(&mut client, node, epoch, 0).0, question, "{at}");
        let found = fetch(&mut client, node, 0, epoch);
        assert_eq!(found.error_code, read, "{at}");
        let has_hint = matches!(read, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH);
        assert_eq!(hint(&found), if has_hint { (2, 1) } else { (-1, -1) }, "{at}");
    }
    assert_eq!(list_offset(&mut client, 2, 1), (ErrorCode::NONE, 5));
    let none = ErrorCode::NONE;
    for (epoch, end) in [(0, (none, 0, 3)), (1, (none, 1, 5)), (7, (none, -1, -1))] {
        assert_eq!(end_of_epoch(&mut client, 2, 1, epoch), end);
    }
}

#[test]
fn a_follower_answers_a_fetch_up_to_its_end_and_only_versions_that_know_followers() {
    let broker = cluster(&[&[1, 2]]);
    let mut client = Client::new(&broker);
    client.produce(1, &tp("t", 0), batch(3, 1), -1);
    assert!(fetch(&mut client, 2, 0, -1).size() > 0);
    assert_eq!(fetch(&mut client, 2, 3, -1).error_code, ErrorCode::NONE);
    assert_eq!(fetch(&mut client, 2, 4, -1).error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
    let mut old = long_poll(0, -1);
    old.topic_ids.leader_only = true;
    assert_eq!(nth(&client.fetch(2, old), 0).error_code, NOT_LEADER);
    // A session at a follower sees what the leader appends.
    let mut full = long_poll(3, -1);
    (full.session_epoch, full.max_wait_ms) = (0, 0);
    let id = client.fetch(2, full).session_id;
    let next = FetchRequest {
        session_id: id,
        session_epoch: 1,
        topics: Vec::new(),
        ..long_poll(3, -1)
    };
    client.send(2, Request::Fetch(next));
    assert!(client.take(2).is_none());
    client.produce(1, &tp("t", 0), batch(1, 1), -1);
    let Some(Response::Fetch(found)) = client.take(2) else {
        panic!()
    };
    assert!(nth(&found, 0).size() > 0);
}

#[test]
fn a_waiting_fetch_that_knows_the_epoch_ends_but_at_the_new_leader() {
    let broker = cluster(&[&[1, 2, 3]]);
    let mut known = Client::new(&broker);
    for node in 1..=3 {
        known.send(node, Request::Fetch(long_poll(0, 0)));
    }
    let mut unaware = Client::new(&broker);
    unaware.send(1, Request::Fetch(long_poll(0, -1)));
    broker.move_leader(&tp("t", 0), 2).unwrap();
    for node in [1, 3] {
        let Some(Response::Fetch(ended)) = known.take(node) else {
            panic!("node {node}")
        };
        assert_eq!((nth(&ended, 0).error_code, hint(nth(&ended, 0))), (FENCED, (2, 1)));
    }
    assert!(known.take(2).is_none() && unaware.take(1).is_none());
    Client::new(&broker).produce(2, &tp("t", 0), batch(1, 1), -1);
    let Some(Response::Fetch(ended)) = known.take(2) else {
        panic!()
    };
    assert_eq!(nth(&ended, 0).error_code, FENCED);
    let Some(Response::Fetch(found)) = unaware.take(1) else {
        panic!()
    };
    assert!(nth(&found, 0).size() > 0);
}

#[test]
fn a_session_keeps_the_error_of_a_moved_partition_and_stays_valid() {
    let broker = cluster(&[&[1, 2], &[1, 2]]);
    let mut client = Client::new(&broker);
    let mut full = fetch_of(&[(&tp("t", 0), 0, 1 << 20), (&tp("t", 1), 0, 1 << 20)]);
    full.session_epoch = 0;
    for partition in &mut full.topics[0].partitions {
        partition.current_leader_epoch = 0;
    }
    let id = client.fetch(1, full).session_id;
    broker.move_leader(&tp("t", 0), 2).unwrap();
    for epoch in 1..=2 {
        let next = FetchRequest {
            session_id: id,
            session_epoch: epoch,
            ..fetch_of(&[])
        };
        let found = client.fetch(1, next);
        assert_eq!((found.error_code, found.session_id), (ErrorCode::NONE, id));
        let errors = found.partitions().map(|(_, p)| (p.partition_index, p.error_code));
        assert_eq!(errors.collect::<Vec<_>>(), [(0, FENCED)]);
    }
}

#[test]
fn leader_and_epoch_are_kept_with_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let broker = Broker::open(&path, options(Some(3), false, &[]), VirtualClock::new()).unwrap();
    create(&broker, "t", &[&[1, 2, 3], &[1, 2, 3]], &[]);
    let mut client = Client::new(&broker);
    client.produce(1, &tp("t", 0), batch(2, 1), -1);
    broker.move_leader(&tp("t", 0), 3).unwrap();
    client.produce(3, &tp("t", 0), batch(1, 1), -1);
    broker.move_leader(&tp("t", 1), 2).unwrap();
    broker.close().unwrap();
    let broker = open(&path).unwrap();
    assert_eq!(shown(&broker, 0), (3, 1, vec![3, 1, 2], vec![]));
    assert_eq!(
        shown(&broker, 1),
        (2, 1, vec![2, 1, 3], vec![]),
        "its log was never opened"
    );
    let mut client = Client::new(&broker);
    assert_eq!(end_of_epoch(&mut client, 3, 1, 0), (ErrorCode::NONE, 0, 2));
    assert_eq!(client.produce(3, &tp("t", 0), batch(1, 1), -1).base_offset, 3);
    let reader = open_read_only(&path).unwrap();
    assert_eq!(shown(&reader, 0), (3, 1, vec![3, 1, 2], vec![]));
    let code = reader.move_leader(&tp("t", 0), 1).unwrap_err().code();
    assert_eq!(code, ErrorCode::POLICY_VIOLATION);
}

#[test]
fn a_broker_that_listens_on_what_another_one_left_leads_it_in_a_new_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let epochs = |broker: &Arc<Broker>| [0, 1].map(|partition| metadata(broker, 1, partition).leader_epoch);
    let broker = Broker::open(&path, options(Some(3), false, &[]), VirtualClock::new()).unwrap();
    broker.begin_to_listen();
    create(&broker, "t", &[&[1, 2], &[1, 2]], &[]);
    Client::new(&broker).produce(1, &tp("t", 0), batch(2, 1), -1);
    broker.move_leader(&tp("t", 1), 2).unwrap();
    assert_eq!(epochs(&broker), [0, 1], "both are new");
    drop(broker);
    let broker = open(&path).unwrap();
    assert_eq!(epochs(&broker), [0, 1], "nobody listens");
    Client::new(&broker).produce(1, &tp("t", 0), batch(1, 1), -1);
    broker.begin_to_listen();
    assert_eq!(epochs(&broker), [2, 3]);
    broker.begin_to_listen();
    assert_eq!(epochs(&broker), [2, 3], "another listener");
    let mut client = Client::new(&broker);
    assert_eq!(client.produce(1, &tp("t", 0), batch(1, 1), -1).base_offset, 3);
    assert_eq!(client.produce(2, &tp("t", 1), batch(1, 1), -1).base_offset, 0);
    assert_eq!(fetch(&mut client, 1, 0, 0).error_code, FENCED);
    assert_eq!(end_of_epoch(&mut client, 1, 2, 1), (ErrorCode::NONE, 0, 3));
    assert_eq!(end_of_epoch(&mut client, 1, 2, 2), (ErrorCode::NONE, 2, 4));
    broker.close().unwrap();
    let reader = open_read_only(&path).unwrap();
    reader.begin_to_listen();
    assert_eq!(epochs(&reader), [2, 3]);
    for epoch in [4, 6] {
        let broker = open(&path).unwrap();
        broker.begin_to_listen();
        let mut client = Client::new(&broker);
        assert_eq!(
            list_offset(&mut client, 1, -1),
            (ErrorCode::NONE, 4),
            "it is opened, and nothing is written"
        );
        assert_eq!(list_offset(&mut client, 1, epoch), (ErrorCode::NONE, 4));
        let ended = end_of_epoch(&mut client, 1, epoch, epoch);
        assert_eq!(ended, (ErrorCode::NONE, epoch, 4));
        drop(broker);
    }
    let broker = open(&path).unwrap();
    assert_eq!(list_offset(&mut Client::new(&broker), 1, -1), (ErrorCode::NONE, 4));
    assert_eq!(metadata(&broker, 1, 0).leader_epoch, 6, "it does not go back");
}

#[test]
fn a_node_without_a_replica_takes_the_place_of_the_leader() {
    let broker = cluster(&[&[1, 2]]);
    broker.move_leader(&tp("t", 0), 3).unwrap();
    let p = metadata(&broker, 1, 0);
    assert_eq!((p.leader_id, p.leader_epoch, p.replica_nodes), (3, 1, vec![3, 2]));
    let mut client = Client::new(&broker);
    assert_eq!(fetch(&mut client, 1, 0, 1).error_code, NOT_LEADER);
    assert_eq!(
        client.produce(3, &tp("t", 0), batch(1, 1), -1).error_code,
        ErrorCode::NONE
    );
    let code = |moved: Result<(), fletchlog_broker::BrokerError>| moved.unwrap_err().code();
    assert_eq!(code(broker.move_leader(&tp("t", 0), 4)), ErrorCode::INVALID_REQUEST);
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(code(broker.move_leader(&tp("t", 9), 1)), unknown);
}

#[test]
fn reassignments_and_elections_move_leaders_in_two_steps() {
    let broker = cluster(&[&[1, 2, 3], &[2, 3, 1]]);
    let reassign = |replicas: &[NodeId]| {
        let wanted = [(tp("t", 0), Some(replicas.to_vec())), (tp("t", 9), None)];
        let results = broker.reassign_partitions(&wanted, true).unwrap();
        let codes = results.into_iter().map(|result| result.map_err(|error| error.code()));
        codes.collect::<Vec<_>>()
    };
    let unknown = Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(reassign(&[2, 3, 1]), [Ok(()), unknown]);
    assert_eq!(
        shown(&broker, 0),
        (1, 0, vec![1, 2, 3], vec![]),
        "another order moves nothing"
    );
    let elected = broker.elect_leaders(ElectionType::Preferred, None).unwrap();
    let elected: Vec<_> = elected
        .into_iter()
        .map(|(tp, result)| (tp.partition, result.is_ok()))
        .collect();
    assert_eq!(elected, [(0, true)]);
    assert_eq!(shown(&broker, 0), (2, 1, vec![1, 2, 3], vec![]));
    let again = broker
        .elect_leaders(ElectionType::Preferred, Some(&[tp("t", 0), tp("ev", 9)]))
        .unwrap();
    let texts: Vec<_> = again
        .into_iter()
        .map(|(_, result)| result.unwrap_err().to_string())
        .collect();
    assert_eq!(
        texts,
        ["Leader election not needed for topic partition.", "No such topic as ev"]
    );
    assert_eq!(reassign(&[3]), [Ok(()), unknown]);
    assert_eq!(shown(&broker, 0), (3, 2, vec![3], vec![]));
    assert_eq!(reassign(&[4]), [Err(ErrorCode::INVALID_REPLICA_ASSIGNMENT), unknown]);
    for (target, code) in [
        (vec![1, 2], ErrorCode::INVALID_REPLICATION_FACTOR),
        (vec![1, 4], ErrorCode::INVALID_REPLICA_ASSIGNMENT),
    ] {
        let refused = broker
            .reassign_partitions(&[(tp("t", 0), Some(target))], false)
            .unwrap()
            .remove(0);
        assert_eq!(refused.unwrap_err().code(), code);
    }
}

#[test]
fn a_stopped_node_is_out_of_every_isr_and_answers_nothing() {
    let broker = cluster(&[&[3, 1, 2], &[1, 2, 3]]);
    let mut client = Client::new(&broker);
    client.produce(3, &tp("t", 0), batch(1, 1), -1);
    client.send(3, Request::Fetch(long_poll(1, -1)));
    broker.stop_node(3).unwrap();
    assert!(
        client.transport.receive(3).unwrap().result.is_err(),
        "the connection is lost"
    );
    assert_eq!(shown(&broker, 0), (1, 1, vec![1, 2], vec![3]));
    assert_eq!(shown(&broker, 1), (1, 0, vec![1, 2], vec![3]));
    client.send(3, Request::Fetch(long_poll(1, -1)));
    assert!(client.transport.receive(3).unwrap().result.is_err());
    let request = MetadataRequest::for_topics(Some(Vec::new()), false);
    let Response::Metadata(answer) = client.ask(1, Request::Metadata(request)) else {
        panic!()
    };
    assert_eq!(answer.brokers.iter().map(|b| b.node_id).collect::<Vec<_>>(), [1, 2]);
    let code = |moved: Result<(), fletchlog_broker::BrokerError>| moved.unwrap_err().code();
    assert_eq!(code(broker.move_leader(&tp("t", 0), 3)), NOT_LEADER);
    assert_eq!(code(broker.stop_node(4)), ErrorCode::INVALID_REQUEST);
    broker.start_node(3).unwrap();
    assert_eq!(
        shown(&broker, 0),
        (1, 1, vec![1, 2, 3], vec![]),
        "leaders do not come back"
    );
    let elected = broker.elect_leaders(ElectionType::Preferred, None).unwrap();
    assert_eq!(elected.len(), 1);
    assert_eq!(shown(&broker, 0), (3, 2, vec![1, 2, 3], vec![]));
    assert!(fetch(&mut client, 3, 0, 2).size() > 0);
}

#[test]
fn too_few_replicas_in_sync_refuse_acks_all_and_none_leaves_no_leader() {
    let broker = in_memory(3);
    create(&broker, "t", &[&[1, 2, 3], &[3, 1, 2]], &[("min.insync.replicas", "2")]);
    let alone = [(tp("t", 1), Some(vec![3]))];
    assert!(broker.reassign_partitions(&alone, true).unwrap()[0].is_ok());
    let mut client = Client::new(&broker);
    client.produce(1, &tp("t", 0), batch(1, 1), -1);
    broker.stop_node(3).unwrap();
    assert_eq!(
        client.produce(1, &tp("t", 0), batch(1, 1), -1).error_code,
        ErrorCode::NONE
    );
    broker.stop_node(1).unwrap();
    assert_eq!(shown(&broker, 0), (2, 1, vec![2], vec![1, 3]));
    let refused = client.produce(2, &tp("t", 0), batch(1, 1), -1);
    let enough = ErrorCode::NOT_ENOUGH_REPLICAS;
    assert_eq!(
        (refused.error_code, refused.base_offset, refused.log_start_offset),
        (enough, -1, 0)
    );
    assert_eq!(client.produce(2, &tp("t", 0), batch(1, 1), 1).base_offset, 2);
    let offline = metadata(&broker, 2, 1);
    assert_eq!(
        (offline.error_code, offline.leader_id, offline.leader_epoch),
        (ErrorCode::LEADER_NOT_AVAILABLE, -1, 1)
    );
    assert_eq!((offline.isr_nodes, offline.offline_replicas), (vec![], vec![3]));
    let refused = client.produce(2, &tp("t", 1), batch(1, 1), 1);
    assert_eq!(
        (
            refused.error_code,
            refused.current_leader.leader_id,
            refused.current_leader.leader_epoch
        ),
        (NOT_LEADER, -1, 1)
    );
    broker.start_node(3).unwrap();
    assert_eq!(shown(&broker, 0), (2, 1, vec![2, 3], vec![1]));
    assert_eq!(shown(&broker, 1), (3, 2, vec![3], vec![]));
    assert_eq!(
        client.produce(2, &tp("t", 0), batch(1, 1), -1).error_code,
        ErrorCode::NONE
    );
}

#[test]
fn a_killed_node_leads_again_only_if_nobody_else_could() {
    let broker = cluster(&[&[2, 3]]);
    broker.kill_node(2).unwrap();
    assert_eq!(shown(&broker, 0), (3, 1, vec![3], vec![2]));
    broker.kill_node(3).unwrap();
    assert_eq!(shown(&broker, 0), (-1, 2, vec![], vec![2, 3]));
    broker.start_node(2).unwrap();
    assert_eq!(shown(&broker, 0), (-1, 2, vec![], vec![3]), "it was not in sync");
    broker.start_node(3).unwrap();
    assert_eq!(shown(&broker, 0), (3, 3, vec![2, 3], vec![]));
    // With an unclean election allowed, the first node that starts leads.
    create(&broker, "u", &[&[2, 3]], &[("unclean.leader.election.enable", "true")]);
    let leader = || broker.describe_topic("u").unwrap().partitions[0].leader;
    broker.stop_node(2).unwrap();
    broker.kill_node(3).unwrap();
    assert_eq!(leader(), -1);
    broker.start_node(2).unwrap();
    assert_eq!(leader(), 2);
    broker.start_node(3).unwrap();
    assert_eq!(shown(&broker, 0).0, 3, "without one, the last replica in sync");
}

#[test]
fn a_topic_that_is_created_while_a_node_is_stopped_is_led_by_running_ones() {
    let broker = in_memory(3);
    broker.stop_node(3).unwrap();
    create(&broker, "t", &[&[3, 1, 2]], &[]);
    assert_eq!(shown(&broker, 0), (1, 0, vec![1, 2], vec![3]));
    let new = NewTopic {
        assignments: vec![(0, vec![3])],
        ..NewTopic::default()
    };
    let refused = broker.create_topic_with("u", &new).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    let elected = broker
        .elect_leaders(ElectionType::Preferred, Some(&[tp("t", 0)]))
        .unwrap();
    let code = elected[0].1.as_ref().unwrap_err().code();
    assert_eq!(code, ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE);
}

/// One request over a connection of the listener.
fn ask(port: &Port, request: Request) -> Response {
    match port.handle(request) {
        Outcome::Now(response) => response,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_open_transaction_continues_at_the_new_coordinator() {
    let broker = cluster(&[&[1, 2, 3]]);
    let init = || {
        Request::InitProducerId(InitProducerIdRequest {
            transactional_id: Some("x".into()),
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        })
    };
    let coordinator = |broker: &Broker| {
        let all = broker.transactions().unwrap();
        all[0].coordinator
    };
    let first = (1..=3)
        .map(|node| broker.connect(node, "/10.0.0.7"))
        .find_map(|port| match ask(&port, init()) {
            Response::InitProducerId(given) if given.error_code == ErrorCode::NONE => Some((port, given)),
            _ => None,
        });
    let (old, given) = first.unwrap();
    let to = coordinator(&broker) % 3 + 1;
    broker
        .move_coordinator(CoordinatorType::Transaction, "x", to, 100)
        .unwrap();
    assert_eq!(coordinator(&broker), to);
    let code = |port: &Port| match ask(port, init()) {
        Response::InitProducerId(given) => (given.error_code, given.producer_id),
        other => panic!("{other:?}"),
    };
    assert_eq!(code(&old).0, ErrorCode::NOT_COORDINATOR);
    assert_eq!(
        code(&broker.connect(to, "/10.0.0.7")).0,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
    );
    broker
        .move_coordinator(CoordinatorType::Transaction, "x", old.node(), 0)
        .unwrap();
    assert_eq!(code(&old), (ErrorCode::NONE, given.producer_id));
}
