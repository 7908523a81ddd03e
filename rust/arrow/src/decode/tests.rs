use arrow_array::BinaryArray;
use bytes::Bytes;
use fletchlog_records::{BatchBuilder, BatchParams, RecordBatch};
use proptest::prelude::*;

use super::*;
use crate::schema::Column;

/// Records of one layout: how many, key and value of each. Their timestamps are `step` apart.
#[derive(Debug, Clone)]
struct Alike {
    count: usize,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    step: i64,
}

prop_compose! {
    fn alike()(
        count in 1usize..300,
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        value in proptest::option::weighted(0.9, proptest::collection::vec(any::<u8>(), 0..200)),
        step in -3i64..200,
    ) -> Alike {
        Alike { count, key, value, step }
    }
}

fn slice_of(runs: &[Alike], base_offset: i64) -> RecordsSlice {
    let mut builder = BatchBuilder::with_capacity(0);
    let mut timestamp = 1_700_000_000_000;
    for run in runs {
        for row in 0..run.count {
            // The same length, other bytes.
            let varied = |field: &Option<Vec<u8>>| {
                let mut field = field.clone()?;
                field.iter_mut().take(2).for_each(|byte| *byte = row.to_le_bytes()[0]);
                Some(field)
            };
            builder.append(
                timestamp,
                varied(&run.key).as_deref(),
                varied(&run.value).as_deref(),
                &[],
            );
            timestamp += run.step;
        }
    }
    let bytes: Bytes = builder.build(&BatchParams {
        base_offset,
        ..BatchParams::default()
    });
    RecordBatch::parse(&bytes).unwrap().unwrap().records(1 << 28).unwrap()
}

/// A row: offset, timestamp in microseconds, key, value.
type Row = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// What the plain decoder reads.
fn plainly(slice: &RecordsSlice, wanted: impl Fn(i64) -> bool) -> Vec<Row> {
    let mut cursor = RecordCursor::new();
    let mut rows = Vec::new();
    while let Some(record) = cursor.next(slice).unwrap() {
        if wanted(record.offset) {
            let bytes = |field: Option<&[u8]>| field.map(<[u8]>::to_vec);
            rows.push((
                record.offset,
                record.timestamp * 1000,
                bytes(record.key),
                bytes(record.value),
            ));
        }
    }
    rows
}

/// The rows of columns of which all are asked for.
fn rows_of(mut columns: Columns, pools: &Pools) -> Vec<Row> {
    let taken = columns.take(pools);
    let bytes = |column: &BinaryArray, row: usize| column.iter().nth(row).flatten().map(<[u8]>::to_vec);
    (0..taken.offsets.len())
        .map(|row| {
            let key = taken.key.as_ref().and_then(|key| bytes(key, row));
            (
                taken.offsets[row],
                taken.timestamps.value(row),
                key,
                bytes(&taken.value, row),
            )
        })
        .collect()
}

fn window(from_offset: i64, to_offset: i64, slice: &RecordsSlice) -> Window {
    Window {
        from_offset,
        to_offset,
        max_records: usize::MAX,
        times: TimeRange::ALL,
        end: slice.payload.len(),
    }
}

type Write = unsafe fn(&mut Heads, u8, &RecordsSlice, &Window, &Frame, usize, usize) -> usize;

/// The rows that `write` makes of the records from the first one on.
fn written(write: Write, slice: &RecordsSlice, window: &Window, most: usize) -> Vec<Row> {
    let payload = &slice.payload[..];
    let (first, end) = parse_record(payload, 0).unwrap();
    let Some(frame) = Frame::of(&payload[..end]) else {
        return Vec::new();
    };
    let pools = Pools::new();
    let mut columns = Columns::new(&Column::ALL);
    columns.reserve(&pools, most, payload.len(), SLACK);
    if first.key.is_some() {
        columns.begin_keys(0);
        columns.reserve_keys(&pools, most, payload.len(), SLACK);
    }
    let mut heads = Heads::new(&mut columns);
    // SAFETY: there is room for `most` rows and all bytes of the payload.
    unsafe {
        let rows = write(&mut heads, columns.asked, slice, window, &frame, 0, most);
        heads.close(&mut columns, rows);
    }
    rows_of(columns, &pools)
}

proptest! {
    /// Long enough for whole blocks, with deltas of one to three bytes.
    #[test]
    fn runs_of_one_layout_are_what_the_plain_decoder_reads(
        runs in proptest::collection::vec(alike(), 1..6),
        base_offset in prop_oneof![Just(0i64), 0..1i64 << 40],
        (from, to) in (0i64..1500, 0i64..1500),
        whole in any::<bool>(),
    ) {
        let slice = slice_of(&runs, base_offset);
        let (from, to) = if whole { (i64::MIN, i64::MAX) } else { (base_offset + from, base_offset + to) };
        let (pools, mut columns) = (Pools::new(), Columns::new(&Column::ALL));
        let decoded = decode(&mut columns, &pools, &slice, &mut RecordCursor::new(), window(from, to, &slice));
        let expected = plainly(&slice, |offset| (from..to).contains(&offset));
        prop_assert_eq!(decoded.unwrap(), expected.len());
        prop_assert!(rows_of(columns, &pools) == expected);
    }

    /// Whichever instructions the processor has.
    #[test]
    fn wide_instructions_write_what_the_portable_loop_does(
        run in alike(),
        base_offset in 0..1i64 << 40,
        most in 1usize..400,
        to in 0i64..400,
    ) {
        let slice = slice_of(std::slice::from_ref(&run), base_offset);
        let window = window(base_offset, base_offset + to, &slice);
        let portable = written(Heads::write_alike_portable, &slice, &window, most);
        prop_assert!(portable == written(Heads::write_alike, &slice, &window, most));
        let mut expected = plainly(&slice, |offset| offset < base_offset + to);
        expected.truncate(most);
        prop_assert!(portable == expected[..portable.len()]);
        // Only deltas that take another byte end it early, or a kind that has no layout: one of seven bytes has none.
        let has_layout = run.value.is_some_and(|value| (1..=60).contains(&value.len()));
        prop_assert!(portable.len() >= expected.len().min(64) || run.step != 0 || !has_layout);
    }
}
