//! Records of `__transaction_state` (spec 10.3). Kafka: `TransactionLog`, `TransactionLogKey`, `TransactionLogValue`.
//!
//! | record | fields |
//! |---|---|
//! | key | i16 0, transactionalId STRING |
//! | value, version 0 | i16 0, producerId i64, producerEpoch i16, timeoutMs i32, status i8, partitions ARRAY (null when Empty) of {topic STRING, partitionIds ARRAY of i32}, lastUpdate i64, start i64 |
//! | value, version 1 | the same in the flexible form, then tags: 0 previousProducerId i64, 1 nextProducerId i64, 2 clientTransactionVersion i16 |
//!
//! Version 0 is written, which every broker since 0.11 reads; both are read. A null value is a tombstone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_records::TopicPartition;

use super::state::{TransactionMetadata, TransactionState};
use crate::fields::{Reader, put_string};

const NEXT_PRODUCER_ID_TAG: usize = 1;

/// The transactional id of a key; `None`: of an unknown version, or not a key.
pub(crate) fn parse_key(key: &[u8]) -> Option<Arc<str>> {
    let mut r = Reader::new(key);
    if r.i16()? != 0 {
        return None;
    }
    r.string()
}

/// Key of a transactional id.
pub(crate) fn key(transactional_id: &str) -> Vec<u8> {
    let mut out = 0i16.to_be_bytes().to_vec();
    put_string(&mut out, transactional_id);
    out
}

/// Reads a value of version 0 or 1.
pub(crate) fn parse_value(transactional_id: Arc<str>, value: &[u8]) -> Option<TransactionMetadata> {
    let mut r = Reader::new(value);
    let flexible = match r.i16()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let mut metadata = TransactionMetadata::new(transactional_id, r.i64()?);
    metadata.producer_epoch = r.i16()?;
    metadata.timeout_ms = r.i32()?;
    metadata.state = TransactionState::from_id(i8::from_be_bytes(r.take(1)?.try_into().ok()?))?;
    let mut partitions = BTreeSet::new();
    for _ in 0..length(&mut r, flexible)? {
        let topic = if flexible { r.compact_string()? } else { r.string()? };
        for _ in 0..length(&mut r, flexible)? {
            partitions.insert(TopicPartition {
                topic: topic.clone(),
                partition: r.i32()?,
            });
        }
        if flexible {
            tags(&mut r, |_, _| ())?;
        }
    }
    metadata.partitions = partitions;
    metadata.last_update_ms = r.i64()?;
    metadata.start_ms = r.i64()?;
    if flexible {
        tags(&mut r, |tag, value| {
            if let (NEXT_PRODUCER_ID_TAG, Ok(id)) = (tag, value.try_into()) {
                metadata.next_producer_id = i64::from_be_bytes(id);
            }
        })?;
    }
    Some(metadata)
}

/// Length of an array, 0 for null.
fn length(r: &mut Reader<'_>, flexible: bool) -> Option<usize> {
    if flexible {
        return Some(r.unsigned_varint()?.saturating_sub(1));
    }
    Some(usize::try_from(r.i32()?).unwrap_or(0))
}

fn tags(r: &mut Reader<'_>, mut visit: impl FnMut(usize, &[u8])) -> Option<()> {
    for _ in 0..r.unsigned_varint()? {
        let (tag, size) = (r.unsigned_varint()?, r.unsigned_varint()?);
        visit(tag, r.take(size)?);
    }
    Some(())
}

/// Value of a transactional id, version 0.
pub(crate) fn value(metadata: &TransactionMetadata) -> Vec<u8> {
    let mut out = 0i16.to_be_bytes().to_vec();
    out.extend_from_slice(&metadata.producer_id.to_be_bytes());
    out.extend_from_slice(&metadata.producer_epoch.to_be_bytes());
    out.extend_from_slice(&metadata.timeout_ms.to_be_bytes());
    out.extend_from_slice(&metadata.state.id().to_be_bytes());
    if metadata.state == TransactionState::Empty {
        put_length(&mut out, None);
    } else {
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for tp in &metadata.partitions {
            topics.entry(&tp.topic).or_default().push(tp.partition);
        }
        put_length(&mut out, Some(topics.len()));
        for (topic, partitions) in topics {
            put_string(&mut out, topic);
            put_length(&mut out, Some(partitions.len()));
            for partition in partitions {
                out.extend_from_slice(&partition.to_be_bytes());
            }
        }
    }
    out.extend_from_slice(&metadata.last_update_ms.to_be_bytes());
    out.extend_from_slice(&metadata.start_ms.to_be_bytes());
    out
}

fn put_length(out: &mut Vec<u8>, length: Option<usize>) {
    let length = length.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX));
    out.extend_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests;
