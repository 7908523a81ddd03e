//! The record of what clients asked for, and of what became of it.

use std::collections::VecDeque;
use std::sync::Arc;

use fletchlog_protocol::tree::{Node, Tree};
use fletchlog_records::{BatchHeader, ErrorCode};

use crate::faults::TopicNames;
use crate::request_view::{RequestView, partition_of, topic_of};

/// Most requests that are kept.
const KEPT: usize = 100_000;

/// A batch of a Produce request: one partition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedBatch {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// Producer id, -1 none.
    pub producer_id: i64,
    /// Producer epoch, -1 none.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 none.
    pub base_sequence: i32,
    /// Records.
    pub records: i32,
    /// Error and base offset in the response; of a response that a rule discards, too. `None`: there is no response.
    pub answer: Option<(ErrorCode, i64)>,
}

/// One request and what became of it.
#[derive(Debug, Clone)]
pub struct RequestRow {
    /// Number of the request, from 1, over all connections in the order of arrival.
    pub number: u64,
    /// When it arrived, ms since the epoch, by the broker's clock.
    pub time_ms: i64,
    /// What it asked for.
    pub request: RequestView,
    /// How long it took until its response was ready, ms; `None`: it has none yet.
    pub duration_ms: Option<i64>,
    /// Bytes of the response with its header, without its size.
    pub response_bytes: Option<usize>,
    /// The errors in the response, each once, in the order of the response.
    pub errors: Vec<ErrorCode>,
    /// "pending", "answered", "without response" (acks=0), "closed" (the broker ended the connection), "client gone", "connection lost" (a
    /// client in this process: before the request's turn), or what a rule did.
    pub outcome: &'static str,
    /// The batches of a Produce request, in its order.
    pub batches: Vec<ProducedBatch>,
    /// Of a client in this process: number of the Produce request whose turn was last when this one was sent, 0 none.
    pub after: u64,
    /// The rule that applied to it.
    pub fault: Option<Arc<str>>,
    /// Monotonic time of its arrival.
    pub(crate) arrived_ms: i64,
}

/// The newest requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    rows: VecDeque<RequestRow>,
    last: u64,
}

impl Requests {
    /// Adds a request; returns its number.
    pub(crate) fn push(&mut self, is_kept: bool, row: impl FnOnce(u64) -> RequestRow) -> u64 {
        self.last += 1;
        if is_kept {
            if self.rows.len() == KEPT {
                self.rows.pop_front();
            }
            self.rows.push_back(row(self.last));
        }
        self.last
    }

    /// A row that is still kept.
    pub(crate) fn get(&mut self, number: u64) -> Option<&mut RequestRow> {
        let first = self.rows.front()?.number;
        let row = self.rows.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)?;
        (row.number == number).then_some(row)
    }

    /// All rows, oldest first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &RequestRow> {
        self.rows.iter()
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }
}

/// The batches of a Produce request.
pub(crate) fn batches_of(request: &Tree, version: i16, names: &TopicNames) -> Vec<ProducedBatch> {
    let mut found = Vec::new();
    for_each_partition(
        request,
        ["topic_data", "partition_data"],
        version,
        names,
        |topic, partition, data| {
            let records = match data.get("records") {
                Some(Node::Bytes(records)) => &records[..],
                _ => &[],
            };
            let header = BatchHeader::parse(records).ok();
            found.push(ProducedBatch {
                topic: Arc::clone(topic),
                partition,
                producer_id: header.map_or(-1, |header| header.producer_id),
                producer_epoch: header.map_or(-1, |header| header.producer_epoch),
                base_sequence: header.map_or(-1, |header| header.base_sequence),
                records: header.map_or(0, |header| header.records_count),
                answer: None,
            });
        },
    );
    found
}

/// Puts what a Produce response says beside its batches.
pub(crate) fn answer_batches(batches: &mut [ProducedBatch], response: &Tree, version: i16, names: &TopicNames) {
    for_each_partition(
        response,
        ["responses", "partition_responses"],
        version,
        names,
        |topic, partition, data| {
            let int = |name| data.get(name).and_then(Node::int);
            let code = int("error_code").and_then(|code| i16::try_from(code).ok());
            let batch = batches
                .iter_mut()
                .find(|batch| batch.partition == partition && batch.topic == *topic);
            if let (Some(batch), Some(code)) = (batch, code.and_then(ErrorCode::from_code)) {
                batch.answer = Some((code, int("base_offset").unwrap_or(-1)));
            }
        },
    );
}

/// Calls `each` with the partitions of a message that lists them in topics.
fn for_each_partition(
    message: &Tree,
    [topics, partitions]: [&str; 2],
    version: i16,
    names: &TopicNames,
    mut each: impl FnMut(&Arc<str>, i32, &Tree),
) {
    for topic in message.get(topics).map(Node::elements).unwrap_or_default() {
        let Node::Struct(topic) = topic else { continue };
        let Some(name) = topic_of(topic, version, names) else {
            continue;
        };
        for partition in topic.get(partitions).map(Node::elements).unwrap_or_default() {
            if let (Node::Struct(data), Some(number)) = (partition, partition_of(partition)) {
                each(&name, number, data);
            }
        }
    }
}
