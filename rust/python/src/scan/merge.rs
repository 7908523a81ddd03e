//! A scan by timestamp: the partitions merged, each of them in offset order. The rule is that of `fletchlog.fetch.order=timestamp`
//! (client: `timestamp_collector`) over a fixed range: next is the partition whose first record is least by (timestamp, partition).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fletchlog_arrow::RowsBuilder;
use fletchlog_records::{RecordCursor, RecordsSlice};

use super::{Plan, READ_BYTES, Range, Walk, room};
use crate::errors::Failure;

/// Bytes read at a time from each of many partitions at least: a few batches of a default producer.
const READ_BYTES_MIN: usize = 64 << 10;

/// Where every partition stands, and the timestamp of its next record.
pub(super) struct Merge {
    walks: Vec<Walk>,
    heads: BinaryHeap<Reverse<(i64, usize)>>,
    /// Partitions whose first record has been looked for.
    begun: usize,
}

impl Merge {
    /// At the beginning. All partitions together read as much at a time as one alone does, within reason.
    pub(super) fn new(plan: &Plan) -> Self {
        let read_bytes = (READ_BYTES / plan.ranges.len().max(1)).max(READ_BYTES_MIN);
        Self {
            walks: plan
                .ranges
                .iter()
                .map(|range| Walk::at(range.start, read_bytes))
                .collect(),
            heads: BinaryHeap::new(),
            begun: 0,
        }
    }

    /// Reads until a batch is full or the plan is finished.
    pub(super) fn fill(&mut self, plan: &Plan, builder: &mut RowsBuilder) -> Result<(), Failure> {
        while self.begun < self.walks.len() {
            self.look(plan, self.begun)?;
            self.begun += 1;
        }
        while let Some(Reverse((timestamp, place))) = self.heads.pop() {
            let until = self.heads.peek().map_or(
                i64::MAX,
                |&Reverse((next, other))| {
                    if place < other { next } else { next.saturating_sub(1) }
                },
            );
            let range = &plan.ranges[place];
            if let Some((slice, cursor)) = &mut self.walks[place].records {
                let room = room(builder, plan.batch_rows, slice);
                if room == 0 {
                    self.heads.push(Reverse((timestamp, place)));
                    return Ok(());
                }
                append(builder, range, slice, cursor, room, until)
                    .map_err(|error| Failure::from(error).at(&range.tp, slice.base_offset))?;
            }
            self.look(plan, place)?;
        }
        Ok(())
    }

    /// Finds the next record of a partition, if it has one.
    fn look(&mut self, plan: &Plan, place: usize) -> Result<(), Failure> {
        let (range, walk) = (&plan.ranges[place], &mut self.walks[place]);
        while walk.step(range, plan.bound)? {
            let Some((slice, cursor)) = &mut walk.records else {
                continue;
            };
            if let Some(timestamp) = first_timestamp(slice, cursor, range.start)
                .map_err(|error| Failure::from(error).at(&range.tp, slice.base_offset))?
            {
                self.heads.push(Reverse((timestamp, place)));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Appends the records from the cursor on that are not younger than `until`.
fn append(
    builder: &mut RowsBuilder,
    range: &Range,
    slice: &RecordsSlice,
    cursor: &mut RecordCursor,
    room: usize,
    until: i64,
) -> Result<(), fletchlog_records::RecordError> {
    let walked = cursor.clone().walk_while(slice, room, |timestamp| timestamp <= until)?;
    let rows = walked.map_or(0, |(rows, _, _)| rows);
    builder.append_records(&range.tp, slice, cursor, rows, range.start, range.end)?;
    Ok(())
}

/// Timestamp of the first record at or after `start`; the cursor stands before it.
fn first_timestamp(
    slice: &RecordsSlice,
    cursor: &mut RecordCursor,
    start: i64,
) -> Result<Option<i64>, fletchlog_records::RecordError> {
    loop {
        let mut probe = cursor.clone();
        match probe.next(slice)? {
            Some(record) if record.offset < start => *cursor = probe,
            record => return Ok(record.map(|record| record.timestamp)),
        }
    }
}
