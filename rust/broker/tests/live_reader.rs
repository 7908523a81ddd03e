//! A broker that is open for reading follows what a live writer deletes: DeleteRecords, retention, a topic made anew.

use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use fletchlog_api::Transport as _;
use fletchlog_api::{ErrorCode, FetchRequest, ListOffsetsRequest, Request};
use fletchlog_broker::Broker;
use fletchlog_records::TopicPartition;
use proptest::prelude::*;

fn writer_with(dir: &Path, nodes: u32, partitions: i32) -> Arc<Broker> {
    let writer = Broker::open(dir, options(Some(nodes), false, &[]), VirtualClock::new()).unwrap();
    let config = [("segment.bytes", "300"), ("retention.ms", "-1")];
    let config = config.map(|(k, v)| (k.to_owned(), v.to_owned()));
    writer.create_topic("t", partitions, &config).unwrap();
    writer
}

/// (log start, high watermark) as described.
fn bounds(broker: &Broker, t: &TopicPartition) -> (i64, i64) {
    let topic = broker.describe_topic(&t.topic).unwrap();
    let found = topic.partitions.iter().find(|p| p.partition == t.partition).unwrap();
    (found.log_start_offset, found.high_watermark)
}

#[test]
fn every_way_to_ask_an_open_reader_follows_records_that_are_deleted() {
    for nodes in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer_with(dir.path(), nodes, 2);
        for t in [tp("t", 0), tp("t", 1)] {
            writer.append_batches(&t, batch(5, 10)).unwrap();
            let reader = open_read_only(dir.path()).unwrap();
            let never_used = open_read_only(dir.path()).unwrap();
            let mut client = Client::new(&reader);
            let node = reader.describe_topic("t").unwrap().partitions[usize::try_from(t.partition).unwrap()].leader;
            assert_eq!(bounds(&reader, &t), (0, 5));
            // What is deleted was appended after the reader's last look.
            writer.append_batches(&t, batch(4, 10)).unwrap();
            writer.delete_records(&t, Some(7)).unwrap();
            assert_eq!(
                client.list_offset(node, &t, ListOffsetsRequest::EARLIEST_TIMESTAMP).1,
                7
            );
            assert_eq!(client.list_offset(node, &t, ListOffsetsRequest::LATEST_TIMESTAMP).1, 9);
            for reader in [&reader, &never_used] {
                assert_eq!(bounds(reader, &t), (7, 9));
                assert_eq!(reader.partition_log(&t).unwrap().log_start_offset(), 7);
            }
            let refused = client.fetch(node, fetch_of(&[(&t, 6, 1000)]));
            assert_eq!(nth(&refused, 0).error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
            let taken = client.fetch(node, fetch_of(&[(&t, 7, 1000)]));
            assert_eq!(
                (nth(&taken, 0).error_code, nth(&taken, 0).log_start_offset),
                (ErrorCode::NONE, 7)
            );
        }
        writer.close().unwrap();
    }
}

#[test]
fn a_fetch_that_waits_is_answered_when_its_position_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let writer = writer_with(dir.path(), 1, 1);
    let t = tp("t", 0);
    writer.append_batches(&t, batch(5, 10)).unwrap();
    let reader = open_read_only(dir.path()).unwrap();
    let mut client = Client::new(&reader);
    let request = FetchRequest {
        max_wait_ms: 60_000,
        min_bytes: 1_000_000,
        ..fetch_of(&[(&t, 2, 1000)])
    };
    client.send(1, Request::Fetch(request));
    assert!(!client.transport.has_arrived(1));
    writer.delete_records(&t, Some(3)).unwrap();
    let answer = client.wait_fetch(1, 10_000).unwrap();
    assert_eq!(nth(&answer, 0).error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
}

#[test]
fn a_topic_that_is_made_anew_begins_at_0_for_an_open_reader() {
    let dir = tempfile::tempdir().unwrap();
    let writer = writer_with(dir.path(), 1, 1);
    let t = tp("t", 0);
    writer.append_batches(&t, batch(5, 10)).unwrap();
    writer.delete_records(&t, Some(4)).unwrap();
    let reader = open_read_only(dir.path()).unwrap();
    assert_eq!(bounds(&reader, &t), (4, 5));
    writer.delete_topic("t").unwrap();
    writer.create_topic("t", 1, &[]).unwrap();
    writer.append_batches(&t, batch(6, 10)).unwrap();
    assert_eq!(bounds(&reader, &t), (0, 6));
}

#[derive(Debug, Clone)]
enum Op {
    Append(usize),
    Delete(i64),
    Retention,
    Checkpoint,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..9usize).prop_map(Op::Append),
        4 => (0..5i64).prop_map(Op::Delete),
        1 => Just(Op::Retention),
        1 => Just(Op::Checkpoint),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    /// One looks after every operation: a checkpoint that is replaced twice within a tick of the clock, by one of the same
    /// length, is another one all the same. One looks at the end only.
    #[test]
    fn open_readers_see_the_bounds_of_the_writer(ops in prop::collection::vec(op(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer_with(dir.path(), 1, 1);
        let t = tp("t", 0);
        writer.append_batches(&t, batch(1, 10)).unwrap();
        let readers = [open_read_only(dir.path()).unwrap(), open_read_only(dir.path()).unwrap()];
        for reader in &readers {
            prop_assert_eq!(bounds(reader, &t), (0, 1));
        }
        for op in ops {
            let (start, end) = bounds(&writer, &t);
            match op {
                Op::Append(count) => drop(writer.append_batches(&t, batch(count, 10)).unwrap()),
                Op::Delete(part) => {
                    let before = start + (end - start) * part / 4;
                    prop_assert_eq!(writer.delete_records(&t, Some(before)).unwrap(), before);
                }
                Op::Retention => drop(writer.run_retention().unwrap()),
                Op::Checkpoint => writer.flush().unwrap(),
            }
            prop_assert_eq!(bounds(&readers[0], &t), bounds(&writer, &t));
        }
        prop_assert_eq!(bounds(&readers[1], &t), bounds(&writer, &t));
    }
}
