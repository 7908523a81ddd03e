//! What may be opened, by whom, and what survives: reopen, lock, nodes, foreign directories.

mod helpers;
mod kafka_log_dir;
mod partition_metadata;

use std::sync::Arc;

use crate::common::*;
use fletchlog_api::*;
use fletchlog_broker::{Broker, BrokerError};
use helpers::*;

/// Topics, records, duplicates, commits and ids survive; `clean` = with close, else as after kill -9.
fn survives(nodes: u32, clean: bool) {
    let dir = tempfile::tempdir().unwrap();
    let t = tp("t", 1);
    let config = [("retention.ms".to_owned(), "-1".to_owned())];
    let broker = Broker::open(dir.path(), options(Some(nodes), false, &[]), VirtualClock::new()).unwrap();
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
    let results: Vec<_> = commit(&broker, "g", &t, 5).errors().collect();
    assert_eq!(results, [(t.clone(), ErrorCode::NONE)]);
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
    let broker = Broker::open(dir.path(), options(Some(3), false, &[]), VirtualClock::new()).unwrap();
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
    Broker::open(dir.path(), options(Some(3), false, &[]), VirtualClock::new())
        .unwrap()
        .close()
        .unwrap();
    for read_only in [false, true] {
        let opened = Broker::open(dir.path(), options(Some(2), read_only, &[]), VirtualClock::new());
        assert!(reason(opened).contains("has 3 node(s), not 2"));
    }
    assert_eq!(open(dir.path()).unwrap().nodes(), [1, 2, 3]);
}

#[test]
fn a_second_writer_is_excluded_until_the_first_has_closed() {
    for nodes in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let first = Broker::open(dir.path(), options(Some(nodes), false, &[]), VirtualClock::new()).unwrap();
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

/// What clients have seen deleted, a crash must not bring back.
#[test]
fn a_log_start_that_cannot_be_stored_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let t = tp("t", 0);
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    broker.append_batches(&t, batch(5, 10)).unwrap();
    let start = || broker.partition_log(&t).unwrap().log_start_offset();
    // In the way of the file that is written.
    let in_the_way = dir.path().join("log-start-offset-checkpoint.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    broker.delete_records(&t, Some(3)).unwrap_err();
    assert_eq!(start(), 0);
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(broker.delete_records(&t, Some(3)).unwrap(), 3);
    assert_eq!(start(), 3);
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
        std::fs::write(dir.path().join(name).join("00000000000000000000.log"), "").unwrap();
    }
    // What a creation that was interrupted has made, of which there is nothing to keep.
    std::fs::create_dir(dir.path().join("x-0")).unwrap();
    let of_no_topic = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg";
    std::fs::write(dir.path().join("x-0/partition.metadata"), of_no_topic).unwrap();
    std::fs::create_dir(dir.path().join("x-1")).unwrap();
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
        !names
            .iter()
            .any(|n| n.ends_with("-delete") || n == "v-0" || n == "w-0" || n.starts_with("x-")),
        "{names:?}"
    );
    assert!(
        names.iter().any(|n| n.starts_with("w-0.") && n.ends_with("-stray")),
        "{names:?}"
    );
}

#[test]
fn a_reader_beside_a_live_writer_sees_records_topics_deletions_and_commits() {
    for nodes in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let t = tp("t", 0);
        let writer = Broker::open(dir.path(), options(Some(nodes), false, &[]), VirtualClock::new()).unwrap();
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
        assert_eq!(nth(&client.wait_fetch(1, 10_000).unwrap(), 0).high_watermark, 6);
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
    assert_eq!(nth(&client.wait_fetch(1, 0).unwrap(), 0).high_watermark, 2);
}

#[test]
fn memory_and_disk_give_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let on_disk = Broker::open(dir.path(), options(Some(2), false, &[]), VirtualClock::new()).unwrap();
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
                            .responses
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

/// Their logs are opened on all cores; each answer is as if it had been the only partition.
#[test]
fn a_first_write_to_many_partitions_is_answered_for_each_of_them() {
    const PARTITIONS: i32 = 300;
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    broker.create_topic("t", PARTITIONS, &[]).unwrap();
    let log_of = |p: i32| dir.path().join(format!("t-{p}/00000000000000000000.log"));
    // In the place of this one's log there is a directory.
    let in_the_way = log_of(7);
    std::fs::create_dir_all(&in_the_way).unwrap();
    let mut client = Client::new(&broker);
    let mut produce = |acks, batches: &dyn Fn(i32) -> bytes::Bytes| {
        let request = ProduceRequest {
            transactional_id: None,
            acks,
            timeout_ms: 1000,
            topic_data: topic_data((0..PARTITIONS).map(|p| (tp("t", p), batches(p)))),
            ..Default::default()
        };
        let Response::Produce(answer) = client.ask(1, Request::Produce(request)) else {
            panic!()
        };
        assert_eq!(answer.responses.len(), 1);
        assert_eq!(&*answer.responses[0].name, "t");
        answer.responses[0].partition_responses.clone()
    };
    let refused = produce(5, &|_| batch(1, 10));
    assert!(refused.iter().all(|p| p.error_code == ErrorCode::INVALID_REQUIRED_ACKS));
    assert!(!log_of(0).exists(), "a request that is refused opens no log");

    let answers = produce(-1, &|p| batch(1 + p as usize % 3, 10));
    for (p, answer) in (0..PARTITIONS).zip(&answers) {
        assert_eq!(answer.index, p);
        if p == 7 {
            assert_ne!(answer.error_code, ErrorCode::NONE);
            let message = answer.error_message.as_deref().unwrap_or_default();
            assert!(message.contains("t-7"), "{message}");
        } else {
            assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::NONE, 0), "{p}");
            assert_eq!(end(&broker, &tp("t", p)), 1 + i64::from(p) % 3);
        }
    }
    // It is opened with the next write, once its place is free.
    std::fs::remove_dir(&in_the_way).unwrap();
    let answers = produce(-1, &|_| batch(1, 10));
    assert!(answers.iter().all(|answer| answer.error_code == ErrorCode::NONE));
    assert_eq!(answers[7].base_offset, 0);
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
