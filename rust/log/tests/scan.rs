//! A scan shows what the log holds: any range, batch sizes, order and isolation level, over compacted logs and aborted transactions;
//! a damaged batch ends it with an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::common::compacted::clean;
use crate::common::*;
use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_log::scan::{Scan, ScanError, ScanOrder, ScanRange};
use fletchlog_log::{AppendOrigin, FetchBound, LogConfig, PartitionLog};
use fletchlog_records::{BatchBuilder, BatchParams, Compression, TimeRange, TopicPartition};
use proptest::prelude::*;

/// Partition, offset, timestamp, value.
type Row = (i32, i64, i64, Vec<u8>);

/// What a scan shows whose reader takes at most `max` records at a time, and the error that ended it.
fn read(scan: &mut Scan, max: usize) -> (Vec<Row>, Option<ScanError>) {
    let mut rows = Vec::new();
    loop {
        let batch = match scan.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => return (rows, None),
            Err(error) => return (rows, Some(error)),
        };
        let mut left = batch.in_turn(max).unwrap();
        assert!(left > 0, "a batch that is shown has a record in turn");
        while left > 0
            && let Some(record) = batch.cursor.next(batch.slice).unwrap()
        {
            if record.offset >= batch.end {
                break;
            }
            if record.offset >= batch.start {
                let value = record.value.unwrap().to_vec();
                rows.push((batch.tp.partition, record.offset, record.timestamp, value));
                left -= 1;
            }
        }
    }
}

fn count(scan: &mut Scan) -> Result<u64, ScanError> {
    let mut rows = 0;
    while let Some(count) = scan.next_count()? {
        rows += count;
    }
    Ok(rows)
}

fn scan(
    logs: &[Arc<PartitionLog>],
    range: (Option<i64>, Option<i64>),
    bound: FetchBound,
    order: ScanOrder,
) -> Result<Scan, ScanError> {
    let resolve = |log: &Arc<PartitionLog>| ScanRange::resolve(Arc::clone(log), range.0, range.1, bound);
    let ranges: Vec<_> = logs.iter().map(resolve).collect::<Result<_, _>>()?;
    Ok(Scan::new(&ranges, bound, order))
}

fn rows_of(partition: i32, log: &PartitionLog) -> Vec<Row> {
    read_all(log, FetchBound::HighWatermark, 1 << 20)
        .into_iter()
        .map(|(offset, timestamp, value)| (partition, offset, timestamp, value))
        .collect()
}

/// The rule of a scan by timestamp, one record at a time.
fn merged(mut partitions: Vec<Vec<Row>>) -> Vec<Row> {
    partitions.iter_mut().for_each(|rows| rows.reverse());
    let mut rows = Vec::new();
    while let Some(next) = (0..partitions.len())
        .filter(|place| !partitions[*place].is_empty())
        .min_by_key(|place| (partitions[*place].last().unwrap().2, *place))
    {
        rows.extend(partitions[next].pop());
    }
    rows
}

/// A log and what the test knows of its transactions.
struct Written {
    log: Arc<PartitionLog>,
    sequences: BTreeMap<i64, i32>,
    /// Offsets of the open transaction of a producer.
    open: BTreeMap<i64, Vec<i64>>,
    aborted: BTreeSet<i64>,
}

#[derive(Debug, Clone)]
enum Op {
    /// Producer 0 writes outside of transactions.
    Append {
        partition: usize,
        producer: i64,
        times: Vec<i64>,
        codec: u8,
    },
    End {
        partition: usize,
        producer: i64,
        commit: bool,
    },
    Clean {
        partition: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let times = prop::collection::vec(0..40i64, 1..6);
    prop_oneof![
        8 => (0..3usize, 0..3i64, times, 0..5u8)
            .prop_map(|(partition, producer, times, codec)| Op::Append { partition, producer, times, codec }),
        3 => (0..3usize, 1..3i64, any::<bool>()).prop_map(|(partition, producer, commit)| Op::End { partition, producer, commit }),
        1 => (0..3usize).prop_map(|partition| Op::Clean { partition }),
    ]
}

impl Written {
    fn open(fs: &Arc<dyn Fs>, partition: i32) -> Self {
        let config = LogConfig {
            cleanup_compact: true,
            cleanup_delete: false,
            ..small_segments(500)
        };
        let dir = format!("/data/t-{partition}");
        let tp = TopicPartition::new("t", partition);
        let log = PartitionLog::open(Arc::clone(fs), Path::new(&dir), tp, config, CLEAN, NOW).unwrap();
        Self {
            log: Arc::new(log),
            sequences: BTreeMap::new(),
            open: BTreeMap::new(),
            aborted: BTreeSet::new(),
        }
    }

    fn append(&mut self, producer: i64, times: &[i64], codec: u8) {
        let sequence = self.sequences.entry(producer).or_default();
        let end = self.log.log_end_offset();
        let mut builder = BatchBuilder::with_capacity(256);
        for (time, offset) in times.iter().zip(end..) {
            let key = format!("k{}", time % 7);
            builder.append(*time, Some(key.as_bytes()), Some(format!("v{offset}").as_bytes()), &[]);
        }
        let mut params = BatchParams {
            compression: Compression::from_id(codec).unwrap(),
            ..BatchParams::default()
        };
        if producer > 0 {
            params.producer_id = producer;
            params.producer_epoch = 0;
            params.base_sequence = *sequence;
            params.transactional = true;
            self.open
                .entry(producer)
                .or_default()
                .extend(end..end + times.len() as i64);
        }
        *sequence += times.len() as i32;
        append(&self.log, builder.build(&params));
    }

    fn end(&mut self, producer: i64, commit: bool) {
        let Some(offsets) = self.open.remove(&producer) else {
            return;
        };
        self.log
            .append_as_leader(marker(producer, 0, commit), 0, AppendOrigin::Coordinator, NOW)
            .unwrap();
        if !commit {
            self.aborted.extend(offsets);
        }
    }

    /// What a reader of this level gets of the range.
    fn visible(&self, partition: i32, range: (Option<i64>, Option<i64>), bound: FetchBound) -> Vec<Row> {
        let first_open = self.open.values().filter_map(|offsets| offsets.first()).min();
        let committed = bound == FetchBound::LastStableOffset;
        let is_visible = |offset: &i64| {
            !committed || (!self.aborted.contains(offset) && first_open.is_none_or(|first| offset < first))
        };
        let mut rows = rows_of(partition, &self.log);
        rows.retain(|(_, offset, ..)| {
            range.0.is_none_or(|start| *offset >= start)
                && range.1.is_none_or(|end| *offset < end)
                && is_visible(offset)
        });
        rows
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_scan_shows_what_the_log_holds(
        ops in prop::collection::vec(op(), 1..60),
        ends in (prop::option::of(0..80i64), prop::option::of(0..80i64)),
        max in 1..12usize,
        times in (prop::option::of(-2..42i64), prop::option::of(-2..42i64)),
        part_bytes in prop::sample::select(vec![1u64, 100, 400, 2_000, 1 << 30]),
    ) {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_clock(Arc::new(|| NOW)));
        fs.create_dir_all(Path::new("/data")).unwrap();
        let mut partitions: Vec<_> = (0..3).map(|partition| Written::open(&fs, partition)).collect();
        for op in ops {
            match op {
                Op::Append { partition, producer, times, codec } => partitions[partition].append(producer, &times, codec),
                Op::End { partition, producer, commit } => partitions[partition].end(producer, commit),
                Op::Clean { partition } => drop(clean(&partitions[partition].log)),
            }
        }
        let range = match ends {
            (Some(start), Some(end)) => (Some(start.min(end)), Some(start.max(end))),
            ends => ends,
        };
        let logs: Vec<_> = partitions.iter().map(|partition| Arc::clone(&partition.log)).collect();
        let times = TimeRange::new(times.0, times.1);
        for bound in [FetchBound::HighWatermark, FetchBound::LastStableOffset] {
            let expected: Vec<_> = (0..).zip(&partitions).map(|(i, written)| written.visible(i, range, bound)).collect();
            for order in [ScanOrder::Offset, ScanOrder::Timestamp] {
                let (rows, error) = read(&mut scan(&logs, range, bound, order).unwrap(), max);
                prop_assert!(error.is_none(), "{error:?}");
                let expected = match order {
                    ScanOrder::Offset => expected.concat(),
                    ScanOrder::Timestamp => merged(expected.clone()),
                };
                prop_assert_eq!(&rows, &expected, "{:?} {:?}", bound, order);
                if order == ScanOrder::Offset {
                    let counted = count(&mut scan(&logs, range, bound, order).unwrap());
                    prop_assert_eq!(counted.unwrap(), expected.len() as u64, "{:?}", bound);
                    let whole = logs.iter().map(|log| ScanRange::resolve(Arc::clone(log), range.0, range.1, bound).unwrap());
                    let parts: Vec<_> = whole.flat_map(|range| range.parts(part_bytes)).collect();
                    let by_parts = parts.into_iter().flat_map(|part| read(&mut Scan::new(&[part], bound, order), max).0);
                    prop_assert_eq!(by_parts.collect::<Vec<_>>(), expected.clone(), "in parts of {} bytes", part_bytes);
                }
                // Without what indexes and headers rule out, the same rows of the times come in the same order.
                let in_time = |mut rows: Vec<Row>| {
                    rows.retain(|(_, _, time, _)| times.contains(*time));
                    rows
                };
                let resolve = |log: &Arc<PartitionLog>| {
                    ScanRange::resolve(Arc::clone(log), range.0, range.1, bound).unwrap().from_time(times.first).unwrap()
                };
                let ranges: Vec<_> = logs.iter().map(resolve).collect();
                let (less, error) = read(&mut Scan::new(&ranges, bound, order).of_times(times), max);
                prop_assert!(error.is_none(), "{error:?}");
                prop_assert!(less.len() <= rows.len());
                prop_assert_eq!(in_time(less), in_time(expected), "{:?} {:?} {:?}", times, bound, order);
            }
        }
    }
}

/// Ten batches of three records, some of them in a segment of their own.
fn thirty() -> (Arc<dyn Fs>, Arc<PartitionLog>) {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, small_segments(300), CLEAN);
    for i in 0..10 {
        append(&log, batch(&[(NOW + i, b"a"), (NOW, b"b"), (NOW + 7, b"c")]));
    }
    (fs, Arc::new(log))
}

#[test]
fn a_range_that_cannot_be_read_is_refused() {
    let (_, log) = thirty();
    log.delete_records(Some(6)).unwrap();
    let resolve = |start, end| ScanRange::resolve(Arc::clone(&log), start, end, FetchBound::HighWatermark);
    let backwards = resolve(Some(9), Some(8)).unwrap_err();
    assert_eq!(
        backwards.to_string(),
        "start_offset is 9 and end_offset 8; a range does not end before it starts"
    );
    let gone = resolve(Some(5), None).unwrap_err().to_string();
    assert_eq!(gone, "offset 5 of t-0 is gone: the log starts at 6; scan from there");
    let range = resolve(None, None).unwrap();
    assert_eq!((range.start, range.end), (6, 30));
    let range = resolve(Some(40), None).unwrap();
    let (rows, error) = read(
        &mut Scan::new(&[range], FetchBound::HighWatermark, ScanOrder::Offset),
        1,
    );
    assert!(rows.is_empty() && error.is_none(), "nothing is there yet");
}

/// Offsets of what a scan of one log reads for a range of times: no batch of them is left out.
fn read_for_times(log: &Arc<PartitionLog>, times: TimeRange) -> Vec<i64> {
    let range = ScanRange::resolve(Arc::clone(log), None, None, FetchBound::HighWatermark).unwrap();
    let range = range.from_time(times.first).unwrap();
    let scan = Scan::new(&[range], FetchBound::HighWatermark, ScanOrder::Offset);
    let (rows, error) = read(&mut scan.of_times(times), 100);
    assert!(error.is_none(), "{error:?}");
    rows.iter().map(|(_, offset, ..)| *offset).collect()
}

#[test]
fn a_range_of_times_reads_only_the_batches_that_can_have_some() {
    let (fs, dir) = memory();
    let log = Arc::new(open(&fs, &dir, small_segments(300), CLEAN));
    for time in [10, 20, 30, 5, 40, 50] {
        append(&log, batch(&[(time, b"a"), (time - 4, b"b"), (time + 4, b"c")]));
    }
    let all: Vec<i64> = (0..18).collect();
    let read = |start, end| read_for_times(&log, TimeRange::new(start, end));
    assert_eq!(read(None, None), all);
    assert_eq!(read(Some(-1), None), all, "records without a timestamp have -1");
    // The first record that is not older is the last of a batch: what is before it is not read.
    assert_eq!(read(Some(23), None), [5, 6, 7, 8, 12, 13, 14, 15, 16, 17]);
    assert_eq!(read(Some(55), None), Vec::<i64>::new());
    // The least timestamp of a batch is in no header.
    assert_eq!(read(None, Some(7)), all);
    // A log start behind the greatest timestamp of its segment hides those of later segments from Kafka's lookup.
    let (fs, dir) = memory();
    let log = Arc::new(open(&fs, &dir, small_segments(300), CLEAN));
    for time in [90, 20, 30, 40, 90, 50] {
        append(&log, batch(&[(time, b"a"), (time, b"b"), (time, b"c")]));
    }
    log.delete_records(Some(3)).unwrap();
    let found = log.fetch_offset_by_timestamp(60, FetchBound::HighWatermark).unwrap();
    assert_eq!(found.offset, -1, "the segments are as the test wants them");
    assert_eq!(read_for_times(&log, TimeRange::new(Some(60), None)), [12, 13, 14]);
}

#[test]
fn what_is_before_a_damaged_batch_is_shown_and_nothing_behind_it() {
    let (fs, log) = thirty();
    let path = Path::new("/data/t-0/00000000000000000000.log");
    let mut bytes = fs.read(path).unwrap();
    let size = bytes.len() / 3;
    bytes[size + size / 2] ^= 1; // in the second batch of three
    fs.replace(path, &bytes).unwrap();
    let log = {
        drop(log);
        Arc::new(open(&fs, Path::new("/data/t-0"), small_segments(300), READ_ONLY))
    };
    let whole = (None, None);
    for order in [ScanOrder::Offset, ScanOrder::Timestamp] {
        let mut scan = scan(&[Arc::clone(&log)], whole, FetchBound::HighWatermark, order).unwrap();
        let (rows, error) = read(&mut scan, 2);
        let offsets: Vec<_> = rows.iter().map(|(_, offset, ..)| *offset).collect();
        assert_eq!(offsets, [0, 1, 2]);
        let text = error.unwrap().to_string();
        assert!(text.starts_with("t-0 at offset 3: ") && text.contains("CRC"), "{text}");
        let (rows, again) = read(&mut scan, 2);
        assert!(rows.is_empty(), "{rows:?}");
        assert_eq!(again.unwrap().to_string(), text);
    }
    let mut scan = scan(&[log], whole, FetchBound::HighWatermark, ScanOrder::Offset).unwrap();
    assert_eq!(scan.next_count().unwrap(), Some(3));
    let text = scan.next_count().unwrap_err().to_string();
    assert!(text.starts_with("t-0 at offset 3: ") && text.contains("CRC"), "{text}");
    assert_eq!(scan.next_count().unwrap_err().to_string(), text);
}

/// What the parts of a range show, read one after the other, and the errors that ended them.
fn read_parts(range: &ScanRange) -> (Vec<Row>, Vec<ScanError>) {
    let parts = range.parts(200);
    assert_eq!(parts.first().map(|part| part.start), Some(range.start));
    let read = |part: ScanRange| {
        read(
            &mut Scan::new(&[part], FetchBound::HighWatermark, ScanOrder::Offset),
            100,
        )
    };
    let (rows, errors): (Vec<_>, Vec<_>) = parts.into_iter().map(read).unzip();
    (rows.concat(), errors.into_iter().flatten().collect())
}

#[test]
fn parts_of_a_range_of_which_records_are_gone_are_no_smaller_than_the_range() {
    for (deleted, left) in [(9, 18), (27, 0), (30, 0)] {
        let (_, log) = thirty();
        let range = ScanRange::resolve(Arc::clone(&log), None, Some(27), FetchBound::HighWatermark).unwrap();
        log.roll(NOW).unwrap();
        log.delete_records(Some(deleted)).unwrap();
        log.delete_old_segments(NOW).unwrap();
        let (rows, errors) = read_parts(&range);
        assert!(rows.len() <= left, "{} of {left}", rows.len());
        let first = errors.first().map(ToString::to_string);
        let expected = format!("t-0 at offset 0: offset 0 is outside {deleted}..=30 of t-0");
        assert_eq!(first, Some(expected), "from {deleted} on");
    }
}

#[test]
fn a_log_that_got_shorter_ends_a_scan_with_an_error() {
    let (fs, log) = thirty();
    let dir = Path::new("/data/t-0");
    let beside = Arc::new(open(&fs, dir, small_segments(300), READ_ONLY));
    let range = ScanRange::resolve(Arc::clone(&beside), Some(24), None, FetchBound::HighWatermark).unwrap();
    drop(log);
    // The writer lost its last batches in a power loss, and appends others.
    let last = fs.open(&dir.join("00000000000000000027.log"), false, true).unwrap();
    last.set_len(0).unwrap();
    let log = open(&fs, dir, small_segments(300), UNCLEAN);
    assert_eq!(log.log_end_offset(), 27);
    append(&log, batch(&[(NOW, b"d")]));
    beside.refresh(0).unwrap();
    assert_eq!(beside.log_end_offset(), 28);
    let (rows, error) = read(
        &mut Scan::new(&[range], FetchBound::HighWatermark, ScanOrder::Offset),
        100,
    );
    assert_eq!(rows.len(), 4, "{rows:?}");
    let text = error.unwrap().to_string();
    assert_eq!(text, "t-0 at offset 28: offset 29 is outside 0..=28 of t-0");
}
