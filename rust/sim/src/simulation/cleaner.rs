//! The actor that lets the broker clean compacted topics: the one of the producers, and those of the coordinators.

use fletchlog_api::{Clock, ErrorCode};
use fletchlog_broker::{Broker, BrokerError, CleanedPartition};

use super::cluster::TOPIC;
use super::plan::CompactionPlan;
use super::world::Hand;
use crate::history::{Action, Outcome, Partition};

/// Kafka's own topics are compacted, too; what is lost there shows in what groups have committed and transactions have become.
const COORDINATORS: [&str; 2] = ["__consumer_offsets", "__transaction_state"];

pub(super) fn run(hand: &mut Hand) {
    let Some(plan) = hand.world.plan.compaction else { return };
    let process = hand.world.recorder().process();
    while hand.in_chaos() {
        hand.sleep_some(2 * plan.every_ms);
        let force = hand.rng.chance(400);
        if hand.rng.chance(300) {
            let topic = COORDINATORS[hand.rng.below(COORDINATORS.len())];
            let outcome = clean_topic(hand, topic, force);
            let cleaned = outcome.iter().flatten().any(|partition| partition.rounds > 0);
            if cleaned {
                let note = Action::Note(format!("{topic} is cleaned"));
                hand.world.recorder().note(process, note);
            }
        } else {
            clean(hand, process, &plan, force);
        }
    }
}

/// `None`: it failed, and was allowed to.
fn clean_topic(hand: &Hand, topic: &str, force: bool) -> Option<Vec<CleanedPartition>> {
    let cluster = hand.world.cluster();
    match cluster.broker()?.clean_topic(topic, force, &mut || false) {
        Ok(cleaned) => return Some(cleaned),
        // The coordinators' topics are made when they are needed.
        Err(BrokerError::Kafka { code, .. }) if topic != TOPIC && code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {}
        Err(_) if cluster.disk_has_failed() || hand.world.plan.loses_acknowledged() => {}
        Err(error) => hand.surprise(format!("the cleaner, in {topic}: {error}")),
    }
    None
}

/// Cleans the producers' topic, and writes down what that may have removed.
fn clean(hand: &Hand, process: u32, plan: &CompactionPlan, force: bool) {
    let now = hand.world.clock.now_ms();
    let bounds: Option<Vec<(Partition, i64)>> = {
        let cluster = hand.world.cluster();
        let Some(broker) = cluster.broker() else { return };
        let partitions = (0..hand.world.copies()).map(|p| Some((p, bound(hand, broker, p, force)?)));
        partitions.collect()
    };
    // A log that does not open now, for want of a disk that works, might do so for the cleaner.
    let Some(bounds) = bounds else { return };
    let begin = |&(partition, below): &(Partition, i64)| {
        hand.world.recorder().begin_with(process, |recorder| Action::Cleaned {
            partition,
            below,
            sent_before: recorder.first_after(now - plan.min_compaction_lag_ms),
            seen_before: recorder.first_after(now - plan.delete_retention_ms),
        })
    };
    let ops: Vec<usize> = bounds.iter().map(begin).collect();
    let cleaned = clean_topic(hand, TOPIC, force);
    for (op, (partition, _)) in ops.into_iter().zip(bounds) {
        let done = cleaned.as_ref().map(|all| {
            let number = hand.world.tp(partition).partition;
            all.iter()
                .any(|cleaned| cleaned.partition == number && cleaned.rounds > 0)
        });
        let outcome = match done {
            Some(true) => Outcome::Ok,
            Some(false) => Outcome::Failed,
            None => Outcome::Unknown,
        };
        hand.world.recorder().end(op, outcome);
    }
}

/// Nothing from here on may be cleaned now: it is open, or in the active segment.
fn bound(hand: &Hand, broker: &Broker, partition: Partition, force: bool) -> Option<i64> {
    let tp = hand.world.tp(partition);
    let segments = broker.partition_log(&tp).ok()?.segments();
    let described = broker.describe_topic(&tp.topic).ok()?;
    let stable = described
        .partitions
        .iter()
        .find(|p| p.partition == tp.partition)?
        .last_stable_offset;
    let (active, _) = segments.last()?;
    // Forced, the active segment is closed before.
    Some(if force { stable } else { stable.min(*active) })
}
