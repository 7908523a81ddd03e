//! Groups of the crash points: what members send, and the groups as they are described.

use std::collections::{BTreeMap, BTreeSet};

use fletchlog_api::{ErrorCode, TopicId};
use fletchlog_broker::Broker;
use fletchlog_protocol::messages::ConsumerGroupHeartbeatRequest;
use fletchlog_protocol::messages::consumer_group_describe_response::{Assignment, DescribedGroup, Member};
use fletchlog_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use fletchlog_records::TopicPartition;

use crate::port_client::PortClient;

/// A group of consumers, and one that also has a member of the classic protocol.
pub(crate) const GROUPS: [&str; 2] = ["g", "mixed"];
pub(crate) const TOPIC: &str = "a";
pub(crate) const PARTITIONS: i32 = 4;
/// A group as it is described.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Group {
    Consumer(DescribedGroup),
    /// Its members.
    Classic(BTreeSet<String>),
}

pub(crate) fn partition(number: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, number)
}

pub(crate) fn partitions() -> std::ops::Range<i32> {
    0..PARTITIONS
}

/// The numbers of the partitions.
fn numbers(assignment: &Assignment) -> impl Iterator<Item = i32> {
    assignment
        .topic_partitions
        .iter()
        .flat_map(|topic| topic.partitions.iter().copied())
}

/// What a member has, or has to give up.
pub(crate) fn held(member: &Member) -> impl Iterator<Item = i32> {
    numbers(&member.assignment)
}

/// What a member keeps of it.
pub(crate) fn kept(member: &Member) -> Vec<i32> {
    let target: BTreeSet<i32> = numbers(&member.target_assignment).collect();
    held(member).filter(|number| target.contains(number)).collect()
}

/// A heartbeat, without or with everything that a member reports of itself.
pub(crate) fn heartbeat(group: &str, id: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: group.into(),
        member_id: id.into(),
        member_epoch: epoch,
        ..Default::default()
    }
}

pub(crate) fn join(group: &str, id: &str, instance: Option<String>) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        instance_id: instance.map(Into::into),
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(vec![TOPIC.into()]),
        topic_partitions: Some(Vec::new()),
        ..heartbeat(group, id, 0)
    }
}

pub(crate) fn owned(topic_id: TopicId, partitions: Vec<i32>) -> Option<Vec<TopicPartitions>> {
    Some(match partitions.is_empty() {
        true => Vec::new(),
        false => vec![TopicPartitions { topic_id, partitions }],
    })
}

/// The groups that exist. Two members never have the same partition.
pub(crate) fn described(broker: &Broker) -> Result<BTreeMap<&'static str, Group>, String> {
    let mut groups = BTreeMap::new();
    for id in GROUPS {
        match broker.describe_consumer_group(id) {
            Ok(mut group) => {
                group.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
                let all: Vec<i32> = group.members.iter().flat_map(held).collect();
                if all.iter().collect::<BTreeSet<_>>().len() < all.len() {
                    return Err(format!("two members have the same partition: {group:?}"));
                }
                groups.insert(id, Group::Consumer(group));
            }
            Err(error) if error.code() == ErrorCode::GROUP_ID_NOT_FOUND => {
                if let Ok(group) = broker.describe_group(id) {
                    let members = group.members.iter().map(|member| member.member_id.to_string());
                    groups.insert(id, Group::Classic(members.collect()));
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(groups)
}

/// Epochs never go back: those of groups that stay, and those of members that stay and are not away.
pub(crate) fn goes_on_from(
    before: &BTreeMap<&'static str, Group>,
    after: &BTreeMap<&'static str, Group>,
) -> Result<(), String> {
    for (id, before) in before {
        let (Group::Consumer(before), Some(Group::Consumer(after))) = (before, after.get(id)) else {
            continue;
        };
        let went_back = after.group_epoch < before.group_epoch || after.assignment_epoch < before.assignment_epoch;
        let of_member = |member: &Member| after.members.iter().find(|m| m.member_id == member.member_id).cloned();
        let behind = before.members.iter().find(|member| {
            of_member(member).is_some_and(|now| now.member_epoch >= 0 && now.member_epoch < member.member_epoch)
        });
        if went_back || behind.is_some() {
            return Err(format!("an epoch went back, {behind:?}: {before:?}, then {after:?}"));
        }
    }
    Ok(())
}

/// The committed offsets of all groups.
pub(crate) fn offsets(client: &PortClient) -> Result<BTreeMap<(&'static str, i32), i64>, String> {
    let mut found = BTreeMap::new();
    for group in GROUPS {
        for number in partitions() {
            let committed = client.committed(group, &partition(number));
            if let Some(offset) = committed.map_err(|e| format!("committed offset of {group}: {e}"))? {
                found.insert((group, number), offset);
            }
        }
    }
    Ok(found)
}
