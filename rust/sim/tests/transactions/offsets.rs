//! Offsets in transactions: consume, transform, produce, each record once.

use fletchlog_api::OffsetAndMetadata;
use fletchlog_client::producer::ConsumerGroupMetadata;
use fletchlog_client::{ClientError, Consumer};
use fletchlog_records::TopicPartition;

use super::{Cluster, code, tp, values};
use fletchlog_sim::stepped::{decide, never};

pub(super) fn next(offset: i64) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "".into(),
    }
}

pub(super) fn group(id: &str) -> ConsumerGroupMetadata {
    ConsumerGroupMetadata {
        group_id: id.into(),
        generation_id: -1,
        member_id: "".into(),
        group_instance_id: None,
    }
}

fn committed(consumer: &mut Consumer) -> Option<i64> {
    let answer = consumer.committed(&[tp(0)], 1000, &mut || false).unwrap();
    answer[0].1.as_ref().map(|o| o.offset)
}

#[test]
fn offsets_take_effect_with_the_commit() {
    let cluster = Cluster::new();
    let mut consumer = cluster.consumer("read_committed", &[("group.id", "g")]);
    consumer.assign(&[tp(0)]).unwrap();
    let bench = cluster.ready("id", &[], &[]);
    for (committed_txn, offset, expected) in [(false, 5, None), (true, 7, Some(7)), (false, 9, Some(7))] {
        bench.producer.begin_transaction().unwrap();
        bench
            .producer
            .send_offsets_to_transaction(&[(tp(0), next(offset))], &group("g"), &mut never)
            .unwrap();
        decide(&bench.producer, committed_txn).unwrap();
        assert_eq!(committed(&mut consumer), expected);
    }
    let once = ["AddOffsetsToTxn", "FindCoordinator", "TxnOffsetCommit", "EndTxn"];
    let later = ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"];
    let expected: Vec<&str> = once.into_iter().chain(later).chain(later).collect();
    assert_eq!(bench.names(), expected);
    // Nothing to send is nothing sent.
    bench.producer.begin_transaction().unwrap();
    bench
        .producer
        .send_offsets_to_transaction(&[], &group("g"), &mut never)
        .unwrap();
    bench.producer.commit_transaction(&mut never).unwrap();
    assert!(bench.names().is_empty());
}

#[test]
fn offsets_of_a_member_that_was_replaced_make_the_transaction_abortable() {
    let cluster = Cluster::new();
    let mut consumer = cluster.consumer("read_committed", &[("group.id", "g")]);
    consumer.subscribe(&["t".into()]).unwrap();
    for _ in 0..20 {
        consumer.poll(0, &mut || false).unwrap();
    }
    let current = consumer.group_metadata().unwrap();
    assert!(current.generation_id > 0 && !current.member_id.is_empty());
    let bench = cluster.ready("id", &[], &[]);
    bench.producer.begin_transaction().unwrap();
    let zombie = ConsumerGroupMetadata {
        generation_id: current.generation_id - 1,
        ..current.clone()
    };
    let error = bench
        .producer
        .send_offsets_to_transaction(&[(tp(0), next(1))], &zombie, &mut never)
        .unwrap_err();
    assert!(matches!(error, ClientError::CommitFailed(_)), "{error}");
    let error = bench.producer.commit_transaction(&mut never).unwrap_err();
    assert_eq!(code(&error).map(|c| c.name()), Some("TRANSACTION_ABORTABLE"));
    bench.producer.abort_transaction(&mut never).unwrap();
    bench.producer.begin_transaction().unwrap();
    bench
        .producer
        .send_offsets_to_transaction(&[(tp(0), next(1))], &current, &mut never)
        .unwrap();
    bench.producer.commit_transaction(&mut never).unwrap();
    assert_eq!(committed(&mut consumer), Some(1));
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_sent() {
    let cluster = Cluster::new();
    let bench = cluster.ready("id", &[], &[]);
    bench.producer.begin_transaction().unwrap();
    let anonymous = ConsumerGroupMetadata {
        generation_id: 3,
        ..group("g")
    };
    for (offset, group) in [(next(1), anonymous), (next(-1), group("g"))] {
        let error = bench
            .producer
            .send_offsets_to_transaction(&[(tp(0), offset)], &group, &mut never)
            .unwrap_err();
        assert!(matches!(error, ClientError::IllegalArgument(_)), "{error}");
    }
    assert!(bench.names().is_empty());
    bench.producer.commit_transaction(&mut never).unwrap();
}

/// The loop of KIP-98, crashed again and again at any step, by producers of both versions: every record is transformed once.
#[test]
fn consume_transform_produce_is_exactly_once_over_crashes() {
    let cluster = Cluster::new();
    let mut source = cluster.ready("source", &[], &[]);
    let records = 40;
    source.producer.begin_transaction().unwrap();
    for i in 0..records {
        source.send(0, format!("{i}").as_bytes());
    }
    source.producer.commit_transaction(&mut never).unwrap();
    let mut crash = 0;
    'runs: loop {
        crash += 1;
        assert!(crash < 200, "no progress");
        let config = [("group.id", "g"), ("max.poll.records", "7")];
        let mut consumer = cluster.consumer("read_committed", &config);
        consumer.assign(&[tp(0)]).unwrap();
        let script = [(1, ["ok", "lost-ack", "refused:6"][crash % 3])];
        let release = ["3.9", "4.4"][crash % 2];
        let mut bench = cluster.ready("app", &script, &[("fletchlog.producer.version", release)]);
        // Each run dies after another step.
        let mut left = crash % 11;
        let mut dies = || {
            left = left.wrapping_sub(1);
            left == 0
        };
        let mut idle = 0;
        while idle < 20 {
            let polled = consumer.poll(0, &mut || false).unwrap();
            let read = values(&polled);
            let Some((last, _)) = read.last() else {
                idle += 1;
                continue;
            };
            bench.producer.begin_transaction().unwrap();
            for (_, value) in &read {
                bench.send(1, format!("x{value}").as_bytes());
                if dies() {
                    bench.producer.flush(&mut never).unwrap();
                    continue 'runs;
                }
            }
            let group = consumer.group_metadata().unwrap();
            bench
                .producer
                .send_offsets_to_transaction(&[(tp(0), next(last + 1))], &group, &mut never)
                .unwrap();
            if dies() {
                continue 'runs;
            }
            bench.producer.commit_transaction(&mut never).unwrap();
            if dies() {
                continue 'runs;
            }
        }
        break;
    }
    assert!(crash > 5, "it never crashed");
    let expected: Vec<String> = (0..records).map(|i| format!("x{i}")).collect();
    assert_eq!(cluster.committed_values(1), expected);
    assert!(
        cluster.read(1, "read_uncommitted").len() > records,
        "the crashes left aborted records"
    );
}

#[test]
fn an_unknown_topic_times_out_by_name_and_the_transaction_can_be_aborted() {
    let cluster = Cluster::new();
    let bench = cluster.ready("id", &[], &[("max.block.ms", "500")]);
    let missing = TopicPartition::new("missing", 0);
    bench.producer.begin_transaction().unwrap();
    let error = bench
        .producer
        .send_offsets_to_transaction(&[(missing, next(1))], &group("g"), &mut never)
        .unwrap_err();
    assert!(matches!(error, ClientError::Timeout(_)), "{error}");
    assert!(error.to_string().contains("missing-0"), "{error}");
    // Java's abort waits behind the offsets for as long as they are refused (4.3.1, measured).
    bench.producer.abort_transaction(&mut never).unwrap();
    bench.producer.begin_transaction().unwrap();
    bench
        .producer
        .send_offsets_to_transaction(&[(tp(0), next(3))], &group("g"), &mut never)
        .unwrap();
    bench.producer.commit_transaction(&mut never).unwrap();
    let mut consumer = cluster.consumer("read_committed", &[("group.id", "g")]);
    consumer.assign(&[tp(0)]).unwrap();
    assert_eq!(committed(&mut consumer), Some(3));
}
