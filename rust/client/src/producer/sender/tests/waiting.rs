//! Records that wait: for metadata, and for memory.

use super::*;

fn text_of(future: &RecordFuture) -> String {
    match future.try_result() {
        Some(Err(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_that_wait_are_sent_in_order_once_the_metadata_is_there_and_later_ones_go_behind_them() {
    let mut f = Fixture::new(&[("linger.ms", "0"), ("fletchlog.trace", "false")]);
    let time = f.transport.clock.clone();
    let config = Config::parse(Scope::Producer, [("batch.size", "1"), ("enable.idempotence", "false")]).unwrap();
    f.producer = Producer::stepped(config, Box::new(f.transport.clone()), time).unwrap();
    let mut futures: Vec<_> = (1..=3).map(|value| f.send_later("t", &[value; 40])).collect();
    f.turns();
    assert_eq!(f.unanswered(), [(1, "metadata")]);
    assert!(futures[0].try_result().is_none());
    let order: Arc<Mutex<Vec<i64>>> = Arc::default();
    for future in &futures {
        let order = order.clone();
        let note: OnDecided = Box::new(move |outcome| order.lock().unwrap().push(outcome.as_ref().unwrap().offset));
        assert!(future.on_decided(note), "it waits");
    }
    assert!(
        f.producer
            .try_send_with(
                &ProducerRecord {
                    topic: "t",
                    partition: Some(0),
                    timestamp: None,
                    key: None,
                    value: Some(b"overtakes"),
                    headers: &[],
                },
                &mut None
            )
            .is_none()
    );
    f.answer_metadata();
    futures.push(f.send(4));
    f.turns();
    assert_eq!(f.values(), [1, 2, 3, 4]);
    for offset in 0..4 {
        f.answer_produce(ErrorCode::NONE, offset);
    }
    let offsets: Vec<_> = futures
        .iter()
        .map(|future| future.try_result().unwrap().unwrap().offset)
        .collect();
    assert_eq!(offsets, [0, 1, 2, 3]);
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn records_that_one_turn_does_not_take_are_not_late() {
    let mut f = Fixture::new(&[]);
    let time = f.transport.clock.clone();
    let config = Config::parse(
        Scope::Producer,
        [("max.block.ms", "500"), ("enable.idempotence", "false")],
    )
    .unwrap();
    f.producer = Producer::stepped(config, Box::new(f.transport.clone()), time.clone()).unwrap();
    let futures: Vec<_> = (0..20_000).map(|_| f.send_later("t", &[1; 40])).collect();
    f.turns();
    time.advance(499);
    f.answer_metadata();
    f.producer.run_once(0);
    time.advance(1);
    f.turns();
    let failed = futures
        .iter()
        .filter(|future| future.try_result().is_some_and(|outcome| outcome.is_err()));
    assert_eq!(failed.count(), 0);
}

#[test]
fn a_topic_that_is_not_there_fails_its_own_records_and_holds_back_no_other() {
    let mut f = Fixture::new(&[("max.block.ms", "500"), ("enable.idempotence", "false")]);
    let lost = f.send_later("nowhere", b"1");
    let sent = f.send_later("t", &[7; 40]);
    f.turns();
    assert_eq!(f.values(), [7]);
    f.answer_metadata();
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(sent.try_result().unwrap().unwrap().offset, 0);
    assert!(lost.try_result().is_none());
    f.producer.run_for(600);
    let text = text_of(&lost);
    assert!(
        text.contains("no metadata for topic nowhere after 500 ms (max.block.ms)"),
        "{text}"
    );
}

#[test]
fn what_keeps_a_record_that_waited_from_being_sent_is_on_its_future() {
    let mut f = Fixture::new(&[
        ("enable.idempotence", "false"),
        ("max.request.size", "1000"),
        ("acks", "1"),
    ]);
    let too_large = f.send_later("t", &[0; 2000]);
    let record = |partition, timestamp| ProducerRecord {
        topic: "t",
        partition: Some(partition),
        timestamp,
        key: None,
        value: None,
        headers: &[],
    };
    let elsewhere = f.producer.send_later(&record(9, None), None).unwrap();
    let past = f.producer.send_later(&record(0, Some(-1)), None);
    f.turns();
    assert!(text_of(&too_large).contains("max.request.size"));
    assert!(text_of(&elsewhere).contains("no partition 9"));
    assert!(matches!(past, Err(ClientError::IllegalArgument(_))));
    f.producer.close(Some(0), &mut never).unwrap();
    assert!(matches!(
        f.producer.send_later(&record(0, None), None),
        Err(ClientError::Closed(_))
    ));
}

/// A producer whose next record waits for max.block.ms at most.
fn with_memory_for_one_record() -> Fixture {
    Fixture::new(&[
        ("max.block.ms", "500"),
        ("enable.idempotence", "false"),
        ("buffer.memory", "200"),
        ("max.request.size", "200"),
    ])
}

#[test]
fn a_record_waits_for_memory_at_most_max_block_ms_and_another_one_is_sent_when_there_is_some() {
    let mut f = with_memory_for_one_record();
    let first = f.send_later("t", &[1; 40]);
    f.turns();
    let late = f.send_later("t", &[2; 40]);
    f.producer.run_for(600);
    assert!(
        text_of(&late).contains("no room for the record after 500 ms (max.block.ms)"),
        "{}",
        text_of(&late)
    );
    let second = f.send_later("t", &[3; 40]);
    f.turns();
    assert_eq!(f.values(), [1]);
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(f.values(), [3]);
    f.answer_produce(ErrorCode::NONE, 1);
    assert_eq!(first.try_result().unwrap().unwrap().offset, 0);
    assert_eq!(second.try_result().unwrap().unwrap().offset, 1);
}

#[test]
fn each_record_that_waits_for_memory_has_max_block_ms_of_its_own() {
    let mut f = with_memory_for_one_record();
    let first = f.send_later("t", &[1; 40]);
    f.turns();
    let early = f.send_later("t", &[2; 40]);
    f.producer.run_for(300);
    let later = f.send_later("t", &[3; 40]);
    f.producer.run_for(300);
    assert!(text_of(&early).contains("after 500 ms (max.block.ms)"));
    assert!(later.try_result().is_none());
    f.producer.run_for(300);
    assert!(text_of(&later).contains("after 500 ms (max.block.ms)"));
    assert!(
        first.try_result().is_none(),
        "it is in a batch: delivery.timeout.ms counts"
    );
}

#[test]
fn records_that_wait_when_the_producer_is_closed_fail() {
    let mut f = Fixture::new(&[("enable.idempotence", "false")]);
    let lost = f.send_later("nowhere", b"1");
    f.turns();
    f.producer.close(Some(100), &mut never).unwrap();
    assert!(text_of(&lost).contains("closed before"), "{}", text_of(&lost));
}
