//! A seeded workload of members of consumer groups (KIP-848) - they join, reconcile, commit, leave, are away and come back, are put out;
//! a classic group becomes a consumer group and is one again - with clean and unclean stops, and the promises at every moment of it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use fletchlog_api::{Clock, ErrorCode, TopicId};
use fletchlog_protocol::messages::ConsumerGroupHeartbeatRequest;
use fletchlog_protocol::messages::consumer_group_describe_response::Member;

use crate::classic_member::ClassicMember;
use crate::coordinator_disk::{DIR, OnDisk};
use crate::course::{Course, Workload};
use crate::described_groups::{
    GROUPS, Group, PARTITIONS, TOPIC, described, goes_on_from, heartbeat, join, kept, owned, partition, partitions,
};
use crate::port_client::Committer;
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// Members of a group; those from [`STATIC`] on are static.
const SLOTS: usize = 4;
const STATIC: usize = 2;
/// Longer than a session.
const SESSION_MS: i64 = 46_000;

/// What a consumer of a group knows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Client {
    id: String,
    epoch: i32,
    owned: Vec<i32>,
    is_away: bool,
}

/// The expected state of a directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub groups: BTreeMap<&'static str, Group>,
    /// Committed offsets by group and partition.
    pub offsets: BTreeMap<(&'static str, i32), i64>,
    clients: BTreeMap<(&'static str, usize), Client>,
    /// The last step was one change of one group.
    pub is_one_change: bool,
    /// The time.
    pub now_ms: i64,
}

/// One run of the workload.
pub struct GroupWorkload {
    /// The expected state from a number of operations on.
    pub(crate) moments: Vec<(u64, Model)>,
    pub(crate) course: Course,
    joined: usize,
}

fn instance(slot: usize) -> Option<String> {
    (slot >= STATIC).then(|| format!("instance-{slot}"))
}

impl Workload for GroupWorkload {
    const DIR: &str = DIR;

    fn begin(seed: u64, _: &mut Rng) -> Self {
        Self {
            moments: vec![(0, Model::default())],
            course: Course::new(seed),
            joined: 0,
        }
    }

    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String> {
        let Self {
            moments,
            course,
            joined,
        } = self;
        let mut on = OnDisk::open(disk, course)?;
        on.make_topic(TOPIC, PARTITIONS)?;
        let topic_id = on.insist("a topic's id", |on| {
            on.broker.topic_id(TOPIC).map_err(|e| e.to_string())
        })?;
        let topic_id = topic_id.ok_or("the topic has no id")?;
        for _ in 0..steps {
            let before = moments.last().map(|(_, model)| model.clone()).unwrap_or_default();
            let mut model = before.clone();
            model.is_one_change = true;
            let mut step = Step {
                on: &mut on,
                model: &mut model,
                joined,
                topic_id,
            };
            step.take(rng)?;
            model.groups = on.insist("describing", |on| described(&on.broker))?;
            model.now_ms = on.clock.now_ms();
            goes_on_from(&before.groups, &model.groups)?;
            moments.push((on.operations(), model));
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

/// A step that is being taken.
struct Step<'a, 'b> {
    on: &'a mut OnDisk<'b>,
    model: &'a mut Model,
    /// Members that have joined so far.
    joined: &'a mut usize,
    topic_id: TopicId,
}

impl Step<'_, '_> {
    fn take(&mut self, rng: &mut Rng) -> Result<(), String> {
        let (group, slot) = (GROUPS[usize::from(rng.below(3) == 0)], rng.below(SLOTS));
        let of_classic = group != GROUPS[0] && slot == 0;
        match rng.below(24) {
            0 => return self.on.reopen(true),
            1 => return self.on.reopen(false),
            2 => return self.time_out(),
            _ if of_classic => return self.join_classic(group),
            _ => {}
        }
        let Some(client) = self.model.clients.get(&(group, slot)).cloned() else {
            return self.join(group, slot);
        };
        match rng.below(12) {
            _ if client.is_away => self.join(group, slot),
            0 => self.leave(group, slot, client),
            1..4 if slot >= STATIC => self.go_away(group, slot, client),
            4 if slot >= STATIC => self.refused(group, ErrorCode::UNRELEASED_INSTANCE_ID, || {
                join(group, "rival", instance(slot))
            }),
            1..5 => self.commit(group, &client, i64::try_from(rng.below(1_000)).unwrap_or(0)),
            _ => self.beat(group, slot, client),
        }
    }

    /// A member joins; a static one in the place of the one that is away, whose partitions it takes over.
    fn join(&mut self, group: &'static str, slot: usize) -> Result<(), String> {
        *self.joined += 1;
        let id = format!("{slot}-{}", self.joined);
        let (former, keeps) = match self.model.clients.get(&(group, slot)).cloned() {
            Some(former) => {
                let keeps = kept(&self.member(group, &former)?);
                (Some(former), keeps)
            }
            None => (None, Vec::new()),
        };
        let has_joined = |on: &OnDisk<'_>| match described(&on.broker).ok()?.remove(group)? {
            Group::Consumer(group) => group
                .members
                .iter()
                .find(|m| *m.member_id == *id)
                .map(|m| m.member_epoch),
            Group::Classic(_) => None,
        };
        let request = join(group, &id, instance(slot));
        let answer = self
            .on
            .insist("join", |on| match on.client.heartbeat(request.clone()) {
                // An earlier attempt has taken effect, and its answer was an error.
                Err(ErrorCode::UNRELEASED_INSTANCE_ID) => match has_joined(on) {
                    Some(epoch) => Ok((epoch, None)),
                    None => Err(ErrorCode::UNRELEASED_INSTANCE_ID),
                },
                other => other.map(|answer| (answer.member_epoch, answer.assignment)),
            })?;
        let assignment = answer.1.unwrap_or_default();
        let owned = assignment
            .topic_partitions
            .into_iter()
            .flat_map(|topic| topic.partitions);
        let client = Client {
            id,
            epoch: answer.0,
            owned: owned.collect(),
            is_away: false,
        };
        if !self.on.has_failed() && keeps.iter().any(|number| !client.owned.contains(number)) {
            return Err(format!("{client:?} is back in {group} and had {keeps:?}"));
        }
        self.model.clients.insert((group, slot), client);
        match former {
            Some(former) => self.refused(group, ErrorCode::FENCED_INSTANCE_ID, || ConsumerGroupHeartbeatRequest {
                instance_id: instance(slot).map(Into::into),
                ..heartbeat(group, &former.id, former.epoch)
            }),
            None => Ok(()),
        }
    }

    /// A member that the broker has not put out.
    fn member(&self, group: &str, client: &Client) -> Result<Member, String> {
        let member = match described(&self.on.broker)?.remove(group) {
            Some(Group::Consumer(group)) => group.members.into_iter().find(|m| *m.member_id == *client.id),
            _ => None,
        };
        member.ok_or_else(|| format!("{client:?} is no longer a member of {group}"))
    }

    /// A heartbeat that has to be refused with this code.
    fn refused(
        &mut self,
        group: &str,
        code: ErrorCode,
        request: impl Fn() -> ConsumerGroupHeartbeatRequest,
    ) -> Result<(), String> {
        let is_refused = self
            .on
            .insist("a heartbeat to be refused", |on| match on.client.heartbeat(request()) {
                Err(found) if found == code => Ok(true),
                other => other.map(|_| false),
            })?;
        is_refused
            .then_some(())
            .ok_or_else(|| format!("{group} has to refuse {:?} with {code}", request()))
    }

    /// A heartbeat of a member, which gives up at once what it is asked to.
    fn beat(&mut self, group: &'static str, slot: usize, mut client: Client) -> Result<(), String> {
        let request = ConsumerGroupHeartbeatRequest {
            instance_id: instance(slot).map(Into::into),
            topic_partitions: owned(self.topic_id, client.owned.clone()),
            ..heartbeat(group, &client.id, client.epoch)
        };
        let beat = self
            .on
            .insist("heartbeat", |on| match on.client.heartbeat(request.clone()) {
                // The answer to an earlier attempt was an error: the member has to begin anew.
                Err(ErrorCode::FENCED_MEMBER_EPOCH) if on.has_failed() => Ok(None),
                other => other.map(Some),
            })?;
        let Some(answer) = beat else {
            return self.leave(group, slot, client);
        };
        if let Some(assignment) = answer.assignment {
            let given = assignment
                .topic_partitions
                .into_iter()
                .flat_map(|topic| topic.partitions);
            client.owned = given.collect();
        }
        client.epoch = answer.member_epoch;
        self.model.clients.insert((group, slot), client);
        Ok(())
    }

    fn leave(&mut self, group: &'static str, slot: usize, client: Client) -> Result<(), String> {
        let request = ConsumerGroupHeartbeatRequest {
            instance_id: instance(slot).map(Into::into),
            ..heartbeat(group, &client.id, -1)
        };
        self.on
            .insist("leaving", |on| match on.client.heartbeat(request.clone()) {
                Err(ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::GROUP_ID_NOT_FOUND) if on.has_failed() => Ok(()),
                other => other.map(drop),
            })?;
        self.model.clients.remove(&(group, slot));
        self.is_put_out(group, &client)
    }

    /// A member that is no longer one may not commit.
    fn is_put_out(&mut self, group: &'static str, client: &Client) -> Result<(), String> {
        if !matches!(described(&self.on.broker)?.get(group), Some(Group::Consumer(g)) if !g.members.is_empty()) {
            return Ok(());
        }
        let committer = client.committer(group);
        let put_out = self.on.insist("a commit of one put out", |on| {
            match on.client.commit(committer, &partition(0), 7) {
                Err(ErrorCode::UNKNOWN_MEMBER_ID) => Ok(true),
                other => other.map(|()| false),
            }
        })?;
        put_out
            .then_some(())
            .ok_or_else(|| format!("{client:?} has left {group}, and its commit is accepted"))
    }

    /// A static member leaves for some time.
    fn go_away(&mut self, group: &'static str, slot: usize, client: Client) -> Result<(), String> {
        let request = ConsumerGroupHeartbeatRequest {
            instance_id: instance(slot).map(Into::into),
            ..heartbeat(group, &client.id, -2)
        };
        self.on
            .insist("going away", |on| on.client.heartbeat(request.clone()))?;
        let away = Client {
            is_away: true,
            ..client
        };
        self.model.clients.insert((group, slot), away);
        Ok(())
    }

    /// A member commits in its epoch, and not in one that is not its own.
    fn commit(&mut self, group: &'static str, client: &Client, offset: i64) -> Result<(), String> {
        let number = client.owned.first().copied().unwrap_or(0);
        let committer = client.committer(group);
        let ahead = Committer {
            epoch: client.epoch + 1,
            ..committer
        };
        let refused = self.on.insist("a commit of a wrong epoch", |on| {
            match on.client.commit(ahead, &partition(number), 1) {
                Err(ErrorCode::STALE_MEMBER_EPOCH) => Ok(true),
                other => other.map(|()| false),
            }
        })?;
        if !refused {
            return Err(format!(
                "a commit with a higher epoch than that of {client:?} is accepted"
            ));
        }
        let accepted = self.on.insist("commit", |on| {
            match on.client.commit(committer, &partition(number), offset) {
                Err(ErrorCode::STALE_MEMBER_EPOCH) if on.has_failed() => Ok(false),
                other => other.map(|()| true),
            }
        })?;
        if accepted {
            self.model.offsets.insert((group, number), offset);
        }
        Ok(())
    }

    /// All members that are not heard of are put out.
    fn time_out(&mut self) -> Result<(), String> {
        self.model.is_one_change = false;
        self.on.insist("sessions end", |on| {
            // Sessions begin when a group is loaded.
            described(&on.broker)?;
            on.clock.advance(SESSION_MS);
            on.broker.run_due();
            let groups = described(&on.broker)?;
            let is_left = |group: &Group| match group {
                Group::Consumer(group) => !group.members.is_empty(),
                Group::Classic(members) => !members.is_empty(),
            };
            match groups.values().find(|group| is_left(group)) {
                None => Ok(()),
                Some(left) => Err(format!("members are left: {left:?}")),
            }
        })?;
        self.model.clients.clear();
        Ok(())
    }

    /// A member of the classic protocol joins: an empty group becomes a classic one, a consumer group a mixed one.
    fn join_classic(&mut self, group: &'static str) -> Result<(), String> {
        self.model.is_one_change = false;
        let own = match described(&self.on.broker)?.get(group) {
            Some(Group::Classic(members)) => members.first().cloned(),
            Some(Group::Consumer(group)) => {
                let classic = group.members.iter().find(|member| member.member_type == 0);
                classic.map(|member| member.member_id.to_string())
            }
            None => None,
        };
        let id = RefCell::new(own.unwrap_or_default());
        self.on.insist("a classic member", |on| {
            let own = id.borrow().clone();
            let member = ClassicMember {
                group,
                id: &own,
                instance: None,
                topic: TOPIC,
            };
            let joined = match member.join(&on.client) {
                Err(ErrorCode::UNKNOWN_MEMBER_ID) if !own.is_empty() => {
                    ClassicMember { id: "", ..member }.join(&on.client)
                }
                other => other,
            }?;
            // An answer with an error leaves the member in the group.
            id.replace(joined.member_id.to_string());
            member.sync(&on.client, &joined, partitions())
        })
    }
}

impl Client {
    fn committer<'a>(&'a self, group: &'a str) -> Committer<'a> {
        Committer {
            group,
            id: &self.id,
            epoch: self.epoch,
        }
    }
}
