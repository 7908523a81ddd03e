//! Combining the states of ranges of records. Kafka: `PersisterStateBatchCombiner`.

use fletchlog_protocol::values::share_snapshot_value::StateBatch;

/// The last offset that a record can have: the one behind it, the end of its log, has to fit 64 bits too.
const LAST_OFFSET: i64 = i64::MAX - 1;

/// Of two states of a record the one with more deliveries is the later one, of two with the same number the one further along.
fn order(batch: &StateBatch) -> (i16, i8) {
    (batch.delivery_count, batch.delivery_state)
}

/// The states of all records from `start` on (-1: of all), each with its latest state, equal neighbours as one range.
pub(super) fn combine(batches: impl IntoIterator<Item = StateBatch>, start: i64) -> Vec<StateBatch> {
    let mut ranges: Vec<StateBatch> = batches.into_iter().filter_map(|batch| from(batch, start)).collect();
    ranges.sort_by_key(|batch| batch.first_offset);
    let mut combined: Vec<StateBatch> = Vec::with_capacity(ranges.len());
    // What the ranges so far say about offsets beyond the last combined one: disjoint, by offset.
    let mut open: Vec<StateBatch> = Vec::new();
    for range in ranges {
        close_before(&mut open, range.first_offset, &mut combined);
        lay_over(&mut open, range);
    }
    close_before(&mut open, i64::MAX, &mut combined);
    combined
}

/// The part of a batch from the start offset on, up to the last offset that a record can have.
fn from(batch: StateBatch, start: i64) -> Option<StateBatch> {
    let first_offset = match start {
        -1 => batch.first_offset,
        _ => batch.first_offset.max(start),
    };
    let last_offset = batch.last_offset.min(LAST_OFFSET);
    (first_offset <= last_offset).then_some(StateBatch {
        first_offset,
        last_offset,
        ..batch
    })
}

/// Moves what is known below an offset to the combined ranges.
fn close_before(open: &mut Vec<StateBatch>, offset: i64, combined: &mut Vec<StateBatch>) {
    let mut rest = Vec::new();
    for batch in open.drain(..) {
        if batch.first_offset >= offset {
            rest.push(batch);
            continue;
        }
        let last_offset = batch.last_offset.min(offset.saturating_sub(1));
        if last_offset < batch.last_offset {
            rest.push(StateBatch {
                first_offset: offset,
                ..batch.clone()
            });
        }
        let closed = StateBatch { last_offset, ..batch };
        match combined.last_mut() {
            Some(last) if last.last_offset + 1 == closed.first_offset && order(last) == order(&closed) => {
                last.last_offset = closed.last_offset;
            }
            _ => combined.push(closed),
        }
    }
    *open = rest;
}

/// Adds a range to disjoint ones, none of which begins before it.
fn lay_over(open: &mut Vec<StateBatch>, range: StateBatch) {
    let mut laid = Vec::with_capacity(open.len() + 2);
    let mut next = range.first_offset;
    let part = |first_offset, last_offset| StateBatch {
        first_offset,
        last_offset,
        ..range.clone()
    };
    for batch in open.drain(..) {
        if batch.first_offset > range.last_offset {
            if next <= range.last_offset {
                laid.push(part(next, range.last_offset));
                next = range.last_offset + 1;
            }
            laid.push(batch);
            continue;
        }
        if next < batch.first_offset {
            laid.push(part(next, batch.first_offset - 1));
        }
        let shared_last = batch.last_offset.min(range.last_offset);
        let later = match order(&range) > order(&batch) {
            true => &range,
            false => &batch,
        };
        laid.push(StateBatch {
            first_offset: batch.first_offset,
            last_offset: shared_last,
            ..later.clone()
        });
        if shared_last < batch.last_offset {
            laid.push(StateBatch {
                first_offset: shared_last + 1,
                ..batch
            });
        }
        next = shared_last + 1;
    }
    if next <= range.last_offset {
        laid.push(part(next, range.last_offset));
    }
    *open = laid;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn batch((first_offset, length, delivery_state, delivery_count): (i64, i64, i8, i16)) -> StateBatch {
        StateBatch {
            first_offset,
            last_offset: first_offset + length,
            delivery_state,
            delivery_count,
        }
    }

    proptest! {
        /// Each record has its latest state, and neighbours differ.
        #[test]
        fn each_record_has_its_latest_state(
            given in prop::collection::vec((0..40i64, 0..12i64, 0..5i8, 0..4i16), 0..12),
            start in prop_oneof![Just(-1), 0..30i64],
        ) {
            let batches: Vec<StateBatch> = given.into_iter().map(batch).collect();
            let mut expected: BTreeMap<i64, (i16, i8)> = BTreeMap::new();
            for batch in &batches {
                for offset in batch.first_offset.max(start)..=batch.last_offset {
                    let known = expected.entry(offset).or_insert(order(batch));
                    *known = (*known).max(order(batch));
                }
            }
            // A range that ends at the last offset of 64 bits is cut before it.
            let at_the_end = StateBatch { first_offset: i64::MAX - 1, last_offset: i64::MAX, ..batch((0, 0, 1, 1)) };
            let mut combined = combine(batches.into_iter().chain([at_the_end.clone(), at_the_end.clone()]), start);
            let last = combined.pop();
            prop_assert_eq!(last, Some(StateBatch { last_offset: i64::MAX - 1, ..at_the_end }));
            let each = combined.iter().flat_map(|b| (b.first_offset..=b.last_offset).map(|at| (at, order(b))));
            let found: Vec<_> = each.collect();
            prop_assert!(found.iter().is_sorted_by(|a, b| a.0 < b.0));
            prop_assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), expected);
            let mergeable = |pair: &[StateBatch]| {
                pair[0].last_offset + 1 == pair[1].first_offset && order(&pair[0]) == order(&pair[1])
            };
            prop_assert!(!combined.windows(2).any(mergeable));
        }
    }
}
