//! What one turn sends, and the trace of it.

use super::*;

#[test]
fn with_one_in_flight_a_partition_stays_muted_even_when_its_leader_moves() {
    let mut f = Fixture::new(&[
        ("max.in.flight.requests.per.connection", "1"),
        ("metadata.max.age.ms", "100"),
    ]);
    f.send(1);
    f.send(2);
    f.turns();
    assert_eq!((f.unanswered(), f.values()), (vec![(1, "produce")], vec![1]));
    f.leader = 2;
    f.producer.run_for(100);
    f.turns();
    assert_eq!(f.unanswered(), [(1, "produce"), (2, "metadata")]);
    f.answer_metadata();
    assert_eq!(f.values(), [1], "node 2 is free, but the first is not decided");
    f.answer_produce(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1);
    f.producer.run_for(10);
    f.turns();
    f.answer_metadata();
    assert_eq!((f.unanswered(), f.values()), (vec![(2, "produce")], vec![1]));
    f.answer_produce(ErrorCode::NONE, 0);
    assert_eq!(f.values(), [2]);
}

#[test]
fn a_metadata_update_that_is_due_goes_before_records() {
    let mut f = Fixture::new(&[("max.in.flight.requests.per.connection", "2")]);
    (0..4).for_each(|value| drop(f.send(value)));
    f.turns();
    assert_eq!(f.values(), [0, 1]);
    f.producer.run_for(10);
    // The second node makes the metadata request independent of the first one's slots.
    f.answer_produce(ErrorCode::NOT_LEADER_OR_FOLLOWER, -1);
    assert_eq!(
        f.unanswered()[..2],
        [(1, "produce"), (2, "metadata")],
        "the update goes out before the slot is used again"
    );
}

#[test]
fn records_follow_a_metadata_request_at_once() {
    let mut f = Fixture::new(&[("metadata.max.age.ms", "100")]);
    f.transport.clock.advance(100);
    let now = f.transport.clock.monotonic_ms();
    f.send(1);
    (0..2).for_each(|_| f.producer.run_once(i64::MAX));
    let sent: Vec<_> = f.unanswered().into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(sent, ["metadata", "produce"], "neither is answered");
    assert_eq!(f.transport.clock.monotonic_ms(), now, "nothing was waited for");
}

#[test]
fn the_trace_has_the_life_of_a_batch() {
    use TraceKind::{Acknowledged, Drained, Muted, Ready, Reenqueued, Retried, Sent, Unmuted};
    let mut f = Fixture::new(&[("max.in.flight.requests.per.connection", "1")]);
    f.send(1);
    f.turns();
    f.answer_produce(ErrorCode::NOT_ENOUGH_REPLICAS, -1);
    f.producer.run_for(10);
    f.turns();
    f.answer_produce(ErrorCode::NONE, 5);
    let attempt = [Ready, Drained, Muted, Sent];
    let expected: Vec<TraceKind> = [
        &attempt[..],
        &[Retried, Reenqueued, Unmuted],
        &attempt,
        &[Acknowledged, Unmuted],
    ]
    .concat();
    assert_eq!(f.kinds(), expected);
    let events = f.producer.trace();
    let last = events.iter().rev().find(|e| e.kind == Acknowledged).unwrap();
    assert_eq!(
        (last.base_offset, last.attempts, last.records, last.batch),
        (5, 1, 1, 0)
    );
}

#[test]
fn nothing_is_traced_when_it_is_off() {
    let mut f = Fixture::new(&[("fletchlog.trace", "false")]);
    f.send(1);
    f.turns();
    f.answer_produce(ErrorCode::NONE, 0);
    assert!(f.kinds().is_empty());
}
