//! The actor that makes the broker clean compacted topics: that of the producers, and those of the coordinators.

use fletchlog_api::{Clock, ErrorCode};
use fletchlog_broker::{Broker, BrokerError, CleanedPartition};
use fletchlog_records::TopicPartition;

use super::cluster::TOPIC;
use super::plan::CompactionPlan;
use super::world::Hand;
use crate::history::{Action, Outcome, Partition};

/// Kafka's internal topics are compacted too; losses there show in groups' committed offsets and in the outcomes of transactions.
const COORDINATORS: [&str; 2] = ["__consumer_offsets", "__transaction_state"];
/// Most cleanings in a row: a later one removes tombstones that an earlier one has seen.
const MOST_IN_A_ROW: usize = 4;

/// A call to the broker's cleaner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Call {
    Topic {
        name: &'static str,
        force: bool,
    },
    /// One step of the background thread (log.cleaner.enable).
    Filthiest,
}

impl Call {
    fn forces(self) -> bool {
        matches!(self, Self::Topic { force: true, .. })
    }

    fn may_clean(self, topic: &str) -> bool {
        match self {
            Self::Topic { name, .. } => name == topic,
            Self::Filthiest => true,
        }
    }

    fn make(self, broker: &Broker) -> Result<Vec<(TopicPartition, CleanedPartition)>, BrokerError> {
        let (name, force) = match self {
            Self::Topic { name, force } => (name, force),
            Self::Filthiest => return Ok(broker.clean_filthiest()?.into_iter().collect()),
        };
        let named = |done: CleanedPartition| (TopicPartition::new(name, done.partition), done);
        let cleaned = broker.clean_topic(name, force, &mut || false)?;
        Ok(cleaned
            .into_iter()
            .map(named)
            .filter(|(_, done)| done.rounds > 0)
            .collect())
    }
}

pub(super) fn run(hand: &mut Hand) {
    let Some(plan) = hand.world.plan.compaction else { return };
    let process = hand.world.recorder().process();
    while hand.in_chaos() {
        hand.sleep_some(2 * plan.every_ms);
        let in_a_row = if hand.rng.chance(200) { MOST_IN_A_ROW } else { 1 };
        for _ in 0..in_a_row {
            let call = call(hand, &plan);
            // The background thread continues until nothing is due.
            while clean(hand, process, &plan, call) && call == Call::Filthiest {}
            if in_a_row > 1 {
                hand.sleep_some(1_000);
            }
        }
    }
}

fn call(hand: &mut Hand, plan: &CompactionPlan) -> Call {
    let force = hand.rng.chance(400);
    if plan.background && hand.rng.chance(600) {
        return Call::Filthiest;
    }
    let name = if hand.rng.chance(300) {
        COORDINATORS[hand.rng.below(COORDINATORS.len())]
    } else {
        TOPIC
    };
    Call::Topic { name, force }
}

/// Makes the broker clean, and records what that may have removed. Returns true if something was cleaned.
pub(super) fn clean(hand: &Hand, process: u32, plan: &CompactionPlan, call: Call) -> bool {
    let Some(ops) = begin(hand, process, plan, call) else {
        return false;
    };
    let cleaned = make(hand, call);
    for (op, partition) in ops {
        if call.forces() {
            raise_bound(hand, op, partition);
        }
        let tp = hand.world.tp(partition);
        let outcome = match &cleaned {
            Some(all) if all.iter().any(|(cleaned, _)| *cleaned == tp) => Outcome::Ok,
            Some(_) => Outcome::Failed,
            None => Outcome::Unknown,
        };
        hand.world.recorder().end(op, outcome);
    }
    let cleaned = cleaned.unwrap_or_default();
    for (tp, done) in &cleaned {
        let mut text = format!("{tp} is cleaned in {} rounds", done.rounds);
        if call == Call::Filthiest {
            text.push_str(", in the background");
        }
        if &*tp.topic == TOPIC && plan.only_lag_counts() && !call.forces() {
            text.push_str(", because of max.compaction.lag.ms");
        }
        hand.world.recorder().note(process, Action::Note(text));
    }
    !cleaned.is_empty()
}

/// Makes the call. `None`: it failed, as it may.
fn make(hand: &Hand, call: Call) -> Option<Vec<(TopicPartition, CleanedPartition)>> {
    let cluster = hand.world.cluster();
    match call.make(cluster.broker()?) {
        Ok(cleaned) => return Some(cleaned),
        // The coordinators' topics are created on demand.
        Err(BrokerError::Kafka { code, .. })
            if !call.may_clean(TOPIC) && code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {}
        Err(_) if cluster.disk_has_failed() || hand.world.plan.loses_acknowledged() => {}
        Err(error) => hand.surprise(format!("the cleaner, {call:?}: {error}")),
    }
    None
}

/// Begins an operation for every partition of the producers' topic that may be cleaned now. `None`: nothing can be cleaned.
fn begin(hand: &Hand, process: u32, plan: &CompactionPlan, call: Call) -> Option<Vec<(usize, Partition)>> {
    if !call.may_clean(TOPIC) {
        return Some(Vec::new());
    }
    let now = hand.world.clock.now_ms();
    let bounds: Vec<(Partition, i64)> = {
        let cluster = hand.world.cluster();
        let broker = cluster.broker()?;
        let partitions = (0..hand.world.copies()).map(|p| Some((p, bound(hand, broker, p, call.forces())?)));
        // If the disk fails and a log cannot be opened here, the cleaner might still open it, so nothing is cleaned.
        partitions.collect::<Option<_>>()?
    };
    let begin = |(partition, below): (Partition, i64)| {
        let op = hand.world.recorder().begin_with(process, |recorder| Action::Cleaned {
            partition,
            below,
            sent_before: recorder.first_after(now - plan.min_compaction_lag_ms),
            seen_before: recorder.first_after(now - plan.delete_retention_ms),
        });
        (op, partition)
    };
    Some(bounds.into_iter().map(begin).collect())
}

/// Raises the bound after a forced cleaning, which also closes the active segment with records appended since the bound was read.
fn raise_bound(hand: &Hand, op: usize, partition: Partition) {
    let below = {
        let cluster = hand.world.cluster();
        let broker = cluster.broker();
        broker.and_then(|broker| bound(hand, broker, partition, true))
    };
    hand.world.recorder().raise_bound(op, below.unwrap_or(i64::MAX));
}

/// The offset from which nothing may be cleaned now: open transactions, and the active segment unless forced.
fn bound(hand: &Hand, broker: &Broker, partition: Partition, force: bool) -> Option<i64> {
    let tp = hand.world.tp(partition);
    let segments = broker.partition_log(&tp).ok()?.segments();
    let described = broker.describe_topic(&tp.topic).ok()?;
    let stable = described
        .partitions
        .iter()
        .find(|p| p.partition == tp.partition && p.last_stable_offset >= 0)?
        .last_stable_offset;
    let (active, _) = segments.last()?;
    // A forced cleaning closes the active segment first.
    Some(if force { stable } else { stable.min(*active) })
}
