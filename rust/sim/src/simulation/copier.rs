//! An actor that copies a partition in transactions: its position is committed together with the copies, or neither is.

use std::collections::BTreeMap;

use fletchlog_api::{IsolationLevel, OffsetAndMetadata};
use fletchlog_client::Consumer;
use fletchlog_client::producer::Producer;

use super::consumers::{COPIERS, consumer, group_id, poll, unless_the_disk};
use super::producers::{Sent, close_transactions, end, insist, send, transactional_producer};
use super::world::Hand;
use crate::history::{Action, Outcome};
use crate::stepped::never;

const ISOLATION: IsolationLevel = IsolationLevel::ReadCommitted;
const ID: &str = "copier";

pub(super) fn run(hand: &mut Hand) {
    while hand.in_chaos() {
        let producer = transactional_producer(hand, ID);
        if insist(|| producer.init_transactions(&mut never)).is_ok() {
            live(hand, &producer);
        }
        hand.sleep_some(50);
    }
    close_transactions(hand, ID);
}

/// Copies until something fails; the next life begins at the group's committed offsets.
fn live(hand: &mut Hand, producer: &Producer) {
    let process = hand.world.recorder().process();
    let group = group_id(COPIERS);
    let properties = [
        ("group.id", group.as_str()),
        ("client.id", ID),
        ("enable.auto.commit", "false"),
    ];
    let mut consumer = consumer(hand, process, ISOLATION, &properties);
    if let Err(error) = consumer.assign(&[hand.world.tp(0)]) {
        return hand.surprise(format!("assign: {error}"));
    }
    hand.world.recorder().note(process, Action::Moved(vec![(0, None)]));
    while hand.in_chaos() {
        let op = hand.world.recorder().begin_steps(process, true, Vec::new());
        if !copy(hand, producer, &mut consumer, op) {
            return;
        }
        hand.sleep_some(150);
    }
}

/// Makes one transaction. Returns false if another life has to begin.
fn copy(hand: &mut Hand, producer: &Producer, consumer: &mut Consumer, op: usize) -> bool {
    let records = match poll(hand, consumer, op, ISOLATION, Some(COPIERS), 100) {
        Ok(records) => records,
        Err(error) => {
            unless_the_disk(hand, "copier's poll", &error);
            Vec::new()
        }
    };
    if records.is_empty() {
        hand.world.recorder().end(op, Outcome::Failed);
        return true;
    }
    if producer.begin_transaction().is_err() {
        hand.world.recorder().end(op, Outcome::Failed);
        return false;
    }
    let partition = hand.world.copies();
    let mut next = BTreeMap::new();
    let mut sent = Vec::new();
    for &(from, offset, source) in &records {
        next.insert(from, offset + 1);
        let (step, value) = hand.world.recorder().begin_send(op, partition, Some(source), None);
        if let Ok(future) = send(hand, producer, partition, value, None) {
            sent.push(Sent { op, step, future });
        }
    }
    let all_sent = sent.len() == records.len();
    let offsets: Vec<_> = next
        .into_iter()
        .map(|(from, offset)| {
            let committed = OffsetAndMetadata {
                offset,
                leader_epoch: -1,
                metadata: "".into(),
            };
            (hand.world.tp(from), committed)
        })
        .collect();
    let Some(group) = consumer.group_metadata() else {
        return false;
    };
    let offsets_sent =
        all_sent && insist(|| producer.send_offsets_to_transaction(&offsets, &group, &mut never)).is_ok();
    if hand.strikes(hand.world.plan.client_crash_every_ms, 150) {
        hand.world.recorder().end(op, Outcome::Failed);
        return false;
    }
    let commit = offsets_sent && hand.rng.chance(850);
    // Aborted records must be read again.
    end(hand, producer, &sent, op, commit) == (Outcome::Ok, true)
}
