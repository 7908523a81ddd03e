//! What may be opened, by whom, and what survives: reopen, lock, nodes, foreign directories, a Kafka broker's own.
#![allow(clippy::unwrap_used, clippy::expect_used)] // The helpers of a test file are tests, too.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::*;
use fletchlog_api::*;
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_records::{BatchParams, TopicPartition};
use serde_json::Value;

fn reason(result: Result<Arc<Broker>, BrokerError>) -> String {
    match result {
        Err(BrokerError::Directory { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn end(broker: &Broker, tp: &TopicPartition) -> i64 {
    broker.partition_log(tp).unwrap().log_end_offset()
}

fn idempotent(sequence: i32, producer_id: i64) -> BatchParams {
    BatchParams {
        producer_id,
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchParams::default()
    }
}

fn new_producer_id(broker: &Arc<Broker>) -> i64 {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 1,
        producer_id: -1,
        producer_epoch: -1,
    };
    let Response::InitProducerId(given) = Client::new(broker).ask(1, Request::InitProducerId(request)) else {
        panic!()
    };
    given.producer_id
}

fn commit(broker: &Arc<Broker>, group: &str, tp: &TopicPartition, offset: i64) -> OffsetCommitResponse {
    let mut client = Client::new(broker);
    let Response::FindCoordinator(found) = client.ask(
        1,
        Request::FindCoordinator(FindCoordinatorRequest {
            key: group.into(),
            key_type: CoordinatorType::Group,
        }),
    ) else {
        panic!()
    };
    let value = OffsetAndMetadata {
        offset,
        leader_epoch: -1,
        metadata: "m".into(),
    };
    let request = OffsetCommitRequest {
        group_id: group.into(),
        generation_id: -1,
        member_id: "".into(),
        group_instance_id: None,
        offsets: vec![(tp.clone(), value)],
    };
    let Response::OffsetCommit(response) = client.ask(found.node, Request::OffsetCommit(request)) else {
        panic!()
    };
    response
}

fn committed(broker: &Arc<Broker>, group: &str) -> Vec<(String, i64, i64)> {
    let mut client = Client::new(broker);
    let Response::FindCoordinator(found) = client.ask(
        1,
        Request::FindCoordinator(FindCoordinatorRequest {
            key: group.into(),
            key_type: CoordinatorType::Group,
        }),
    ) else {
        panic!()
    };
    let request = OffsetFetchRequest {
        group_id: group.into(),
        partitions: None,
        require_stable: false,
    };
    let Response::OffsetFetch(response) = client.ask(found.node, Request::OffsetFetch(request)) else {
        panic!()
    };
    assert_eq!(response.error, ErrorCode::NONE);
    response
        .partitions
        .into_iter()
        .map(|(tp, o)| (tp.topic.to_string(), i64::from(tp.partition), o.unwrap().offset))
        .collect()
}

/// Topics, records, duplicates, commits and ids survive; `clean` = with close, else as after kill -9.
fn survives(nodes: u32, clean: bool) {
    let dir = tempfile::tempdir().unwrap();
    let t = tp("t", 1);
    let config = [("retention.ms".to_owned(), "-1".to_owned())];
    let broker = Broker::open(dir.path(), options(Some(nodes), false, &[]), ManualClock::new()).unwrap();
    broker.create_topic("t", 4, &config).unwrap();
    broker.create_topic("gone", 2, &[]).unwrap();
    broker.delete_topic("gone").unwrap();
    let before = broker.describe_topic("t").unwrap();
    let pid = new_producer_id(&broker);
    for sequence in [0, 3] {
        broker
            .append_batches(&t, batch_with(3, 10, &idempotent(sequence, pid)))
            .unwrap();
    }
    assert_eq!(commit(&broker, "g", &t, 5).partitions, [(t.clone(), ErrorCode::NONE)]);
    if clean {
        broker.close().unwrap();
    }
    drop(broker);
    assert_eq!(
        dir.path()
            .join(if nodes == 1 {
                ".kafka_cleanshutdown"
            } else {
                "node-1/.kafka_cleanshutdown"
            })
            .exists(),
        clean
    );

    let broker = open(dir.path()).unwrap();
    assert!(
        !dir.path().join(".kafka_cleanshutdown").exists(),
        "the marker goes when writing begins"
    );
    assert_eq!(broker.nodes().len(), nodes as usize);
    assert_eq!(broker.topics(true).unwrap(), ["__consumer_offsets".into(), "t".into()]);
    let after = broker.describe_topic("t").unwrap();
    assert_eq!((after.topic_id, &after.config), (before.topic_id, &before.config));
    let leaders = |d: &fletchlog_broker::TopicDescription| d.partitions.iter().map(|p| p.leader).collect::<Vec<_>>();
    assert_eq!(leaders(&after), leaders(&before));
    assert_eq!(end(&broker, &t), 6);
    // The newest batch again: acknowledged with its offset, not written (spec 3.7: the window is one batch after a restart).
    assert_eq!(
        broker
            .append_batches(&t, batch_with(3, 10, &idempotent(3, pid)))
            .unwrap()
            .0,
        3
    );
    assert_eq!(end(&broker, &t), 6);
    assert_eq!(
        broker
            .append_batches(&t, batch_with(3, 10, &idempotent(6, pid)))
            .unwrap()
            .0,
        6
    );
    assert_eq!(committed(&broker, "g"), [("t".to_owned(), 1, 5)]);
    assert!(new_producer_id(&broker) > pid, "a fresh id after a restart");
    broker.close().unwrap();
}

#[test]
fn a_clean_stop_keeps_topics_records_duplicates_commits_and_ids() {
    survives(1, true);
    survives(3, true);
}

#[test]
fn a_killed_broker_keeps_topics_records_duplicates_commits_and_ids() {
    survives(1, false);
    survives(3, false);
}

#[test]
fn with_one_node_the_directory_is_a_kafka_log_dir() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 2, &[]).unwrap();
    broker.append_batches(&tp("t", 1), batch(1, 1)).unwrap();
    broker.close().unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let meta = read("meta.properties");
    for line in ["node.id=1\n", "version=1\n", "cluster.id=", "directory.id="] {
        assert!(meta.contains(line), "{meta}");
    }
    // The log of partition 0 was never needed.
    assert_eq!(read("recovery-point-offset-checkpoint"), "0\n1\nt 1 1\n");
    assert_eq!(read("replication-offset-checkpoint"), "0\n1\nt 1 1\n");
    assert_eq!(read("log-start-offset-checkpoint"), "0\n0\n");
    assert!(read(".kafka_cleanshutdown").starts_with("{\"version\":0"));
    for partition in ["t-0", "t-1"] {
        assert!(read(&format!("{partition}/partition.metadata")).starts_with("version: 0\ntopic_id: "));
        assert_eq!(
            dir.path().join(partition).join("00000000000000000000.log").exists(),
            partition == "t-1"
        );
    }
}

#[test]
fn with_more_nodes_each_has_its_log_dir() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::open(dir.path(), options(Some(3), false, &[]), ManualClock::new()).unwrap();
    broker.create_topic("t", 3, &[]).unwrap();
    broker.close().unwrap();
    for (node, partition) in [(1, 0), (2, 1), (3, 2)] {
        let node_dir = dir.path().join(format!("node-{node}"));
        assert!(node_dir.join(format!("t-{partition}")).is_dir());
        assert!(
            std::fs::read_to_string(node_dir.join("meta.properties"))
                .unwrap()
                .contains(&format!("node.id={node}\n"))
        );
    }
    assert!(reason(open(&dir.path().join("node-2"))).contains("open that directory"));
}

#[test]
fn a_disagreeing_number_of_nodes_is_an_error_that_names_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    Broker::open(dir.path(), options(Some(3), false, &[]), ManualClock::new())
        .unwrap()
        .close()
        .unwrap();
    for read_only in [false, true] {
        let opened = Broker::open(dir.path(), options(Some(2), read_only, &[]), ManualClock::new());
        assert!(reason(opened).contains("has 3 node(s), not 2"));
    }
    assert_eq!(open(dir.path()).unwrap().nodes(), [1, 2, 3]);
}

#[test]
fn a_second_writer_is_excluded_until_the_first_has_closed() {
    for nodes in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let first = Broker::open(dir.path(), options(Some(nodes), false, &[]), ManualClock::new()).unwrap();
        assert!(matches!(open(dir.path()), Err(BrokerError::DirectoryLocked { .. })));
        first.close().unwrap();
        let second = open(dir.path()).unwrap();
        assert!(matches!(open(dir.path()), Err(BrokerError::DirectoryLocked { .. })));
        drop(second);
        open(dir.path()).unwrap();
    }
}

#[test]
fn missing_foreign_and_wrong_directories_are_named_errors_and_stay_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    assert!(reason(open_read_only(&missing)).contains("does not exist"));
    assert!(!missing.exists());
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(reason(open_read_only(&empty)).contains("is empty"));
    let foreign = dir.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("thesis.txt"), "precious").unwrap();
    for opened in [open(&foreign), open_read_only(&foreign)] {
        assert!(reason(opened).contains("`thesis.txt`"));
    }
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1, "not even a lock file");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for opened in [open(&file), open_read_only(&file)] {
        assert!(reason(opened).contains("is not a directory"));
    }
    let damaged = dir.path().join("damaged");
    open(&damaged).unwrap().close().unwrap();
    std::fs::write(damaged.join("fletchlog.metadata"), "{").unwrap();
    assert!(reason(open(&damaged)).contains("is not JSON"));
}

#[test]
fn a_damaged_checkpoint_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap().close().unwrap();
    std::fs::write(dir.path().join("recovery-point-offset-checkpoint"), "0\n7\n").unwrap();
    match open(dir.path()) {
        Err(BrokerError::Log(fletchlog_log::LogError::Damaged { path, .. })) => {
            assert!(path.ends_with("recovery-point-offset-checkpoint"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn deleted_records_stay_deleted_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let t = tp("t", 0);
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    for _ in 0..4 {
        broker.append_batches(&t, batch(5, 10)).unwrap();
    }
    assert_eq!(broker.delete_records(&t, Some(7)).unwrap(), 7);
    assert!(matches!(
        broker.delete_records(&t, Some(21)).map_err(|e| e.code()),
        Err(ErrorCode::OFFSET_OUT_OF_RANGE)
    ));
    drop(broker); // as if killed
    let broker = open(dir.path()).unwrap();
    assert_eq!(broker.partition_log(&t).unwrap().log_start_offset(), 7);
    // A new topic of the name has nothing of it.
    broker.delete_topic("t").unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    assert_eq!(broker.partition_log(&t).unwrap().log_start_offset(), 0);
    broker.close().unwrap();
    let broker = open(dir.path()).unwrap();
    assert_eq!(
        (broker.partition_log(&t).unwrap().log_start_offset(), end(&broker, &t)),
        (0, 0)
    );
}

#[test]
fn after_a_crash_only_what_was_not_flushed_is_checked_again() {
    let dir = tempfile::tempdir().unwrap();
    let t = tp("t", 0);
    let broker = open(dir.path()).unwrap();
    let config = [("segment.bytes".to_owned(), "200".to_owned())];
    broker.create_topic("t", 1, &config).unwrap();
    for _ in 0..6 {
        broker.append_batches(&t, batch(1, 20)).unwrap();
    }
    broker.flush().unwrap();
    drop(broker);
    // A bit of the first record: a recovery from the beginning would cut the log here.
    let first = dir.path().join("t-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&first, bytes).unwrap();
    assert_eq!(end(&open(dir.path()).unwrap(), &t), 6);
}

#[test]
fn a_clean_stop_after_a_crash_has_recovered_also_the_logs_that_nobody_used() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    broker.append_batches(&tp("t", 0), batch(2, 20)).unwrap();
    drop(broker);
    let log = dir.path().join("t-0/00000000000000000000.log");
    let whole = std::fs::read(&log).unwrap();
    std::fs::write(&log, [&whole[..], &whole[..50]].concat()).unwrap();
    open(dir.path()).unwrap().close().unwrap();
    assert!(dir.path().join(".kafka_cleanshutdown").exists());
    assert_eq!(std::fs::read(&log).unwrap(), whole, "the torn tail is gone");
}

#[test]
fn what_a_checkpoint_says_of_a_topic_that_is_gone_does_not_reach_a_new_one_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap().close().unwrap();
    for name in ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"] {
        std::fs::write(dir.path().join(name), "0\n1\nt 0 7\n").unwrap();
    }
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    assert_eq!(
        (broker.partition_log(&t).unwrap().log_start_offset(), end(&broker, &t)),
        (0, 0)
    );
}

#[test]
fn a_deletion_that_was_interrupted_is_finished_and_a_log_of_no_topic_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    broker.close().unwrap();
    let id = std::fs::read_to_string(dir.path().join("t-0/partition.metadata")).unwrap();
    let id = id.split("topic_id: ").nth(1).unwrap().trim().to_owned();
    std::fs::rename(
        dir.path().join("t-0"),
        dir.path().join(format!("u-0.{}-delete", "a".repeat(32))),
    )
    .unwrap();
    for (name, content) in [
        ("v-0", format!("version: 0\ntopic_id: {id}")),
        ("w-0", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ".to_owned()),
    ] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        std::fs::write(dir.path().join(name).join("partition.metadata"), content).unwrap();
    }
    let metadata = dir.path().join("fletchlog.metadata");
    let text = std::fs::read_to_string(&metadata)
        .unwrap()
        .replace("\"deleting\": []", &format!("\"deleting\": [\"{id}\"]"));
    std::fs::write(&metadata, text).unwrap();
    let broker = open(dir.path()).unwrap();
    broker.topics(true).unwrap();
    let names: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        !names.iter().any(|n| n.ends_with("-delete") || n == "v-0" || n == "w-0"),
        "{names:?}"
    );
    assert!(
        names.iter().any(|n| n.starts_with("w-0.") && n.ends_with("-stray")),
        "{names:?}"
    );
}

#[test]
fn a_partition_directory_of_another_incarnation_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    broker.close().unwrap();
    std::fs::write(
        dir.path().join("t-0/partition.metadata"),
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    )
    .unwrap();
    let broker = open(dir.path()).unwrap();
    assert!(
        matches!(broker.append_batches(&tp("t", 0), batch(1, 1)), Err(e) if e.to_string().contains("another topic id"))
    );
}

/// The cases of recovery-vectors.json that damage `partition.metadata`; the log's own tests have the others. A broker
/// gives a log without the file a new, empty one and sets the data aside; here the topic's id also stands in
/// fletchlog.metadata and the file is written without an fsync, so that a power loss may take it: ours keeps the data and
/// writes the file again. Garbage is refused as by a broker, and nothing is changed.
#[test]
fn a_damaged_partition_metadata_is_refused_and_a_lost_one_written_again() {
    let inputs = tempfile::tempdir().unwrap();
    let archive = golden("recovery-inputs.tar.gz");
    let status = Command::new("tar")
        .arg("xzf")
        .arg(archive)
        .arg("-C")
        .arg(inputs.path())
        .status();
    assert!(status.unwrap().success());
    let vectors: Value = serde_json::from_slice(&std::fs::read(golden("recovery-vectors.json")).unwrap()).unwrap();
    let mut compared = 0;
    for damage in ["meta-garbage", "meta-deleted"] {
        for (mode, step) in vectors["damages"][damage].as_object().unwrap() {
            let dir = tempfile::tempdir().unwrap();
            let broker = open(dir.path()).unwrap();
            broker.create_topic("ft", 1, &[]).unwrap();
            broker.close().unwrap();
            let partition = dir.path().join("ft-0");
            let metadata = partition.join("partition.metadata");
            let stamped = std::fs::read(&metadata).unwrap();
            std::fs::remove_dir_all(&partition).unwrap();
            copy(&inputs.path().join("recovery_inputs").join(damage), &partition);
            if mode != "clean" {
                std::fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
            }
            if let Some(line) = step["recoveryPointLine"].as_i64() {
                let text = format!("0\n1\nft 0 {line}\n");
                std::fs::write(dir.path().join("recovery-point-offset-checkpoint"), text).unwrap();
            }
            let before = contents(&partition);
            // After a clean stop a log is opened when it is first used, else at once.
            let log = open(dir.path()).and_then(|broker| broker.partition_log(&tp("ft", 0)));
            if step["brokerStart"] == "ok" {
                assert_eq!(log.unwrap().log_end_offset(), 67, "{damage} {mode}");
                assert_eq!(std::fs::read(&metadata).unwrap(), stamped, "{damage} {mode}");
            } else {
                let refused = log.unwrap_err().to_string();
                assert!(refused.contains("partition.metadata"), "{damage} {mode}: {refused}");
                assert_eq!(contents(&partition), before, "{damage} {mode}");
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 6);
}

#[test]
fn what_a_power_loss_leaves_of_a_topic_id_is_written_again() {
    for left in [&b""[..], &[0; 43]] {
        let dir = tempfile::tempdir().unwrap();
        let broker = open(dir.path()).unwrap();
        broker.create_topic("t", 1, &[]).unwrap();
        broker.close().unwrap();
        let path = dir.path().join("t-0/partition.metadata");
        let stamped = std::fs::read(&path).unwrap();
        std::fs::write(&path, left).unwrap();
        let broker = open(dir.path()).unwrap();
        assert_eq!(broker.append_batches(&tp("t", 0), batch(1, 1)).unwrap().0, 0);
        assert_eq!(std::fs::read(&path).unwrap(), stamped);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for (name, bytes) in contents(from) {
        std::fs::write(to.join(name), bytes).unwrap();
    }
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()))
        .collect()
}

fn unpack(name: &str, into: &Path) {
    let status = std::process::Command::new("tar")
        .arg("xzf")
        .arg(golden(&format!("directories/{name}.tar.gz")))
        .arg("-C")
        .arg(into)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn a_kafka_brokers_log_dir_opens_read_only_with_its_topics_ids_records_and_commits() {
    for (name, clean) in [("kafka-4.3.1-clean", true), ("kafka-3.9.1-killed", false)] {
        let dir = tempfile::tempdir().unwrap();
        unpack(name, dir.path());
        let before: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        let broker = open_read_only(dir.path()).unwrap();
        let topics = broker.topics(false).unwrap();
        assert!(
            topics.iter().any(|t| &**t == "g-none") && topics.iter().all(|t| !t.starts_with("__")),
            "{topics:?}"
        );
        assert!(
            broker
                .topics(true)
                .unwrap()
                .iter()
                .any(|t| &**t == "__consumer_offsets")
        );
        if clean {
            assert_eq!(end(&broker, &tp("g-none", 0)), 303);
            assert_eq!(
                broker.partition_log(&tp("g-delrec", 0)).unwrap().log_start_offset(),
                234
            );
            assert_eq!(&broker.describe_topic("g-none").unwrap().topic_id[..2], [0x34, 0x9a]);
        }
        // g-gzip by a transaction that committed 5, then one that aborted 9.
        let none = if clean { 18 } else { 19 };
        assert_eq!(
            committed(&broker, "grp-1"),
            [("g-gzip".to_owned(), 0, 5), ("g-none".to_owned(), 0, none)]
        );
        let refused = commit(&broker, "g", &tp("g-none", 0), 1);
        assert_eq!(refused.partitions[0].1, ErrorCode::POLICY_VIOLATION);
        assert!(refused.error_message.unwrap().contains("read_only"));
        assert!(matches!(
            broker.create_topic("x", 1, &[]),
            Err(BrokerError::ReadOnly(_))
        ));
        assert!(matches!(broker.delete_topic("g-none"), Err(BrokerError::ReadOnly(_))));
        assert!(matches!(
            broker.append_batches(&tp("g-none", 0), batch(1, 1)),
            Err(BrokerError::ReadOnly(_))
        ));
        broker.close().unwrap();
        let after: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(before, after, "nothing was written");
    }
}

#[test]
fn a_clean_kafka_log_dir_is_taken_over_for_writing_and_an_unclean_one_refused() {
    let dir = tempfile::tempdir().unwrap();
    unpack("kafka-3.9.1-killed", dir.path());
    assert!(reason(open(dir.path())).contains("did not stop cleanly"));
    let dir = tempfile::tempdir().unwrap();
    unpack("kafka-4.3.1-clean", dir.path());
    let meta = std::fs::read_to_string(dir.path().join("meta.properties")).unwrap();
    // As after three restarts of the cluster.
    std::fs::write(dir.path().join("g-none-0/leader-epoch-checkpoint"), "0\n1\n3 0\n").unwrap();
    let broker = open(dir.path()).unwrap();
    let t = tp("g-none", 0);
    assert_eq!(broker.append_batches(&t, batch(2, 10)).unwrap().0, 303);
    // The cluster's leader epoch goes on: told to clients, stamped into batches.
    let request = MetadataRequest {
        topics: Some(vec!["g-none".into()]),
        allow_auto_topic_creation: false,
    };
    let Response::Metadata(metadata) = Client::new(&broker).ask(1, Request::Metadata(request)) else {
        panic!()
    };
    assert_eq!(metadata.topics[0].partitions[0].leader_epoch, 3);
    let appended = Client::new(&broker).fetch(1, fetch_of(&[(&t, 303, 1000)]));
    let header = fletchlog_records::BatchHeader::parse(&appended.partitions[0].records).unwrap();
    assert_eq!((header.base_offset, header.partition_leader_epoch), (303, 3));
    assert!(
        new_producer_id(&broker) >= 1_000_000_000_000,
        "above every id of the cluster"
    );
    assert_eq!(commit(&broker, "mine", &t, 304).partitions[0].1, ErrorCode::NONE);
    broker.close().unwrap();
    assert_eq!(
        std::fs::read_to_string(dir.path().join("meta.properties")).unwrap(),
        meta
    );
    let broker = open(dir.path()).unwrap();
    assert_eq!(end(&broker, &t), 305);
    assert_eq!(committed(&broker, "mine"), [("g-none".to_owned(), 0, 304)]);
    assert_eq!(
        broker.describe_topic("g-compact").unwrap().config["cleanup.policy"],
        "compact"
    );
}

#[test]
fn a_log_dir_with_some_partitions_of_a_topic_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    unpack("kafka-4.3.1-clean", dir.path());
    std::fs::rename(dir.path().join("g-none-0"), dir.path().join("g-none-3")).unwrap();
    assert!(reason(open(dir.path())).contains("1 of the 4 partitions of topic g-none"));
    assert!(!dir.path().join("fletchlog.metadata").exists());
    let broker = open_read_only(dir.path()).unwrap();
    assert_eq!(end(&broker, &tp("g-none", 3)), 303);
    assert!(broker.partition_log(&tp("g-none", 0)).is_err());
}

#[test]
fn a_reader_beside_a_live_writer_sees_records_topics_deletions_and_commits() {
    for nodes in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let t = tp("t", 0);
        let writer = Broker::open(dir.path(), options(Some(nodes), false, &[]), ManualClock::new()).unwrap();
        writer.create_topic("t", 2, &[]).unwrap();
        writer.append_batches(&t, batch(2, 10)).unwrap();
        let reader = open_read_only(dir.path()).unwrap();
        assert!(reader.is_read_only());
        assert_eq!(end(&reader, &t), 2);
        // Records.
        writer.append_batches(&t, batch(3, 10)).unwrap();
        assert_eq!(end(&reader, &t), 5);
        // A partition that has no file yet.
        assert_eq!(end(&reader, &tp("t", 1)), 0);
        writer.append_batches(&tp("t", 1), batch(7, 10)).unwrap();
        assert_eq!(end(&reader, &tp("t", 1)), 7);
        // A fetch that waits for the other broker.
        let mut client = Client::new(&reader);
        client.send(
            1,
            Request::Fetch(FetchRequest {
                max_wait_ms: 60_000,
                ..fetch_of(&[(&t, 5, 1000)])
            }),
        );
        assert!(!client.transport.has_arrived(1));
        writer.append_batches(&t, batch(1, 10)).unwrap();
        assert_eq!(client.wait_fetch(1, 10_000).unwrap().partitions[0].high_watermark, 6);
        // Topics.
        writer.create_topic("u", 1, &[]).unwrap();
        writer.append_batches(&tp("u", 0), batch(4, 10)).unwrap();
        assert_eq!(end(&reader, &tp("u", 0)), 4);
        assert_eq!(reader.topics(false).unwrap().len(), 2);
        writer.delete_topic("u").unwrap();
        assert_eq!(reader.topics(false).unwrap().len(), 1);
        // Commits.
        assert!(committed(&reader, "g").is_empty());
        commit(&writer, "g", &t, 3);
        assert_eq!(committed(&reader, "g"), [("t".to_owned(), 0, 3)]);
        commit(&writer, "g", &t, 4);
        assert_eq!(committed(&reader, "g"), [("t".to_owned(), 0, 4)]);
        writer.close().unwrap();
    }
}

#[test]
fn a_reader_that_waits_notices_what_another_process_writes() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path()).unwrap();
    writer.create_topic("t", 1, &[]).unwrap();
    let t = tp("t", 0);
    writer.append_batches(&t, batch(1, 10)).unwrap();
    let clock = Arc::new(fletchlog_api::transport::SystemClock::default());
    let reader = Broker::open(dir.path(), options(None, true, &[]), clock).unwrap();
    let mut client = Client::new(&reader);
    let request = FetchRequest {
        max_wait_ms: 600_000,
        ..fetch_of(&[(&t, 1, 1000)])
    };
    client.send(1, Request::Fetch(request));
    std::thread::scope(|scope| {
        let (begin, begun) = std::sync::mpsc::channel();
        let (writer, t) = (&writer, &t);
        scope.spawn(move || {
            begun.recv().unwrap();
            writer.append_batches(t, batch(1, 10)).unwrap();
        });
        begin.send(()).unwrap();
        let started = reader.clock().monotonic_ms();
        assert!(client.transport.wait(std::time::Duration::from_secs(60)));
        assert!(
            reader.clock().monotonic_ms() - started < 30_000,
            "not only at the end of the wait"
        );
    });
    assert_eq!(client.wait_fetch(1, 0).unwrap().partitions[0].high_watermark, 2);
}

#[test]
fn memory_and_disk_give_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let on_disk = Broker::open(dir.path(), options(Some(2), false, &[]), ManualClock::new()).unwrap();
    let answers: Vec<String> = [on_disk, in_memory(2)]
        .iter()
        .map(|broker| {
            let config = [("segment.bytes".to_owned(), "400".to_owned())];
            broker.create_topic("t", 3, &config).unwrap();
            let mut client = Client::new(broker);
            let mut seen = String::new();
            for i in 0..30 {
                let p = i % 3;
                seen += &format!(
                    "{:?}",
                    broker.append_batches(&tp("t", p), batch(1 + usize::try_from(i).unwrap() % 4, 20))
                );
            }
            for (node, partition) in [(1, 0), (2, 1), (1, 2)] {
                for offset in [0, 3, 11] {
                    seen += &format!(
                        "{:?}",
                        client
                            .fetch(node, fetch_of(&[(&tp("t", partition), offset, 300)]))
                            .partitions
                    );
                }
            }
            seen += &format!("{:?}", commit(broker, "g", &tp("t", 1), 7));
            seen += &format!("{:?}", committed(broker, "g"));
            let description = broker.describe_topic("t").unwrap();
            seen + &format!("{:?} {:?}", description.partitions, description.config)
        })
        .collect();
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn a_thousand_partitions_open_without_opening_a_thousand_logs() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 1000, &[]).unwrap();
    broker.close().unwrap();
    // Damage that opening the log would find.
    std::fs::remove_dir_all(dir.path().join("t-999")).unwrap();
    std::fs::write(dir.path().join("t-999"), "no directory").unwrap();
    let broker = open(dir.path()).unwrap();
    assert_eq!(broker.append_batches(&tp("t", 0), batch(1, 1)).unwrap().0, 0);
    assert!(broker.append_batches(&tp("t", 999), batch(1, 1)).is_err());
}
