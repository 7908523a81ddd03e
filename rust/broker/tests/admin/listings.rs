use std::path::Path;
use std::sync::atomic::Ordering;

use fletchlog_api::ErrorCode;
use fletchlog_broker::{Outcome, TransactionFilter};
use fletchlog_protocol::messages::list_offsets_request::ListOffsetsPartition;
use fletchlog_records::TopicPartition;

use super::*;
use crate::common::held_disk::HeldFs;
use crate::common::*;
use crate::transactions::client::{Txn, broker};

#[test]
fn a_partition_lists_its_producers() {
    let (broker, clock) = broker(&[]);
    let t = tp("t", 0);
    assert_eq!(broker.describe_producers(1, &t).unwrap(), []);
    let mut txn = Txn::new(&broker, "a");
    txn.add(std::slice::from_ref(&t));
    txn.send(&t, "x").unwrap();
    txn.send(&t, "y").unwrap();
    let producers = broker.describe_producers(1, &t).unwrap();
    let [producer] = producers.as_slice() else {
        panic!("{producers:?}")
    };
    assert_eq!(
        (producer.producer_id, producer.producer_epoch),
        (txn.producer_id, txn.epoch)
    );
    assert_eq!((producer.last_sequence, producer.last_timestamp), (1, START));
    assert_eq!((producer.coordinator_epoch, producer.current_txn_start_offset), (-1, 0));
    txn.end(true);
    let after = broker.describe_producers(1, &t).unwrap()[0];
    assert_eq!((after.last_sequence, after.current_txn_start_offset), (1, -1));
    assert!(after.coordinator_epoch >= 0);
    assert_eq!(
        refused(broker.describe_producers(2, &t)).0,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    let unknown = refused(broker.describe_producers(1, &tp("t", 9)));
    assert_eq!(unknown.0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    // Nothing else is asked for meanwhile.
    clock.advance(86_400_000);
    assert_eq!(broker.describe_producers(1, &t).unwrap(), []);
}

#[test]
fn every_node_with_a_replica_lists_producers() {
    let broker = in_memory(3);
    broker.create_topic_with("t", &new(1, 2)).unwrap();
    let t = tp("t", 0);
    assert_eq!(broker.describe_producers(1, &t).unwrap(), []);
    assert_eq!(broker.describe_producers(2, &t).unwrap(), []);
    let (code, _) = refused(broker.describe_producers(3, &t));
    assert_eq!(code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
}

#[test]
fn transactions_are_found_by_state_producer_age_and_pattern() {
    let (broker, clock) = broker(&[]);
    let mut done = Txn::new(&broker, "shop-done");
    done.add(&[tp("t", 0)]);
    done.end(false);
    let mut open = Txn::new(&broker, "shop-open");
    open.add(&[tp("t", 1)]);
    Txn::new(&broker, "other");
    clock.advance(10_000);
    let list = |filter: TransactionFilter| -> Vec<String> {
        let listing = broker.list_transactions(1, &filter).unwrap();
        listing
            .transactions
            .iter()
            .map(|t| t.transactional_id.to_string())
            .collect()
    };
    let all = TransactionFilter::default;
    let states = |states: &[&str]| TransactionFilter {
        states: states.iter().map(|s| (*s).to_owned()).collect(),
        ..all()
    };
    assert_eq!(list(all()), ["other", "shop-done", "shop-open"]);
    assert_eq!(list(states(&["Ongoing", "CompleteAbort"])), ["shop-done", "shop-open"]);
    // Recorded: names of states are taken as they are written, and unknown ones come back.
    let lower = broker
        .list_transactions(1, &states(&["ongoing", "Dead", "Ongoing"]))
        .unwrap();
    assert_eq!(
        (lower.unknown_states, lower.transactions.len()),
        (vec!["ongoing".to_owned()], 1)
    );
    assert!(list(states(&["Bogus"])).is_empty());
    assert_eq!(
        list(TransactionFilter {
            producer_ids: vec![open.producer_id, 8_000_000],
            ..all()
        }),
        ["shop-open"]
    );
    assert_eq!(
        list(TransactionFilter {
            pattern: Some("shop-.*".to_owned()),
            ..all()
        }),
        ["shop-done", "shop-open"]
    );
    assert!(
        list(TransactionFilter {
            pattern: Some("shop".to_owned()),
            ..all()
        })
        .is_empty()
    );
    let bad = TransactionFilter {
        pattern: Some("(".to_owned()),
        ..all()
    };
    assert_eq!(
        refused(broker.list_transactions(1, &bad)).0,
        ErrorCode::INVALID_REGULAR_EXPRESSION
    );
    let older = |ms| TransactionFilter {
        duration_ms: Some(ms),
        states: vec!["Ongoing".to_owned()],
        ..all()
    };
    assert_eq!((list(older(9_999)).len(), list(older(10_000)).len()), (1, 0));
}

#[test]
fn a_transaction_is_described_by_its_coordinator() {
    let (broker, _) = broker(&[]);
    let mut txn = Txn::new(&broker, "a");
    txn.add(&[tp("t", 1), tp("t", 0)]);
    let described = broker.describe_transaction(1, "a").unwrap();
    assert_eq!((described.state, described.start_ms), ("Ongoing", START));
    assert_eq!(described.partitions, [tp("t", 0), tp("t", 1)]);
    let (code, _) = refused(broker.describe_transaction(1, "b"));
    assert_eq!(code, ErrorCode::TRANSACTIONAL_ID_NOT_FOUND);
}

#[test]
fn log_directories_report_the_size_of_their_partitions_opened_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path(), options(Some(2), false, &[]), VirtualClock::new()).unwrap();
    broker.create_topic("t", 3, &[]).unwrap();
    let records = batch(2, 10);
    let bytes = records.len() as u64;
    broker.append_batches(&tp("t", 1), records).unwrap();
    let check = |broker: &Broker| {
        let dirs = broker.describe_log_dirs().unwrap();
        assert_eq!(dirs.iter().map(|d| d.node).collect::<Vec<_>>(), [1, 2]);
        assert!(
            dirs.iter()
                .all(|d| d.path.is_dir() && d.total_bytes >= d.usable_bytes && d.usable_bytes > 0),
            "{dirs:?}"
        );
        assert_eq!(dirs[0].partitions, [(tp("t", 0), 0), (tp("t", 2), 0)]);
        assert_eq!(dirs[1].partitions, [(tp("t", 1), bytes)]);
    };
    check(&broker);
    broker.close().unwrap();
    check(&open(dir.path()).unwrap());
    let memory = in_memory(1).describe_log_dirs().unwrap();
    assert_eq!((memory[0].total_bytes, memory[0].usable_bytes), (-1, -1));
}

#[test]
fn records_are_deleted_up_to_the_end_and_not_from_the_brokers_own_topics() {
    let (broker, _) = broker(&[]);
    Txn::new(&broker, "a");
    broker.append_batches(&tp("t", 0), batch(6, 10)).unwrap();
    let delete = |topic, offset| broker.delete_records(&tp(topic, 0), offset);
    assert_eq!(delete("t", Some(3)).unwrap(), 3);
    assert_eq!(delete("t", Some(1)).unwrap(), 3);
    assert_eq!(refused(delete("t", Some(7))).0, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(refused(delete("t", Some(-2))).0, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(
        refused(delete("__transaction_state", Some(0))).0,
        ErrorCode::INVALID_TOPIC_EXCEPTION
    );
    assert_eq!(delete("t", None).unwrap(), 6);
}

/// Of many entries that a read-only broker does not know, not each one is looked for in the directory.
#[test]
fn a_request_to_a_read_only_broker_looks_once_at_the_directory() {
    let (fs, hold) = HeldFs::new();
    let open = |read_only: bool| {
        let options = options((!read_only).then_some(1), read_only, &[]);
        Broker::open_in(fs.clone(), Path::new("/data"), options, VirtualClock::new()).unwrap()
    };
    let (writer, reader) = (open(false), open(true));
    let port = reader.connect(1, "/127.0.0.1");
    let looks = |request: fletchlog_api::Request| {
        let before = hold.looks.load(Ordering::SeqCst);
        let Outcome::Now(response) = port.handle(request) else {
            panic!("no answer")
        };
        (hold.looks.load(Ordering::SeqCst) - before, response)
    };
    let topics = || Some((0..50).map(|at| format!("t{at}").into()).collect());
    let metadata = |topics| fletchlog_api::Request::Metadata(fletchlog_api::MetadataRequest::for_topics(topics, false));
    let partitions = (0..50).map(|partition_index| {
        let partition = ListOffsetsPartition {
            partition_index,
            timestamp: -1,
            ..Default::default()
        };
        ("t7".into(), partition)
    });
    let isolation_level = fletchlog_api::IsolationLevel::ReadUncommitted;
    let list = fletchlog_api::ListOffsetsRequest::for_consumer(isolation_level, partitions);
    assert_eq!(looks(fletchlog_api::Request::ListOffsets(list)).0, 1);
    writer.create_topic("t7", 1, &[]).unwrap();
    let (once, response) = looks(metadata(topics()));
    assert_eq!(once, 1);
    let fletchlog_api::Response::Metadata(response) = response else {
        panic!("{response:?}")
    };
    let known = response.topics.iter().filter(|t| t.error_code == ErrorCode::NONE);
    assert_eq!(known.map(|t| t.name.as_deref()).collect::<Vec<_>>(), [Some("t7")]);
}

/// What a request deletes in many partitions is in one write of the checkpoints.
#[test]
fn records_of_many_partitions_are_deleted_with_one_write_of_the_checkpoints() {
    let (fs, hold) = HeldFs::new();
    let open = || {
        let options = options(Some(1), false, &[("fletchlog.durability", "fsync")]);
        Broker::open_in(fs.clone(), Path::new("/data"), options, VirtualClock::new())
    };
    let broker = open().unwrap();
    broker.create_topic("t", 8, &[]).unwrap();
    let all: Vec<_> = (0..8).map(|p| tp("t", p)).collect();
    for tp in &all {
        broker.append_batches(tp, batch(6, 10)).unwrap();
    }
    let written = |wanted: &[(&TopicPartition, Option<i64>)]| {
        let before = hold.checkpoints.load(Ordering::SeqCst);
        let deleted = broker.delete_records_of(wanted).unwrap();
        let deleted: Vec<_> = deleted
            .into_iter()
            .map(|one| one.map_err(|error| error.code()))
            .collect();
        (hold.checkpoints.load(Ordering::SeqCst) - before, deleted)
    };
    assert_eq!(written(&[(&all[0], Some(2))]), (3, vec![Ok(2)]));
    let unknown = tp("u", 0);
    let mut wanted: Vec<_> = all.iter().map(|tp| (tp, Some(i64::from(tp.partition)))).collect();
    wanted.extend([(&unknown, None), (&all[1], None)]);
    let (of_all, deleted) = written(&wanted);
    assert_eq!(of_all, 3);
    assert_eq!(
        deleted,
        [
            Ok(2),
            Ok(1),
            Ok(2),
            Ok(3),
            Ok(4),
            Ok(5),
            Ok(6),
            Err(ErrorCode::OFFSET_OUT_OF_RANGE),
            Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            Ok(6)
        ]
    );
    assert_eq!(written(&[(&unknown, None)]).0, 0, "nothing to write");
    drop(broker); // as if killed
    let broker = open().unwrap();
    let start = |tp: &TopicPartition| broker.partition_log(tp).unwrap().log_start_offset();
    assert_eq!(all.iter().map(start).collect::<Vec<_>>(), [2, 6, 2, 3, 4, 5, 6, 0]);
}
