//! Where the last records of partitions begin: `scan(tail=)`. Offsets do not tell, because of compaction, markers and aborted transactions:
//! the records are counted, from the end backwards.

use fletchlog_client::consumer::{OffsetRange, RangeScan};
use fletchlog_log::FetchBound;
use fletchlog_log::scan::{Scan as LogScan, ScanOrder, ScanRange};
use fletchlog_records::{RecordCursor, RecordError, RecordsSlice};

use crate::errors::Failure;

/// By how much more is read each time that there are too few records.
const WIDER: i64 = 4;

/// A range of offsets, its end exclusive, and the place of its partition.
struct Part {
    place: usize,
    start: i64,
    end: i64,
}

/// Calls `visit` with the place and the offset of each record of the parts.
type Walk<'a> = dyn FnMut(&[Part], &mut dyn FnMut(usize, i64)) -> Result<(), Failure> + 'a;

/// The offset at which the last `tail` records of each range begin.
fn starts(ranges: &[(i64, i64)], tail: u64, walk: &mut Walk<'_>) -> Result<Vec<i64>, Failure> {
    let mut starts: Vec<i64> = ranges.iter().map(|&(_, end)| end).collect();
    if tail == 0 {
        return Ok(starts);
    }
    let mut counts = vec![0u64; ranges.len()];
    let mut width = i64::try_from(tail).unwrap_or(i64::MAX);
    loop {
        let is_open = |place: &usize| counts[*place] < tail && starts[*place] > ranges[*place].0;
        let open: Vec<usize> = (0..ranges.len()).filter(is_open).collect();
        if open.is_empty() {
            break;
        }
        let mut parts = Vec::new();
        for place in open {
            let start = ranges[place].1.saturating_sub(width).max(ranges[place].0);
            let end = std::mem::replace(&mut starts[place], start);
            parts.push(Part { place, start, end });
        }
        walk(&parts, &mut |place, _| counts[place] += 1)?;
        width = width.saturating_mul(WIDER);
    }
    let too_many: Vec<Part> = (0..ranges.len())
        .filter(|place| counts[*place] > tail)
        .map(|place| Part {
            place,
            start: starts[place],
            end: ranges[place].1,
        })
        .collect();
    walk(&too_many, &mut |place, offset| {
        if counts[place] >= tail {
            starts[place] = offset;
            counts[place] -= 1;
        }
    })?;
    Ok(starts)
}

/// Visits the offsets of a batch from the cursor on.
fn visit(
    slice: &RecordsSlice,
    cursor: &mut RecordCursor,
    most: usize,
    mut each: impl FnMut(i64),
) -> Result<(), RecordError> {
    let mut left = most;
    while left > 0 {
        let passed = cursor.visit(slice, left, |offset, _, _| {
            each(offset);
            true
        })?;
        if passed == 0 {
            break;
        }
        left -= passed;
    }
    Ok(())
}

/// Moves the starts of ranges of logs to their last `tail` records.
pub fn of_logs(ranges: &mut [ScanRange], tail: u64, bound: FetchBound) -> Result<(), Failure> {
    let whole = ranges.to_vec();
    let ends: Vec<_> = whole.iter().map(|range| (range.start, range.end)).collect();
    let mut walk = |parts: &[Part], each: &mut dyn FnMut(usize, i64)| {
        for part in parts {
            let mut range = whole[part.place].clone();
            (range.start, range.end) = (part.start, part.end);
            let mut scan = LogScan::new(&[range], bound, ScanOrder::Offset);
            while let Some(batch) = scan.next_batch()? {
                let (tp, base) = (batch.tp.clone(), batch.slice.base_offset);
                visit(batch.slice, batch.cursor, usize::MAX, |offset| {
                    if (part.start..part.end).contains(&offset) {
                        each(part.place, offset);
                    }
                })
                .map_err(|error| Failure::of_record(error, &tp, base))?;
            }
        }
        Ok(())
    };
    let found = starts(&ends, tail, &mut walk)?;
    ranges
        .iter_mut()
        .zip(found)
        .for_each(|(range, start)| range.start = start);
    Ok(())
}

/// As [`of_logs`], for ranges of a cluster, which `open` reads.
pub fn of_cluster(
    ranges: &mut Vec<OffsetRange>,
    tail: u64,
    open: impl Fn(&[OffsetRange]) -> Result<RangeScan, Failure>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<(), Failure> {
    let whole = ranges.clone();
    let ends: Vec<_> = whole.iter().map(|range| (range.start, range.end)).collect();
    let mut walk = |parts: &[Part], each: &mut dyn FnMut(usize, i64)| {
        if parts.is_empty() {
            return Ok(());
        }
        let of_part = |part: &Part| OffsetRange {
            start: part.start,
            end: part.end,
            ..whole[part.place].clone()
        };
        let read: Vec<_> = parts.iter().map(of_part).collect();
        let mut scan = open(&read)?;
        while let Some(found) = scan.next(&mut *stop)? {
            let Some(at) = read.iter().position(|range| range.tp == found.tp) else {
                continue;
            };
            let part = &parts[at];
            visit(
                &found.span.slice,
                &mut found.span.cursor(),
                found.span.count,
                |offset| {
                    if (part.start..part.end).contains(&offset) {
                        each(part.place, offset);
                    }
                },
            )
            .map_err(|error| Failure::of_record(error, &found.tp, found.span.slice.base_offset))?;
        }
        Ok(())
    };
    let found = starts(&ends, tail, &mut walk)?;
    ranges
        .iter_mut()
        .zip(found)
        .for_each(|(range, start)| range.start = start);
    ranges.retain(|range| range.start < range.end);
    Ok(())
}
