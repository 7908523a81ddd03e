//! `.txnindex`: aborted transactions whose marker is in the segment (spec 1.8). Kafka: `TransactionIndex`, `AbortedTxn`.
//!
//! | off | size | field |
//! |---|---|---|
//! | 0 | i16 | version, 0 |
//! | 2 | i64 | producer id |
//! | 10 | i64 | first offset of the transaction |
//! | 18 | i64 | last offset: that of the marker |
//! | 26 | i64 | last stable offset that holds once this transaction is complete |
//!
//! Entries of 34 bytes, last offsets strictly increasing. The file exists only if it has entries.

/// Bytes of one entry.
pub(crate) const ENTRY_SIZE: usize = 34;

/// One aborted transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Its producer.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its ABORT marker.
    pub last_offset: i64,
    /// The last stable offset once it is complete.
    pub last_stable_offset: i64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct TransactionIndex {
    entries: Vec<AbortedTxn>,
}

fn i64_at(bytes: &[u8; ENTRY_SIZE], at: usize) -> i64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(field)
}

/// Bytes of the entries of a file whose last offsets are below `offset`.
pub(crate) fn bytes_below(bytes: &[u8], offset: i64) -> usize {
    let (entries, _) = bytes.as_chunks::<ENTRY_SIZE>();
    entries.iter().take_while(|entry| i64_at(entry, 18) < offset).count() * ENTRY_SIZE
}

impl TransactionIndex {
    /// `Err`: why the file is not usable (version, order, length); the index is then made from the segment.
    pub fn parse(base: i64, bytes: &[u8]) -> Result<Self, String> {
        let (whole, rest) = bytes.as_chunks::<ENTRY_SIZE>();
        if !rest.is_empty() {
            return Err(format!("length {} is no multiple of {ENTRY_SIZE}", bytes.len()));
        }
        let mut index = Self::default();
        for (i, entry) in whole.iter().enumerate() {
            let version = i16::from_be_bytes([entry[0], entry[1]]);
            if version != 0 {
                return Err(format!("version {version} of entry {i}"));
            }
            let [producer_id, first_offset, last_offset, last_stable_offset] =
                [2, 10, 18, 26].map(|at| i64_at(entry, at));
            if last_offset < base
                || first_offset > last_offset
                || index
                    .append(AbortedTxn {
                        producer_id,
                        first_offset,
                        last_offset,
                        last_stable_offset,
                    })
                    .is_err()
            {
                return Err(format!("entry {i} is out of order"));
            }
        }
        Ok(index)
    }

    pub fn encode(&self, from: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for txn in self.entries.get(from..).unwrap_or_default() {
            bytes.extend_from_slice(&0i16.to_be_bytes());
            for field in [
                txn.producer_id,
                txn.first_offset,
                txn.last_offset,
                txn.last_stable_offset,
            ] {
                bytes.extend_from_slice(&field.to_be_bytes());
            }
        }
        bytes
    }

    /// `Err`: the last offset does not increase.
    pub fn append(&mut self, txn: AbortedTxn) -> Result<(), AbortedTxn> {
        if self
            .entries
            .last()
            .is_some_and(|last| txn.last_offset <= last.last_offset)
        {
            return Err(txn);
        }
        self.entries.push(txn);
        Ok(())
    }

    /// Adds to `found` what a reader of [fetch offset, upper bound) must know. True: later entries and segments cannot
    /// matter. Kafka: `TransactionIndex#collectAbortedTxns`.
    pub fn collect(&self, fetch_offset: i64, upper_bound: i64, found: &mut Vec<AbortedTxn>) -> bool {
        for txn in &self.entries {
            if txn.last_offset >= fetch_offset && txn.first_offset < upper_bound {
                found.push(*txn);
            }
            if txn.last_stable_offset >= upper_bound {
                return true;
            }
        }
        false
    }

    pub fn entries(&self) -> &[AbortedTxn] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> TransactionIndex {
        let mut index = TransactionIndex::default();
        for (producer_id, first_offset, last_offset, last_stable_offset) in
            [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]
        {
            index
                .append(AbortedTxn {
                    producer_id,
                    first_offset,
                    last_offset,
                    last_stable_offset,
                })
                .unwrap();
        }
        index
    }

    #[test]
    fn a_reader_gets_the_transactions_that_overlap_its_range() {
        for (from, to, expected, complete) in [
            (0, 100, &[0, 1, 2, 3][..], false),
            (0, 32, &[0, 1, 2], true),
            (11, 35, &[1, 2, 3], true),
            (20, 41, &[2, 3], false),
        ] {
            let mut found = Vec::new();
            assert_eq!(index().collect(from, to, &mut found), complete, "[{from}, {to})");
            assert_eq!(
                found.iter().map(|txn| txn.producer_id).collect::<Vec<_>>(),
                expected,
                "[{from}, {to})"
            );
        }
    }

    #[test]
    fn entries_survive_a_round_trip_and_oddities_are_noticed() {
        let index = index();
        let bytes = index.encode(0);
        assert_eq!(bytes.len(), 4 * ENTRY_SIZE);
        assert_eq!(TransactionIndex::parse(0, &bytes).unwrap().entries, index.entries);
        assert!(TransactionIndex::parse(0, &bytes[..bytes.len() - 3]).is_err());
        assert!(TransactionIndex::parse(11, &bytes).is_err());
        let mut version = bytes.clone();
        version[1] = 1;
        assert!(TransactionIndex::parse(0, &version).is_err());
        let swapped = [&bytes[ENTRY_SIZE..], &bytes[..ENTRY_SIZE]].concat();
        assert!(TransactionIndex::parse(0, &swapped).is_err());
    }

    #[test]
    fn last_offsets_increase() {
        let mut index = index();
        assert!(
            index
                .append(AbortedTxn {
                    producer_id: 9,
                    first_offset: 1,
                    last_offset: 50,
                    last_stable_offset: 60
                })
                .is_err()
        );
        assert_eq!(index.entries().len(), 4);
    }
}
