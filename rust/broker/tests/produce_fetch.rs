//! Produce, fetch and look up over the local transport.

use std::time::Duration;

use crate::common::*;
use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_log::FetchBound;
use fletchlog_protocol::messages::list_offsets_request::ListOffsetsPartition;
use fletchlog_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use fletchlog_records::BatchParams;

const ONE_MIB: i32 = 1 << 20;

#[test]
fn what_was_produced_is_fetched() {
    let broker = in_memory(1);
    broker.create_topic("t", 2, &[]).unwrap();
    let mut client = Client::new(&broker);
    let t1 = tp("t", 1);
    for (i, acks) in [-1, 1].into_iter().enumerate() {
        let done = client.produce(1, &t1, batch(3, 10), acks);
        assert_eq!(
            (
                done.error_code,
                done.base_offset,
                done.log_append_time_ms,
                done.log_start_offset
            ),
            (ErrorCode::NONE, 3 * i as i64, -1, 0)
        );
    }
    let response = client.fetch(1, fetch_of(&[(&tp("t", 0), 0, ONE_MIB), (&t1, 4, ONE_MIB)]));
    assert_eq!(response.session_id, 0);
    assert_eq!(response.partitions().count(), 2);
    assert_eq!(nth(&response, 0).size(), 0);
    assert_eq!(nth(&response, 1).high_watermark, 6);
    // The batch that holds offset 4 comes whole.
    assert_eq!(nth(&response, 1).size(), batch(3, 10).len());
}

#[test]
fn acks_0_answers_without_partitions_and_an_error_closes_the_connection() {
    let broker = in_memory(1);
    broker.create_topic("t", 1, &[]).unwrap();
    let mut client = Client::new(&broker);
    let request = |records| {
        Request::Produce(ProduceRequest {
            transactional_id: None,
            acks: 0,
            timeout_ms: 1000,
            topic_data: topic_data([(tp("t", 0), records)]),
            ..Default::default()
        })
    };
    let Response::Produce(response) = client.ask(1, request(batch(1, 1))) else {
        panic!()
    };
    assert!(response.responses.is_empty());
    let id = client.send(1, request(Bytes::from_static(b"garbage")));
    let completion = client.transport.receive(1).unwrap();
    assert_eq!(
        (completion.correlation_id, completion.result.unwrap_err()),
        (id, Failure::Disconnected)
    );
    assert_eq!(broker.partition_log(&tp("t", 0)).unwrap().log_end_offset(), 1);
}

#[test]
fn what_is_decided_before_the_log_has_kafkas_codes() {
    let broker = in_memory(2);
    broker.create_topic("t", 1, &[]).unwrap();
    let mut client = Client::new(&broker);
    let t = tp("t", 0);
    assert_eq!(
        client.produce(1, &tp("t", 1), batch(1, 1), -1).error_code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(
        client.produce(1, &tp("u", 0), batch(1, 1), -1).error_code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(
        client.produce(2, &t, batch(1, 1), -1).error_code,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    for acks in [2, -2, 5] {
        let refused = client.produce(1, &t, batch(1, 1), acks);
        assert_eq!(
            (refused.error_code, refused.log_start_offset),
            (ErrorCode::INVALID_REQUIRED_ACKS, -1)
        );
    }
    let transactional = BatchParams {
        transactional: true,
        producer_id: 1,
        producer_epoch: 0,
        base_sequence: 0,
        ..BatchParams::default()
    };
    let refused = client.produce(1, &t, batch_with(1, 1, &transactional), -1);
    assert_eq!(refused.error_code, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    let Err(BrokerError::Kafka { code, .. }) = broker.append_batches(&t, batch_with(1, 1, &transactional)) else {
        panic!()
    };
    assert_eq!(code, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    assert_eq!(broker.partition_log(&t).unwrap().log_end_offset(), 0);
    assert_eq!(broker.append_batches(&t, batch(2, 1)).unwrap(), (0, -1, 0));
}

#[test]
fn partitions_of_one_request_succeed_or_fail_independently() {
    let broker = in_memory(1);
    broker.create_topic("t", 2, &[]).unwrap();
    let mut client = Client::new(&broker);
    let request = ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 1000,
        topic_data: topic_data([
            (tp("t", 0), Bytes::new()),
            (tp("t", 1), batch(1, 1)),
            (tp("t", 9), batch(1, 1)),
        ]),
        ..Default::default()
    };
    let Response::Produce(response) = client.ask(1, Request::Produce(request)) else {
        panic!()
    };
    let codes: Vec<i16> = response.partitions().map(|(_, p)| p.error_code.code()).collect();
    assert_eq!(codes, [87, 0, 3]);
}

#[test]
fn min_insync_replicas_above_the_number_of_replicas_never_fails_a_write() {
    let broker = in_memory(1);
    broker
        .create_topic("t", 1, &[("min.insync.replicas".to_owned(), "2".to_owned())])
        .unwrap();
    assert_eq!(
        Client::new(&broker).produce(1, &tp("t", 0), batch(1, 1), -1).error_code,
        ErrorCode::NONE
    );
}

#[test]
fn partitions_of_a_topic_lead_on_the_nodes_in_turn_and_topics_start_one_further() {
    let broker = in_memory(3);
    assert_eq!(broker.nodes(), [1, 2, 3]);
    for topic in ["a", "b", "c", "d"] {
        broker.create_topic(topic, 4, &[]).unwrap();
    }
    let leaders = |topic: &str| -> Vec<i32> {
        broker
            .describe_topic(topic)
            .unwrap()
            .partitions
            .iter()
            .map(|p| p.leader)
            .collect()
    };
    assert_eq!(leaders("a"), [1, 2, 3, 1]);
    assert_eq!(leaders("b"), [2, 3, 1, 2]);
    assert_eq!(leaders("d"), [1, 2, 3, 1]);
    let mut client = Client::new(&broker);
    let Response::Metadata(metadata) = client.ask(2, Request::Metadata(MetadataRequest::for_topics(None, true))) else {
        panic!()
    };
    assert!(metadata.nodes().eq([1, 2, 3]));
    assert_eq!(metadata.controller_id, 1);
    let names: Vec<&str> = metadata.topics.iter().map(|t| t.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let of_b: Vec<i32> = metadata.topics[1].partitions.iter().map(|p| p.leader_id).collect();
    assert_eq!(of_b, leaders("b"));
}

#[test]
fn metadata_of_an_unknown_or_misnamed_topic_says_so_and_creates_only_when_both_sides_allow() {
    let ask = |broker: &std::sync::Arc<Broker>, name: &str, create: bool| {
        let request = MetadataRequest::for_topics(Some(vec![name.into()]), create);
        let Response::Metadata(m) = Client::new(broker).ask(1, Request::Metadata(request)) else {
            panic!()
        };
        (m.topics[0].error_code, m.topics[0].partitions.len())
    };
    let broker = in_memory(1);
    assert_eq!(ask(&broker, "t", true), (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0));
    assert_eq!(ask(&broker, "a b", true), (ErrorCode::INVALID_TOPIC_EXCEPTION, 0));
    let config = [("auto.create.topics.enable", "true"), ("num.partitions", "3")];
    let broker = Broker::in_memory(options(None, false, &config), VirtualClock::new()).unwrap();
    assert_eq!(ask(&broker, "t", false), (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, 0));
    assert_eq!(ask(&broker, "t", true), (ErrorCode::NONE, 3));
}

#[test]
fn topics_are_refused_by_kafkas_rules() {
    let broker = in_memory(1);
    broker.create_topic("a.b", 1, &[]).unwrap();
    let code = |name: &str, partitions: i32| match broker.create_topic(name, partitions, &[]) {
        Err(BrokerError::Kafka { code, .. }) => code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code("a.b", 1), ErrorCode::TOPIC_ALREADY_EXISTS);
    assert_eq!(code("a_b", 1), ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(code("", 1), ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(code("a/b", 1), ErrorCode::INVALID_TOPIC_EXCEPTION);
    assert_eq!(code("t", 0), ErrorCode::INVALID_PARTITIONS);
    assert_eq!(code("t", -1), ErrorCode::INVALID_PARTITIONS);
    assert_eq!(code("t", i32::MAX), ErrorCode::INVALID_PARTITIONS);
    let unknown = broker
        .create_topic("t", 1, &[("retention.mss".to_owned(), "1".to_owned())])
        .unwrap_err()
        .to_string();
    assert!(unknown.contains("did you mean `retention.ms`"), "{unknown}");
    assert_eq!(broker.topics(false).unwrap().len(), 1);
    assert!(matches!(
        broker.delete_topic("t"),
        Err(BrokerError::Kafka {
            code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ..
        })
    ));
}

#[test]
fn a_long_poll_is_answered_by_the_append_that_completes_it_and_sees_no_later_one() {
    let broker = in_memory(1);
    broker.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    let mut client = Client::new(&broker);
    let mut request = fetch_of(&[(&t, 0, ONE_MIB)]);
    request.max_wait_ms = 500;
    client.send(1, Request::Fetch(request));
    assert!(!client.transport.has_arrived(1));
    broker.append_batches(&t, batch(1, 10)).unwrap();
    broker.append_batches(&t, batch(1, 10)).unwrap();
    assert!(client.transport.has_arrived(1));
    let response = client.wait_fetch(1, 0).unwrap();
    assert_eq!(sizes(&response), [("t".to_owned(), batch(1, 10).len())]);
    assert_eq!(nth(&response, 0).high_watermark, 1);
}

#[test]
fn a_long_poll_waits_for_min_bytes_and_ends_with_its_time() {
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(None, false, &[]), clock.clone()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    let one = batch(1, 10).len();
    let mut client = Client::new(&broker);
    let mut request = fetch_of(&[(&t, 0, ONE_MIB)]);
    request.max_wait_ms = 500;
    request.min_bytes = i32::try_from(2 * one).unwrap();
    client.send(1, Request::Fetch(request.clone()));
    broker.append_batches(&t, batch(1, 10)).unwrap();
    assert!(!client.transport.has_arrived(1), "half of min_bytes");
    broker.append_batches(&t, batch(1, 10)).unwrap();
    assert_eq!(sizes(&client.wait_fetch(1, 0).unwrap())[0].1, 2 * one);
    // Not enough, but the time is over.
    request.topics[0].partitions[0].fetch_offset = 1;
    client.send(1, Request::Fetch(request));
    clock.advance(499);
    assert!(!client.transport.has_arrived(1));
    clock.advance(1);
    assert_eq!(sizes(&client.wait_fetch(1, 0).unwrap())[0].1, one);
}

#[test]
fn a_waiting_request_holds_back_those_behind_it_on_its_connection_only() {
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(None, false, &[]), clock.clone()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    let mut client = Client::new(&broker);
    let mut request = fetch_of(&[(&t, 0, ONE_MIB)]);
    request.max_wait_ms = 100;
    let all = || Request::Metadata(MetadataRequest::for_topics(None, false));
    client.send(1, Request::Fetch(request));
    client.send(1, all());
    let other = fletchlog_api::transport::coordinator_connection(1);
    client.send(other, all());
    assert!(matches!(client.take(other), Some(Response::Metadata(_))));
    assert!(client.take(1).is_none());
    clock.advance(100);
    assert!(matches!(client.take(1), Some(Response::Fetch(_))));
    assert!(matches!(client.take(1), Some(Response::Metadata(_))));
}

#[test]
fn a_connection_given_up_forgets_what_was_outstanding_and_can_be_used_anew() {
    let broker = in_memory(1);
    broker.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    let mut client = Client::new(&broker);
    let request = FetchRequest {
        max_wait_ms: 60_000,
        ..fetch_of(&[(&t, 0, ONE_MIB)])
    };
    client.send(1, Request::Fetch(request));
    client.transport.disconnect(1);
    broker.append_batches(&t, batch(1, 10)).unwrap();
    assert!(client.take(1).is_none(), "the answer of the lost connection");
    assert_eq!(
        nth(&client.fetch(1, fetch_of(&[(&t, 0, ONE_MIB)])), 0).high_watermark,
        1
    );
}

#[test]
fn a_waiting_client_wakes_up_for_an_append_of_another_thread() {
    let broker = Broker::in_memory(
        options(None, false, &[]),
        std::sync::Arc::new(fletchlog_api::transport::SystemClock::default()),
    )
    .unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    let mut client = Client::new(&broker);
    let mut request = fetch_of(&[(&t, 0, ONE_MIB)]);
    request.max_wait_ms = 60_000;
    client.send(1, Request::Fetch(request));
    let appender = {
        let (broker, t) = (broker.clone(), t.clone());
        std::thread::spawn(move || broker.append_batches(&t, batch(1, 10)).unwrap())
    };
    assert_eq!(nth(&client.wait_fetch(1, 30_000).unwrap(), 0).high_watermark, 1);
    appender.join().unwrap();
}

#[test]
fn a_closed_broker_disconnects_every_request_and_never_hangs() {
    let broker = in_memory(1);
    broker.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    let mut client = Client::new(&broker);
    let mut request = fetch_of(&[(&t, 0, ONE_MIB)]);
    request.max_wait_ms = 60_000;
    let first = client.send(1, Request::Fetch(request.clone()));
    let second = client.send(1, Request::Fetch(request.clone()));
    broker.close().unwrap();
    broker.close().unwrap();
    assert!(client.transport.wait(Duration::from_secs(30)));
    for id in [first, second] {
        let completion = client.transport.receive(1).unwrap();
        assert_eq!(completion.correlation_id, id);
        assert_eq!(completion.result.unwrap_err(), Failure::Disconnected);
    }
    client.send(1, Request::Fetch(request));
    assert!(client.transport.receive(1).unwrap().result.is_err());
    assert!(matches!(
        broker.append_batches(&t, batch(1, 1)),
        Err(BrokerError::Closed)
    ));
    assert!(matches!(broker.topics(false), Err(BrokerError::Closed)));
    assert!(matches!(broker.partition_log(&t), Err(BrokerError::Closed)));
}

#[test]
fn a_request_to_a_node_that_does_not_exist_is_disconnected() {
    let mut client = Client::new(&in_memory(2));
    let id = client.send(3, Request::Metadata(MetadataRequest::for_topics(None, false)));
    let completion = client.transport.receive(3).unwrap();
    assert_eq!(
        (completion.correlation_id, completion.result.unwrap_err()),
        (id, Failure::Disconnected)
    );
}

#[test]
fn deleting_a_topic_ends_its_waiting_fetches_and_a_new_topic_of_the_name_begins_empty() {
    let broker = in_memory(1);
    broker.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    broker.append_batches(&t, batch(5, 10)).unwrap();
    let before = broker.describe_topic("t").unwrap();
    let mut client = Client::new(&broker);
    let mut request = fetch_of(&[(&t, 5, ONE_MIB)]);
    request.max_wait_ms = 60_000;
    client.send(1, Request::Fetch(request));
    broker.delete_topic("t").unwrap();
    let response = client.wait_fetch(1, 0).unwrap();
    assert_eq!(nth(&response, 0).error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    broker.create_topic("t", 1, &[]).unwrap();
    let after = broker.describe_topic("t").unwrap();
    assert_eq!(after.partitions[0].high_watermark, 0);
    assert_ne!(before.topic_id, after.topic_id);
}

#[test]
fn a_producer_id_is_never_given_twice() {
    let broker = in_memory(1);
    let mut client = Client::new(&broker);
    let mut seen = std::collections::HashSet::new();
    // More than two blocks.
    for _ in 0..2500 {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 1,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        let Response::InitProducerId(given) = client.ask(1, Request::InitProducerId(request)) else {
            panic!()
        };
        assert_eq!((given.error_code, given.producer_epoch), (ErrorCode::NONE, 0));
        assert!(seen.insert(given.producer_id));
    }
}

#[test]
fn list_offsets_answers_the_specials_and_refuses_what_kafka_refuses() {
    let broker = in_memory(2);
    broker.create_topic("t", 1, &[]).unwrap();
    broker.append_batches(&tp("t", 0), batch(4, 1)).unwrap();
    let mut client = Client::new(&broker);
    let mut ask = |node: i32, partitions: Vec<(fletchlog_records::TopicPartition, i32, i64)>| {
        let partitions = partitions.into_iter().map(|(tp, current_leader_epoch, timestamp)| {
            let partition = ListOffsetsPartition {
                partition_index: tp.partition,
                current_leader_epoch,
                timestamp,
            };
            (tp.topic, partition)
        });
        let request = ListOffsetsRequest::for_consumer(IsolationLevel::ReadUncommitted, partitions);
        let Response::ListOffsets(response) = client.ask(node, Request::ListOffsets(request)) else {
            panic!()
        };
        response
            .partitions()
            .map(|(_, p)| (p.error_code.code(), p.timestamp, p.offset, p.leader_epoch))
            .collect::<Vec<_>>()
    };
    let t = tp("t", 0);
    for (timestamp, expected) in [
        (-1, (0, -1, 4, 0)),
        (-2, (0, -1, 0, 0)),
        (-3, (0, START, 0, 0)),
        (-5, (0, -1, -1, -1)),
        (-6, (0, -1, -1, -1)),
        (-7, (35, -1, -1, -1)),
        (START, (0, START, 0, 0)),
        (START + 1, (0, -1, -1, -1)),
    ] {
        assert_eq!(ask(1, vec![(t.clone(), -1, timestamp)]), [expected], "{timestamp}");
    }
    assert_eq!(
        ask(1, vec![(t.clone(), -1, -1), (t.clone(), -1, -2)]),
        [(42, -1, -1, -1); 2]
    );
    assert_eq!(ask(1, vec![(t.clone(), 7, -1)]), [(75, -1, -1, -1)]);
    assert_eq!(ask(2, vec![(t.clone(), -1, -1)]), [(6, -1, -1, -1)]);
    assert_eq!(ask(1, vec![(tp("t", 1), -1, -1)]), [(3, -1, -1, -1)]);
}

/// Kafka: `Partition#lastOffsetForLeaderEpoch`; the cache's own table is in rust/log.
#[test]
fn the_end_of_a_leader_epoch_is_answered_by_the_leader_only() {
    let broker = in_memory(2);
    broker.create_topic("t", 1, &[]).unwrap();
    broker.append_batches(&tp("t", 0), batch(4, 1)).unwrap();
    let mut client = Client::new(&broker);
    let mut ask = |node: i32, tp: fletchlog_records::TopicPartition, current: i32, epoch: i32| {
        let partition = OffsetForLeaderPartition {
            partition: tp.partition,
            current_leader_epoch: current,
            leader_epoch: epoch,
        };
        let request = OffsetForLeaderEpochRequest::for_consumer([(tp.topic.clone(), partition)]);
        let Response::OffsetForLeaderEpoch(response) = client.ask(node, Request::OffsetForLeaderEpoch(request)) else {
            panic!()
        };
        let p = response.topics[0].partitions[0].clone();
        (p.error_code.code(), p.leader_epoch, p.end_offset)
    };
    assert_eq!(ask(1, tp("t", 0), 0, 0), (0, 0, 4));
    assert_eq!(ask(1, tp("t", 0), -1, 0), (0, 0, 4));
    assert_eq!(ask(1, tp("t", 0), 0, 1), (0, -1, -1), "an epoch that never was");
    assert_eq!(ask(1, tp("t", 0), 1, 0), (75, -1, -1));
    assert_eq!(ask(2, tp("t", 0), 0, 0), (6, -1, -1));
    assert_eq!(ask(1, tp("u", 0), 0, 0), (3, -1, -1));
}

/// Row P10 of docs/reliability.md. Ten years ahead, then twenty back.
#[test]
fn a_wall_clock_that_jumps_moves_no_offset_ends_no_wait_and_forgets_no_sequence() {
    const YEAR: i64 = 365 * 24 * 3_600_000;
    let clock = VirtualClock::new();
    let broker = Broker::in_memory(options(None, false, &[]), clock.clone()).unwrap();
    let by_log = [("message.timestamp.type".to_owned(), "LogAppendTime".to_owned())];
    broker.create_topic("t", 1, &by_log).unwrap();
    broker.create_topic("quiet", 1, &[]).unwrap();
    let (t, quiet) = (tp("t", 0), tp("quiet", 0));
    let (mut producer, mut reader) = (Client::new(&broker), Client::new(&broker));
    let sent = |base_sequence| {
        let params = BatchParams {
            producer_id: 1,
            producer_epoch: 0,
            base_sequence,
            ..BatchParams::default()
        };
        batch_with(1, 10, &params)
    };
    let waiting = FetchRequest {
        max_wait_ms: 1000,
        ..fetch_of(&[(&quiet, 0, 1000)])
    };
    reader.send(1, Request::Fetch(waiting));
    for (sequence, jump) in [(0, 10 * YEAR), (1, -20 * YEAR), (2, 0)] {
        clock.jump(jump);
        for repeat in [false, true] {
            let answer = producer.produce(1, &t, sent(sequence), -1);
            assert_eq!(
                (answer.error_code, answer.base_offset),
                (ErrorCode::NONE, i64::from(sequence)),
                "a repeat: {repeat}"
            );
        }
        assert!(reader.take(1).is_none(), "no time has passed");
    }
    let log = broker.partition_log(&t).unwrap();
    assert_eq!(log.log_end_offset(), 3);
    // Lookups go by the highest timestamp so far, as a time index does.
    let found = log.fetch_offset_by_timestamp(START, FetchBound::LogEnd).unwrap();
    assert_eq!((found.offset, found.timestamp), (0, START + 10 * YEAR));
    clock.advance(1000);
    let Some(Response::Fetch(response)) = reader.take(1) else {
        panic!()
    };
    assert!(response.partitions().all(|(_, p)| p.size() == 0));
}
