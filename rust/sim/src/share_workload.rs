//! A seeded workload of members of a share group - they join, fetch, accept, release, reject, let locks run out, leave; offsets are altered -
//! with clean and unclean stops, and what is persisted at every moment of it.

use fletchlog_api::{Clock, ConfigResource, ErrorCode, TopicId};
use fletchlog_broker::{AlterConfig, AlterConfigOp};
use fletchlog_protocol::messages::AlterShareGroupOffsetsRequest;
use fletchlog_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};

use crate::coordinator_disk::{DIR, OnDisk};
use crate::course::{Course, Workload};
use crate::rng::Rng;
use crate::shared_group::{
    GROUP, LOCK_MS, MOST_DELIVERIES, PARTITIONS, Shared, TOPIC, acknowledge, batch, beat, described, fetch, partition,
};
use crate::sim_disk::SimDisk;

/// Members that there may be at a time.
const SLOTS: usize = 2;
/// Longer than a session of a member.
const SESSION_MS: i64 = 46_000;
const RELEASE: i8 = 2;
/// Times that sessions end before the members must be gone.
const ATTEMPTS: usize = 3;

/// The expected state of a directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub shared: Shared,
    /// The time.
    pub now_ms: i64,
}

/// A member of the group.
#[derive(Debug, Clone)]
struct Member {
    id: String,
    epoch: i32,
}

/// One run of the workload.
pub struct ShareWorkload {
    /// The expected state from a number of operations on.
    pub(crate) moments: Vec<(u64, Model)>,
    pub(crate) course: Course,
}

impl Workload for ShareWorkload {
    const DIR: &str = DIR;

    fn begin(seed: u64, _: &mut Rng) -> Self {
        Self {
            moments: vec![(0, Model::default())],
            course: Course::new(seed),
        }
    }

    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String> {
        let Self { moments, course } = self;
        let mut on = OnDisk::open(disk, course)?;
        on.make_topic(TOPIC, PARTITIONS)?;
        let topic_id = on.insist("a topic's id", |on| {
            on.broker.topic_id(TOPIC).map_err(|e| e.to_string())
        })?;
        let mut step = Step {
            topic_id: topic_id.ok_or("the topic has no id")?,
            on: &mut on,
            members: [const { None }; SLOTS],
            joined: 0,
        };
        step.configure()?;
        for _ in 0..steps {
            step.take(rng)?;
            let shared = step.on.insist("describing", |on| described(&on.broker))?;
            let now_ms = step.on.clock.now_ms();
            moments.push((step.on.operations(), Model { shared, now_ms }));
        }
        Ok(())
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }
}

/// Where the run is.
struct Step<'a, 'b> {
    on: &'a mut OnDisk<'b>,
    topic_id: TopicId,
    members: [Option<Member>; SLOTS],
    /// Members that have joined so far.
    joined: usize,
}

impl Step<'_, '_> {
    /// Sets the properties of the group.
    fn configure(&mut self) -> Result<(), String> {
        let limit = MOST_DELIVERIES.to_string();
        let properties = [
            ("share.auto.offset.reset", "earliest"),
            ("share.delivery.count.limit", limit.as_str()),
        ];
        let changes = properties.map(|(name, value)| AlterConfig {
            name: name.to_owned(),
            op: AlterConfigOp::Set,
            value: Some(value.to_owned()),
        });
        let group = ConfigResource::Group(GROUP.to_owned());
        self.on.insist("properties of the group", |on| {
            on.broker.alter_config(&group, &changes, false)
        })
    }

    fn take(&mut self, rng: &mut Rng) -> Result<(), String> {
        let slot = rng.below(SLOTS);
        match rng.below(20) {
            0 => return self.on.reopen(true),
            1 => return self.on.reopen(false),
            2 => return self.pass(SESSION_MS),
            3 => return self.pass(LOCK_MS + 1),
            4..8 => return self.produce(rng),
            8 if self.members.iter().all(Option::is_none) => return self.alter(rng),
            _ => {}
        }
        match self.members[slot].clone() {
            None => self.join(slot),
            Some(member) => match rng.below(10) {
                0 => self.leave(slot, &member),
                1..3 => self.beat(slot, member),
                _ => self.consume(&member, rng),
            },
        }
    }

    fn produce(&mut self, rng: &mut Rng) -> Result<(), String> {
        let (number, count) = (i32::from(rng.chance(500)), 1 + rng.below(4));
        // A batch that fails may be there all the same.
        self.on.insist("producing", |on| {
            on.broker.append_batches(&partition(number), batch(count)).map(drop)
        })
    }

    fn join(&mut self, slot: usize) -> Result<(), String> {
        self.joined += 1;
        let id = format!("{slot}-{}", self.joined);
        let epoch = self.on.insist("join", |on| beat(&on.client, &id, 0))?;
        self.members[slot] = Some(Member { id, epoch });
        Ok(())
    }

    fn beat(&mut self, slot: usize, member: Member) -> Result<(), String> {
        let Member { id, epoch } = member;
        let beaten = self.on.insist("heartbeat", |on| match beat(&on.client, &id, epoch) {
            // The answer to an earlier attempt was an error.
            Err(ErrorCode::FENCED_MEMBER_EPOCH) if on.has_failed() => Ok(None),
            other => other.map(Some),
        })?;
        self.members[slot] = beaten.map(|epoch| Member { id, epoch });
        Ok(())
    }

    fn leave(&mut self, slot: usize, member: &Member) -> Result<(), String> {
        self.on.insist("leaving", |on| match beat(&on.client, &member.id, -1) {
            Err(ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::GROUP_ID_NOT_FOUND) if on.has_failed() => Ok(()),
            other => other.map(drop),
        })?;
        self.members[slot] = None;
        Ok(())
    }

    /// A member fetches, and acknowledges a part of what it has acquired, which is persisted then.
    fn consume(&mut self, member: &Member, rng: &mut Rng) -> Result<(), String> {
        let (most, topic_id) = (1 + i32::try_from(rng.below(4)).unwrap_or(0), self.topic_id);
        let acquired = self
            .on
            .insist("fetch", |on| match fetch(&on.client, topic_id, &member.id, most) {
                // Its partitions have no state yet, which comes with the heartbeats.
                Err(ErrorCode::UNKNOWN_SERVER_ERROR) if !on.has_failed() => Ok(Vec::new()),
                other => other,
            })?;
        // Of the session: the fetch has opened it.
        let mut epoch = 0;
        for (number, (first, last, deliveries)) in acquired {
            if deliveries > MOST_DELIVERIES {
                return Err(format!("{number}: {first} to {last} are delivered {deliveries} times"));
            }
            if rng.chance(200) {
                continue;
            }
            let types: Vec<i8> = (first..=last)
                .map(|_| [0, 1, 1, 1, RELEASE, RELEASE, 3][rng.below(7)])
                .collect();
            epoch += 1;
            let said = self.on.insist("acknowledgement", |on| {
                let by = (&*member.id, epoch);
                match acknowledge(&on.client, topic_id, by, (number, first, last), types.clone()) {
                    Err(_) if on.has_failed() => Ok(false),
                    other => other.map(|()| true),
                }
            })?;
            if !said {
                return Ok(());
            }
            let now = self.on.insist("describing", |on| described(&on.broker))?;
            let persisted = now
                .partitions
                .get(&number)
                .ok_or("an acknowledged partition has no state")?;
            let lost = (first..=last)
                .zip(types)
                .find(|(at, kind)| *kind != RELEASE && !persisted.is_done(*at));
            if let Some((at, kind)) = lost {
                return Err(format!(
                    "{number}: {at} is acknowledged as {kind}, and persisted is {persisted:?}"
                ));
            }
        }
        Ok(())
    }

    /// Locks or sessions end.
    fn pass(&mut self, ms: i64) -> Result<(), String> {
        // Sessions begin when a group is loaded.
        self.on.insist("describing", |on| described(&on.broker))?;
        self.on.clock.advance(ms);
        self.on.broker.run_due();
        if ms < SESSION_MS {
            return Ok(());
        }
        self.members = [const { None }; SLOTS];
        // A removal that the disk refused is repeated after a restart: until then a power loss decides whether its record is there.
        for _ in 0..ATTEMPTS {
            let now = self.on.insist("describing", |on| described(&on.broker))?;
            if now.group.is_none_or(|group| group.members.is_empty()) {
                return Ok(());
            }
            self.on.reopen(false)?;
            self.on.insist("describing", |on| described(&on.broker))?;
            self.on.clock.advance(SESSION_MS);
            self.on.broker.run_due();
        }
        Err("members stay whose sessions have ended".to_owned())
    }

    /// The group begins anew somewhere.
    fn alter(&mut self, rng: &mut Rng) -> Result<(), String> {
        let ends = self.on.insist("describing", |on| described(&on.broker))?.ends;
        let number = i32::from(rng.chance(500));
        let end = ends.get(&number).copied().unwrap_or(0);
        let start_offset = i64::try_from(rng.below(usize::try_from(end).unwrap_or(0) + 1)).unwrap_or(0);
        let request = AlterShareGroupOffsetsRequest {
            group_id: GROUP.into(),
            topics: vec![AlterShareGroupOffsetsRequestTopic {
                topic_name: TOPIC.into(),
                partitions: vec![AlterShareGroupOffsetsRequestPartition {
                    partition_index: number,
                    start_offset,
                }],
            }],
        };
        self.on.insist("altering offsets", |on| {
            let topics = on
                .broker
                .alter_share_group_offsets(&request)
                .map_err(|e| e.to_string())?;
            let codes = topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.error_code);
            match codes.into_iter().find(|code| *code != ErrorCode::NONE) {
                Some(code) => Err(code.to_string()),
                None => Ok(()),
            }
        })
    }
}
