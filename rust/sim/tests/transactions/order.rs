//! Which request goes when, and what the calls may follow on each other.

use fletchlog_client::ClientError;

use super::{Cluster, code, state, tp};
use fletchlog_sim::stepped::{decide, never};

#[test]
fn a_transaction_sends_its_requests_in_kafkas_order() {
    let cluster = Cluster::new();
    let mut bench = cluster.producer("id", &[], &[("linger.ms", "1000")]);
    bench.producer.init_transactions(&mut never).unwrap();
    assert_eq!(bench.names(), ["FindCoordinator", "InitProducerId"]);
    bench.producer.begin_transaction().unwrap();
    assert!(bench.names().is_empty(), "begin_transaction is local");
    let futures = [bench.send(0, b"a"), bench.send(1, b"b")];
    bench.producer.commit_transaction(&mut never).unwrap();
    // The commit waits for no linger.ms, and EndTxn for every record.
    assert_eq!(bench.names(), ["AddPartitionsToTxn", "Produce", "EndTxn"]);
    assert!(futures.iter().all(|f| f.try_result().unwrap().is_ok()));
    assert_eq!(
        (cluster.committed_values(0), cluster.committed_values(1)),
        (vec!["a".into()], vec!["b".into()])
    );
    // A partition is added once per transaction, when its first record comes.
    bench.producer.begin_transaction().unwrap();
    for value in [b"c", b"d"] {
        bench.send(0, value);
        bench.producer.flush(&mut never).unwrap();
    }
    bench.send(2, b"e");
    bench.producer.commit_transaction(&mut never).unwrap();
    let expected = [
        "AddPartitionsToTxn",
        "Produce",
        "Produce",
        "AddPartitionsToTxn",
        "Produce",
        "EndTxn",
    ];
    assert_eq!(bench.names(), expected);
}

#[test]
fn a_transaction_without_records_sends_nothing() {
    let cluster = Cluster::new();
    let bench = cluster.ready("id", &[], &[]);
    for committed in [true, false] {
        bench.producer.begin_transaction().unwrap();
        decide(&bench.producer, committed).unwrap();
    }
    assert!(bench.names().is_empty());
    assert_eq!(state(&cluster.broker, "id"), ("Empty", 0));
}

#[test]
fn an_abort_drops_what_was_not_sent_and_hides_what_was() {
    let cluster = Cluster::new();
    let mut bench = cluster.ready("id", &[], &[]);
    bench.producer.begin_transaction().unwrap();
    let sent = bench.send(0, b"sent");
    bench.producer.flush(&mut never).unwrap();
    let queued = bench.send(1, b"queued");
    bench.producer.abort_transaction(&mut never).unwrap();
    assert!(sent.try_result().unwrap().is_ok(), "it is in the log, hidden");
    assert!(matches!(
        queued.try_result().unwrap(),
        Err(ClientError::TransactionAborted(_))
    ));
    assert_eq!(bench.names(), ["AddPartitionsToTxn", "Produce", "EndTxn"]);
    assert_eq!(cluster.read(0, "read_uncommitted"), [(0, "sent".into())]);
    assert!(cluster.committed_values(0).is_empty() && cluster.read(1, "read_uncommitted").is_empty());
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"next");
    bench.producer.commit_transaction(&mut never).unwrap();
    assert_eq!(cluster.committed_values(0), ["next"]);
}

fn illegal<T: std::fmt::Debug>(outcome: Result<T, ClientError>, hint: &str) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, ClientError::IllegalState(_)), "{error:?}");
    assert!(error.to_string().contains(hint), "{error}");
}

#[test]
fn calls_that_do_not_fit_the_state_are_refused_and_change_nothing() {
    let cluster = Cluster::new();
    let mut bench = cluster.producer("id", &[], &[]);
    let send = |bench: &mut crate::producer_harness::Bench| {
        bench.producer.send(
            &fletchlog_client::producer::ProducerRecord {
                topic: "t",
                partition: Some(0),
                timestamp: None,
                key: None,
                value: Some(b"x"),
                headers: &[],
            },
            &mut never,
        )
    };
    illegal(send(&mut bench), "init_transactions");
    illegal(bench.producer.begin_transaction(), "init_transactions");
    illegal(bench.producer.commit_transaction(&mut never), "init_transactions");
    bench.producer.init_transactions(&mut never).unwrap();
    illegal(bench.producer.init_transactions(&mut never), "once");
    illegal(send(&mut bench), "begin_transaction");
    illegal(bench.producer.commit_transaction(&mut never), "begin_transaction");
    illegal(bench.producer.abort_transaction(&mut never), "begin_transaction");
    bench.producer.begin_transaction().unwrap();
    illegal(bench.producer.begin_transaction(), "commit or abort");
    send(&mut bench).unwrap();
    bench.producer.commit_transaction(&mut never).unwrap();
    assert_eq!(cluster.committed_values(0), ["x"]);
}

#[test]
fn a_producer_without_a_transactional_id_has_no_transactions() {
    let cluster = Cluster::new();
    let clock = &cluster.clock;
    let transport = fletchlog_broker::LocalTransport::new(cluster.broker.clone());
    let faults = crate::producer_harness::faults::scripted([]);
    let mut bench = crate::producer_harness::Bench::new(transport, clock, faults, &[("enable.idempotence", "true")]);
    illegal(bench.producer.init_transactions(&mut never), "transactional.id");
    illegal(bench.producer.begin_transaction(), "transactional.id");
    bench.send(0, b"x");
    bench.producer.flush(&mut never).unwrap();
    assert_eq!(cluster.read(0, "read_committed").len(), 1);
}

#[test]
fn a_newer_producer_takes_the_name_and_the_older_one_is_fenced_for_good() {
    let cluster = Cluster::new();
    let mut old = cluster.ready("id", &[], &[]);
    old.producer.begin_transaction().unwrap();
    old.send(0, b"old");
    old.producer.flush(&mut never).unwrap();
    let mut new = cluster.producer("id", &[], &[]);
    new.producer.init_transactions(&mut never).unwrap();
    // The open transaction is aborted first, and the producer asks again (CONCURRENT_TRANSACTIONS).
    assert_eq!(new.names(), ["FindCoordinator", "InitProducerId", "InitProducerId"]);
    let (id, epoch) = old.producer.producer_id().unwrap();
    assert_eq!(new.producer.producer_id(), Some((id, epoch + 2)));
    let fenced = |outcome: Result<(), ClientError>| {
        let error = outcome.unwrap_err();
        assert_eq!(code(&error).map(|c| c.name()), Some("PRODUCER_FENCED"), "{error}");
    };
    fenced(old.producer.commit_transaction(&mut never));
    fenced(old.producer.begin_transaction());
    fenced(old.producer.abort_transaction(&mut never));
    new.producer.begin_transaction().unwrap();
    new.send(0, b"new");
    new.producer.commit_transaction(&mut never).unwrap();
    assert_eq!(cluster.committed_values(0), ["new"]);
}

#[test]
fn a_call_that_timed_out_is_made_again_and_nothing_else_before() {
    let cluster = Cluster::new();
    // The first produce request is swallowed: the commit has no outcome before request.timeout.ms has passed.
    let config = [("max.block.ms", "1000"), ("request.timeout.ms", "5000")];
    let mut bench = cluster.ready("id", &[(1, "drop")], &config);
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"a");
    let late = bench.producer.commit_transaction(&mut never).unwrap_err();
    assert!(matches!(late, ClientError::Timeout(_)), "{late}");
    illegal(bench.producer.begin_transaction(), "commit_transaction");
    illegal(bench.producer.abort_transaction(&mut never), "commit_transaction");
    bench.producer.run_for(6000);
    bench.producer.commit_transaction(&mut never).unwrap();
    assert_eq!(cluster.committed_values(0), ["a"]);
    bench.producer.begin_transaction().unwrap();
    bench.producer.commit_transaction(&mut never).unwrap();
}

#[test]
fn a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced() {
    let cluster = Cluster::new();
    let mut bench = cluster.ready("id", &[], &[("transaction.timeout.ms", "15000")]);
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"a");
    bench.producer.flush(&mut never).unwrap();
    cluster.advance(20_000);
    assert!(cluster.committed_values(0).is_empty());
    assert_eq!(state(&cluster.broker, "id"), ("CompleteAbort", 1));
    let error = bench.producer.commit_transaction(&mut never).unwrap_err();
    assert_eq!(code(&error).map(|c| c.name()), Some("PRODUCER_FENCED"));
    let description = cluster.broker.describe_topic("t").unwrap();
    assert_eq!(
        description.partitions[0].last_stable_offset,
        2,
        "{:?} holds nothing back",
        tp(0)
    );
}
