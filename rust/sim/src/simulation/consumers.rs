//! Actors that read: consumers that assign partitions to themselves, and an actor that looks up the committed offsets of groups.

use fletchlog_api::{ErrorCode, IsolationLevel};
use fletchlog_client::{ClientError, Consumer};
use fletchlog_records::TopicPartition;

use super::world::{Hand, values_of};
use crate::history::{Action, Outcome, Partition, Step, Value};

/// The groups of the members and of the copier.
pub(super) const GROUP: u32 = 0;
pub(super) const COPIERS: u32 = 1;

pub(super) fn group_id(group: u32) -> String {
    format!("group-{group}")
}

fn text(isolation: IsolationLevel) -> &'static str {
    match isolation {
        IsolationLevel::ReadCommitted => "read_committed",
        _ => "read_uncommitted",
    }
}

/// A consumer with the common properties.
pub(super) fn consumer(
    hand: &mut Hand,
    process: u32,
    isolation: IsolationLevel,
    properties: &[(&str, &str)],
) -> Consumer {
    let most = (1 + hand.rng.below(30)).to_string();
    let bytes = [100, 500, 1_048_576][hand.rng.below(3)].to_string();
    let mut all = vec![
        ("fletchlog.consumer.version", hand.world.plan.consumer_release),
        ("auto.offset.reset", "earliest"),
        ("isolation.level", text(isolation)),
        ("max.poll.records", most.as_str()),
        ("max.partition.fetch.bytes", bytes.as_str()),
        ("request.timeout.ms", "2000"),
        ("retry.backoff.ms", "50"),
        ("fetch.max.wait.ms", "100"),
    ];
    all.extend_from_slice(properties);
    hand.consumer(process, &all)
}

/// Polls, and records the result under its operation.
pub(super) fn poll(
    hand: &mut Hand,
    consumer: &mut Consumer,
    op: usize,
    isolation: IsolationLevel,
    group: Option<u32>,
    timeout_ms: i64,
) -> Result<Vec<(Partition, i64, Value)>, ClientError> {
    let polled = consumer.poll(timeout_ms, &mut || false)?;
    let mut records = Vec::new();
    for run in &polled.runs {
        let partition = hand.world.number(&run.tp);
        for span in &run.spans {
            records.extend(
                values_of(span)
                    .into_iter()
                    .map(|(offset, value)| (partition, offset, value)),
            );
        }
    }
    hand.world.recorder().steps(op).push(Step::Poll {
        isolation,
        group,
        records: records.clone(),
    });
    Ok(records)
}

/// Reads everything from the start, and seeks occasionally.
pub(super) fn manual(hand: &mut Hand, isolation: IsolationLevel) {
    while hand.in_chaos() {
        let process = hand.world.recorder().process();
        let mut consumer = consumer(hand, process, isolation, &[]);
        if let Err(error) = assign_all(hand, &mut consumer, process) {
            return hand.surprise(format!("assign: {error}"));
        }
        while hand.in_chaos() {
            poll_once(hand, &mut consumer, process, isolation);
            if hand.rng.chance(20) {
                seek(hand, &mut consumer, process);
            }
            if hand.strikes(hand.world.plan.client_crash_every_ms, 100) {
                break;
            }
            hand.sleep_some(150);
        }
    }
}

/// Assigns all partitions, from their start.
pub(super) fn assign_all(hand: &Hand, consumer: &mut Consumer, process: u32) -> Result<(), ClientError> {
    let partitions = hand.world.partitions();
    let tps: Vec<TopicPartition> = partitions.iter().map(|&p| hand.world.tp(p)).collect();
    consumer.assign(&tps)?;
    let from = partitions.into_iter().map(|p| (p, Some(0))).collect();
    hand.world.recorder().note(process, Action::Moved(from));
    Ok(())
}

pub(super) fn poll_once(hand: &mut Hand, consumer: &mut Consumer, process: u32, isolation: IsolationLevel) -> usize {
    let timeout = i64::try_from(hand.rng.below(150)).unwrap_or(0);
    let op = hand.world.recorder().begin_steps(process, false, Vec::new());
    let polled = poll(hand, consumer, op, isolation, None, timeout);
    hand.world.recorder().end(op, Outcome::Ok);
    match polled {
        Ok(records) => records.len(),
        Err(error) => {
            unless_the_disk(hand, "poll", &error);
            0
        }
    }
}

/// Reports an error, unless it is a storage error and the plan has disk faults.
pub(super) fn unless_the_disk(hand: &Hand, what: &str, error: &ClientError) {
    let storage = matches!(error, ClientError::Kafka { code, .. } if *code == ErrorCode::KAFKA_STORAGE_ERROR);
    if !storage || hand.world.plan.disk_fault_every_ms == 0 {
        hand.surprise(format!("{what}: {error}"));
    }
}

fn seek(hand: &mut Hand, consumer: &mut Consumer, process: u32) {
    let partition = u32::try_from(hand.rng.below(hand.world.partitions().len())).unwrap_or(0);
    let tp = hand.world.tp(partition);
    // Seeks only to offsets that the consumer has reached: offsets beyond the end are not tested here.
    let Ok(position) = consumer.position(&tp, 0, &mut || false) else {
        return;
    };
    let to = i64::try_from(hand.rng.below(usize::try_from(position).unwrap_or(0) + 1)).unwrap_or(0);
    match consumer.seek(&tp, to) {
        Ok(()) => {
            let moved = Action::Moved(vec![(partition, Some(to))]);
            hand.world.recorder().note(process, moved);
        }
        Err(error) => hand.surprise(format!("seek: {error}")),
    }
}

/// Looks up the committed offsets of the groups: repeatedly during the run, or once at its end, when no transaction is open that could
/// still change one.
pub(super) fn looker(hand: &mut Hand, once: bool) {
    let process = hand.world.recorder().process();
    let members = hand.world.plan.group.map(|_| GROUP);
    let copiers = hand.world.plan.copier.then_some(COPIERS);
    for group in members.into_iter().chain(copiers) {
        let id = group_id(group);
        let properties = [("group.id", id.as_str()), ("client.id", "looker")];
        let isolation = match once {
            true => IsolationLevel::ReadCommitted,
            false => IsolationLevel::ReadUncommitted,
        };
        let mut consumer = consumer(hand, process, isolation, &properties);
        // A power loss may have taken a transaction from the page cache, and left its offsets.
        if once && !look_up(hand, &mut consumer, process, group) && !hand.world.plan.loses_acknowledged() {
            hand.surprise(format!("the offsets of {id} do not become stable"));
        }
        while !once && hand.in_chaos() {
            look_up(hand, &mut consumer, process, group);
            hand.sleep_some(2_000);
        }
    }
}

/// False: there was no answer in time.
fn look_up(hand: &Hand, consumer: &mut Consumer, process: u32, group: u32) -> bool {
    let tps: Vec<TopicPartition> = hand.world.partitions().into_iter().map(|p| hand.world.tp(p)).collect();
    match consumer.committed(&tps, 5_000, &mut || false) {
        Ok(found) => {
            let known = found.into_iter().filter_map(|(tp, committed)| Some((tp, committed?)));
            let offsets = known
                .map(|(tp, committed)| (hand.world.number(&tp), committed.offset))
                .collect();
            // The offsets were committed at some earlier moment.
            hand.world
                .recorder()
                .note(process, Action::Committed { group, offsets });
        }
        Err(ClientError::Timeout(_)) => return false,
        Err(error) => hand.surprise(format!("committed: {error}")),
    }
    true
}
