//! Transactional ids as records of `__transaction_state` (spec 10.3; the layouts are in `protocol/values`). A null value is a tombstone.
//! Kafka: `TransactionLog`.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::by_topic::in_runs;
use fletchlog_protocol::values::transaction_log_value::PartitionsSchema;
use fletchlog_protocol::values::{TransactionLogKey, TransactionLogValue};
use fletchlog_protocol::{Value, WireError};
use fletchlog_records::TopicPartition;

use super::state::{TransactionMetadata, TransactionState};
use super::version::TransactionVersion;
use crate::replica_manager::CoordinatorRecord;

/// Version of the keys.
const KEY_VERSION: i16 = 0;

/// The transactional id of a key; `None`: of an unknown version, or not a key.
pub(crate) fn parse_key(key: &[u8]) -> Option<Arc<str>> {
    let key = TransactionLogKey::decode(Bytes::copy_from_slice(key)).ok()?;
    Some(key.transactional_id)
}

/// Reads a value; `None`: of an unknown version or state, or not a value.
pub(crate) fn parse_value(transactional_id: Arc<str>, value: &[u8]) -> Option<TransactionMetadata> {
    let value = TransactionLogValue::decode(Bytes::copy_from_slice(value)).ok()?;
    let mut metadata = TransactionMetadata::new(transactional_id, value.producer_id);
    metadata.previous_producer_id = value.previous_producer_id;
    metadata.next_producer_id = value.next_producer_id;
    metadata.client_version = TransactionVersion::new(value.client_transaction_version);
    metadata.producer_epoch = value.producer_epoch;
    metadata.timeout_ms = value.transaction_timeout_ms;
    metadata.state = TransactionState::from_id(value.transaction_status)?;
    for PartitionsSchema { topic, partition_ids } in value.transaction_partitions.into_iter().flatten() {
        let partitions = partition_ids.into_iter().flatten().map(|partition| TopicPartition {
            topic: topic.clone(),
            partition,
        });
        metadata.partitions.extend(partitions);
    }
    metadata.last_update_ms = value.transaction_last_update_timestamp_ms;
    metadata.start_ms = value.transaction_start_timestamp_ms;
    Some(metadata)
}

/// The record of a transactional id, at the broker's level of transaction.version; without metadata its tombstone.
pub(crate) fn record(
    transactional_id: &Arc<str>,
    metadata: Option<&TransactionMetadata>,
    level: TransactionVersion,
) -> Result<CoordinatorRecord, WireError> {
    let key = TransactionLogKey {
        transactional_id: transactional_id.clone(),
    };
    let value = metadata.map(|metadata| value_of(metadata, level).encode(level.log_value_version()));
    Ok((key.encode(KEY_VERSION)?, value.transpose()?))
}

/// An Empty one has no list of partitions. Version 0 has no room for the ids before and after, and for the client's version.
fn value_of(metadata: &TransactionMetadata, level: TransactionVersion) -> TransactionLogValue {
    let partitions = metadata.partitions.iter().map(|tp| (&tp.topic, tp.partition));
    let entry = |(topic, partitions): (&Arc<str>, Vec<i32>)| PartitionsSchema {
        topic: topic.clone(),
        partition_ids: Some(partitions),
    };
    let is_empty = metadata.state == TransactionState::Empty;
    let tagged = match level.log_value_version() {
        0 => TransactionLogValue::default(),
        _ => TransactionLogValue {
            previous_producer_id: metadata.previous_producer_id,
            next_producer_id: metadata.next_producer_id,
            client_transaction_version: metadata.client_version.level(),
            ..Default::default()
        },
    };
    TransactionLogValue {
        producer_id: metadata.producer_id,
        producer_epoch: metadata.producer_epoch,
        transaction_timeout_ms: metadata.timeout_ms,
        transaction_status: metadata.state.id(),
        transaction_partitions: (!is_empty).then(|| in_runs(partitions).into_iter().map(entry).collect()),
        transaction_last_update_timestamp_ms: metadata.last_update_ms,
        transaction_start_timestamp_ms: metadata.start_ms,
        ..tagged
    }
}

#[cfg(test)]
mod tests;
