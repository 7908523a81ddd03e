//! How records were acknowledged, and how a request says it. Kafka: `Acknowledgements`, `AcknowledgementBatch`.

use super::offset_runs::OffsetRuns;

/// What a member says of a record that it has acquired. Kafka: `AcknowledgeType`, and `Acknowledgements.ACKNOWLEDGE_TYPE_GAP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcknowledgeType {
    /// There is no record at this offset: a marker of a transaction, or a record that compaction has removed.
    Gap = 0,
    /// It was processed.
    Accept = 1,
    /// It was not processed: another delivery may succeed.
    Release = 2,
    /// It cannot be processed.
    Reject = 3,
    /// It is still being processed: its lock begins anew.
    Renew = 4,
}

/// A longer run of one type is sent as a batch with a single type. Kafka: `Acknowledgements.MAX_RECORDS_WITH_SAME_ACKNOWLEDGE_TYPE`.
const MAX_RECORDS_WITH_SAME_ACKNOWLEDGE_TYPE: u64 = 10;

/// Consecutive offsets of a request: one type for each, or one for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcknowledgementBatch {
    pub first_offset: i64,
    pub last_offset: i64,
    pub acknowledge_types: Vec<i8>,
}

/// The acknowledgements of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Acknowledgements {
    runs: OffsetRuns<AcknowledgeType>,
}

impl Acknowledgements {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs in ascending order: first offset, last offset, type.
    pub fn iter(&self) -> impl Iterator<Item = (i64, i64, AcknowledgeType)> + '_ {
        self.runs.iter()
    }

    /// Acknowledges the offsets from `first` to `last`, in place of what was said of them before.
    pub fn set(&mut self, first: i64, last: i64, kind: AcknowledgeType) {
        self.runs.set(first, last, kind);
    }

    /// Takes the offsets from `first` to `last` out.
    pub fn remove(&mut self, first: i64, last: i64) {
        self.runs.remove(first, last);
    }

    /// Those of `other` replace these. Kafka: `Acknowledgements#merge`.
    pub fn merge(&mut self, other: &Self) {
        for (first, last, kind) in other.iter() {
            self.set(first, last, kind);
        }
    }

    /// How many records.
    pub fn count(&self) -> u64 {
        self.iter().map(|(first, last, _)| last.abs_diff(first) + 1).sum()
    }

    /// Whether a record's lock is to begin anew.
    pub fn has_renewals(&self) -> bool {
        self.iter().any(|(_, _, kind)| kind == AcknowledgeType::Renew)
    }

    /// As a request has them. Kafka: `Acknowledgements#getAcknowledgementBatches`.
    pub fn batches(&self) -> Vec<AcknowledgementBatch> {
        let mut batches = Vec::new();
        let mut open: Option<AcknowledgementBatch> = None;
        for (first, last, kind) in self.iter() {
            let number = last.abs_diff(first) + 1;
            if open.as_ref().is_some_and(|batch| batch.last_offset + 1 != first) {
                batches.extend(open.take().map(with_one_type));
            }
            if number > MAX_RECORDS_WITH_SAME_ACKNOWLEDGE_TYPE {
                batches.extend(open.take().map(with_one_type));
                batches.push(AcknowledgementBatch {
                    first_offset: first,
                    last_offset: last,
                    acknowledge_types: vec![kind as i8],
                });
                continue;
            }
            let batch = open.get_or_insert_with(|| AcknowledgementBatch {
                first_offset: first,
                last_offset: last,
                acknowledge_types: Vec::new(),
            });
            batch.last_offset = last;
            batch.acknowledge_types.extend((0..number).map(|_| kind as i8));
        }
        batches.extend(open.map(with_one_type));
        batches
    }
}

/// A batch whose offsets have all the same type names it once. Kafka: `canOptimiseForSingleAcknowledgeType`.
fn with_one_type(mut batch: AcknowledgementBatch) -> AcknowledgementBatch {
    if batch.acknowledge_types.windows(2).all(|pair| pair[0] == pair[1]) {
        batch.acknowledge_types.truncate(1);
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::AcknowledgeType::{Accept, Gap, Reject, Release};
    use super::*;

    fn batches(given: &[(i64, i64, AcknowledgeType)]) -> Vec<(i64, i64, Vec<i8>)> {
        let mut all = Acknowledgements::default();
        for &(first, last, kind) in given {
            all.set(first, last, kind);
        }
        let of = |batch: AcknowledgementBatch| (batch.first_offset, batch.last_offset, batch.acknowledge_types);
        all.batches().into_iter().map(of).collect()
    }

    #[test]
    fn equal_types_are_one_and_others_a_list() {
        assert_eq!(batches(&[(0, 3, Accept)]), [(0, 3, vec![1])]);
        let mixed = [(0, 0, Accept), (1, 1, Release), (2, 3, Reject)];
        assert_eq!(batches(&mixed), [(0, 3, vec![1, 2, 3, 3])]);
        assert_eq!(
            batches(&[(0, 1, Accept), (3, 3, Accept)]),
            [(0, 1, vec![1]), (3, 3, vec![1])]
        );
        assert_eq!(
            batches(&[(0, 3, Release), (1, 2, Gap)]),
            [(0, 3, vec![2, 0, 0, 2])],
            "the later one wins"
        );
    }

    #[test]
    fn a_long_run_is_a_batch_with_one_type() {
        let given = [(0, 1, Reject), (2, 12, Accept), (13, 13, Release)];
        let expected = [(0, 1, vec![3]), (2, 12, vec![1]), (13, 13, vec![2])];
        assert_eq!(batches(&given), expected, "11 records");
        let ten = batches(&[(0, 1, Reject), (2, 11, Accept)]);
        assert_eq!(ten, [(0, 11, vec![3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])]);
        assert_eq!(batches(&[(0, 1_000_000, Accept)]), [(0, 1_000_000, vec![1])]);
    }
}
