//! Producers of transaction.version 2 (spec 10.4): what they send, what they survive, and their neighbours of version 1.

use fletchlog_api::ErrorCode;
use fletchlog_broker::{FeatureUpdate, UpgradeType};

use super::offsets::{group, next};
use super::{Cluster, code, state, tp};
use crate::producer_harness::Bench;
use fletchlog_sim::stepped::never;

const NEW: (&str, &str) = ("fletchlog.producer.version", "4.4");

fn ready(cluster: &Cluster, id: &str, script: &[(u64, &str)], config: &[(&str, &str)]) -> Bench {
    cluster.ready(id, script, &[&[NEW], config].concat())
}

fn transaction(bench: &mut Bench, partitions: &[i32], value: &str) {
    bench.producer.begin_transaction().unwrap();
    for &partition in partitions {
        bench.send(partition, value.as_bytes());
    }
    bench.producer.commit_transaction(&mut never).unwrap();
}

fn epoch(bench: &Bench) -> i16 {
    bench.producer.producer_id().unwrap().1
}

fn set_level(cluster: &Cluster, level: i16) {
    let update = FeatureUpdate {
        feature: "transaction.version".to_owned(),
        level,
        upgrade_type: Some(match level {
            2 => UpgradeType::Upgrade,
            _ => UpgradeType::Downgrade,
        }),
    };
    cluster.broker.update_features(&[update], false).unwrap();
}

#[test]
fn only_records_offsets_and_the_end_are_sent_and_each_transaction_has_its_epoch() {
    let cluster = Cluster::new();
    let mut bench = ready(&cluster, "id", &[], &[]);
    for round in 0..3 {
        assert_eq!(epoch(&bench), round);
        transaction(&mut bench, &[0, 1], "v");
        assert_eq!(bench.names(), ["Produce", "EndTxn"]);
        assert_eq!(state(&cluster.broker, "id"), ("CompleteCommit", round + 1));
    }
    bench.producer.begin_transaction().unwrap();
    bench
        .producer
        .send_offsets_to_transaction(&[(tp(0), next(5))], &group("g"), &mut never)
        .unwrap();
    bench.producer.commit_transaction(&mut never).unwrap();
    assert_eq!(bench.names(), ["FindCoordinator", "TxnOffsetCommit", "EndTxn"]);
    assert_eq!(epoch(&bench), 4);
    // Nothing in it: nothing is sent, and the epoch stays.
    bench.producer.begin_transaction().unwrap();
    bench.producer.abort_transaction(&mut never).unwrap();
    assert!(bench.names().is_empty());
    assert_eq!(epoch(&bench), 4);
    assert_eq!(cluster.committed_values(0), ["v"; 3]);
}

#[test]
fn an_abort_hides_what_was_sent_also_what_nobody_acknowledged() {
    let cluster = Cluster::new();
    let config = [
        ("delivery.timeout.ms", "3000"),
        ("request.timeout.ms", "1000"),
        ("linger.ms", "0"),
    ];
    let script = [1, 2, 3, 4].map(|nth| (nth, "drop-appended"));
    let mut bench = ready(&cluster, "id", &script, &config);
    bench.producer.begin_transaction().unwrap();
    let late = bench.send(0, b"late");
    let _ = bench.producer.flush(&mut never);
    assert!(late.try_result().unwrap().is_err());
    let error = bench.producer.commit_transaction(&mut never).unwrap_err();
    assert_eq!(code(&error), Some(ErrorCode::TRANSACTION_ABORTABLE), "{error}");
    bench.producer.abort_transaction(&mut never).unwrap();
    // The end itself raised the epoch: no InitProducerId.
    assert_eq!(bench.names().last().map(String::as_str), Some("EndTxn"));
    assert_eq!(epoch(&bench), 1);
    transaction(&mut bench, &[0], "after");
    assert_eq!(cluster.committed_values(0), ["after"]);
}

#[test]
fn after_a_time_out_the_producer_aborts_and_goes_on() {
    let cluster = Cluster::new();
    let mut bench = ready(&cluster, "id", &[], &[("transaction.timeout.ms", "15000")]);
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"a");
    bench.producer.flush(&mut never).unwrap();
    cluster.advance(20_000);
    assert!(cluster.committed_values(0).is_empty());
    assert_eq!(state(&cluster.broker, "id"), ("CompleteAbort", 1));
    let zombie = bench.send(0, b"b");
    let _ = bench.producer.flush(&mut never);
    let error = zombie.try_result().unwrap().unwrap_err();
    assert_eq!(code(&error), Some(ErrorCode::INVALID_PRODUCER_EPOCH), "{error}");
    bench.producer.abort_transaction(&mut never).unwrap();
    assert_eq!(epoch(&bench), 1, "the one that the time-out gave it");
    transaction(&mut bench, &[0], "after");
    assert_eq!(cluster.committed_values(0), ["after"]);
}

#[test]
fn a_newer_producer_of_either_version_fences_an_older_one_of_either() {
    for (older, newer) in [("3.9", "4.4"), ("4.4", "3.9"), ("4.4", "4.4")] {
        let cluster = Cluster::new();
        let mut old = cluster.ready("id", &[], &[("fletchlog.producer.version", older)]);
        old.producer.begin_transaction().unwrap();
        old.send(0, b"old");
        old.producer.flush(&mut never).unwrap();
        let mut new = cluster.ready("id", &[], &[("fletchlog.producer.version", newer)]);
        let error = old.producer.commit_transaction(&mut never).unwrap_err();
        assert_eq!(
            code(&error),
            Some(ErrorCode::PRODUCER_FENCED),
            "{older} {newer}: {error}"
        );
        transaction(&mut new, &[0], "new");
        assert_eq!(cluster.committed_values(0), ["new"], "{older} {newer}");
    }
}

#[test]
fn a_level_that_changes_while_the_producer_runs_counts_from_its_next_transaction_on() {
    let cluster = Cluster::new();
    let mut bench = ready(&cluster, "id", &[], &[]);
    transaction(&mut bench, &[0], "2");
    bench.names();
    set_level(&cluster, 1);
    transaction(&mut bench, &[0], "still 2");
    assert_eq!(bench.names(), ["Produce", "EndTxn"]);
    let epoch_before = epoch(&bench);
    transaction(&mut bench, &[0], "1");
    assert_eq!(bench.names(), ["AddPartitionsToTxn", "Produce", "EndTxn"]);
    assert_eq!(epoch(&bench), epoch_before);
    set_level(&cluster, 2);
    transaction(&mut bench, &[0], "still 1");
    let expected = ["AddPartitionsToTxn", "Produce", "EndTxn", "InitProducerId"];
    assert_eq!(
        bench.names(),
        expected,
        "an epoch that no transaction of version 1 has used"
    );
    assert_eq!(epoch(&bench), epoch_before + 1);
    transaction(&mut bench, &[0], "2 again");
    assert_eq!(bench.names(), ["Produce", "EndTxn"]);
    assert_eq!(cluster.committed_values(0), ["2", "still 2", "1", "still 1", "2 again"]);
}

#[test]
fn a_release_before_4_0_keeps_version_1_and_so_does_a_cluster_that_has_no_other() {
    let cluster = Cluster::new();
    let mut old = cluster.ready("old", &[], &[("fletchlog.producer.version", "3.9")]);
    transaction(&mut old, &[0], "a");
    assert_eq!(old.names(), ["AddPartitionsToTxn", "Produce", "EndTxn"]);
    assert_eq!(epoch(&old), 0);
    set_level(&cluster, 1);
    let mut new = ready(&cluster, "new", &[], &[]);
    transaction(&mut new, &[0], "b");
    assert_eq!(new.names(), ["AddPartitionsToTxn", "Produce", "EndTxn"]);
    assert_eq!(epoch(&new), 0);
}
