//! Actors that send: producers of single records, and producers of transactions.

use fletchlog_api::{Clock, ErrorCode};
use fletchlog_client::ClientError;
use fletchlog_client::producer::{Producer, ProducerRecord, RecordFuture};

use super::consumers::unless_the_disk;
use super::plan::{Idempotence, ProducerPlan};
use super::world::{Hand, TOMBSTONE, key_bytes, text_of};
use crate::history::{Action, Keyed, Outcome, Partition, Value};
use crate::stepped::{decide, never};

/// A step of an operation whose record was sent.
pub(super) struct Sent {
    pub op: usize,
    pub step: usize,
    pub future: RecordFuture,
}

/// How often a call that timed out is repeated. Faults end, and then every call gets a response.
const ATTEMPTS: usize = 60;

pub(super) fn send(
    hand: &mut Hand,
    producer: &Producer,
    partition: Partition,
    value: Value,
    keyed: Option<Keyed>,
) -> Result<RecordFuture, ClientError> {
    let tp = hand.world.tp(partition);
    let (key, timestamp) = (keyed.map(key_bytes), hand.world.clock.now_ms());
    let mut text = text_of(value, timestamp, key.as_deref());
    text.push_str(&"-".repeat(hand.rng.below(60)));
    let text = Some(text.as_bytes());
    let header = [(TOMBSTONE, text)];
    let is_tombstone = keyed.is_some_and(|keyed| keyed.tombstone);
    producer.send(
        &ProducerRecord {
            topic: &tp.topic,
            partition: Some(tp.partition),
            timestamp: Some(timestamp),
            key: key.as_deref(),
            value: text.filter(|_| !is_tombstone),
            headers: if is_tombstone { &header } else { &[] },
        },
        &mut never,
    )
}

/// Records the outcomes of completed sends.
fn settle(hand: &Hand, open: &mut Vec<Sent>) {
    open.retain(|sent| {
        let Some(outcome) = sent.future.try_result() else {
            return true;
        };
        let mut recorder = hand.world.recorder();
        match outcome {
            Ok(metadata) => {
                recorder.acknowledge(sent.op, sent.step, metadata.offset);
                recorder.end(sent.op, Outcome::Ok);
            }
            // A record that timed out may be in the log, or be appended later.
            Err(_) => recorder.end(sent.op, Outcome::Unknown),
        }
        false
    });
}

/// A producer without transactions, restarted whenever it was killed.
pub(super) fn plain(hand: &mut Hand, index: usize) {
    let plan = hand.world.plan.producers[index].clone();
    while hand.in_chaos() {
        live(hand, &plan);
    }
}

fn live(hand: &mut Hand, plan: &ProducerPlan) {
    let process = hand.world.recorder().process();
    let idempotent = plan.idempotence == Idempotence::On;
    let properties = [
        ("fletchlog.producer.version", plan.release.to_owned()),
        ("enable.idempotence", idempotent.to_string()),
        ("acks", "all".to_owned()),
        ("max.in.flight.requests.per.connection", plan.in_flight.to_string()),
        ("batch.size", plan.batch_size.to_string()),
        ("linger.ms", plan.linger_ms.to_string()),
        ("request.timeout.ms", "2000".to_owned()),
        ("delivery.timeout.ms", "60000".to_owned()),
        ("retry.backoff.ms", "50".to_owned()),
    ];
    let producer = hand.producer(&properties.each_ref().map(|(name, value)| (*name, value.as_str())));
    let mut open = Vec::new();
    while hand.in_chaos() {
        for _ in 0..1 + hand.rng.below(4) {
            let partition = u32::try_from(hand.rng.below(hand.world.copies() as usize)).unwrap_or(0);
            let keyed = hand.keyed(partition);
            let (op, step, value) = {
                let mut recorder = hand.world.recorder();
                let op = recorder.begin_steps(process, false, Vec::new());
                let (step, value) = recorder.begin_send(op, partition, None, keyed);
                (op, step, value)
            };
            match send(hand, &producer, partition, value, keyed) {
                Ok(future) => open.push(Sent { op, step, future }),
                Err(error) => {
                    hand.world.recorder().end(op, Outcome::Failed);
                    hand.surprise(format!("send: {error}"));
                }
            }
        }
        let pause = i64::try_from(hand.rng.below(200)).unwrap_or(0);
        producer.run_for(pause);
        settle(hand, &mut open);
        if hand.strikes(hand.world.plan.client_crash_every_ms, 100) {
            hand.world.recorder().note(process, Action::Note("killed".to_owned()));
            return;
        }
    }
    if let Err(error) = producer.flush(&mut never) {
        hand.surprise(format!("flush: {error}"));
    }
    settle(hand, &mut open);
    producer.run_until_idle();
}

/// Repeats a call while it times out.
pub(super) fn insist<T>(mut call: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    for _ in 0..ATTEMPTS {
        match call() {
            Err(ClientError::Timeout(_)) => {}
            outcome => return outcome,
        }
    }
    call()
}

pub(super) fn transactional_producer(hand: &mut Hand, id: &str) -> Producer {
    let plan = hand.world.plan.transactions;
    let release = match plan.releases {
        [release] => release,
        several => several[hand.rng.below(several.len())],
    };
    let timeout = plan.timeout_ms.to_string();
    let in_flight = hand.world.plan.most_in_flight.to_string();
    hand.producer(&[
        ("transactional.id", id),
        ("max.in.flight.requests.per.connection", &in_flight),
        ("fletchlog.producer.version", release),
        ("request.timeout.ms", "2000"),
        ("delivery.timeout.ms", "20000"),
        ("max.block.ms", "10000"),
        ("transaction.timeout.ms", timeout.as_str()),
        ("retry.backoff.ms", "50"),
        ("batch.size", "200"),
    ])
}

/// A transactional producer. At the end, a last one takes over its transactional.id, so that no transaction stays open.
pub(super) fn transactional(hand: &mut Hand, index: usize) {
    let id = format!("transactions-{index}");
    while hand.in_chaos() {
        let producer = transactional_producer(hand, &id);
        if insist(|| producer.init_transactions(&mut never)).is_ok() {
            transactions(hand, &producer);
        }
        hand.sleep_some(50);
    }
    close_transactions(hand, &id);
}

/// Ends the open transaction of a transactional.id.
pub(super) fn close_transactions(hand: &mut Hand, id: &str) {
    for _ in 0..ATTEMPTS {
        let producer = transactional_producer(hand, id);
        if insist(|| producer.init_transactions(&mut never)).is_ok() {
            return;
        }
        hand.sleep(500);
    }
    hand.surprise(format!("transactional.id {id} cannot be taken over"));
}

/// Makes transactions until the producer is unusable.
fn transactions(hand: &mut Hand, producer: &Producer) {
    let process = hand.world.recorder().process();
    while hand.in_chaos() {
        if let Err(error) = producer.begin_transaction() {
            return expect_fenced(hand, &error);
        }
        let op = hand.world.recorder().begin_steps(process, true, Vec::new());
        let mut sent = Vec::new();
        for _ in 0..1 + hand.rng.below(4) {
            let partition = u32::try_from(hand.rng.below(hand.world.copies() as usize)).unwrap_or(0);
            let keyed = hand.keyed(partition);
            let (step, value) = hand.world.recorder().begin_send(op, partition, None, keyed);
            match send(hand, producer, partition, value, keyed) {
                Ok(future) => sent.push(Sent { op, step, future }),
                Err(_) => break, // The end of the transaction shows the result.
            }
            if hand.rng.chance(500) {
                let pause = i64::try_from(hand.rng.below(60)).unwrap_or(0);
                producer.run_for(pause);
            }
        }
        if hand.strikes(hand.world.plan.client_crash_every_ms, 150) {
            // It will never be committed.
            hand.world.recorder().end(op, Outcome::Failed);
            return;
        }
        let commit = hand.rng.chance(800);
        let (_, usable) = end(hand, producer, &sent, op, commit);
        if !usable {
            return;
        }
        let pause = i64::try_from(hand.rng.below(200)).unwrap_or(0);
        producer.run_for(pause);
    }
}

/// Ends a transaction and records its outcome. Also returns whether the producer can continue.
pub(super) fn end(hand: &mut Hand, producer: &Producer, sent: &[Sent], op: usize, commit: bool) -> (Outcome, bool) {
    let first = insist(|| decide(producer, commit));
    let (outcome, usable) = match first {
        Ok(()) if commit => (Outcome::Ok, true),
        Ok(()) => (Outcome::Failed, true),
        // If no commit was requested, it can only be aborted, now or by its time-out.
        Err(error) if !commit => {
            expect_fenced(hand, &error);
            (Outcome::Failed, false)
        }
        Err(error) if is_abortable(&error) => match insist(|| producer.abort_transaction(&mut never)) {
            Ok(()) => (Outcome::Failed, true),
            Err(error) => {
                expect_fenced(hand, &error);
                (Outcome::Unknown, false)
            }
        },
        Err(error) => {
            expect_fenced(hand, &error);
            (Outcome::Unknown, false)
        }
    };
    let mut recorder = hand.world.recorder();
    for Sent { op, step, future } in sent {
        if let Some(Ok(metadata)) = future.try_result() {
            recorder.acknowledge(*op, *step, metadata.offset);
        }
    }
    recorder.end(op, outcome);
    (outcome, usable)
}

fn is_abortable(error: &ClientError) -> bool {
    matches!(error, ClientError::Kafka { code, .. } if code.name() == "TRANSACTION_ABORTABLE")
        || matches!(error, ClientError::CommitFailed(_))
}

/// Reports an unexpected error of a producer. Two are expected: the broker aborts a transaction that was open too long and fences its
/// producer, and a log refuses appends until it is reopened.
fn expect_fenced(hand: &Hand, error: &ClientError) {
    let fenced = [
        ErrorCode::PRODUCER_FENCED,
        ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::INVALID_TXN_STATE,
        ErrorCode::INVALID_PRODUCER_ID_MAPPING,
    ];
    match error {
        ClientError::Kafka { code, .. } if fenced.contains(code) => {}
        error if is_abortable(error) => {}
        error => unless_the_disk(hand, "transaction", error),
    }
}
