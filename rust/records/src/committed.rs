//! What read_committed leaves out (spec 7.7): the filter that the consumer and scans share.

use std::collections::BTreeSet;

use crate::control::{ControlType, marker_in};
use crate::{RecordBatch, RecordError};

/// The aborted transactions of one read, followed batch by batch in offset order.
/// Kafka: `CompletedFetch#consumeAbortedTransactionsUpTo`, `#isBatchAborted`.
#[derive(Debug, Clone, Default)]
pub struct AbortedTransactions {
    /// (first offset, producer id) of those that have not begun yet, the next one last.
    waiting: Vec<(i64, i64)>,
    /// Producers inside an aborted transaction.
    open: BTreeSet<i64>,
}

impl AbortedTransactions {
    /// Starts from the (producer id, first offset) pairs that a read returned, in any order.
    pub fn new(aborted: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut waiting: Vec<_> = aborted
            .into_iter()
            .map(|(producer_id, first_offset)| (first_offset, producer_id))
            .collect();
        waiting.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            waiting,
            open: BTreeSet::new(),
        }
    }

    /// Whether the records of this batch belong to an aborted transaction. An abort marker ends its producer's transaction;
    /// the marker itself is not aborted: readers leave out every control batch anyway. `limit`: bytes of a decompressed marker.
    ///
    /// # Errors
    /// A marker that cannot be decoded.
    pub fn is_aborted(&mut self, batch: &RecordBatch, limit: usize) -> Result<bool, RecordError> {
        let header = batch.header();
        while let Some((_, producer_id)) = self
            .waiting
            .pop_if(|(first_offset, _)| *first_offset <= header.last_offset())
        {
            self.open.insert(producer_id);
        }
        if header.is_control() {
            let marker = marker_in(&batch.records(limit)?)?;
            if marker.is_some_and(|marker| marker.control_type == ControlType::Abort) {
                self.open.remove(&header.producer_id);
            }
            return Ok(false);
        }
        Ok(header.is_transactional() && self.open.contains(&header.producer_id))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::control::{EndTxnMarker, build_marker};
    use crate::{BatchBuilder, BatchParams};

    fn batch(base_offset: i64, producer_id: i64, transactional: bool) -> RecordBatch {
        let mut builder = BatchBuilder::with_capacity(64);
        builder.append(0, None, Some(b"v"), &[]);
        let params = BatchParams {
            base_offset,
            producer_id,
            transactional,
            ..BatchParams::default()
        };
        RecordBatch::parse(&builder.build(&params)).unwrap().unwrap()
    }

    fn marker(base_offset: i64, producer_id: i64, control_type: ControlType) -> RecordBatch {
        let marker = EndTxnMarker {
            control_type,
            coordinator_epoch: 0,
        };
        let bytes = build_marker(base_offset, producer_id, 0, 0, 0, marker);
        RecordBatch::parse(&bytes).unwrap().unwrap()
    }

    #[test]
    fn a_transaction_is_left_out_from_its_first_offset_to_its_abort_marker() {
        let mut aborted = AbortedTransactions::new([(2, 7), (1, 1), (1, 6)]);
        let mut is_aborted = |batch: RecordBatch| aborted.is_aborted(&batch, usize::MAX).unwrap();
        assert!(!is_aborted(batch(0, 1, true)), "an earlier transaction of producer 1");
        assert!(is_aborted(batch(1, 1, true)));
        assert!(!is_aborted(batch(2, 1, false)), "outside of transactions");
        assert!(!is_aborted(batch(3, 2, true)), "producer 2 aborts later");
        assert!(
            !is_aborted(marker(4, 1, ControlType::Abort)),
            "markers are left out as control batches"
        );
        assert!(!is_aborted(batch(5, 1, true)), "committed");
        assert!(
            is_aborted(batch(6, 1, true)),
            "the second aborted transaction of producer 1"
        );
        assert!(!is_aborted(marker(7, 3, ControlType::Abort)));
        assert!(is_aborted(batch(8, 2, true)) && is_aborted(batch(9, 1, true)));
        assert!(!is_aborted(marker(10, 2, ControlType::Commit)));
        assert!(is_aborted(batch(11, 2, true)), "only an abort marker ends it");
    }

    #[test]
    fn a_marker_that_cannot_be_decoded_is_an_error() {
        let sound = marker(0, 1, ControlType::Abort);
        let mut bytes = sound.bytes().to_vec();
        let last = bytes.len() - 1;
        bytes[last] = 1; // one header, of which no byte is there
        let damaged = RecordBatch::parse(&bytes.into()).unwrap().unwrap();
        AbortedTransactions::default()
            .is_aborted(&damaged, usize::MAX)
            .unwrap_err();
    }
}
