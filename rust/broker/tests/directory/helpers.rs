//! Short questions to a broker, and directories to open.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use fletchlog_api::*;
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_records::{BatchParams, TopicPartition};

use crate::common::*;

pub fn reason(result: Result<Arc<Broker>, BrokerError>) -> String {
    match result {
        Err(BrokerError::Directory { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

pub fn end(broker: &Broker, tp: &TopicPartition) -> i64 {
    broker.partition_log(tp).unwrap().log_end_offset()
}

pub fn idempotent(sequence: i32, producer_id: i64) -> BatchParams {
    BatchParams {
        producer_id,
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchParams::default()
    }
}

pub fn new_producer_id(broker: &Arc<Broker>) -> i64 {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 1,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    let Response::InitProducerId(given) = Client::new(broker).ask(1, Request::InitProducerId(request)) else {
        panic!()
    };
    given.producer_id
}

fn coordinator_of(client: &mut Client, group: &str) -> NodeId {
    let request = FindCoordinatorRequest::of(CoordinatorType::Group, group.into());
    let Response::FindCoordinator(found) = client.ask(1, Request::FindCoordinator(request)) else {
        panic!()
    };
    found.coordinator_node().unwrap()
}

pub fn commit(broker: &Arc<Broker>, group: &str, tp: &TopicPartition, offset: i64) -> OffsetCommitResponse {
    let mut client = Client::new(broker);
    let coordinator = coordinator_of(&mut client, group);
    let value = OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "m".into(),
    };
    let request = OffsetCommitRequest {
        group_id: group.into(),
        topics: OffsetCommitRequest::topics_of([(tp.clone(), value)]),
        ..Default::default()
    };
    let Response::OffsetCommit(response) = client.ask(coordinator, Request::OffsetCommit(request)) else {
        panic!()
    };
    response
}

pub fn committed(broker: &Arc<Broker>, group: &str) -> Vec<(String, i64, i64)> {
    let mut client = Client::new(broker);
    let coordinator = coordinator_of(&mut client, group);
    let request = OffsetFetchRequest::of(group.into(), None, false);
    let Response::OffsetFetch(response) = client.ask(coordinator, Request::OffsetFetch(request)) else {
        panic!()
    };
    let offsets = response.offsets().unwrap();
    offsets
        .map(|(tp, o)| {
            (
                tp.topic.to_string(),
                i64::from(tp.partition),
                o.unwrap().unwrap().offset,
            )
        })
        .collect()
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for (name, bytes) in contents(from) {
        std::fs::write(to.join(name), bytes).unwrap();
    }
}

pub fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()))
        .collect()
}

pub fn unpack(name: &str, into: &Path) {
    let status = Command::new("tar")
        .arg("xzf")
        .arg(golden(&format!("directories/{name}.tar.gz")))
        .arg("-C")
        .arg(into)
        .status()
        .unwrap();
    assert!(status.success());
}
