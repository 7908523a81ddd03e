//! ConsumerGroupDescribe. Kafka: `GroupMetadataManager#consumerGroupDescribe`, `ConsumerGroupMember#asConsumerGroupDescribeMember`.

use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};
use fletchlog_protocol::topic_ids::TopicId;

use super::consumer_group::ConsumerGroup;
use super::consumer_member::{ConsumerGroupMember, Partitions, partitions_of};
use super::coordinator::GroupCoordinator;
use crate::BrokerError;
use crate::topics::TopicTable;

impl GroupCoordinator {
    /// A consumer group and its members.
    pub(crate) fn describe_consumer_group(&self, group_id: &str) -> Result<DescribedGroup, BrokerError> {
        self.in_known_group(group_id, |group| {
            let Some(consumer) = &group.consumer else {
                let message = format!("Group {group_id} is not a consumer group.");
                return Err(BrokerError::kafka(ErrorCode::GROUP_ID_NOT_FOUND, message));
            };
            let table = self.replicas.topic_table();
            let members = consumer.members().into_iter();
            Ok(DescribedGroup {
                group_id: Arc::clone(&group.id),
                group_state: consumer.state().into(),
                group_epoch: consumer.epoch,
                assignment_epoch: consumer.assignment_epoch,
                assignor_name: self.effective(consumer.preferred_assignor()),
                members: members.map(|member| described(consumer, member, &table)).collect(),
                ..Default::default()
            })
        })
    }
}

fn described(group: &ConsumerGroup, member: &ConsumerGroupMember, table: &TopicTable) -> Member {
    let metadata = &member.metadata;
    let current = &member.current;
    let mut has = partitions_of(&current.assigned);
    for (id, partitions) in partitions_of(&current.pending_revocation) {
        has.entry(id).or_default().extend(partitions);
    }
    let target = group.target(&member.id);
    Member {
        member_id: Arc::clone(&member.id),
        instance_id: metadata.instance_id.clone(),
        rack_id: metadata.rack_id.clone(),
        member_epoch: current.epoch,
        client_id: Arc::clone(&metadata.client_id),
        client_host: Arc::clone(&metadata.client_host),
        subscribed_topic_names: metadata.subscribed_topic_names.clone(),
        subscribed_topic_regex: metadata.subscribed_topic_regex.clone(),
        assignment: assignment(&has, table),
        target_assignment: target.map(|target| assignment(target, table)).unwrap_or_default(),
        member_type: i8::from(member.classic().is_none()),
    }
}

/// The partitions of topics that exist.
fn assignment(partitions: &Partitions, table: &TopicTable) -> Assignment {
    let named = |(&topic_id, partitions): (&TopicId, &std::collections::BTreeSet<i32>)| {
        Some(TopicPartitions {
            topic_id,
            topic_name: Arc::clone(table.name_of(&topic_id)?),
            partitions: partitions.iter().copied().collect(),
        })
    };
    Assignment {
        topic_partitions: partitions.iter().filter_map(named).collect(),
    }
}
