//! Until there is a producer id.

use super::*;

#[test]
fn a_producer_id_is_asked_for_again_after_the_back_off_and_a_refusal_is_fatal() {
    let mut f = Fixture::new(&[("enable.idempotence", "true")]);
    let first = f.send(1);
    f.turns();
    assert_eq!(f.unanswered(), [(1, "init")]);
    f.answer_init(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    assert!(f.unanswered().is_empty(), "not before the back-off");
    f.producer.run_for(10);
    f.turns();
    f.answer_init(ErrorCode::NONE);
    assert_eq!((f.producer.producer_id(), f.values()), (Some((7, 0)), vec![1]));
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(first.try_result().unwrap().unwrap().offset, 0);

    let mut f = Fixture::new(&[("enable.idempotence", "true")]);
    let first = f.send(1);
    f.turns();
    f.answer_init(ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(code(&first), ErrorCode::UNSUPPORTED_VERSION);
    let later = f.send(2);
    f.turns();
    assert_eq!(code(&later), ErrorCode::UNSUPPORTED_VERSION);
}

fn full_disk(until_reopened: bool) -> StorageFailure {
    StorageFailure {
        message: "cannot write /data/file: No space left on device".into(),
        until_reopened,
    }
}

#[test]
fn records_fail_in_time_while_a_producer_id_is_refused_and_the_reason_is_reported() {
    let times = [("request.timeout.ms", "100"), ("delivery.timeout.ms", "300")];
    let mut f = Fixture::new(&[("enable.idempotence", "true"), times[0], times[1]]);
    let start = f.transport.clock.monotonic_ms();
    let future = f.send(1);
    f.turns();
    while future.try_result().is_none() {
        f.answer_init_with(ErrorCode::KAFKA_STORAGE_ERROR, Some(full_disk(false)));
        f.producer.run_for(10);
        f.turns();
    }
    assert_eq!(f.transport.clock.monotonic_ms() - start, 300);
    let error = future.try_result().unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Timeout(_)), "{error}");
    for part in [
        "delivery.timeout.ms",
        "no producer id",
        "/data/file: No space left on device",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    // With room again the producer goes on.
    f.answer_init(ErrorCode::NONE);
    let future = f.send(2);
    f.turns();
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(future.try_result().unwrap().unwrap().offset, 0);
}

#[test]
fn what_only_reopening_mends_is_not_asked_for_again() {
    let mut f = Fixture::new(&[("enable.idempotence", "true")]);
    let future = f.send(1);
    f.turns();
    f.answer_init_with(ErrorCode::KAFKA_STORAGE_ERROR, Some(full_disk(true)));
    f.producer.run_for(100);
    assert!(f.unanswered().is_empty());
    assert_eq!(code(&future), ErrorCode::KAFKA_STORAGE_ERROR);
}
