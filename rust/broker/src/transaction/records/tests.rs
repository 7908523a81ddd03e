use std::collections::BTreeSet;

use fletchlog_records::{BatchIter, RecordCursor};

use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

fn key(id: &str) -> Vec<u8> {
    record(&id.into(), None, TransactionVersion::V2).unwrap().0.to_vec()
}

fn value(metadata: &TransactionMetadata, version: i16) -> Vec<u8> {
    let level = TransactionVersion::new(version);
    let (_, value) = record(&metadata.transactional_id, Some(metadata), level).unwrap();
    value.unwrap().to_vec()
}

// Recorded from the __transaction_state of a 3.9.1 broker (version 0) and of a 4.3.1 broker (version 1).
const KEY: &str = "0000000474782d30";
const EMPTY: &str = "000000000000000000050000000c350000ffffffff000001a1fd1d166bffffffffffffffff";
const ONGOING: &str =
    "000000000000000000050000000c350001000000010005672d74786e0000000100000000000001a1fd1d1769000001a1fd1d1769";
const COMPLETE_ABORT: &str = "000000000000000000050000000c35000500000000000001a1fd1d17a1000001a1fd1d1769";
const FLEXIBLE: &str = "0001000000000000001200010000ea60020306672d74786e020000000000135f5f636f6e73756d65725f6f666673657473020000000000000001a1fd1ad5cf000001a1fd1ad5c8020008000000000000001202020002";

#[test]
fn keys_and_values_have_the_bytes_of_a_real_broker() {
    assert_eq!(parse_key(&hex(KEY)).as_deref(), Some("tx-0"));
    assert_eq!(key("tx-0"), hex(KEY));
    for (text, state) in [
        (EMPTY, TransactionState::Empty),
        (ONGOING, TransactionState::Ongoing),
        (COMPLETE_ABORT, TransactionState::CompleteAbort),
    ] {
        let read = parse_value("tx-0".into(), &hex(text)).unwrap();
        assert_eq!((read.state, read.producer_id, read.timeout_ms), (state, 5, 800_000));
        assert_eq!(value(&read, 0), hex(text), "{state:?}");
    }
    let ongoing = parse_value("tx-0".into(), &hex(ONGOING)).unwrap();
    assert_eq!(ongoing.partitions, BTreeSet::from([TopicPartition::new("g-txn", 0)]));
    assert_eq!(ongoing.start_ms, 0x01a1_fd1d_1769);
}

#[test]
fn the_flexible_form_is_read_and_written() {
    let read = parse_value("tx-off-1".into(), &hex(FLEXIBLE)).unwrap();
    assert_eq!((read.producer_id, read.producer_epoch), (18, 1));
    assert_eq!(read.state, TransactionState::PrepareCommit);
    let partitions = ["g-txn", "__consumer_offsets"].map(|topic| TopicPartition::new(topic, 0));
    assert_eq!(read.partitions, BTreeSet::from(partitions));
    assert_eq!(
        (read.last_update_ms, read.start_ms),
        (0x01a1_fd1a_d5cf, 0x01a1_fd1a_d5c8)
    );
    assert_eq!((read.previous_producer_id, read.next_producer_id), (18, -1));
    assert_eq!(read.client_version, TransactionVersion::V2);
    // Its topics are in the order of a hash table there.
    assert_eq!(value(&read, 1).len(), hex(FLEXIBLE).len());
    assert_eq!(parse_value("tx-off-1".into(), &value(&read, 1)), Some(read));
}

#[test]
fn what_is_written_is_read_back() {
    let mut metadata = TransactionMetadata::new("a".into(), 1);
    metadata.producer_epoch = 2;
    metadata.timeout_ms = 3;
    metadata.state = TransactionState::PrepareAbort;
    metadata.last_update_ms = 4;
    metadata.start_ms = 5;
    metadata.previous_producer_id = 8;
    metadata.client_version = TransactionVersion::V2;
    metadata
        .partitions
        .extend([("b", 0), ("b", 9), ("c", 1)].map(|(topic, partition)| TopicPartition::new(topic, partition)));
    let mut read = parse_value("a".into(), &value(&metadata, 0)).unwrap();
    assert_eq!(
        (read.previous_producer_id, read.client_version),
        (-1, TransactionVersion::V0)
    );
    read.previous_producer_id = 8;
    read.client_version = TransactionVersion::V2;
    assert_eq!(read, metadata);
    metadata.next_producer_id = 9;
    assert_eq!(parse_value("a".into(), &value(&metadata, 1)), Some(metadata));
}

#[test]
fn hostile_bytes_are_no_records() {
    for text in ["", "00", "0000", "0001000000047478", "7fff0000", "000100"] {
        assert_eq!(parse_key(&hex(text)), None, "{text}");
        assert_eq!(parse_value("a".into(), &hex(text)), None, "{text}");
    }
    for whole in [ONGOING, FLEXIBLE] {
        let bytes = hex(whole);
        for cut in 0..bytes.len() {
            assert_eq!(parse_value("a".into(), &bytes[..cut]), None, "cut at {cut}");
        }
    }
    // More partitions than there are bytes for.
    let mut many = hex(ONGOING);
    many[17..21].copy_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(parse_value("a".into(), &many), None);
}

/// Key and value of every record of the `__transaction_state` in a directory that a real broker wrote.
fn recorded(name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let dir = tempfile::tempdir().unwrap();
    let member = "__transaction_state-0/00000000000000000000.log";
    let status = std::process::Command::new("tar")
        .arg("xzf")
        .arg(format!(
            "{}/../../tests/golden/directories/{name}.tar.gz",
            env!("CARGO_MANIFEST_DIR")
        ))
        .arg("-C")
        .arg(dir.path())
        .args(["--wildcards", &format!("*{member}")])
        .status()
        .unwrap();
    assert!(status.success());
    let bytes = std::fs::read(dir.path().join(member)).unwrap();
    let mut found = Vec::new();
    for batch in BatchIter::new(bytes.into()) {
        let slice = batch.unwrap().records(1 << 20).unwrap();
        let mut cursor = RecordCursor::new();
        while let Some(record) = cursor.next(&slice).unwrap() {
            found.push((record.key.unwrap().to_vec(), record.value.unwrap().to_vec()));
        }
    }
    found
}

#[test]
fn every_record_of_real_brokers_is_understood_and_comes_out_as_it_was() {
    for (name, version) in [("kafka-3.9.1-killed", 0), ("kafka-4.3.1-clean", 1)] {
        let records = recorded(name);
        assert!(records.len() > 100, "{name}: {}", records.len());
        for (recorded_key, recorded_value) in records {
            let id = parse_key(&recorded_key).unwrap();
            assert_eq!(key(&id), recorded_key);
            let read = parse_value(id.clone(), &recorded_value).unwrap();
            assert_eq!(i16::from(recorded_value[1]), version);
            let written = value(&read, version);
            // The order of topics is that of a hash table.
            match read.partitions.len() {
                0 | 1 => assert_eq!(written, recorded_value, "{name}: {id}"),
                _ => assert_eq!(parse_value(id, &written), Some(read), "{name}"),
            }
        }
    }
}
