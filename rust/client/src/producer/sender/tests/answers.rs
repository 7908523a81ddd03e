//! Answers, and batches that get none in time.

use super::*;

#[test]
fn code_46_is_success_without_an_offset() {
    let mut f = Fixture::new(&[]);
    let future = f.send(1);
    f.turns();
    f.answer_produce(ErrorCode::DUPLICATE_SEQUENCE_NUMBER, -1);
    assert_eq!(future.try_result().unwrap().unwrap().offset, -1);
    assert!(f.kinds().contains(&TraceKind::AcknowledgedAsDuplicate));
}

#[test]
fn an_answer_that_leaves_the_partition_out_fails_it() {
    let mut f = Fixture::new(&[]);
    let future = f.send(1);
    f.turns();
    let nothing = ProduceResponse::default();
    f.answer(|r| matches!(r, Request::Produce(_)), Ok(Response::Produce(nothing)));
    assert_eq!(code(&future), ErrorCode::UNKNOWN_SERVER_ERROR);
}

#[test]
fn acks_0_is_decided_when_sent_and_survives_a_closed_connection() {
    let mut f = Fixture::new(&[("acks", "0")]);
    let future = f.send(1);
    f.turns();
    assert_eq!(future.try_result().unwrap().unwrap().offset, -1);
    f.answer(|r| matches!(r, Request::Produce(_)), Err(Failure::Disconnected));
    assert_eq!(future.try_result().unwrap().unwrap().offset, -1);
}

#[test]
fn a_batch_that_expires_reports_how_its_last_attempt_failed() {
    let mut f = Fixture::new(&[("request.timeout.ms", "100"), ("delivery.timeout.ms", "300")]);
    let future = f.send(1);
    f.turns();
    while future.try_result().is_none() {
        f.answer_produce(ErrorCode::NOT_ENOUGH_REPLICAS, -1);
        f.producer.run_for(10);
        f.turns();
    }
    let error = future.try_result().unwrap().unwrap_err();
    assert!(
        error.to_string().contains(ErrorCode::NOT_ENOUGH_REPLICAS.message()),
        "{error}"
    );
}

#[test]
fn a_batch_that_expires_behind_one_that_failed_reports_how_that_failed() {
    let times = [("request.timeout.ms", "100"), ("delivery.timeout.ms", "300")];
    let mut f = Fixture::new(&[
        times[0],
        times[1],
        ("max.in.flight.requests.per.connection", "1"),
        ("batch.size", "1"),
    ]);
    let futures: Vec<_> = (0..3).map(|value| f.send(value)).collect();
    f.turns();
    while futures[2].try_result().is_none() {
        if f.unanswered().contains(&(1, "produce")) {
            f.answer_produce(ErrorCode::NOT_ENOUGH_REPLICAS, -1);
        }
        f.producer.run_for(10);
        f.turns();
    }
    for future in futures {
        let error = future.try_result().unwrap().unwrap_err().to_string();
        assert!(error.contains("1 record for "), "{error}");
        assert!(error.contains(ErrorCode::NOT_ENOUGH_REPLICAS.message()), "{error}");
    }
}
