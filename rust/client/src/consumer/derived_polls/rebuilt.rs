//! Responses as the consumer reads them, from what was recorded: batches with the recorded offsets and counts, and records
//! of no value.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fletchlog_api::{FetchResponse, MetadataResponse, NodeId};
use fletchlog_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
use fletchlog_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
use fletchlog_records::{BatchBuilder, BatchHeader, BatchParams, TopicPartition, empty_batch};
use rustc_hash::FxHashMap;

use super::recorded::{RecordedBatch, RecordedPartition, RecordedResponse};
use crate::consumer::settings::Settings;

/// A response with more records than this is not rebuilt: its memory would be out of proportion.
pub(super) const MOST_RECORDS: i64 = 4_000_000;

/// Whether a response can be rebuilt, or why not.
pub(super) fn check(response: &RecordedResponse) -> Result<(), String> {
    let batches = response
        .partitions
        .iter()
        .flat_map(|p| p.batches.iter().map(move |b| (&p.tp, b)));
    let mut records = 0_i64;
    for (tp, batch) in batches {
        let offsets = batch
            .last_offset
            .checked_sub(batch.base_offset)
            .filter(|of| (0..i64::from(i32::MAX)).contains(of));
        if batch.base_offset < 0 || offsets.is_none_or(|of| i64::from(batch.records) > of + 1) || batch.records < 0 {
            return Err(format!(
                "a batch of {tp} at offset {} has no possible offsets",
                batch.base_offset
            ));
        }
        records += i64::from(batch.records);
    }
    match records > MOST_RECORDS {
        true => Err(format!("one response has {records} records")),
        false => Ok(()),
    }
}

/// How many bytes a response and each of its partitions may have: fetch.max.bytes and max.partition.fetch.bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) response: u64,
    pub(super) partition: u64,
}

impl Limits {
    pub(super) fn of(settings: &Settings) -> Self {
        let bytes = |value: i32| u64::try_from(value).unwrap_or(0);
        Self {
            response: bytes(settings.fetch_max_bytes),
            partition: bytes(settings.max_partition_fetch_bytes),
        }
    }

    /// The whole batches of a partition. A response ends a partition in the middle of a batch where its bytes end, but the
    /// first batch of the first partition is always whole. Kafka: `ReplicaManager#readFromLog`, `LogSegment#read`.
    fn whole<'a>(&mut self, batches: &'a [RecordedBatch], is_first: bool) -> &'a [RecordedBatch] {
        let least = batches.first().filter(|_| is_first).map_or(0, |first| first.size);
        let limit = self.partition.min(self.response).max(least);
        let mut size = 0_u64;
        let fits = |batch: &&RecordedBatch| {
            size = size.saturating_add(batch.size);
            size <= limit
        };
        let whole = batches.iter().take_while(fits).count();
        self.response = self.response.saturating_sub(size.min(limit));
        &batches[..whole]
    }
}

/// The response as the consumer decodes it.
pub(super) fn fetch_response(recorded: &RecordedResponse, mut limits: Limits) -> FetchResponse {
    let mut responses: Vec<FetchableTopicResponse> = Vec::new();
    let mut is_first = true;
    for of in &recorded.partitions {
        let data = partition(of, limits.whole(&of.batches, is_first));
        is_first &= of.batches.is_empty();
        match responses.last_mut().filter(|topic| topic.topic == of.tp.topic) {
            Some(topic) => topic.partitions.push(data),
            None => responses.push(FetchableTopicResponse {
                topic: Arc::clone(&of.tp.topic),
                partitions: vec![data],
                ..Default::default()
            }),
        }
    }
    FetchResponse {
        error_code: recorded.error,
        session_id: recorded.session_id,
        responses,
        ..Default::default()
    }
}

fn partition(of: &RecordedPartition, batches: &[RecordedBatch]) -> PartitionData {
    let aborted = |&(producer_id, first_offset): &(i64, i64)| AbortedTransaction {
        producer_id,
        first_offset,
    };
    let mut open = of.aborted.clone();
    let mut records = BytesMut::new();
    for batch in batches {
        records.extend_from_slice(&batch_of(batch, &mut open));
    }
    PartitionData {
        partition_index: of.tp.partition,
        error_code: of.error,
        high_watermark: of.high_watermark,
        last_stable_offset: of.last_stable_offset,
        aborted_transactions: Some(of.aborted.iter().map(aborted).collect()),
        preferred_read_replica: of.preferred_read_replica,
        records: Some(records.freeze()),
        ..Default::default()
    }
}

/// `open`: aborted transactions whose marker is still to come. The kind of a marker is not recorded: the first one behind
/// the beginning of an aborted transaction ends it.
fn batch_of(batch: &RecordedBatch, open: &mut Vec<(i64, i64)>) -> Bytes {
    if batch.control {
        let ends = |&(id, first): &(i64, i64)| id == batch.producer_id && first <= batch.base_offset;
        let ending = open.iter().enumerate().filter(|(_, of)| ends(of));
        let at = ending.min_by_key(|(_, of)| of.1).map(|(at, _)| at);
        let control_type = match at.map(|at| open.remove(at)) {
            Some(_) => ControlType::Abort,
            None => ControlType::Commit,
        };
        let marker = EndTxnMarker {
            control_type,
            coordinator_epoch: 0,
        };
        return build_marker(batch.base_offset, batch.producer_id, 0, 0, 0, marker);
    }
    if batch.records == 0 {
        return empty_batch(&emptied(batch));
    }
    let mut builder = BatchBuilder::with_capacity(usize::try_from(batch.records).unwrap_or(0).saturating_mul(8));
    let end = i32::try_from(batch.last_offset - batch.base_offset).unwrap_or(i32::MAX);
    // The gaps of a compacted batch are not recorded; its last offset always exists.
    for delta in (0..batch.records - 1).chain([end]) {
        builder.append_at(delta, 0, None, None, &[]);
    }
    builder.build(&BatchParams {
        base_offset: batch.base_offset,
        producer_id: batch.producer_id,
        producer_epoch: if batch.producer_id < 0 { -1 } else { 0 },
        base_sequence: if batch.producer_id < 0 { -1 } else { 0 },
        transactional: batch.transactional,
        leader_epoch: 0,
        ..BatchParams::default()
    })
}

/// Compaction took every record and kept the header.
fn emptied(batch: &RecordedBatch) -> BatchHeader {
    BatchHeader {
        base_offset: batch.base_offset,
        batch_length: 0,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta: i32::try_from(batch.last_offset - batch.base_offset).unwrap_or(i32::MAX),
        base_timestamp: 0,
        max_timestamp: 0,
        producer_id: batch.producer_id,
        producer_epoch: 0,
        base_sequence: -1,
        records_count: 0,
    }
}

/// Metadata with these leaders of partitions, and these nodes.
pub(super) fn metadata_response(leaders: &FxHashMap<TopicPartition, NodeId>, nodes: &[NodeId]) -> MetadataResponse {
    let mut topics: Vec<MetadataResponseTopic> = Vec::new();
    let mut all: Vec<_> = leaders.iter().collect();
    all.sort();
    for (tp, &leader_id) in all {
        let partition = MetadataResponsePartition {
            partition_index: tp.partition,
            leader_id,
            leader_epoch: 0,
            ..Default::default()
        };
        match topics.last_mut().filter(|topic| topic.name.as_ref() == Some(&tp.topic)) {
            Some(topic) => topic.partitions.push(partition),
            None => topics.push(MetadataResponseTopic {
                name: Some(Arc::clone(&tp.topic)),
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    let broker = |node_id| MetadataResponseBroker {
        node_id,
        ..Default::default()
    };
    MetadataResponse {
        brokers: nodes.iter().copied().map(broker).collect(),
        topics,
        ..Default::default()
    }
}
