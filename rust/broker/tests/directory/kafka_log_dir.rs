//! A Kafka broker's own log.dir: read as it is, or taken over for writing.

use std::collections::BTreeMap;
use std::process::Command;

use bytes::Bytes;
use fletchlog_api::*;
use fletchlog_broker::BrokerError;
use fletchlog_records::{BatchBuilder, BatchParams};
use serde_json::Value;

use super::helpers::*;
use crate::common::*;

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
        assert_eq!(refused.errors().next().unwrap().1, ErrorCode::POLICY_VIOLATION);
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
fn the_log_dir_of_a_killed_kafka_broker_is_recovered_and_taken_over_for_writing() {
    take_over("kafka-3.9.1-killed", 19);
}

#[test]
fn the_log_dir_of_kafka_4_4_is_taken_over_for_writing() {
    take_over("kafka-4.4.0-clean", 18);
}

/// Every partition is as recorded and goes on, also after a crash; `committed_none`: what grp-1 has committed of g-none.
fn take_over(name: &str, committed_none: i64) {
    let dir = tempfile::tempdir().unwrap();
    unpack(name, dir.path());
    let broker = open(dir.path()).unwrap();
    let mut ends = BTreeMap::new();
    for (partition, recorded) in manifest(name)["partitions"].as_object().unwrap() {
        let (topic, number) = partition.rsplit_once('-').unwrap();
        let t = tp(topic, number.parse().unwrap());
        let Some(consumer) = recorded["consumer"].as_object() else {
            continue;
        };
        let log = broker.partition_log(&t).unwrap();
        let (all, committed) = (&consumer["read_uncommitted"], &consumer["read_committed"]);
        assert_eq!(log.log_start_offset(), all["begin"].as_i64().unwrap(), "{t}");
        assert_eq!(log.log_end_offset(), all["end"].as_i64().unwrap(), "{t}");
        assert_eq!(log.last_stable_offset(), committed["end"].as_i64().unwrap(), "{t}");
        let mut end = log.log_end_offset();
        if !topic.starts_with("__") {
            assert_eq!(broker.append_batches(&t, keyed_batch()).unwrap().0, end, "{t}");
            end += 1;
        }
        ends.insert(t, end);
    }
    assert!(ends.len() > 20, "{}", ends.len());
    drop(broker); // as if killed
    let broker = open(dir.path()).unwrap();
    for (t, expected) in ends {
        assert_eq!(end(&broker, &t), expected, "{t}");
    }
    let expected = [("g-gzip".to_owned(), 0, 5), ("g-none".to_owned(), 0, committed_none)];
    assert_eq!(committed(&broker, "grp-1"), expected);
}

/// One record, with a key, so that compacted topics take it, too.
fn keyed_batch() -> Bytes {
    let mut builder = BatchBuilder::with_capacity(100);
    builder.append(START, Some(b"k"), Some(b"v"), &[]);
    builder.build(&BatchParams::default())
}

fn manifest(name: &str) -> Value {
    let path = golden(&format!("directories/{name}.manifest.json.gz"));
    let output = Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_clean_kafka_log_dir_is_taken_over_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    unpack("kafka-4.3.1-clean", dir.path());
    let meta = std::fs::read_to_string(dir.path().join("meta.properties")).unwrap();
    // As after three restarts of the cluster.
    std::fs::write(dir.path().join("g-none-0/leader-epoch-checkpoint"), "0\n1\n3 0\n").unwrap();
    let broker = open(dir.path()).unwrap();
    let t = tp("g-none", 0);
    assert_eq!(broker.append_batches(&t, batch(2, 10)).unwrap().0, 303);
    // The cluster's leader epoch goes on: returned to clients, stamped into batches.
    let request = MetadataRequest::for_topics(Some(vec!["g-none".into()]), false);
    let Response::Metadata(metadata) = Client::new(&broker).ask(1, Request::Metadata(request)) else {
        panic!()
    };
    assert_eq!(metadata.topics[0].partitions[0].leader_epoch, 3);
    let appended = Client::new(&broker).fetch(1, fetch_of(&[(&t, 303, 1000)]));
    let header = fletchlog_records::BatchHeader::parse(nth(&appended, 0).records.as_ref().unwrap()).unwrap();
    assert_eq!((header.base_offset, header.partition_leader_epoch), (303, 3));
    assert!(
        new_producer_id(&broker) >= 1_000_000_000_000,
        "above every id of the cluster"
    );
    assert_eq!(
        commit(&broker, "mine", &t, 304).errors().next().unwrap().1,
        ErrorCode::NONE
    );
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
