//! Actors that read: consumers that assign partitions to themselves, members of a group, and who looks up what groups have
//! committed.

use std::sync::Arc;

use fletchlog_api::IsolationLevel;
use fletchlog_client::consumer::RebalanceEvent;
use fletchlog_client::{ClientError, Consumer};
use fletchlog_records::TopicPartition;

use super::cluster::TOPIC;
use super::world::{Hand, values_of};
use crate::history::{Action, Outcome, Partition, Step, Value};

/// The members' group, and the copier's.
pub(super) const GROUP: u32 = 0;
pub(super) const COPIERS: u32 = 1;

pub(super) fn group_id(group: u32) -> String {
    format!("group-{group}")
}

fn text(isolation: IsolationLevel) -> &'static str {
    match isolation {
        IsolationLevel::ReadUncommitted => "read_uncommitted",
        IsolationLevel::ReadCommitted => "read_committed",
    }
}

/// A consumer with what all have.
pub(super) fn consumer(hand: &mut Hand, isolation: IsolationLevel, properties: &[(&str, &str)]) -> Consumer {
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
    hand.consumer(&all)
}

/// One poll; what it returned is written down under its operation.
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

/// Reads everything from the start, and seeks now and then.
pub(super) fn manual(hand: &mut Hand, isolation: IsolationLevel) {
    while hand.in_chaos() {
        let process = hand.world.recorder().process();
        let mut consumer = consumer(hand, isolation, &[]);
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

/// All partitions, from their start.
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
            hand.surprise(format!("poll: {error}"));
            0
        }
    }
}

fn seek(hand: &mut Hand, consumer: &mut Consumer, process: u32) {
    let partition = u32::try_from(hand.rng.below(hand.world.partitions().len())).unwrap_or(0);
    let tp = hand.world.tp(partition);
    // Only to where the consumer has been: what is beyond the end is another matter.
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

/// Lives of one member of the group; it is killed, paused, or leaves.
pub(super) fn member(hand: &mut Hand, index: usize) {
    let Some(plan) = hand.world.plan.group else { return };
    let isolation = if plan.read_committed {
        IsolationLevel::ReadCommitted
    } else {
        IsolationLevel::ReadUncommitted
    };
    let mut lives = 0;
    while hand.in_chaos() {
        lives += 1;
        let process = hand.world.recorder().process();
        let (id, group) = (format!("member-{index}-{lives}"), group_id(GROUP));
        hand.world
            .recorder()
            .note(process, Action::Note(format!("{id} begins")));
        let mut consumer = consumer(
            hand,
            isolation,
            &[
                ("group.id", &group),
                ("client.id", &id),
                ("partition.assignment.strategy", plan.assignor),
                ("enable.auto.commit", if plan.auto_commit { "true" } else { "false" }),
                ("auto.commit.interval.ms", "700"),
                ("session.timeout.ms", "6000"),
                ("heartbeat.interval.ms", "500"),
                ("max.poll.interval.ms", "8000"),
            ],
        );
        let topics: [Arc<str>; 1] = [TOPIC.into()];
        if let Err(error) = consumer.subscribe(&topics) {
            return hand.surprise(format!("subscribe: {error}"));
        }
        while hand.in_chaos() {
            member_poll(hand, &mut consumer, process, isolation);
            if !plan.auto_commit && hand.rng.chance(400) {
                let committed = consumer.commit(None, 3_000, &mut || false);
                committed.unwrap_or_else(|error| expect_moved_on(hand, &error));
            }
            if hand.strikes(hand.world.plan.client_crash_every_ms, 100) {
                match hand.rng.below(3) {
                    0 => break,
                    1 => hand.sleep_some(12_000), // Beyond max.poll.interval.ms, perhaps.
                    _ => {
                        let closed = consumer.close(3_000, &mut || false);
                        closed.unwrap_or_else(|error| hand.surprise(format!("close: {error}")));
                        break;
                    }
                }
            }
            hand.sleep_some(150);
        }
    }
}

fn member_poll(hand: &mut Hand, consumer: &mut Consumer, process: u32, isolation: IsolationLevel) {
    let timeout = i64::try_from(hand.rng.below(150)).unwrap_or(0);
    let (before, op, after) = {
        let mut recorder = hand.world.recorder();
        let before = recorder.begin(process, Action::Moved(Vec::new()));
        (
            before,
            recorder.begin_steps(process, false, Vec::new()),
            recorder.begin(process, Action::Moved(Vec::new())),
        )
    };
    let polled = poll(hand, consumer, op, isolation, Some(GROUP), timeout);
    // A rebalance within the poll comes before its records, or after them.
    let moved: Vec<Partition> = consumer
        .take_rebalance_events()
        .iter()
        .flat_map(|event| match event {
            RebalanceEvent::Assigned(tps) | RebalanceEvent::Revoked(tps) | RebalanceEvent::Lost(tps) => tps,
        })
        .map(|tp| hand.world.number(tp))
        .collect();
    let mut recorder = hand.world.recorder();
    for op in [before, after] {
        recorder.moved(op, moved.iter().copied());
        recorder.end(op, Outcome::Ok);
    }
    recorder.end(op, Outcome::Ok);
    drop(recorder);
    if let Err(error) = polled {
        expect_moved_on(hand, &error);
    }
}

/// The group goes on without a member that was away; retriable errors are for the member to try again.
fn expect_moved_on(hand: &Hand, error: &ClientError) {
    match error {
        ClientError::CommitFailed(_) | ClientError::Timeout(_) => {}
        ClientError::Kafka { code, .. } if code.is_retriable() || code.name() == "REBALANCE_IN_PROGRESS" => {}
        error => hand.surprise(format!("member: {error}")),
    }
}

/// Looks up what the groups have committed, while others work; or, at the end, once.
pub(super) fn looker(hand: &mut Hand, once: bool) {
    let process = hand.world.recorder().process();
    let members = hand.world.plan.group.map(|_| GROUP);
    let copiers = hand.world.plan.copier.then_some(COPIERS);
    for group in members.into_iter().chain(copiers) {
        let id = group_id(group);
        let properties = [("group.id", id.as_str()), ("client.id", "looker")];
        let mut consumer = consumer(hand, IsolationLevel::ReadUncommitted, &properties);
        if once {
            look_up(hand, &mut consumer, process, group);
        }
        while !once && hand.in_chaos() {
            look_up(hand, &mut consumer, process, group);
            hand.sleep_some(2_000);
        }
    }
}

fn look_up(hand: &Hand, consumer: &mut Consumer, process: u32, group: u32) {
    let tps: Vec<TopicPartition> = hand.world.partitions().into_iter().map(|p| hand.world.tp(p)).collect();
    match consumer.committed(&tps, 5_000, &mut || false) {
        Ok(found) => {
            let known = found.into_iter().filter_map(|(tp, committed)| Some((tp, committed?)));
            let offsets = known
                .map(|(tp, committed)| (hand.world.number(&tp), committed.offset))
                .collect();
            // It was so at some moment before now.
            hand.world
                .recorder()
                .note(process, Action::Committed { group, offsets });
        }
        Err(ClientError::Timeout(_)) => {}
        Err(error) => hand.surprise(format!("committed: {error}")),
    }
}
