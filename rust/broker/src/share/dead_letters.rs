//! Dead letters: records that a group gives up go to a topic of its own (spec 14.10). Kafka: `ShareGroupDLQStateManager`,
//! `ShareGroupDLQRecordHelper`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_log::{AppendOrigin, FetchBound};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, DECOMPRESSION_LIMIT, Header, Record, RecordCursor};

use super::change::{DeadLetters, DeadReason};
use super::group_config::ShareGroupConfig;
use super::share_partition_manager::{Managed, SharePartitionManager};
use crate::BrokerError;
use crate::controller::NewTopic;
use crate::partition::Partition;
use crate::topic_names::is_internal;

/// Bytes per read of the records to be copied. Kafka: `ShareGroupDLQRecordHelper#DLQ_MAX_FETCH_BYTES`.
const READ_BYTES: usize = 1 << 20;

/// A record as it was produced: key, value and headers.
struct Original {
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Vec<(String, Option<Bytes>)>,
}

impl Original {
    fn of(record: &Record<'_>) -> Self {
        let header = |header: Header<'_>| (header.key.to_owned(), header.value.map(Bytes::copy_from_slice));
        Self {
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers: record.headers().map(header).collect(),
        }
    }
}

impl DeadReason {
    /// Kafka's text.
    fn text(self) -> &'static str {
        match self {
            Self::Rejected => "Offset rejected by client.",
            Self::DeliveriesUsedUp => "Offset delivery count exceeded the threshold.",
        }
    }
}

impl SharePartitionManager {
    /// Writes dead letters; true: it succeeded. If that fails, the records are given up all the same, as in Kafka: there the first range is sent alone, and the others
    /// together when that is done.
    pub(super) fn write_dead_letters(&self, managed: &Managed, dead: &[DeadLetters]) -> bool {
        let group_id = &managed.key.group_id;
        let read = |config: &ShareGroupConfig<'_>| {
            let prefix = config
                .broker()
                .text("errors.deadletterqueue.topic.name.prefix")
                .to_owned();
            let creates = config
                .broker()
                .boolean("errors.deadletterqueue.auto.create.topics.enable");
            (
                config.dead_letter_topic(),
                prefix,
                creates,
                config.copies_dead_letters(),
            )
        };
        let (Some(topic), prefix, creates, copies) = self.with_config(group_id, read) else {
            return false;
        };
        let written = self
            .dead_letter_partition(&topic, &prefix, creates, managed.key.partition)
            .and_then(|partition| {
                let (first, others) = dead.split_at(dead.len().min(1));
                let mut batches = [first, others].into_iter().filter(|letters| !letters.is_empty());
                batches.try_for_each(|letters| self.append_dead_letters(managed, &partition, letters, copies))
            });
        if let Err(error) = &written {
            let (first, last) = (dead.first(), dead.last());
            let range = first.zip(last).map_or((0, 0), |(first, last)| (first.first, last.last));
            log::warn!(
                "share group {group_id}: offsets {} to {} of {} are not written to its dead-letter topic {topic}: {error}",
                range.0,
                range.1,
                managed.tp
            );
        }
        written.is_ok()
    }

    /// The partition of the dead-letter topic for those of a partition. Kafka: `ShareGroupDLQValidator`.
    fn dead_letter_partition(
        &self,
        topic: &str,
        prefix: &str,
        creates: bool,
        source: i32,
    ) -> Result<Arc<Partition>, BrokerError> {
        let refuse = |text: String| Err(BrokerError::kafka(fletchlog_api::ErrorCode::INVALID_CONFIG, text));
        if is_internal(topic) || !topic.starts_with(prefix) {
            return refuse(format!(
                "its name must begin with errors.deadletterqueue.topic.name.prefix, which is \"{prefix}\""
            ));
        }
        if self.replicas.topic(topic).is_err() && creates {
            let enabled = (
                "errors.deadletterqueue.group.enable".to_owned(),
                Some("true".to_owned()),
            );
            let new = NewTopic {
                config: vec![enabled],
                ..NewTopic::default()
            };
            let created = self.replicas.controller().create_topics(&[(topic, &new)]);
            created.into_iter().try_for_each(|created| created.map(drop))?;
        }
        let found = self.replicas.topic(topic)?;
        let is_enabled = found.record.config.get("errors.deadletterqueue.group.enable");
        if is_enabled.map(String::as_str) != Some("true") {
            return refuse("set errors.deadletterqueue.group.enable of the topic to true".to_owned());
        }
        let number = source.checked_rem(found.record.partitions).unwrap_or(0);
        let partition = found.partition(number).cloned();
        partition.ok_or_else(|| BrokerError::unknown_topic(topic))
    }

    /// Writes dead letters as one batch.
    fn append_dead_letters(
        &self,
        managed: &Managed,
        partition: &Partition,
        dead: &[DeadLetters],
        copies: bool,
    ) -> Result<(), BrokerError> {
        let now_ms = self.replicas.clock().now_ms();
        let mut builder = BatchBuilder::with_capacity(256);
        for letters in dead {
            let originals = match copies {
                true => self.originals(managed, *letters)?,
                false => BTreeMap::new(),
            };
            for offset in letters.first..=letters.last {
                append_dead_letter(&mut builder, managed, *letters, offset, originals.get(&offset), now_ms);
            }
        }
        let batch = builder.build(&BatchParams::default());
        self.replicas
            .append_as_coordinator(partition, batch, AppendOrigin::Coordinator, now_ms)
            .map(drop)
    }

    /// The records of a range, as far as the log still has them.
    fn originals(&self, managed: &Managed, letters: DeadLetters) -> Result<BTreeMap<i64, Original>, BrokerError> {
        let partition = self.replicas.partition(&managed.tp)?;
        let log = self.replicas.log_of(&partition)?;
        let mut originals = BTreeMap::new();
        let mut next = letters.first.max(log.log_start_offset());
        while next <= letters.last && next < log.high_watermark() {
            let read = log.read(next, READ_BYTES, true, FetchBound::HighWatermark)?;
            let before = next;
            for batch in BatchIter::new(read.records) {
                let batch = batch.map_err(fletchlog_log::LogError::from)?;
                next = next.max(batch.header().next_offset());
                if batch.header().is_control() {
                    continue;
                }
                let slice = batch
                    .records(DECOMPRESSION_LIMIT)
                    .map_err(fletchlog_log::LogError::from)?;
                let mut cursor = RecordCursor::new();
                while let Some(record) = cursor.next(&slice).map_err(fletchlog_log::LogError::from)? {
                    if (letters.first..=letters.last).contains(&record.offset) {
                        originals.insert(record.offset, Original::of(&record));
                    }
                }
            }
            if next == before {
                break;
            }
        }
        Ok(originals)
    }
}

fn append_dead_letter(
    builder: &mut BatchBuilder,
    managed: &Managed,
    letters: DeadLetters,
    offset: i64,
    original: Option<&Original>,
    now_ms: i64,
) {
    let context = [
        ("__dlq.errors.topic", managed.tp.topic.to_string()),
        ("__dlq.errors.partition", managed.key.partition.to_string()),
        ("__dlq.errors.offset", offset.to_string()),
        ("__dlq.errors.group", managed.key.group_id.to_string()),
        ("__dlq.errors.delivery.count", letters.deliveries.to_string()),
        ("__dlq.errors.message", letters.reason.text().to_owned()),
    ];
    let own = original.iter().flat_map(|original| &original.headers);
    let own = own.map(|(key, value)| Header {
        key,
        value: value.as_deref(),
    });
    let added = context.iter().map(|(key, value)| Header {
        key,
        value: Some(value.as_bytes()),
    });
    let headers: Vec<Header<'_>> = own.chain(added).collect();
    let key = original.and_then(|original| original.key.as_deref());
    let value = original.and_then(|original| original.value.as_deref());
    builder.append(now_ms, key, value, &headers);
}
