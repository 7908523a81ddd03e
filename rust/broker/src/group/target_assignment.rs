//! The next target of a consumer group. Kafka: `TargetAssignmentBuilder`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_protocol::topic_ids::TopicId;

use super::assignor::{GroupSpec, MemberAssignment, MemberSubscription, ServerAssignor};
use super::consumer_group::ConsumerGroup;
use super::consumer_member::Partitions;
use crate::topics::TopicTable;

/// What each member is to have; every member is in the result.
pub(super) fn compute(group: &ConsumerGroup, assignor: &str, table: &TopicTable) -> BTreeMap<Arc<str>, Partitions> {
    let mut topics: BTreeMap<TopicId, i32> = BTreeMap::new();
    let mut ids = Vec::new();
    let members = group.members();
    for member in &members {
        let named = group.topics_of(&member.metadata).filter_map(|name| table.get(name));
        let of_member: std::collections::BTreeSet<TopicId> = named
            .map(|topic| {
                topics.insert(topic.record.id, topic.record.partitions);
                topic.record.id
            })
            .collect();
        ids.push(of_member.into_iter().collect());
    }
    let subscription = |(member, topics): (_, Vec<TopicId>)| {
        let member: &&super::consumer_member::ConsumerGroupMember = member;
        MemberSubscription {
            member_id: Arc::clone(&member.id),
            instance_id: member.instance_id().cloned(),
            topics,
            assigned: group
                .target(&member.id)
                .map(|target| listed(target))
                .unwrap_or_default(),
        }
    };
    let spec = GroupSpec {
        topics,
        members: members.iter().zip(ids).map(subscription).collect(),
    };
    let assignor = match assignor {
        "range" => ServerAssignor::Range,
        _ => ServerAssignor::Uniform,
    };
    // Only topics of the table are passed on.
    let target = assignor.assign(&spec).unwrap_or_default();
    target
        .into_iter()
        .map(|(id, assigned)| (id, set_of(assigned)))
        .collect()
}

fn listed(partitions: &Partitions) -> MemberAssignment {
    let of =
        |(&id, partitions): (&TopicId, &std::collections::BTreeSet<i32>)| (id, partitions.iter().copied().collect());
    partitions.iter().map(of).collect()
}

fn set_of(assigned: MemberAssignment) -> Partitions {
    let assigned = assigned.into_iter().filter(|(_, partitions)| !partitions.is_empty());
    assigned
        .map(|(id, partitions)| (id, partitions.into_iter().collect()))
        .collect()
}
