//! AddPartitionsToTxn, TxnOffsetCommit.

use fletchlog_api as api;
use fletchlog_api::Response;
use fletchlog_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
    add_partitions_to_txn_request, txn_offset_commit_request,
};
use fletchlog_protocol::{Message, Reader, WireError, Writer};

use super::{Throttle, by_topic, flat, tp};

type Decoded = Result<(Response, Throttle), WireError>;

pub(super) fn add_partitions(
    request: api::AddPartitionsToTxnRequest,
    version: i16,
    w: &mut Writer,
) -> Result<(), WireError> {
    let topics = by_topic(request.partitions.into_iter().map(|tp| (tp, ()))).into_iter();
    let topics = topics.map(
        |(name, partitions)| add_partitions_to_txn_request::AddPartitionsToTxnTopic {
            name,
            partitions: partitions.into_iter().map(|(partition, ())| partition).collect(),
        },
    );
    AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: request.transactional_id,
        v3_and_below_producer_id: request.producer_id,
        v3_and_below_producer_epoch: request.producer_epoch,
        v3_and_below_topics: topics.collect(),
        ..Default::default()
    }
    .encode(w, version)
}

pub(super) fn added_partitions(version: i16, r: &mut Reader) -> Decoded {
    let response = AddPartitionsToTxnResponse::decode(r, version)?;
    let topics = response.results_by_topic_v3_and_below.into_iter();
    let partitions = flat(topics.map(|t| (t.name, t.results_by_partition)), |topic, p| {
        (tp(topic, p.partition_index), p.partition_error_code)
    });
    let value = api::AddPartitionsToTxnResponse {
        partitions,
        failure: None,
    };
    Ok((Response::AddPartitionsToTxn(value), response.throttle_time_ms))
}

pub(super) fn offset_commit(
    request: api::TxnOffsetCommitRequest,
    version: i16,
    w: &mut Writer,
) -> Result<(), WireError> {
    let partition = |(partition_index, committed): (i32, api::OffsetAndMetadata)| {
        txn_offset_commit_request::TxnOffsetCommitRequestPartition {
            partition_index,
            committed_offset: committed.offset,
            committed_leader_epoch: committed.leader_epoch,
            committed_metadata: Some(committed.metadata),
        }
    };
    let topics = by_topic(request.offsets).into_iter();
    let topics = topics.map(
        |(name, partitions)| txn_offset_commit_request::TxnOffsetCommitRequestTopic {
            name,
            partitions: partitions.into_iter().map(partition).collect(),
        },
    );
    TxnOffsetCommitRequest {
        transactional_id: request.transactional_id,
        group_id: request.group_id,
        producer_id: request.producer_id,
        producer_epoch: request.producer_epoch,
        generation_id: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        topics: topics.collect(),
    }
    .encode(w, version)
}

pub(super) fn offsets_committed(version: i16, r: &mut Reader) -> Decoded {
    let response = TxnOffsetCommitResponse::decode(r, version)?;
    let topics = response.topics.into_iter().map(|t| (t.name, t.partitions));
    let partitions = flat(topics, |topic, p| (tp(topic, p.partition_index), p.error_code));
    let value = api::TxnOffsetCommitResponse {
        partitions,
        failure: None,
    };
    Ok((Response::TxnOffsetCommit(value), response.throttle_time_ms))
}
