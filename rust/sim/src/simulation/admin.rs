//! The actors that delete records and run retention; both record where logs start.

use fletchlog_api::ErrorCode;
use fletchlog_broker::{Broker, BrokerError};
use fletchlog_records::TopicPartition;

use super::network::lock;
use super::world::Hand;
use crate::history::{Action, Outcome, Partition};

pub(super) fn delete(hand: &mut Hand) {
    let process = hand.world.recorder().process();
    let pause = 2 * hand.world.plan.delete_every_ms;
    while hand.in_chaos() {
        hand.sleep_some(pause);
        let partition = u32::try_from(hand.rng.below(hand.world.partitions().len())).unwrap_or(0);
        delete_records(hand, process, partition);
        look(hand, process);
    }
}

pub(super) fn retain(hand: &mut Hand) {
    let process = hand.world.recorder().process();
    let pause = 2 * hand.world.plan.retention_every_ms;
    while hand.in_chaos() {
        hand.sleep_some(pause);
        run_retention(hand, process);
        look(hand, process);
    }
}

/// (log start, high watermark) of a partition whose log can be read.
fn bounds(broker: &Broker, tp: &TopicPartition) -> Option<(i64, i64)> {
    let described = broker.describe_topic(&tp.topic).ok()?;
    let of = described.partitions.iter().find(|p| p.partition == tp.partition)?;
    (of.log_start_offset >= 0).then_some((of.log_start_offset, of.high_watermark))
}

/// Runs retention on all partitions, and records the new log starts.
fn run_retention(hand: &Hand, process: u32) {
    with_log_starts(hand, process, |broker| {
        let segments = broker.run_retention()?;
        Ok((segments > 0).then(|| format!("retention has deleted {segments} segments")))
    });
}

/// Does what may delete segments, and records the new log starts. `work` says in words what it did.
pub(super) fn with_log_starts(
    hand: &Hand,
    process: u32,
    work: impl FnOnce(&Broker) -> Result<Option<String>, BrokerError>,
) {
    let cluster = hand.world.cluster();
    let Some(broker) = cluster.broker() else { return };
    let all = |p: Partition| (p, bounds(broker, &hand.world.tp(p)));
    let before: Vec<_> = hand.world.partitions().into_iter().map(all).collect();
    let outcome = match work(broker) {
        Ok(text) => {
            text.into_iter()
                .for_each(|text| hand.world.recorder().note(process, Action::Note(text)));
            Outcome::Ok
        }
        Err(_) if cluster.disk_has_failed() => Outcome::Unknown,
        Err(error) => return hand.surprise(format!("what may delete segments: {error}")),
    };
    for (partition, was) in before {
        let tp = hand.world.tp(partition);
        let (Some((start, end)), Some((now, _))) = (was, bounds(broker, &tp)) else {
            continue;
        };
        // A failed change may still be on the disk.
        let offset = if outcome == Outcome::Unknown { end } else { now };
        if offset > start {
            lock(&hand.world.net).memory.starts_at(&tp, offset);
            let mut recorder = hand.world.recorder();
            let op = recorder.begin(process, Action::LogStart { partition, offset });
            recorder.end(op, outcome);
        }
    }
}

/// DeleteRecords before the end, before some earlier offset, before an offset below the log start, or beyond the end.
fn delete_records(hand: &mut Hand, process: u32, partition: Partition) {
    let (tp, cluster) = (hand.world.tp(partition), hand.world.cluster());
    let Some(broker) = cluster.broker() else { return };
    let Some((start, end)) = bounds(broker, &tp) else {
        return;
    };
    let (asked, due) = match hand.rng.below(10) {
        0 => (Some(end + 1), None),
        1..3 => (None, Some(end)),
        3 => (Some(start / 2), Some(start)),
        _ => {
            let left = usize::try_from(end - start).unwrap_or(0);
            let before = start + i64::try_from(hand.rng.below(left + 1)).unwrap_or(0);
            (Some(before), Some(before))
        }
    };
    let deleted = broker.delete_records(&tp, asked);
    let Some((now, _)) = bounds(broker, &tp) else { return };
    let refused = partition != hand.world.copies() && hand.world.plan.compaction.is_some_and(|plan| !plan.and_delete);
    let outcome = match (&deleted, due) {
        (Err(error), _) if refused && error.code() == ErrorCode::POLICY_VIOLATION && now == start => Outcome::Ok,
        (Ok(low), Some(due)) if !refused && *low == due && now == due => Outcome::Ok,
        (Err(error), None) if is_out_of_range(error) && now == start => Outcome::Ok,
        (Err(_), _) if cluster.disk_has_failed() => Outcome::Unknown,
        // If the files of a log are lost, only a checkpoint has its start.
        _ if hand.world.plan.loses_acknowledged() => Outcome::Unknown,
        _ => {
            let what = format!(
                "{tp} from {start} to {end}: DeleteRecords before {asked:?} gave {deleted:?}, then it starts at {now}"
            );
            return hand.surprise(what);
        }
    };
    // A failed change may still be on the disk.
    let offset = if outcome == Outcome::Unknown {
        now.max(due.unwrap_or(now))
    } else {
        now
    };
    lock(&hand.world.net).memory.starts_at(&tp, offset);
    let mut recorder = hand.world.recorder();
    let op = recorder.begin(process, Action::LogStart { partition, offset });
    recorder.end(op, outcome);
}

fn is_out_of_range(error: &BrokerError) -> bool {
    error.code() == ErrorCode::OFFSET_OUT_OF_RANGE
}

/// Records where every log starts.
pub(super) fn look(hand: &Hand, process: u32) {
    let cluster = hand.world.cluster();
    let Some(broker) = cluster.broker() else { return };
    for partition in hand.world.partitions() {
        if let Some((offset, _)) = bounds(broker, &hand.world.tp(partition)) {
            let start = Action::LogStart { partition, offset };
            hand.world.recorder().note(process, start);
        }
    }
}
