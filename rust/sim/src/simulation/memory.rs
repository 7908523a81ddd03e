//! What the broker has to know of the batches of idempotent producers, and when it may have forgotten one.
//!
//! It remembers the last five batches of a producer; a client that goes on while one is sent again can let more pass it (spec 3.4,
//! 9.6). After a restart it knows the last batch before the newest snapshot and those behind it: a snapshot holds one batch of a
//! producer (Kafka: `ProducerStateManager#writeSnapshot`). A batch that it has and does not know any more is refused as out of order,
//! and a client that sends it under a new epoch writes it twice.

use std::collections::BTreeMap;

use fletchlog_api::{ErrorCode, ProducePartitionResponse, ProduceRequest};
use fletchlog_records::{BatchIter, TopicPartition};

/// Batches of a producer that the broker remembers.
const WINDOW: usize = 5;

/// A batch by its sequence number, and the partition and producer it is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Batch {
    tp: TopicPartition,
    producer: (i64, i16),
    sequence: i32,
}

/// A partition's producer, with its epoch.
type Producer = (TopicPartition, (i64, i16));

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Per partition and producer: sequence numbers of the batches in the log, oldest first, and the restarts before.
    appended: BTreeMap<Producer, Vec<(i32, u32)>>,
    restarts: u32,
    /// Batches that the broker had forgotten, and was allowed to.
    pub forgotten: usize,
    /// Those that it should have known.
    pub wrongly_forgotten: Vec<String>,
}

/// The batches of a request that carry sequence numbers.
pub(super) fn batches_of(request: &ProduceRequest) -> Vec<Batch> {
    let of = |(tp, bytes): &(TopicPartition, bytes::Bytes)| {
        let batch = BatchIter::new(bytes.clone()).next()?.ok()?;
        let header = batch.header();
        (header.base_sequence >= 0).then(|| Batch {
            tp: tp.clone(),
            producer: (header.producer_id, header.producer_epoch),
            sequence: header.base_sequence,
        })
    };
    request.partitions.iter().filter_map(of).collect()
}

impl Memory {
    pub fn restarted(&mut self) {
        self.restarts += 1;
    }

    /// The broker has answered a request with these batches.
    pub fn answered(&mut self, sent: &[Batch], answers: &[ProducePartitionResponse]) {
        for batch in sent {
            let Some(answer) = answers.iter().find(|a| a.tp == batch.tp) else {
                continue;
            };
            let known = self.appended.entry((batch.tp.clone(), batch.producer)).or_default();
            let at = known.iter().rposition(|(sequence, _)| *sequence == batch.sequence);
            match (answer.error, at) {
                (ErrorCode::NONE, None) => known.push((batch.sequence, self.restarts)),
                (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, Some(at)) => {
                    let later = known.len() - 1 - at;
                    let restarted = known[at].1 < self.restarts;
                    if later >= WINDOW || (restarted && later > 0) {
                        self.forgotten += 1;
                    } else {
                        self.wrongly_forgotten.push(format!(
                            "{batch:?} is in the log, {later} batches of its producer behind it, and was refused as out of order"
                        ));
                    }
                }
                _ => {}
            }
        }
    }
}
