//! `fletchlog.fetch.order=timestamp`: a merge of the partitions that never reorders one of them.

use fletchlog_api::Clock;
use fletchlog_records::{BatchBuilder, BatchParams, RecordCursor};
use proptest::prelude::*;

use super::fake_broker::{FakeBroker, FakeLog};
use super::*;

/// (timestamp, partition, offset)
type Row = (i64, i32, i64);

const ORDER: (&str, &str) = ("fletchlog.fetch.order", "timestamp");

fn part(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn append(broker: &FakeBroker, partition: i32, timestamps: &[i64]) {
    let mut builder = BatchBuilder::with_capacity(1024);
    for timestamp in timestamps {
        builder.append(*timestamp, None, Some(b"0123456789"), &[]);
    }
    let batch = builder.build(&BatchParams::default());
    broker.state().logs.entry(part(partition)).or_default().append(&batch);
}

/// Partitions 0, 1, .. of "t" with these batches of timestamps.
fn log_of(partitions: &[Vec<Vec<i64>>]) -> FakeBroker {
    let broker = FakeBroker::default();
    for (partition, batches) in (0..).zip(partitions) {
        broker.state().logs.insert(part(partition), FakeLog::default());
        batches.iter().for_each(|batch| append(&broker, partition, batch));
    }
    broker
}

fn reader(broker: &FakeBroker, partitions: i32, properties: &[(&str, &str)]) -> Consumer {
    let mut c = consumer(broker, &[&[ORDER], properties].concat());
    c.assign(&(0..partitions).map(part).collect::<Vec<_>>()).unwrap();
    c
}

fn count_of(partitions: &[Vec<Vec<i64>>]) -> i32 {
    i32::try_from(partitions.len()).unwrap()
}

fn rows(records: &PolledRecords) -> Vec<Row> {
    let mut all = Vec::new();
    for run in records.row_order().into_iter().map(|i| &records.runs[i]) {
        for span in &run.spans {
            let mut cursor = RecordCursor::new();
            while let Some(record) = cursor.next(&span.slice).unwrap() {
                if (span.first_offset..=span.last_offset).contains(&record.offset) {
                    all.push((record.timestamp, run.tp.partition, record.offset));
                }
            }
        }
    }
    all
}

/// Polls until `wanted` records came.
fn read(c: &mut Consumer, wanted: usize) -> Vec<Row> {
    let mut all = Vec::new();
    for _ in 0..10 * wanted + 20 {
        if all.len() >= wanted {
            break;
        }
        all.extend(rows(&poll(c)));
    }
    all
}

/// What the rule says, record by record.
fn merged(partitions: &[Vec<Vec<i64>>]) -> (Vec<Row>, u64) {
    let flat: Vec<Vec<i64>> = partitions.iter().map(|batches| batches.concat()).collect();
    let mut next = vec![0; flat.len()];
    let (mut all, mut late, mut newest) = (Vec::new(), 0, i64::MIN);
    while let Some((timestamp, p)) = (0..flat.len()).filter_map(|p| Some((*flat[p].get(next[p])?, p))).min() {
        late += u64::from(timestamp < newest);
        newest = newest.max(timestamp);
        all.push((timestamp, i32::try_from(p).unwrap(), i64::try_from(next[p]).unwrap()));
        next[p] += 1;
    }
    (all, late)
}

/// Up to four partitions of up to six batches; in order if `sorted`.
fn partitions(sorted: bool) -> impl Strategy<Value = Vec<Vec<Vec<i64>>>> {
    let batch = prop::collection::vec(0i64..40, 1..6);
    prop::collection::vec(prop::collection::vec(batch, 0..6), 1..5).prop_map(move |mut partitions| {
        for batches in partitions.iter_mut().filter(|_| sorted) {
            let mut all = batches.concat();
            all.sort_unstable();
            let mut all = all.into_iter();
            for batch in batches {
                let len = batch.len();
                *batch = all.by_ref().take(len).collect();
            }
        }
        partitions
    })
}

proptest! {
    #[test]
    fn partitions_in_order_are_merged_as_by_a_stable_sort(
        partitions in partitions(true), bytes in 1u32..400, most in 1u32..20, nodes in 1i32..4
    ) {
        let broker = log_of(&partitions);
        for p in 0..count_of(&partitions) {
            broker.state().leaders.insert(part(p), 1 + p % nodes);
        }
        let (bytes, most) = (bytes.to_string(), most.to_string());
        let limits = [("max.partition.fetch.bytes", bytes.as_str()), ("max.poll.records", most.as_str())];
        let mut c = reader(&broker, count_of(&partitions), &limits);
        let mut expected: Vec<Row> = merged(&partitions).0;
        prop_assert_eq!(read(&mut c, expected.len()), expected.clone());
        expected.sort_unstable();
        prop_assert_eq!(merged(&partitions).0, expected);
        prop_assert_eq!(c.late_records(), 0);
    }

    #[test]
    fn offset_order_always_holds_and_late_records_are_counted(
        partitions in partitions(false), bytes in 1u32..400, most in 1u32..20
    ) {
        let broker = log_of(&partitions);
        let (bytes, most) = (bytes.to_string(), most.to_string());
        let limits = [("max.partition.fetch.bytes", bytes.as_str()), ("max.poll.records", most.as_str())];
        let mut c = reader(&broker, count_of(&partitions), &limits);
        let (expected, late) = merged(&partitions);
        let got = read(&mut c, expected.len());
        for p in 0..count_of(&partitions) {
            let offsets: Vec<i64> = got.iter().filter(|row| row.1 == p).map(|row| row.2).collect();
            prop_assert!(offsets.iter().copied().eq((0..).take(offsets.len())), "{:?}", offsets);
        }
        prop_assert_eq!(got, expected);
        prop_assert_eq!(c.late_records(), late);
    }

    #[test]
    fn a_restart_at_any_point_loses_and_repeats_nothing(
        partitions in partitions(false), most in 1u32..8, polls in prop::collection::vec(1usize..5, 0..6)
    ) {
        let broker = log_of(&partitions);
        let most = most.to_string();
        let limits = [("max.partition.fetch.bytes", "150"), ("max.poll.records", most.as_str())];
        let count = count_of(&partitions);
        let mut all = Vec::new();
        let mut c = reader(&broker, count, &limits);
        for polls in polls {
            for _ in 0..polls {
                all.extend(rows(&poll(&mut c)));
            }
            let positions: Vec<i64> = (0..count).map(|p| c.position(&part(p), 1000, &mut || false).unwrap()).collect();
            c = reader(&broker, count, &limits);
            for (p, position) in (0..count).zip(positions) {
                c.seek(&part(p), position).unwrap();
            }
        }
        let expected = merged(&partitions).0;
        let left = expected.len() - all.len();
        all.extend(read(&mut c, left));
        prop_assert_eq!(all, expected);
    }
}

#[test]
fn ties_go_by_topic_then_partition() {
    let broker = log_of(&[vec![vec![5, 7]], vec![vec![5, 5, 7]]]);
    broker
        .state()
        .logs
        .insert(TopicPartition::new("a", 3), FakeLog::default());
    let log = FakeLog::default();
    broker.state().logs.insert(TopicPartition::new("a", 4), log);
    let mut builder = BatchBuilder::with_capacity(64);
    builder.append(5, None, None, &[]);
    let batch = builder.build(&BatchParams::default());
    broker
        .state()
        .logs
        .get_mut(&TopicPartition::new("a", 4))
        .unwrap()
        .append(&batch);
    let mut c = consumer(&broker, &[ORDER]);
    c.assign(&[
        part(1),
        part(0),
        TopicPartition::new("a", 4),
        TopicPartition::new("a", 3),
    ])
    .unwrap();
    assert_eq!(
        read(&mut c, 6),
        [(5, 4, 0), (5, 0, 0), (5, 1, 0), (5, 1, 1), (7, 0, 1), (7, 1, 2)]
    );
}

#[test]
fn a_partition_at_its_end_does_not_delay_the_others_by_default() {
    let broker = log_of(&[vec![vec![1; 20]; 50], vec![]]);
    let mut c = reader(
        &broker,
        2,
        &[("max.partition.fetch.bytes", "500"), ("max.poll.records", "7")],
    );
    let began = broker.clock.monotonic_ms();
    assert_eq!(read(&mut c, 1000).len(), 1000);
    // a fetch of the empty partition alone would be held back for fetch.max.wait.ms, 20 here, after every answer
    assert!(
        broker.clock.monotonic_ms() - began < 60,
        "{}",
        broker.clock.monotonic_ms() - began
    );
}

#[test]
fn a_partition_at_its_end_is_waited_for_as_long_as_max_idle_says() {
    let broker = log_of(&[vec![vec![10, 11]], vec![vec![10]]]);
    let mut c = reader(&broker, 2, &[("fletchlog.timestamp.max.idle.ms", "5000")]);
    assert_eq!(rows(&poll(&mut c)), [(10, 0, 0), (10, 1, 0)]);
    let began = broker.clock.monotonic_ms();
    assert_eq!(rows(&c.poll(1000, &mut || false).unwrap()), []);
    append(&broker, 1, &[10]);
    assert_eq!(rows(&poll(&mut c)), [(10, 1, 1)]);
    assert_eq!(rows(&c.poll(60_000, &mut || false).unwrap()), [(11, 0, 1)]);
    let waited = broker.clock.monotonic_ms() - began;
    assert!((5000..7000).contains(&waited), "{waited}");
    assert_eq!(c.late_records(), 0);
    // late from here on: not held back
    append(&broker, 1, &[3]);
    append(&broker, 0, &[4, 12]);
    let began = broker.clock.monotonic_ms();
    assert_eq!(read(&mut c, 2), [(3, 1, 2), (4, 0, 2)]);
    assert!(broker.clock.monotonic_ms() - began < 2000);
    assert_eq!(c.late_records(), 2);
}

#[test]
fn a_record_waits_for_a_partition_at_its_end_only_within_max_lateness() {
    let broker = log_of(&[vec![vec![10, 12], vec![14, 15, 20]], vec![]]);
    let idle = ("fletchlog.timestamp.max.idle.ms", "9223372036854775807");
    let mut c = reader(&broker, 2, &[idle, ("fletchlog.timestamp.max.lateness.ms", "6")]);
    assert_eq!(rows(&poll(&mut c)), [(10, 0, 0), (12, 0, 1), (14, 0, 2)]);
    assert_eq!(rows(&poll(&mut c)), []);
    append(&broker, 1, &[13, 16]);
    assert_eq!(read(&mut c, 3), [(13, 1, 0), (15, 0, 3), (16, 1, 1)]);
    assert_eq!(c.late_records(), 1);
}

#[test]
fn paused_partitions_are_neither_handed_out_nor_waited_for() {
    let broker = log_of(&[vec![vec![1, 4]], vec![vec![2, 3]], vec![]]);
    let mut c = reader(
        &broker,
        3,
        &[("max.poll.records", "1"), ("fletchlog.timestamp.max.idle.ms", "100000")],
    );
    c.pause(&[part(2)]).unwrap();
    assert_eq!(read(&mut c, 1), [(1, 0, 0)]);
    c.pause(&[part(1)]).unwrap();
    assert_eq!(read(&mut c, 1), [(4, 0, 1)]);
    c.resume(&[part(1)]).unwrap();
    assert_eq!(read(&mut c, 2), [(2, 1, 0), (3, 1, 1)]);
    assert_eq!(c.late_records(), 2);
}

#[test]
fn a_seek_begins_a_new_order() {
    let broker = log_of(&[vec![vec![1, 2, 3]], vec![vec![2, 5]]]);
    let mut c = reader(&broker, 2, &[]);
    assert_eq!(read(&mut c, 5).len(), 5);
    c.seek(&part(0), 1).unwrap();
    c.seek(&part(1), 0).unwrap();
    assert_eq!(read(&mut c, 4), [(2, 0, 1), (2, 1, 0), (3, 0, 2), (5, 1, 1)]);
    assert_eq!(c.late_records(), 0);
}

#[test]
fn a_seek_between_polls_drops_what_was_buffered_at_the_old_position() {
    let broker = log_of(&[vec![vec![1, 2, 3]], vec![vec![2, 5]]]);
    let mut c = reader(&broker, 2, &[("max.poll.records", "1")]);
    assert_eq!(read(&mut c, 1), [(1, 0, 0)]);
    c.seek(&part(0), 0).unwrap();
    assert_eq!(read(&mut c, 5), [(1, 0, 0), (2, 0, 1), (2, 1, 0), (3, 0, 2), (5, 1, 1)]);
}

#[test]
fn the_trace_names_late_records() {
    let broker = log_of(&[vec![vec![7, 1, 2]]]);
    let mut c = reader(&broker, 1, &[("fletchlog.trace", "true")]);
    read(&mut c, 3);
    let late: Vec<_> = c.trace().iter().filter(|e| e.kind == TraceKind::Late).collect();
    assert_eq!(late.iter().map(|e| e.records).sum::<i64>(), 2);
    assert_eq!(late[0].tp, Some(part(0)));
}
