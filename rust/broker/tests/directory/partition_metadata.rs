//! `partition.metadata`, which says whose log a directory holds: of another topic, damaged, lost.

use std::process::Command;

use serde_json::Value;

use super::helpers::*;
use crate::common::*;

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
/// gives a log without the file a new, empty one and sets the data aside; here the topic's id is also in
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
fn what_a_power_loss_leaves_of_a_topic_id_is_written_again_when_the_directory_is_opened() {
    for (left, clean) in [
        (&b""[..], true),
        (&b""[..], false),
        (&[0; 43][..], true),
        (&b"version: 0\nto"[..], false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let broker = open(dir.path()).unwrap();
        broker.create_topic("t", 1, &[]).unwrap();
        broker.close().unwrap();
        let path = dir.path().join("t-0/partition.metadata");
        let stamped = std::fs::read(&path).unwrap();
        std::fs::write(&path, left).unwrap();
        if !clean {
            std::fs::remove_file(dir.path().join(".kafka_cleanshutdown")).unwrap();
        }
        drop(open_read_only(dir.path()).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), left, "a reader writes nothing");
        let broker = open(dir.path()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), stamped);
        assert_eq!(broker.append_batches(&tp("t", 0), batch(1, 1)).unwrap().0, 0);
    }
}

#[test]
fn a_creation_that_fails_leaves_the_directory_of_another_incarnation_alone() {
    let dir = tempfile::tempdir().unwrap();
    let broker = open(dir.path()).unwrap();
    let foreign = dir.path().join("t-1");
    std::fs::create_dir(&foreign).unwrap();
    let files = [
        ("partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
        ("00000000000000000000.log", "records"),
    ];
    for (name, text) in files {
        std::fs::write(foreign.join(name), text).unwrap();
    }
    let new = fletchlog_broker::NewTopic {
        partitions: 2,
        ..Default::default()
    };
    let created = broker.create_topics(&[("s", &new), ("t", &new), ("u", &new)]).unwrap();
    let refused = created[1].as_ref().unwrap_err().to_string();
    assert!(refused.contains("another topic id"), "{refused}");
    assert!(created[0].is_ok() && created[2].is_ok());
    for (name, text) in files {
        assert_eq!(std::fs::read_to_string(foreign.join(name)).unwrap(), text);
    }
    assert!(!dir.path().join("t-0").exists());
    let topics = broker.topics(false).unwrap();
    assert_eq!(topics.iter().map(|name| &**name).collect::<Vec<_>>(), ["s", "u"]);
    broker.append_batches(&tp("u", 1), batch(1, 1)).unwrap();
}
