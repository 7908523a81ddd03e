//! Members of a group. They are killed, are paused, leave and, with a group.instance.id, come back while their predecessor still runs.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, IsolationLevel};
use fletchlog_client::consumer::RebalanceEvent;
use fletchlog_client::{ClientError, Consumer};
use fletchlog_protocol::ApiKey;

use super::cluster::TOPIC;
use super::consumers::{GROUP, consumer, group_id, poll};
use super::network::lock;
use super::plan::REMOTE;
use super::world::Hand;
use crate::history::{Action, Joined, Outcome, Partition};

/// What a call says of the member's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    GoesOn,
    /// Another member has taken over its group.instance.id.
    Fenced,
    /// Another member has its group.instance.id, and keeps it: only in a consumer group.
    Refused,
}

/// The session time-out of a member, ms.
pub(super) const SESSION_MS: i64 = 6_000;

/// One life of a member.
pub(super) struct Member {
    pub consumer: Consumer,
    process: u32,
    group: u32,
    /// Its group.instance.id, if it has one.
    instance: Option<u32>,
    isolation: IsolationLevel,
    /// The last recorded generation and member id.
    joined: (i32, Arc<str>),
}

impl Member {
    pub fn start(hand: &mut Hand, group: u32, instance: Option<u32>, client_id: &str) -> Self {
        let plan = hand.world.plan.group;
        let isolation = if plan.is_some_and(|plan| plan.read_committed) {
            IsolationLevel::ReadCommitted
        } else {
            IsolationLevel::ReadUncommitted
        };
        let process = hand.world.recorder().process();
        let begins = Action::Note(format!("{client_id} begins"));
        hand.world.recorder().note(process, begins);
        let (id, session) = (group_id(group), SESSION_MS.to_string());
        let auto_commit = group == GROUP && plan.is_some_and(|plan| plan.auto_commit);
        let name = instance.map(|i| format!("instance-{i}"));
        let mut properties = vec![
            ("group.id", id.as_str()),
            ("client.id", client_id),
            ("enable.auto.commit", if auto_commit { "true" } else { "false" }),
            ("auto.commit.interval.ms", "700"),
            ("max.poll.interval.ms", "8000"),
        ];
        let assignor = plan.map_or("range", |plan| plan.assignor);
        match assignor.strip_prefix(REMOTE) {
            Some(remote) => properties.extend([("group.protocol", "consumer"), ("group.remote.assignor", remote)]),
            None => properties.extend([
                ("partition.assignment.strategy", assignor),
                ("session.timeout.ms", session.as_str()),
                ("heartbeat.interval.ms", "500"),
            ]),
        }
        properties.extend(name.as_deref().map(|name| ("group.instance.id", name)));
        let mut consumer = consumer(hand, process, isolation, &properties);
        let topics: [Arc<str>; 1] = [TOPIC.into()];
        if let Err(error) = consumer.subscribe(&topics) {
            hand.surprise(format!("subscribe: {error}"));
        }
        Self {
            consumer,
            process,
            group,
            instance,
            isolation,
            joined: (-1, "".into()),
        }
    }

    /// Polls.
    pub fn poll(&mut self, hand: &mut Hand) -> Life {
        let polled = member_poll(hand, self);
        self.note_join(hand);
        polled.map_or_else(|error| life_after(hand, &error), |()| Life::GoesOn)
    }

    pub fn generation(&self) -> i32 {
        self.consumer.group_metadata().map_or(-1, |m| m.generation_id)
    }

    pub fn partitions(&self, hand: &Hand) -> Vec<Partition> {
        let mut partitions: Vec<_> = self
            .consumer
            .assignment()
            .iter()
            .map(|tp| hand.world.number(tp))
            .collect();
        partitions.sort_unstable();
        partitions
    }

    /// Records that a static member has joined, if it has since the last call.
    fn note_join(&mut self, hand: &Hand) {
        let Some(now) = self.consumer.group_metadata() else {
            return;
        };
        let now = (now.generation_id, now.member_id);
        if now.0 >= 0 && now != self.joined {
            self.joined = now;
            self.note_joined(hand, false);
        }
    }

    /// Records the partitions of a static member, and whether it came back before its session ended.
    pub fn note_joined(&self, hand: &Hand, in_time: bool) {
        let Some(instance) = self.instance else { return };
        let joined = Action::Joined(Joined {
            group: self.group,
            instance,
            generation: self.generation(),
            partitions: self.partitions(hand),
            in_time,
        });
        hand.world.recorder().note(self.process, joined);
    }

    /// Commits its positions, with the leader epochs by which the next member finds out that the log was cut below them.
    pub fn commit(&mut self, hand: &Hand) -> Life {
        let assigned = self.consumer.assignment();
        let mut positions = assigned.iter().map(|tp| self.consumer.position(tp, 0, &mut || false));
        if !positions.any(|position| position.is_ok()) {
            return Life::GoesOn;
        }
        let op = self.instance.map(|instance| {
            let commits = Action::InstanceCommit {
                group: self.group,
                instance,
            };
            hand.world.recorder().begin(self.process, commits)
        });
        let committed = self.consumer.commit(None, 3_000, &mut || false);
        if let Some(op) = op {
            let outcome = if committed.is_ok() {
                Outcome::Ok
            } else {
                Outcome::Unknown
            };
            hand.world.recorder().end(op, outcome);
        }
        committed.map_or_else(|error| life_after(hand, &error), |()| Life::GoesOn)
    }
}

/// The lives of one member of the group. It is killed, is paused, or leaves. A static member may be away for some time, or come back while
/// its predecessor still runs.
pub(super) fn member(hand: &mut Hand, index: usize) {
    let Some(plan) = hand.world.plan.group else { return };
    let instance = u32::try_from(index).ok().filter(|_| plan.static_members);
    let mut lives = 0;
    let mut rival: Option<Member> = None;
    while hand.in_chaos() {
        lives += 1;
        let mut member = Member::start(hand, GROUP, instance, &format!("member-{index}-{lives}"));
        // Two members with one name may fence each other: a member that the broker has removed joins again.
        let alone = rival.is_none();
        while hand.in_chaos() {
            match (live_on(hand, &mut member), rival.take()) {
                (Life::GoesOn, other) => rival = other,
                // The one that was there before lives on.
                (Life::Refused, Some(other)) => member = other,
                (Life::Refused, None) => break,
                (Life::Fenced, other) => {
                    rival = other;
                    // A reopened broker, and a new coordinator, know only the ids that were stored, which are those before a rebalance that had not ended. And
                    // a static member gets a new id for each JoinGroup request: the later of two requests counts, even if it arrives on
                    // a connection that the member has closed.
                    let joined_late = lock(&hand.world.net).pipes.late.contains(&ApiKey::JoinGroup.code());
                    let plan = &hand.world.plan;
                    let reloads = plan.crash_every_ms > 0 || plan.events.reloads_coordinators();
                    if alone && !joined_late && !reloads && !plan.delays_joins() {
                        hand.surprise(format!("member-{index}-{lives} is fenced without another member"));
                    }
                    break;
                }
            }
            if rival.as_mut().is_some_and(|rival| live_on(hand, rival) != Life::GoesOn) {
                rival = None;
            }
            if hand.strikes(hand.world.plan.client_crash_every_ms, 100) {
                match hand.rng.below(if instance.is_some() { 4 } else { 3 }) {
                    0 => break,
                    1 => hand.sleep_some(12_000), // Maybe longer than max.poll.interval.ms.
                    2 => {
                        let closed = member.consumer.close(3_000, &mut || false);
                        closed.unwrap_or_else(|error| {
                            life_after(hand, &error);
                        });
                        break;
                    }
                    _ => {
                        rival = Some(member);
                        break;
                    }
                }
            }
            hand.sleep_some(150);
        }
        if instance.is_some() && rival.is_none() {
            hand.sleep_some(8_000); // Maybe back in time.
        }
    }
}

/// Polls, and commits occasionally.
fn live_on(hand: &mut Hand, member: &mut Member) -> Life {
    let auto_commit = hand.world.plan.group.is_some_and(|plan| plan.auto_commit);
    let mut life = member.poll(hand);
    if life == Life::GoesOn && !auto_commit && hand.rng.chance(400) {
        life = member.commit(hand);
    }
    let note = match life {
        Life::GoesOn => return life,
        Life::Fenced => "is fenced",
        Life::Refused => "is refused: its group.instance.id is in use",
    };
    hand.world
        .recorder()
        .note(member.process, Action::Note(note.to_owned()));
    life
}

fn member_poll(hand: &mut Hand, member: &mut Member) -> Result<(), ClientError> {
    let Member {
        consumer,
        process,
        group,
        isolation,
        ..
    } = member;
    let (process, isolation) = (*process, *isolation);
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
    let polled = poll(hand, consumer, op, isolation, Some(*group), timeout);
    // A rebalance within the poll is before or after its records.
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
    polled.map(drop)
}

/// What an error means for the member. After other expected errors it continues: the group continued without it while it was away, or the
/// error is retriable.
fn life_after(hand: &Hand, error: &ClientError) -> Life {
    let plan = &hand.world.plan;
    match error {
        ClientError::Kafka { code, .. } if *code == ErrorCode::FENCED_INSTANCE_ID => return Life::Fenced,
        ClientError::Kafka { code, .. } if *code == ErrorCode::UNRELEASED_INSTANCE_ID => return Life::Refused,
        ClientError::CommitFailed(_) | ClientError::Timeout(_) => {}
        // Only over sockets, where the request has version 9. Kafka: `OffsetMetadataManager#validateOffsetCommit`.
        ClientError::Kafka { code, .. } if *code == ErrorCode::GROUP_ID_NOT_FOUND && plan.loses_acknowledged() => {}
        ClientError::Kafka { code, .. } if code.is_retriable() || code.name() == "REBALANCE_IN_PROGRESS" => {}
        error => hand.surprise(format!("member: {error}")),
    }
    Life::GoesOn
}
