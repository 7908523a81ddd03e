use bytes::BytesMut;
use fletchlog_records::control::{ControlType, EndTxnMarker, build_marker};
use fletchlog_records::{BatchBuilder, BatchParams, Compression};

use super::super::share_in_flight_batch::ShareFetch;
use super::*;
use AcknowledgeType::{Gap, Reject, Release};

/// A batch of records with these offsets.
fn batch(base: i64, offsets: &[i64], compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(64);
    for offset in offsets {
        builder.append_at(i32::try_from(offset - base).unwrap(), 0, None, Some(b"value"), &[]);
    }
    builder.build(&BatchParams {
        base_offset: base,
        compression,
        ..Default::default()
    })
}

fn marker(offset: i64) -> Bytes {
    let marker = EndTxnMarker {
        control_type: ControlType::Commit,
        coordinator_epoch: 0,
    };
    build_marker(offset, 1, 0, 0, 0, marker)
}

fn joined(parts: &[Bytes]) -> Bytes {
    let mut all = BytesMut::new();
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all.freeze()
}

type Runs = Vec<(Vec<(i64, i64)>, i16)>;
type Others = Vec<(i64, i64, AcknowledgeType)>;

/// The spans and delivery count of each run, what is acknowledged at once, and whether there was an error.
fn read(records: Bytes, acquired: &[(i64, i64, i16)]) -> (Runs, Others, bool) {
    let acquired = acquired.iter().map(|&(first, last, delivery_count)| Acquired {
        first,
        last,
        delivery_count,
    });
    let fetch = ShareCompletedFetch {
        tip: TopicIdPartition {
            topic_id: [7; 16],
            tp: TopicPartition::new("t", 0),
        },
        node: 1,
        records,
        acquired: acquired.collect(),
    };
    let (batch, failure) = fetch.into_batch(Reading {
        check_crcs: true,
        decompression_limit: 1 << 20,
    });
    let spans = |run: &PartitionRun| {
        let spans = run.spans.iter().map(|span| (span.first_offset, span.last_offset));
        (spans.collect(), run.delivery_count.unwrap())
    };
    let runs = batch.runs.iter().map(spans).collect();
    let mut fetch = ShareFetch::default();
    fetch.add(batch);
    let mut others = Vec::new();
    for of in fetch.take_acknowledged() {
        others.extend(of.acknowledgements.iter());
    }
    (runs, others, failure.is_some())
}

#[test]
fn only_acquired_records_of_the_batches_are_returned() {
    let log = joined(&[
        batch(0, &[0, 1, 2, 3], Compression::None),
        batch(4, &[4, 5, 6, 7], Compression::Gzip),
    ]);
    let whole = read(log.clone(), &[(0, 7, 1)]);
    assert_eq!(whole, (vec![(vec![(0, 3), (4, 7)], 1)], vec![], false));
    let parts = read(log.clone(), &[(1, 1, 2), (3, 4, 2), (6, 7, 1)]);
    let expected = vec![(vec![(1, 1), (3, 3), (4, 4)], 2), (vec![(6, 7)], 1)];
    assert_eq!(parts, (expected, vec![], false), "a run for each delivery count");
    let empty = read(log, &[(0, -1, 1), (2, 2, 5)]);
    assert_eq!(
        empty,
        (vec![(vec![(2, 2)], 5)], vec![], false),
        "an empty range in front (BatchSize 0)"
    );
}

#[test]
fn offsets_without_a_record_are_gaps() {
    let log = joined(&[
        batch(0, &[0, 2, 3, 6], Compression::None),
        marker(7),
        batch(10, &[10], Compression::None),
    ]);
    let (runs, others, failed) = read(log, &[(0, 10, 1)]);
    assert_eq!(runs, [(vec![(0, 0), (2, 3), (6, 6), (10, 10)], 1)]);
    assert_eq!((others, failed), (vec![(1, 1, Gap), (4, 5, Gap), (7, 9, Gap)], false));
}

#[test]
fn a_damaged_batch_is_rejected_and_the_others_are_returned() {
    let mut damaged = batch(2, &[2, 3], Compression::None).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let log = joined(&[
        batch(0, &[0, 1], Compression::None),
        damaged.into(),
        batch(4, &[4], Compression::None),
    ]);
    let (runs, others, failed) = read(log, &[(0, 4, 1)]);
    assert_eq!(runs, [(vec![(0, 1), (4, 4)], 1)]);
    assert_eq!((others, failed), (vec![(2, 3, Reject)], true));
}

#[test]
fn records_that_were_not_sent_are_released() {
    let second = batch(2, &[2, 3], Compression::None);
    let cut = second.slice(..second.len() - 1);
    let log = joined(&[batch(0, &[0, 1], Compression::None), cut]);
    assert_eq!(
        read(log, &[(0, 3, 1)]),
        (vec![(vec![(0, 1)], 1)], vec![(2, 3, Release)], false)
    );
    assert_eq!(read(Bytes::new(), &[(0, 3, 1)]), (vec![], vec![(0, 3, Release)], false));
}
