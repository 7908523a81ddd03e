//! A scan of any log returns records of its range in order, or an error that names the partition. It never panics.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_log::scan::{Scan, ScanOrder, ScanRange};
use fletchlog_log::{FetchBound, PartitionLog};

use super::Owned;

/// Scans these logs in every order and at every isolation level.
pub(super) fn every_way(logs: &[Arc<PartitionLog>]) {
    for bound in [FetchBound::HighWatermark, FetchBound::LastStableOffset] {
        for order in [ScanOrder::Offset, ScanOrder::Timestamp] {
            whole(logs, bound, order);
        }
    }
}

/// The records that a scan of these logs returns, as far as they can be read.
pub(super) fn whole(logs: &[Arc<PartitionLog>], bound: FetchBound, order: ScanOrder) -> Vec<Owned> {
    let resolve = |log: &Arc<PartitionLog>| ScanRange::resolve(Arc::clone(log), None, None, bound).unwrap();
    let ranges: Vec<_> = logs.iter().map(resolve).collect();
    let mut scan = Scan::new(&ranges, bound, order);
    let mut found: Vec<Owned> = Vec::new();
    let mut next_offsets = BTreeMap::new();
    let failure = 'scan: loop {
        let batch = match scan.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => return found,
            Err(error) => break error.to_string(),
        };
        let Ok(mut left) = batch.in_turn(3) else { continue };
        let next_offset = next_offsets.entry(batch.tp.clone()).or_insert(batch.start);
        while left > 0 {
            let Ok(Some(record)) = batch.cursor.next(batch.slice) else {
                break;
            };
            if record.offset >= batch.end {
                continue 'scan;
            }
            if record.offset >= batch.start {
                assert!(record.offset >= *next_offset, "{} goes back to {record:?}", batch.tp);
                *next_offset = record.offset + 1;
                found.push(record.into());
                left -= 1;
            }
        }
    };
    let names: Vec<_> = ranges.iter().map(|range| format!("{} at offset", range.tp())).collect();
    assert!(names.iter().any(|name| failure.starts_with(name)), "{failure}");
    let again = scan.next_batch().map(|batch| batch.is_some());
    assert_eq!(
        again.map_err(|error| error.to_string()),
        Err(failure),
        "an error repeats"
    );
    found
}
