//! What the leader of a group does: reads the members' subscriptions, writes the assignments.
//! Kafka: `ConsumerCoordinator#performAssignment`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::java_hash::{DEFAULT_CAPACITY, string_hash, walk_order};
use fletchlog_protocol::by_topic::grouped;
use fletchlog_protocol::messages::join_group_response::JoinGroupResponseMember;
use fletchlog_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use fletchlog_protocol::values::consumer_protocol::{self, flattened};
use fletchlog_protocol::values::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, CooperativeStickyAssignorUserData, StickyAssignorUserData,
};
use fletchlog_protocol::{Value, WireError};
use fletchlog_records::TopicPartition;

use crate::assignor::{Assignment, Assignor, MemberSubscription, Subscriptions};

/// Decodes the members' subscriptions for the assignor.
///
/// # Errors
/// A member sent bytes that are no subscription.
pub(super) fn subscriptions(
    assignor: Assignor,
    members: &[JoinGroupResponseMember],
) -> Result<Subscriptions, WireError> {
    let mut subscriptions = BTreeMap::new();
    for (place, member) in members.iter().enumerate() {
        let blob = ConsumerProtocolSubscription::decode(member.metadata.clone())?;
        let (owned, generation) = owned_of(assignor, &blob)?;
        let subscription = MemberSubscription {
            topics: blob.topics,
            group_instance_id: member.group_instance_id.clone(),
            owned,
            generation,
            rack: blob.rack_id,
            place,
        };
        subscriptions.insert(Arc::clone(&member.member_id), subscription);
    }
    Ok(subscriptions)
}

fn owned_of(
    assignor: Assignor,
    blob: &ConsumerProtocolSubscription,
) -> Result<(Vec<TopicPartition>, Option<i32>), WireError> {
    let user_data = blob.user_data.clone().filter(|data| !data.is_empty());
    match (assignor, user_data) {
        (Assignor::Sticky, Some(data)) => {
            let data = StickyAssignorUserData::of_member(data)?;
            Ok((flattened(&data.previous_assignment), Some(data.generation)))
        }
        (Assignor::CooperativeSticky, data) => {
            let generation = match data {
                Some(data) => Some(CooperativeStickyAssignorUserData::of_member(data)?.generation),
                None => Some(blob.generation_id).filter(|&generation| generation >= 0),
            };
            Ok((flattened(&blob.owned_partitions), generation))
        }
        _ => Ok((Vec::new(), None)),
    }
}

/// Topics that any member subscribes to, in order of appearance.
pub(super) fn group_topics(subscriptions: &Subscriptions) -> Vec<Arc<str>> {
    let mut seen = std::collections::BTreeSet::new();
    subscriptions
        .values()
        .flat_map(|s| &s.topics)
        .filter(|topic| seen.insert(Arc::clone(topic)))
        .cloned()
        .collect()
}

/// The assignments for SyncGroup.
///
/// # Errors
/// A topic name that the protocol cannot carry.
pub(super) fn encoded(assignment: Assignment, version: i16) -> Result<Vec<SyncGroupRequestAssignment>, WireError> {
    assignment
        .into_iter()
        .map(|(member_id, partitions)| {
            let assignment = ConsumerProtocolAssignment {
                assigned_partitions: by_topic(&partitions),
                user_data: None,
            };
            Ok(SyncGroupRequestAssignment {
                member_id,
                assignment: assignment.encode(version)?,
            })
        })
        .collect()
}

/// Partitions by topic, the topics in the iteration order of the HashMap that groups them (spec 7.2): `new HashMap()`, filled in order of
/// appearance. Kafka: `CollectionUtils#groupPartitionsByTopic`.
pub(super) fn by_topic(partitions: &[TopicPartition]) -> Vec<consumer_protocol::TopicPartition> {
    let mut topics = grouped(partitions.iter().map(|tp| (Arc::clone(&tp.topic), tp.partition)));
    let hashes: Vec<i32> = topics.iter().map(|(topic, _)| string_hash(topic)).collect();
    let order = walk_order(&hashes, DEFAULT_CAPACITY).into_iter();
    order.map(|at| std::mem::take(&mut topics[at]).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_lists_topics_in_hash_order() {
        let tps = |list: [(&str, i32); 4]| list.map(|(topic, partition)| TopicPartition::new(topic, partition));
        // Buckets of "C" (67), "A" (65), "B" (66) in a table of 16: A, B, C.
        let given = ConsumerProtocolAssignment {
            assigned_partitions: by_topic(&tps([("C", 0), ("C", 1), ("A", 0), ("B", 2)])),
            user_data: None,
        };
        let read = ConsumerProtocolAssignment::of_member(given.encode(1).unwrap()).unwrap();
        assert_eq!(
            flattened(&read.assigned_partitions),
            tps([("A", 0), ("B", 2), ("C", 0), ("C", 1)])
        );
    }
}
