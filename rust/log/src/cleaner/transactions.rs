//! Which batches were aborted and which markers still have data, while segments are read in order. Kafka:
//! `CleanedTransactionMetadata`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fletchlog_records::control::{ControlType, parse_control_record};
use fletchlog_records::{BatchHeader, RecordCursor, RecordsSlice};

use crate::segment::LogSegment;
use crate::txn_index::AbortedTxn;

#[derive(Debug, Default)]
pub(super) struct CleanedTransactions {
    /// Aborted transactions that had not begun at the batch read last, by first offset and producer.
    pending: BTreeMap<(i64, i64), AbortedTxn>,
    /// Aborted transactions that have begun, by producer, and whether a batch of each was kept.
    aborted: HashMap<i64, (AbortedTxn, bool)>,
    /// Producers with data of a transaction that was not aborted.
    committed: HashSet<i64>,
    /// Entries for the transaction index of the segment that is written.
    retained: Vec<AbortedTxn>,
}

impl CleanedTransactions {
    pub fn add_aborted(&mut self, transactions: Vec<AbortedTxn>) {
        for txn in transactions {
            self.pending.insert((txn.first_offset, txn.producer_id), txn);
        }
    }

    pub fn take_retained(&mut self) -> Vec<AbortedTxn> {
        std::mem::take(&mut self.retained)
    }

    fn begin_up_to(&mut self, offset: i64) {
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > offset {
                return;
            }
            let txn = entry.remove();
            self.aborted.entry(txn.producer_id).or_insert((txn, false));
        }
    }

    /// True if the batch was aborted.
    pub fn on_data_batch(&mut self, header: &BatchHeader) -> bool {
        self.begin_up_to(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        if let Some((_, has_data)) = self.aborted.get_mut(&header.producer_id) {
            *has_data = true;
            return true;
        }
        self.committed.insert(header.producer_id);
        false
    }

    /// True: no data of the transaction is left, so its marker may be removed.
    pub fn on_control_batch(&mut self, header: &BatchHeader, records: &RecordsSlice) -> bool {
        self.begin_up_to(header.last_offset());
        let record = RecordCursor::new().next(records).ok().flatten();
        // An emptied control batch was cleaned before.
        let Some(record) = record else { return true };
        let marker = parse_control_record(record.key.unwrap_or_default(), record.value);
        match marker.map(|marker| marker.control_type) {
            Some(ControlType::Abort) => match self.aborted.remove(&header.producer_id) {
                Some((txn, true)) => {
                    self.retained.push(txn);
                    false
                }
                _ => true,
            },
            Some(ControlType::Commit) => !self.committed.remove(&header.producer_id),
            Some(ControlType::Other(_)) | None => false,
        }
    }
}

/// Aborted transactions that overlap [from, upper); the first segment is the one that holds `from`. Kafka:
/// `UnifiedLog#collectAbortedTransactions`.
pub(super) fn collect_aborted(segments: &[Arc<LogSegment>], from: i64, upper: i64) -> Vec<AbortedTxn> {
    let mut found = Vec::new();
    for segment in segments {
        if segment.collect_aborted(from, upper, &mut found) {
            break;
        }
    }
    found
}
