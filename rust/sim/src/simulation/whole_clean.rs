//! The quiet end of a run whose topic is compacted: everything is cleaned, and the remaining records are checked.

use std::collections::BTreeSet;

use fletchlog_log::{FetchBound, LogError, PartitionLog};
use fletchlog_records::{BatchIter, DECOMPRESSION_LIMIT, RecordBatch, RecordCursor};

use super::cleaner::{Call, clean};
use super::cluster::TOPIC;
use super::world::Hand;

/// No transaction is open and no disk fails. Cleans everything, and checks that one record is left for each key, and none of aborted
/// transactions. If tombstones expire soon, it cleans again after that, and checks that none is left.
pub(super) fn run(hand: &mut Hand) {
    /// Longest delete.retention.ms that it waits for.
    const MOST_RETENTION_MS: i64 = 10_000;
    let Some(plan) = hand.world.plan.compaction.filter(|plan| plan.whole_at_end) else {
        return;
    };
    hand.sleep(plan.min_compaction_lag_ms + 1);
    let process = hand.world.recorder().process();
    let (name, force) = (TOPIC, true);
    let mut cleaned = clean(hand, process, &plan, Call::Topic { name, force });
    let waits = plan.delete_retention_ms <= MOST_RETENTION_MS;
    if waits {
        hand.sleep(plan.delete_retention_ms);
        cleaned &= clean(hand, process, &plan, Call::Topic { name, force });
    }
    if !cleaned || hand.world.plan.loses_acknowledged() {
        // A transaction that the coordinator has lost never ends.
        return;
    }
    let cluster = hand.world.cluster();
    let Some(broker) = cluster.broker() else { return };
    for partition in 0..hand.world.copies() {
        let tp = hand.world.tp(partition);
        let left = broker.partition_log(&tp).and_then(|log| Ok(Left::of(&log)?));
        match left {
            Ok(left) if left.twice.is_empty() && !left.aborted && !(waits && left.tombstones) => {}
            found => hand.surprise(format!("everything in {tp} was cleaned, and left is {found:?}")),
        }
    }
}

/// Records in a log that a complete cleaning must have removed.
#[derive(Debug, Default)]
struct Left {
    keys: BTreeSet<String>,
    twice: BTreeSet<String>,
    tombstones: bool,
    aborted: bool,
    /// Producers whose transaction at the last batch read is aborted.
    aborting: BTreeSet<i64>,
}

impl Left {
    fn of(log: &PartitionLog) -> Result<Self, LogError> {
        const MOST_BYTES: usize = 1 << 20;
        let (mut left, mut offset) = (Self::default(), log.log_start_offset());
        while offset < log.log_end_offset() {
            let read = log.read(offset, MOST_BYTES, true, FetchBound::LastStableOffset)?;
            if read.records.is_empty() {
                break;
            }
            let mut aborted = read.aborted_transactions.unwrap_or_default();
            for batch in BatchIter::new(read.records) {
                let batch = batch?;
                offset = batch.header().next_offset();
                let begun = aborted.extract_if(.., |(_, first)| *first < offset);
                left.aborting.extend(begun.map(|(producer_id, _)| producer_id));
                left.add(&batch, log.log_start_offset())?;
            }
        }
        Ok(left)
    }

    fn add(&mut self, batch: &RecordBatch, start: i64) -> Result<(), LogError> {
        let header = batch.header();
        if header.is_control() {
            self.aborting.remove(&header.producer_id);
            return Ok(());
        }
        let is_aborted = header.is_transactional() && self.aborting.contains(&header.producer_id);
        self.aborted |= is_aborted && header.records_count > 0;
        let records = batch.records(DECOMPRESSION_LIMIT)?;
        let mut cursor = RecordCursor::new();
        while let Some(record) = cursor.next(&records)? {
            if record.offset < start {
                continue;
            }
            let key = String::from_utf8_lossy(record.key.unwrap_or_default()).into_owned();
            self.tombstones |= record.value.is_none();
            if !self.keys.insert(key.clone()) {
                self.twice.insert(key);
            }
        }
        Ok(())
    }
}
