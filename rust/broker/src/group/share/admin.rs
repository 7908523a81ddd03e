//! Administration of share groups. Kafka: `GroupMetadataManager#shareGroupDescribe`, `#shareGroupBuildPartitionDeleteRequest`,
//! `#maybeCleanupShareGroupState`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_protocol::messages::DeleteShareGroupStateRequest;
use fletchlog_protocol::messages::delete_share_group_state_request::{DeleteStateData, PartitionData};
use fletchlog_protocol::messages::share_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};
use fletchlog_protocol::topic_ids::TopicId;

use super::super::admin::check_empty;
use super::super::consumer_change::Change;
use super::super::coordinator::GroupCoordinator;
use super::group::ShareGroup;
use super::member::ShareGroupMember;
use super::records::ShareRecord;
use super::state_partitions::{Named, StatePartitions};
use crate::BrokerError;
use crate::topics::TopicTable;

/// The assignor of every share group. Kafka: `SimpleAssignor#SIMPLE_ASSIGNOR_NAME`.
const ASSIGNOR: &str = "simple";

impl GroupCoordinator {
    /// A share group and its members.
    pub(crate) fn describe_share_group(&self, group_id: &str) -> Result<DescribedGroup, BrokerError> {
        self.in_known_group(group_id, |group| {
            let Some(share) = &group.share else {
                return Err(not_a_share_group(group_id));
            };
            let table = self.replicas.topic_table();
            let members = share.members().into_iter();
            Ok(DescribedGroup {
                group_id: Arc::clone(&group.id),
                group_state: share.state().into(),
                group_epoch: share.epoch,
                assignment_epoch: share.assignment_epoch,
                assignor_name: ASSIGNOR.into(),
                members: members.map(|member| described(member, &table)).collect(),
                ..Default::default()
            })
        })
    }

    /// Before a group is deleted: if it is a share group, deletes the states of its partitions.
    ///
    /// # Errors
    /// NON_EMPTY_GROUP; the error of the first state that could not be deleted.
    pub(crate) fn delete_share_states_of(&self, group_id: &str) -> Result<(), BrokerError> {
        let states = self.in_known_group(group_id, |group| {
            check_empty(group)?;
            let id = Arc::clone(&group.id);
            let Some(share) = group.share.as_deref_mut() else {
                return Ok(Named::new());
            };
            let states = self.states_of(share);
            if states.is_empty() {
                return Ok(states);
            }
            let names = states.iter().map(|(id, (name, _))| (*id, Arc::clone(name)));
            let partitions = StatePartitions {
                deleting: names.collect(),
                ..StatePartitions::default()
            };
            self.store_share_partitions(&id, share, partitions)?;
            Ok(states)
        })?;
        if states.is_empty() {
            return Ok(());
        }
        let failed = self.delete_share_states(group_id, &states);
        match failed.into_values().next() {
            None => Ok(()),
            Some((code, text)) => Err(BrokerError::kafka(code, text)),
        }
    }

    /// All partitions that may have a state; of topics whose states were being deleted, every partition.
    fn states_of(&self, group: &ShareGroup) -> Named {
        let table = self.replicas.topic_table();
        let mut all = group.partitions.all();
        for (id, name) in &group.partitions.deleting {
            if let Some(topic) = table.get(name).filter(|topic| topic.record.id == *id) {
                let (_, partitions) = all.entry(*id).or_insert_with(|| (Arc::clone(name), BTreeSet::new()));
                partitions.extend(0..topic.record.partitions);
            }
        }
        all
    }

    /// Asks the share coordinator to delete states; returns the error of each topic whose states are not all deleted. Not under a group's
    /// lock.
    pub(super) fn delete_share_states(&self, group_id: &str, states: &Named) -> BTreeMap<TopicId, (ErrorCode, String)> {
        let topics = states.iter().map(|(topic_id, (_, partitions))| DeleteStateData {
            topic_id: *topic_id,
            partitions: partitions.iter().map(|p| PartitionData { partition: *p }).collect(),
        });
        let response = self.share_states.delete_state(&DeleteShareGroupStateRequest {
            group_id: group_id.into(),
            topics: topics.collect(),
        });
        let mut failed = BTreeMap::new();
        for topic in &response.results {
            let mut results = topic.partitions.iter();
            if let Some(result) = results.find(|result| result.error_code != ErrorCode::NONE) {
                let why = result.error_message.as_deref().unwrap_or(result.error_code.message());
                let text = format!("the state of partition {} cannot be deleted: {why}", result.partition);
                failed.insert(topic.topic_id, (result.error_code, text));
            }
        }
        failed
    }

    /// Replaces the partitions that have a state.
    pub(super) fn store_share_partitions(
        &self,
        group_id: &Arc<str>,
        group: &mut ShareGroup,
        partitions: StatePartitions,
    ) -> Result<(), BrokerError> {
        let mut change = Change::of(group_id, group);
        change.apply(ShareRecord::Partitions(Some(Arc::new(partitions))));
        self.commit_change(change)
            .map_err(|code| BrokerError::kafka(code, format!("the records of group {group_id} cannot be written")))
    }

    /// Removes deleted topics from what share groups have; the share coordinator deletes their states itself.
    pub(crate) fn forget_share_states_of(&self, topics: &BTreeSet<TopicId>) {
        for id in self.ids() {
            self.in_group(&id, |group| {
                let Some(share) = group.share.as_deref_mut() else {
                    return;
                };
                let mut partitions = StatePartitions::clone(&share.partitions);
                if !partitions.forget(topics) {
                    return;
                }
                if let Err(error) = self.store_share_partitions(&id, share, partitions) {
                    log::error!("deleted topics stay in share group {id}: {error}");
                }
            });
        }
    }
}

/// GROUP_ID_NOT_FOUND of a group of another kind.
pub(super) fn not_a_share_group(group_id: &str) -> BrokerError {
    BrokerError::kafka(
        ErrorCode::GROUP_ID_NOT_FOUND,
        format!("Group {group_id} is not a share group."),
    )
}

fn described(member: &ShareGroupMember, table: &TopicTable) -> Member {
    let metadata = &member.metadata;
    // The partitions of topics that exist.
    let named = |(&topic_id, partitions): (&TopicId, &BTreeSet<i32>)| {
        Some(TopicPartitions {
            topic_id,
            topic_name: Arc::clone(table.name_of(&topic_id)?),
            partitions: partitions.iter().copied().collect(),
        })
    };
    Member {
        member_id: Arc::clone(&member.id),
        rack_id: metadata.rack_id.clone(),
        member_epoch: member.current.epoch,
        client_id: Arc::clone(&metadata.client_id),
        client_host: Arc::clone(&metadata.client_host),
        subscribed_topic_names: metadata.subscribed_topic_names.clone(),
        assignment: Assignment {
            topic_partitions: member.current.assigned.iter().filter_map(named).collect(),
        },
    }
}
