//! What a failure means for the transaction: retry, abort, or the end of the producer.

use fletchlog_client::ClientError;

use super::{Cluster, code, state};
use crate::producer_harness::Bench;
use fletchlog_sim::stepped::never;

fn name(error: &ClientError) -> &'static str {
    code(error).map_or("-", |c| c.name())
}

/// A value that fills a batch of batch.size 1.
fn padded(value: &str) -> String {
    format!("{value:40}")
}

/// Commits, which has to fail with an error that asks for an abort; aborts; then a transaction goes through.
fn abort_and_go_on(cluster: &Cluster, bench: &mut Bench, before: &[&str]) {
    let error = bench.producer.commit_transaction(&mut never).unwrap_err();
    assert_eq!(name(&error), "TRANSACTION_ABORTABLE", "{error}");
    // Until then every call says so.
    assert_eq!(
        name(&bench.producer.begin_transaction().unwrap_err()),
        "TRANSACTION_ABORTABLE"
    );
    bench.producer.abort_transaction(&mut never).unwrap();
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"after");
    bench.producer.commit_transaction(&mut never).unwrap();
    let expected: Vec<&str> = before.iter().copied().chain(["after"]).collect();
    assert_eq!(cluster.committed_values(0), expected);
}

#[test]
fn retriable_failures_are_retried_with_their_sequences_and_write_nothing_twice() {
    for script in [
        vec![(1, "lost-ack"), (2, "refused:6"), (3, "appended-refused:7")],
        vec![(1, "disconnect"), (2, "lost-ack"), (4, "refused:19")],
        vec![(2, "lost-ack"), (3, "lost-ack"), (5, "disconnect")],
    ] {
        let cluster = Cluster::new();
        let mut bench = cluster.ready("id", &script, &[("batch.size", "1")]);
        let mut expected = Vec::new();
        for round in 0..4 {
            bench.producer.begin_transaction().unwrap();
            for i in 0..5 {
                let value = padded(&format!("{round}.{i}"));
                bench.send(0, value.as_bytes());
                expected.push(value);
            }
            bench.producer.commit_transaction(&mut never).unwrap();
        }
        assert_eq!(cluster.committed_values(0), expected, "{script:?}");
        assert_eq!(cluster.read(0, "read_uncommitted").len(), 20, "{script:?}");
        assert_eq!(bench.producer.producer_id().unwrap().1, 0, "no epoch was needed");
    }
}

#[test]
fn a_record_that_the_broker_refuses_makes_the_transaction_abortable_and_the_epoch_rises_with_the_abort() {
    let cluster = Cluster::with_topic(&[("max.message.bytes", "200")]);
    let mut bench = cluster.ready("id", &[], &[]);
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"small");
    bench.producer.flush(&mut never).unwrap();
    let refused = bench.send(0, &[b'x'; 500]);
    let _ = bench.producer.flush(&mut never);
    assert!(matches!(
        refused.try_result().unwrap(),
        Err(ClientError::RecordTooLarge(_))
    ));
    bench.names();
    abort_and_go_on(&cluster, &mut bench, &[]);
    let names = bench.names();
    assert_eq!(&names[..3], ["EndTxn", "InitProducerId", "AddPartitionsToTxn"]);
    assert_eq!(bench.producer.producer_id().unwrap().1, 1);
    assert_eq!(state(&cluster.broker, "id"), ("CompleteCommit", 1));
}

#[test]
fn a_send_in_a_failed_transaction_is_refused_at_once() {
    let cluster = Cluster::new();
    let mut bench = cluster.ready("id", &[(1, "refused:87")], &[]);
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"a");
    let _ = bench.producer.flush(&mut never);
    let record = fletchlog_client::producer::ProducerRecord {
        topic: "t",
        partition: Some(0),
        timestamp: None,
        key: None,
        value: Some(b"b"),
        headers: &[],
    };
    assert_eq!(
        name(&bench.producer.send(&record, &mut never).unwrap_err()),
        "TRANSACTION_ABORTABLE"
    );
    abort_and_go_on(&cluster, &mut bench, &[]);
}

#[test]
fn a_record_that_cannot_be_queued_spoils_its_transaction_since_3_2() {
    for (release, spoilt) in [("2.6", false), ("3.1", false), ("3.2", true), ("4.3", true)] {
        let cluster = Cluster::new();
        let config = [("fletchlog.producer.version", release), ("max.request.size", "1000")];
        let mut bench = cluster.ready("id", &[], &config);
        bench.producer.begin_transaction().unwrap();
        bench.send(0, b"a");
        let refused = bench.send(0, &[b'x'; 2000]);
        assert!(matches!(
            refused.try_result().unwrap(),
            Err(ClientError::RecordTooLarge(_))
        ));
        if spoilt {
            abort_and_go_on(&cluster, &mut bench, &[]);
        } else {
            bench.producer.commit_transaction(&mut never).unwrap();
            assert_eq!(cluster.committed_values(0), ["a"], "{release}");
        }
    }
}

#[test]
fn a_batch_that_is_not_acknowledged_in_time_makes_the_transaction_abortable() {
    let cluster = Cluster::new();
    let config = [
        ("delivery.timeout.ms", "3000"),
        ("request.timeout.ms", "1000"),
        ("linger.ms", "0"),
    ];
    // Written, never acknowledged: nobody knows what is in the log, so the sequences start anew.
    let script = [
        (1, "drop-appended"),
        (2, "drop-appended"),
        (3, "drop-appended"),
        (4, "drop-appended"),
    ];
    let mut bench = cluster.ready("id", &script, &config);
    bench.producer.begin_transaction().unwrap();
    let late = bench.send(0, b"late");
    let _ = bench.producer.flush(&mut never);
    assert!(matches!(late.try_result().unwrap(), Err(ClientError::Timeout(_))));
    abort_and_go_on(&cluster, &mut bench, &[]);
    assert_eq!(bench.producer.producer_id().unwrap().1, 1);
}

#[test]
fn an_old_epoch_is_fatal_up_to_2_6_and_found_out_by_the_abort_since_2_7() {
    for (release, at_once) in [("2.6", true), ("2.7", false)] {
        let cluster = Cluster::new();
        let config = [("fletchlog.producer.version", release)];
        let mut old = cluster.ready("id", &[], &config);
        old.producer.begin_transaction().unwrap();
        old.send(0, b"a");
        old.producer.flush(&mut never).unwrap();
        cluster
            .producer("id", &[], &[])
            .producer
            .init_transactions(&mut never)
            .unwrap();
        let zombie = old.send(0, b"zombie");
        let _ = old.producer.flush(&mut never);
        let answered = zombie.try_result().unwrap().unwrap_err();
        let first = old.producer.abort_transaction(&mut never);
        if at_once {
            assert_eq!(name(&answered), "PRODUCER_FENCED", "{release}");
        } else {
            assert_eq!(name(&answered), "INVALID_PRODUCER_EPOCH", "{release}");
        }
        assert_eq!(name(&first.unwrap_err()), "PRODUCER_FENCED", "{release}");
        assert!(cluster.committed_values(0).is_empty());
    }
}

#[test]
fn a_gap_in_the_sequences_fails_the_transaction_instead_of_bumping_inside_it() {
    let cluster = Cluster::new();
    let mut bench = cluster.ready("id", &[(2, "refused:45")], &[("batch.size", "1")]);
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"a");
    bench.producer.flush(&mut never).unwrap();
    bench.send(0, b"b");
    let _ = bench.producer.flush(&mut never);
    abort_and_go_on(&cluster, &mut bench, &[]);
}

#[test]
fn an_id_that_the_broker_has_forgotten_is_had_anew_with_the_abort() {
    let cluster = Cluster::new();
    let mut bench = cluster.ready("id", &[], &[]);
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"a");
    bench.producer.commit_transaction(&mut never).unwrap();
    let (id, _) = bench.producer.producer_id().unwrap();
    cluster.advance(604_800_000 + 3_600_000);
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"b");
    bench.names();
    abort_and_go_on(&cluster, &mut bench, &["a"]);
    let names = bench.names();
    // EndTxn would be refused: it is left out (KIP-360).
    assert_eq!(&names[..2], ["AddPartitionsToTxn", "InitProducerId"]);
    let (new_id, epoch) = bench.producer.producer_id().unwrap();
    assert!(new_id != id && epoch == 0);
}

#[test]
fn the_hole_of_an_unknown_producer_ends_in_an_abort() {
    let cluster = Cluster::new();
    let config = [
        ("batch.size", "1"),
        ("transaction.timeout.ms", "900000"),
        ("max.block.ms", "200000"),
    ];
    // Spec 9.6: the first batch ever is refused, the second is taken from an unknown producer.
    let mut bench = cluster.ready("id", &[(1, "refused:19")], &config);
    bench.producer.begin_transaction().unwrap();
    for value in ["a", "b"] {
        bench.send(0, padded(value).as_bytes());
    }
    abort_and_go_on(&cluster, &mut bench, &[]);
    let closed = Cluster::with_topic(&[("fletchlog.strict.first.sequence", "true")]);
    let mut bench = closed.ready("id", &[(1, "refused:19")], &config);
    bench.producer.begin_transaction().unwrap();
    for value in ["a", "b"] {
        bench.send(0, padded(value).as_bytes());
    }
    bench.producer.commit_transaction(&mut never).unwrap();
    assert_eq!(closed.committed_values(0), [padded("a"), padded("b")]);
}

#[test]
fn an_unknown_time_out_is_refused_for_good() {
    let cluster = Cluster::new();
    let bench = cluster.producer("id", &[], &[("transaction.timeout.ms", "900001")]);
    let error = bench.producer.init_transactions(&mut never).unwrap_err();
    assert_eq!(name(&error), "INVALID_TRANSACTION_TIMEOUT", "{error}");
    assert_eq!(
        name(&bench.producer.begin_transaction().unwrap_err()),
        "INVALID_TRANSACTION_TIMEOUT"
    );
}
