//! The quiet end of a run: the faults are over, all actors have ended, and two readers read every partition to its end.

use fletchlog_api::IsolationLevel;

use super::admin;
use super::cluster::{COPIES, TOPIC};
use super::consumers::{assign_all, consumer, looker, poll_once};
use super::quiet_group;
use super::share_end;
use super::whole_clean;
use super::world::Hand;
use crate::history::{Action, Partition};

/// Time limit for anything on a quiet cluster, ms.
const PATIENCE_MS: i64 = 60_000;

/// Longer than any message or pause, ms: afterwards no message is in transit, not even on closed connections, so that both readers find the
/// same.
const STRAGGLERS_MS: i64 = 10_000;

pub(super) fn run(hand: &mut Hand) {
    hand.sleep(STRAGGLERS_MS);
    if !nothing_is_open(hand) {
        return;
    }
    if hand.world.plan.group.is_some_and(|group| group.static_members) {
        quiet_group::run(hand);
    }
    if hand.world.plan.uses_consumer_protocol() {
        quiet_group::comes_to_rest(hand);
    }
    share_end::run(hand);
    whole_clean::run(hand);
    for isolation in [IsolationLevel::ReadUncommitted, IsolationLevel::ReadCommitted] {
        read_all(hand, isolation);
    }
    looker(hand, true);
    let process = hand.world.recorder().process();
    admin::look(hand, process);
}

/// (partition, last stable offset, high watermark).
fn ends(hand: &Hand) -> Vec<(Partition, i64, i64)> {
    let cluster = hand.world.cluster();
    let Some(broker) = cluster.broker() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for topic in [TOPIC, COPIES] {
        let described = broker
            .describe_topic(topic)
            .unwrap_or_else(|e| panic!("topic {topic} is gone: {e}"));
        for p in described.partitions {
            let tp = fletchlog_records::TopicPartition::new(topic, p.partition);
            found.push((hand.world.number(&tp), p.last_stable_offset, p.high_watermark));
        }
    }
    found
}

/// Waits until every transaction has ended, at the latest by its time-out.
fn nothing_is_open(hand: &Hand) -> bool {
    let until = hand.now() + PATIENCE_MS;
    while hand.now() < until {
        if ends(hand).iter().all(|(_, stable, end)| stable == end) {
            return true;
        }
        hand.sleep(500);
    }
    if hand.world.plan.loses_acknowledged() {
        return true; // The coordinator has lost them.
    }
    hand.surprise(format!(
        "transactions stay open: (partition, last stable offset, end) {:?}",
        ends(hand)
    ));
    false
}

fn read_all(hand: &mut Hand, isolation: IsolationLevel) {
    let process = hand.world.recorder().process();
    let mut consumer = consumer(hand, process, isolation, &[]);
    if let Err(error) = assign_all(hand, &mut consumer, process) {
        return hand.surprise(format!("assign: {error}"));
    }
    let ends = ends(hand);
    let mut heard_ms = hand.now();
    loop {
        if poll_once(hand, &mut consumer, process, isolation) > 0 {
            heard_ms = hand.now();
        }
        let (mut left, mut reached) = (Vec::new(), Vec::new());
        for &(partition, stable, high) in &ends {
            let end = if isolation == IsolationLevel::ReadCommitted {
                stable
            } else {
                high
            };
            let position = consumer
                .position(&hand.world.tp(partition), 0, &mut || false)
                .unwrap_or(-1);
            reached.push((partition, position));
            if position < end {
                left.push((partition, position, end));
            }
        }
        if left.is_empty() {
            let offsets = reached;
            let reached = Action::Reached { isolation, offsets };
            return hand.world.recorder().note(process, reached);
        }
        if hand.now() > heard_ms + PATIENCE_MS {
            if hand.world.plan.loses_acknowledged() {
                // Records lost at the end of a segment leave a gap before the next one. As in Kafka, a reader before the gap waits for the
                // next record.
                return;
            }
            return hand.surprise(format!(
                "a {isolation:?} reader does not get on: (partition, position, end) {left:?}"
            ));
        }
    }
}
