//! Power loss at every storage operation of a broker with consumer groups (reliability C1, C2): a group is as it was answered, with the
//! epochs of its members, and goes on until all of them have what they are to have.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_broker::Broker;
use fletchlog_protocol::messages::ConsumerGroupHeartbeatRequest;
use fletchlog_testing::VirtualClock;

use crate::coordinator_disk::open;
use crate::crash_points::{Around, CrashPoints, Crashable, Seen, Violation, check_recovery};
use crate::described_groups::{
    GROUPS, Group, TOPIC, described, goes_on_from, heartbeat, held, join, kept, offsets, owned, partition, partitions,
};
use crate::disk_state::DiskState;
use crate::group_workload::{GroupWorkload, Model};
use crate::port_client::{Committer, PortClient};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// Rounds of heartbeats within which a group comes to rest.
const ROUNDS: usize = 8;

/// What is on a disk.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    groups: BTreeMap<&'static str, Group>,
    offsets: BTreeMap<(&'static str, i32), i64>,
}

impl Crashable for GroupWorkload {
    const AFTER_FAILURE: (usize, usize) = (2, 0);

    fn crash_at(&self, points: &CrashPoints<'_>) -> Result<usize, Violation> {
        let rng = Rng::new(self.course.seed() ^ 0x6A0B_5EED);
        points.check_around(rng, &self.moments, |crash, image, rng, seen| {
            crash.check(image, rng, seen)
        })
    }
}

impl Around<'_, Model> {
    fn check(&self, image: DiskState, rng: &mut Rng, seen: &mut Seen<Found>) -> Result<(), String> {
        let disk = SimDisk::from(image.clone());
        let now_ms = self.after.now_ms;
        let look = |disk: &SimDisk| found_on(disk, now_ms).map(|(_, found)| found);
        check_recovery(image, self.given(), rng, seen, look, |found| self.holds(found))?;
        let (broker, found) = found_on(&disk, now_ms)?;
        goes_on(&broker).map_err(|what| format!("{what}; after the power loss there was {found:?}"))
    }

    fn holds(&self, found: &Found) -> Result<(), String> {
        for id in GROUPS {
            let (before, after) = (self.before.groups.get(id), self.after.groups.get(id));
            let now = found.groups.get(id);
            // A member of the classic protocol is stored with its assignment only, some changes are several.
            let is_classic = |group: Option<&Group>| matches!(group, Some(Group::Classic(_)));
            let is_loose = !self.after.is_one_change || is_classic(before) || is_classic(after);
            if !is_loose && now != before && now != after {
                return Err(format!("{id} is {now:?}, was {before:?}, was to be {after:?}"));
            }
        }
        goes_on_from(&self.before.groups, &found.groups)?;
        for (at, before) in &self.before.offsets {
            let (now, after) = (found.offsets.get(at), self.after.offsets.get(at));
            if now != Some(before) && (now.is_none() || now != after) {
                return Err(format!(
                    "committed for {at:?}: {now:?}, was {before}, was to be {after:?}"
                ));
            }
        }
        Ok(())
    }
}

fn found_on(disk: &SimDisk, now_ms: i64) -> Result<(Arc<Broker>, Found), String> {
    let broker = open(disk, &VirtualClock::at(now_ms)).map_err(|e| format!("cannot be opened: {e}"))?;
    let groups = described(&broker)?;
    let offsets = match broker.describe_topic(TOPIC) {
        Ok(_) => offsets(&PortClient::new(&broker))?,
        Err(_) => BTreeMap::new(),
    };
    Ok((broker, Found { groups, offsets }))
}

/// Every consumer group takes in another member, and comes to rest: each partition has one member, which commits.
fn goes_on(broker: &Arc<Broker>) -> Result<(), String> {
    let Ok(Some(topic_id)) = broker.topic_id(TOPIC) else {
        return Ok(());
    };
    let client = PortClient::new(broker);
    for (id, group) in described(broker)? {
        let Group::Consumer(mut group) = group else { continue };
        // A member of the classic protocol would have to join again.
        if group.members.iter().any(|member| member.member_type == 0) {
            continue;
        }
        client
            .heartbeat(join(id, "new", None))
            .map_err(|e| format!("a new member of {id}: {e}"))?;
        for _ in 0..ROUNDS {
            let Some(Group::Consumer(now)) = described(broker)?.remove(id) else {
                return Err(format!("{id} is gone"));
            };
            group = now;
            if group.group_state == "Stable".into() {
                break;
            }
            for member in &group.members {
                beat(&client, id, topic_id, member).map_err(|e| format!("{id}: {member:?}: {e}"))?;
            }
        }
        let mut all: Vec<i32> = group.members.iter().flat_map(held).collect();
        all.sort_unstable();
        if group.group_state != "Stable".into() || !all.iter().copied().eq(partitions()) {
            return Err(format!("{id} does not come to rest: {group:?}"));
        }
        for member in &group.members {
            let Some(number) = held(member).next() else { continue };
            let committer = Committer {
                group: id,
                id: &member.member_id,
                epoch: member.member_epoch,
            };
            let committed = client.commit(committer, &partition(number), 9_000);
            committed.map_err(|e| format!("{id}: a commit of {member:?}: {e}"))?;
            let ahead = Committer {
                epoch: committer.epoch + 1,
                ..committer
            };
            let refused = client.commit(ahead, &partition(number), 1);
            if refused != Err(ErrorCode::STALE_MEMBER_EPOCH) {
                return Err(format!("{id}: a commit of {member:?} one epoch ahead: {refused:?}"));
            }
        }
    }
    Ok(())
}

/// A member goes on from what the broker knows of it: it gives up what it is asked to, and one that is away comes back.
fn beat(
    client: &PortClient,
    group: &str,
    topic_id: fletchlog_api::TopicId,
    member: &fletchlog_protocol::messages::consumer_group_describe_response::Member,
) -> Result<(), ErrorCode> {
    if member.member_epoch < 0 {
        let instance = member.instance_id.as_deref().map(str::to_owned);
        let id = format!("{}-back", member.member_id);
        return client.heartbeat(join(group, &id, instance)).map(drop);
    }
    let request = ConsumerGroupHeartbeatRequest {
        instance_id: member.instance_id.clone(),
        topic_partitions: owned(topic_id, kept(member)),
        ..heartbeat(group, &member.member_id, member.member_epoch)
    };
    client.heartbeat(request).map(drop)
}
