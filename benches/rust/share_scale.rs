//! What a share group costs: memory for a record in flight, a heartbeat, and an assignment, with 1,000 members, 1,000 partitions and a
//! million records in flight (`MEMBERS`, `PARTITIONS`, `RECORDS` in a partition). Prints one line a figure.

#![allow(clippy::print_stdout, reason = "a command that prints its result")]
#![allow(clippy::unwrap_used, reason = "a measurement ends with its first failure")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Config, ErrorCode, Request, Response, Scope, TopicId};
use fletchlog_broker::{Broker, OpenOptions, Outcome, Port};
use fletchlog_protocol::messages::{
    ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest, share_acknowledge_request,
    share_fetch_request,
};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};

const GROUP: &str = "g";

fn from_environment(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Resident memory of the process in bytes.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096.0
}

fn open(partitions: usize, records: usize) -> Arc<Broker> {
    let config = [
        ("group.share.max.size", "1000"),
        ("group.share.max.session.timeout.ms", "3600000"),
        ("group.share.session.timeout.ms", "3600000"),
        ("group.share.max.share.sessions", "100000"),
        ("group.share.partition.max.record.locks", "4000"),
    ];
    let options = OpenOptions {
        nodes: None,
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, config).unwrap(),
    };
    let broker = Broker::in_memory(options, Arc::new(SystemClock::default())).unwrap();
    broker
        .create_topic("t", i32::try_from(partitions).unwrap(), &[])
        .unwrap();
    let mut builder = BatchBuilder::with_capacity(1 << 16);
    (0..records).for_each(|_| builder.append(0, None, Some(b"0123456789"), &[]));
    let batch = builder.build(&BatchParams::default());
    for number in 0..partitions {
        let tp = TopicPartition::new("t", i32::try_from(number).unwrap());
        broker.append_batches(&tp, batch.clone()).unwrap();
    }
    broker
}

fn ask(port: &Port, request: Request) -> Response {
    match port.handle(request) {
        Outcome::Now(response) => response,
        _ => panic!("an answer that is there at once was expected"),
    }
}

/// A heartbeat; the member's epoch, and how long it took.
fn beat(port: &Port, member: &str, epoch: i32) -> (i32, Duration) {
    let request = ShareGroupHeartbeatRequest {
        group_id: GROUP.into(),
        member_id: member.into(),
        member_epoch: epoch,
        subscribed_topic_names: (epoch == 0).then(|| vec!["t".into()]),
        ..Default::default()
    };
    let begin = Instant::now();
    match ask(port, Request::ShareGroupHeartbeat(request)) {
        Response::ShareGroupHeartbeat(answer) if answer.error_code == ErrorCode::NONE => {
            (answer.member_epoch, begin.elapsed())
        }
        other => panic!("{other:?}"),
    }
}

/// Lets so many members join and come to rest; prints what their heartbeats cost.
fn join(port: &Port, members: usize) {
    let names: Vec<String> = (0..members).map(|n| format!("m-{n:04}")).collect();
    let (mut epochs, mut most, mut sum) = (Vec::new(), Duration::ZERO, Duration::ZERO);
    for name in &names {
        let (epoch, took) = beat(port, name, 0);
        epochs.push(epoch);
        most = most.max(took);
        sum += took;
    }
    println!(
        "{members} members: {:.3} ms a join, {:.1} ms the longest",
        sum.as_secs_f64() * 1e3 / members as f64,
        most.as_secs_f64() * 1e3
    );
    for _ in 0..2 {
        for (name, epoch) in names.iter().zip(&mut epochs) {
            *epoch = beat(port, name, *epoch).0;
        }
    }
    let begin = Instant::now();
    for (name, epoch) in names.iter().zip(&epochs) {
        beat(port, name, *epoch);
    }
    println!(
        "{members} members: {:.1} µs a heartbeat that changes nothing",
        begin.elapsed().as_secs_f64() * 1e6 / members as f64
    );
}

/// Opens a session, which reads the partition's state, and acquires with its next fetch.
fn fetch(port: &Port, topic_id: TopicId, number: usize, most: usize) {
    fetch_in(port, topic_id, number, most, 0);
    let acquired = fetch_in(port, topic_id, number, most, 1);
    assert!(acquired > 0, "partition {number}: nothing was acquired");
}

fn fetch_in(port: &Port, topic_id: TopicId, number: usize, most: usize, epoch: i32) -> usize {
    let most = i32::try_from(most).unwrap();
    let request = ShareFetchRequest {
        share_session_epoch: epoch,
        group_id: Some(GROUP.into()),
        member_id: Some(format!("m-{number:04}").into()),
        max_bytes: 1 << 26,
        max_records: most,
        batch_size: most,
        topics: vec![share_fetch_request::FetchTopic {
            topic_id,
            partitions: vec![share_fetch_request::FetchPartition {
                partition_index: i32::try_from(number).unwrap(),
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    match ask(port, Request::ShareFetch(request)) {
        Response::ShareFetch(answer) => {
            let found = answer.responses.iter().flat_map(|topic| &topic.partitions).next();
            assert!(found.is_none_or(|data| data.error_code == ErrorCode::NONE));
            found.map_or(0, |data| data.acquired_records.len())
        }
        other => panic!("{other:?}"),
    }
}

/// Every second record is released: each record has a state of its own.
fn split(port: &Port, topic_id: TopicId, number: usize, records: usize) {
    use share_acknowledge_request::{AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch};
    let batches = (0..i64::try_from(records).unwrap()).skip(1).step_by(2);
    let request = ShareAcknowledgeRequest {
        group_id: Some(GROUP.into()),
        member_id: Some(format!("m-{number:04}").into()),
        share_session_epoch: 2,
        topics: vec![AcknowledgeTopic {
            topic_id,
            partitions: vec![AcknowledgePartition {
                partition_index: i32::try_from(number).unwrap(),
                acknowledgement_batches: batches
                    .map(|at| AcknowledgementBatch {
                        first_offset: at,
                        last_offset: at,
                        acknowledge_types: vec![2],
                    })
                    .collect(),
            }],
        }],
        ..Default::default()
    };
    match ask(port, Request::ShareAcknowledge(request)) {
        Response::ShareAcknowledge(answer) => {
            assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::NONE);
        }
        other => panic!("{other:?}"),
    }
}

fn main() {
    let members = from_environment("MEMBERS", 1000);
    let partitions = from_environment("PARTITIONS", 1000);
    let records = from_environment("RECORDS", 1000);
    let in_flight = (partitions * records) as f64;
    let broker = open(partitions, records);
    let port = broker.connect(1, "/127.0.0.1");
    for members in [10, members] {
        join(&port, members);
    }
    let topic_id = broker.topic_id("t").unwrap().unwrap();
    let set = fletchlog_broker::AlterConfig {
        name: "share.auto.offset.reset".to_owned(),
        op: fletchlog_broker::AlterConfigOp::Set,
        value: Some("earliest".to_owned()),
    };
    let group = fletchlog_api::ConfigResource::Group(GROUP.to_owned());
    broker.alter_config(&group, &[set], false).unwrap();
    let (before, begin) = (resident(), Instant::now());
    (0..partitions).for_each(|number| fetch(&port, topic_id, number, records));
    println!(
        "{in_flight} records in flight: {:.2} bytes each as whole batches, {:.0} ns each to acquire",
        (resident() - before) / in_flight,
        begin.elapsed().as_secs_f64() * 1e9 / in_flight
    );
    let begin = Instant::now();
    (0..partitions).for_each(|number| split(&port, topic_id, number, records));
    println!(
        "{in_flight} records in flight: {:.1} bytes each as single records, {:.0} ns each to release",
        (resident() - before) / in_flight,
        begin.elapsed().as_secs_f64() * 1e9 * 2.0 / in_flight
    );
}
