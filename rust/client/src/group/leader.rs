//! What the leader of a group does: reads the members' subscriptions, runs the assignor, writes the assignments.
//! Kafka: `ConsumerCoordinator#performAssignment`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_protocol::messages::join_group_response::JoinGroupResponseMember;
use fletchlog_protocol::messages::sync_group_request::SyncGroupRequestAssignment;

use super::protocol::{self, ProtocolError};
use crate::assignor::{Assignor, MemberSubscription, Subscriptions, TopicCounts};

/// Version of the blobs written here: that of the 2.6 client.
pub(super) const VERSION: i16 = 1;

/// Decodes the members' subscriptions for the assignor.
///
/// # Errors
/// A member sent bytes that are no subscription.
pub(super) fn subscriptions(
    assignor: Assignor,
    members: &[JoinGroupResponseMember],
) -> Result<Subscriptions, ProtocolError> {
    let mut subscriptions = BTreeMap::new();
    for (place, member) in members.iter().enumerate() {
        let blob = protocol::Subscription::decode(&member.metadata)?;
        let (owned, generation) = owned_of(assignor, &blob)?;
        let subscription = MemberSubscription {
            topics: blob.topics,
            group_instance_id: member.group_instance_id.clone(),
            owned,
            generation,
            place,
        };
        subscriptions.insert(Arc::clone(&member.member_id), subscription);
    }
    Ok(subscriptions)
}

fn owned_of(
    assignor: Assignor,
    blob: &protocol::Subscription,
) -> Result<(Vec<fletchlog_records::TopicPartition>, Option<i32>), ProtocolError> {
    match (assignor, &blob.user_data) {
        (Assignor::Sticky, Some(data)) if !data.is_empty() => protocol::decode_sticky_user_data(data),
        (Assignor::CooperativeSticky, data) => {
            let generation = match data {
                Some(data) if !data.is_empty() => Some(protocol::decode_cooperative_user_data(data)?),
                _ => (blob.generation_id >= 0).then_some(blob.generation_id),
            };
            Ok((blob.owned_partitions.clone(), generation))
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

/// Runs the assignor and encodes the assignments for SyncGroup.
///
/// # Errors
/// A topic name that the protocol cannot carry.
pub(super) fn assignments(
    assignor: Assignor,
    counts: &TopicCounts,
    subscriptions: &Subscriptions,
) -> Result<Vec<SyncGroupRequestAssignment>, ProtocolError> {
    let dealt = assignor.assign(counts, subscriptions);
    dealt
        .into_iter()
        .map(|(member_id, partitions)| {
            let assignment = protocol::Assignment {
                partitions,
                user_data: None,
            };
            Ok(SyncGroupRequestAssignment {
                member_id,
                assignment: assignment.encode(VERSION)?,
            })
        })
        .collect()
}
