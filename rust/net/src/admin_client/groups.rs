//! Groups and their offsets. Kafka: `KafkaAdminClient`, one method each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::{
    ErrorCode, Failure, IsolationLevel, ListOffsetsRequest, NodeId, OffsetAndMetadata, OffsetCommitRequest,
    OffsetFetchRequest,
};
use fletchlog_protocol::by_topic::grouped;
use fletchlog_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use fletchlog_protocol::messages::consumer_group_describe_response;
use fletchlog_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use fletchlog_protocol::messages::describe_groups_response::DescribedGroup;
use fletchlog_protocol::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use fletchlog_protocol::messages::describe_share_group_offsets_response::DescribeShareGroupOffsetsResponseTopic;
use fletchlog_protocol::messages::list_groups_response::ListedGroup;
use fletchlog_protocol::messages::share_group_describe_response;
use fletchlog_protocol::messages::{
    AlterShareGroupOffsetsRequest, ConsumerGroupDescribeRequest, DeleteGroupsRequest, DeleteShareGroupOffsetsRequest,
    DescribeGroupsRequest, DescribeShareGroupOffsetsRequest, ListGroupsRequest, OffsetDeleteRequest,
    ShareGroupDescribeRequest, offset_delete_request,
};
use fletchlog_records::TopicPartition;

use super::{AdminClient, AdminError, Call, Interrupt, Stop, checked, refused};

/// A committed offset, and the partition's high watermark: `None` if the cluster does not show the partition.
pub type CommittedAndEnd = (OffsetAndMetadata, Option<i64>);

/// What a coordinator says of a group.
pub enum Description {
    /// Its members share it by the classic protocol.
    Classic(DescribedGroup),
    /// It is a consumer group (KIP-848).
    Consumer(consumer_group_describe_response::DescribedGroup),
    /// It is a share group (KIP-932).
    Share(share_group_describe_response::DescribedGroup),
}

/// The group, if it is a share group. Kafka: `DescribeShareGroupsHandler`.
fn described_as_share_group(
    call: &mut Call<'_, '_>,
    node: NodeId,
    id: &Arc<str>,
) -> Result<Option<share_group_describe_response::DescribedGroup>, Stop> {
    let request = ShareGroupDescribeRequest {
        group_ids: vec![Arc::clone(id)],
        include_authorized_operations: false,
    };
    let response = match call.ask(node, request) {
        Err(Stop::Final(AdminError::Failed(Failure::UnsupportedVersion(_)))) => return Ok(None),
        answer => answer?,
    };
    let Some(group) = response.groups.into_iter().next() else {
        return Ok(None);
    };
    if matches!(
        group.error_code,
        ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNSUPPORTED_VERSION
    ) {
        return Ok(None);
    }
    let what = format!("group {id} was not described");
    checked(&what, [(group.error_code, group.error_message.as_deref())].into_iter())?;
    Ok(Some(group))
}

/// The group, if it is a consumer group. Kafka: `DescribeConsumerGroupsHandler#handledConsumerGroupResponse`.
fn described_as_consumer_group(
    call: &mut Call<'_, '_>,
    node: NodeId,
    id: &Arc<str>,
) -> Result<Option<consumer_group_describe_response::DescribedGroup>, Stop> {
    let request = ConsumerGroupDescribeRequest {
        group_ids: vec![Arc::clone(id)],
        include_authorized_operations: false,
    };
    let response = match call.ask(node, request) {
        Err(Stop::Final(AdminError::Failed(Failure::UnsupportedVersion(_)))) => return Ok(None),
        answer => answer?,
    };
    let Some(group) = response.groups.into_iter().next() else {
        return Ok(None);
    };
    if matches!(
        group.error_code,
        ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNSUPPORTED_VERSION
    ) {
        return Ok(None);
    }
    let what = format!("group {id} was not described");
    checked(&what, [(group.error_code, group.error_message.as_deref())].into_iter())?;
    Ok(Some(group))
}

impl AdminClient {
    /// The groups of every node, each with the node, sorted by id.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn groups(&mut self, stop: Interrupt<'_>) -> Result<Vec<(ListedGroup, NodeId)>, AdminError> {
        self.call(stop, |call| {
            let mut groups = Vec::new();
            for node in call.metadata(Some(&[]))?.nodes() {
                let response = call.ask(node, ListGroupsRequest::default())?;
                checked("groups were not listed", [(response.error_code, None)].into_iter())?;
                groups.extend(response.groups.into_iter().map(|group| (group, node)));
            }
            groups.sort_by(|a, b| a.0.group_id.cmp(&b.0.group_id));
            Ok(groups)
        })
    }

    /// A group and its coordinator.
    ///
    /// # Errors
    /// See [`AdminError`]; GROUP_ID_NOT_FOUND.
    pub fn describe_group(&mut self, group_id: &str, stop: Interrupt<'_>) -> Result<(Description, NodeId), AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            if let Some(group) = described_as_consumer_group(call, node, &id)? {
                return Ok((Description::Consumer(group), node));
            }
            let asked = Arc::clone(&id);
            let response = call.ask(
                node,
                DescribeGroupsRequest {
                    groups: vec![asked],
                    include_authorized_operations: false,
                },
            )?;
            let Some(group) = response.groups.into_iter().next() else {
                return Err(Stop::Again(format!("node {node} did not describe group {id}")));
            };
            let what = format!("group {id} was not described");
            let is_other = group.error_code == ErrorCode::GROUP_ID_NOT_FOUND || &*group.group_state == "Dead";
            if is_other && let Some(group) = described_as_share_group(call, node, &id)? {
                return Ok((Description::Share(group), node));
            }
            checked(&what, [(group.error_code, group.error_message.as_deref())].into_iter())?;
            // Before version 6 a group that does not exist is described as Dead.
            if &*group.group_state == "Dead" {
                checked(&what, [(ErrorCode::GROUP_ID_NOT_FOUND, None)].into_iter())?;
            }
            Ok((Description::Classic(group), node))
        })
    }

    /// Deletes a group without members, and its offsets.
    ///
    /// # Errors
    /// See [`AdminError`]; GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    pub fn delete_group(&mut self, group_id: &str, stop: Interrupt<'_>) -> Result<(), AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let groups_names = vec![Arc::clone(&id)];
            let response = call.ask(node, DeleteGroupsRequest { groups_names })?;
            let refused = response.results.iter().map(|group| (group.error_code, None));
            checked(&format!("group {id} was not deleted"), refused)
        })
    }

    /// The committed offsets of a group, by partition; none for a group that does not exist. Offsets in an open transaction are not
    /// included. Kafka: `Admin#listConsumerGroupOffsets`.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn group_offsets(
        &mut self,
        group_id: &str,
        stop: Interrupt<'_>,
    ) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| call.group_offsets(&id))
    }

    /// As [`AdminClient::group_offsets`], with the ends of the partitions. A partition that was deleted, that has no leader, or that the
    /// client may not describe has no end.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn lag(
        &mut self,
        group_id: &str,
        stop: Interrupt<'_>,
    ) -> Result<BTreeMap<TopicPartition, CommittedAndEnd>, AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| {
            let committed = call.group_offsets(&id)?;
            let ends = call.ends(committed.keys())?;
            let with_end = |(tp, offset)| {
                let end = ends.get(&tp).copied();
                (tp, (offset, end))
            };
            Ok(committed.into_iter().map(with_end).collect())
        })
    }

    /// Commits offsets for a group without members.
    ///
    /// # Errors
    /// See [`AdminError`]; NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION: the offsets of other partitions may be committed then.
    pub fn alter_offsets(
        &mut self,
        group_id: &str,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let commit = OffsetCommitRequest {
                group_id: Arc::clone(&id),
                topics: OffsetCommitRequest::topics_of(offsets.iter().cloned()),
                ..Default::default()
            };
            let response = call.ask(node, commit)?;
            for (tp, error) in response.errors() {
                // A group with members refuses the empty member id.
                let error = match error {
                    ErrorCode::UNKNOWN_MEMBER_ID => ErrorCode::NON_EMPTY_GROUP,
                    other => other,
                };
                let what = format!("the offset of {tp} was not committed for group {id}");
                checked(&what, [(error, None)].into_iter())?;
            }
            Ok(())
        })
    }

    /// Where the records of a share group begin, and its lag, for all partitions that it reads. Kafka: `Admin#listShareGroupOffsets`.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn share_group_offsets(
        &mut self,
        group_id: &str,
        stop: Interrupt<'_>,
    ) -> Result<Vec<DescribeShareGroupOffsetsResponseTopic>, AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let asked = DescribeShareGroupOffsetsRequestGroup {
                group_id: Arc::clone(&id),
                topics: None,
            };
            let response = call.ask(node, DescribeShareGroupOffsetsRequest { groups: vec![asked] })?;
            let Some(group) = response.groups.into_iter().next() else {
                return Err(Stop::Again(format!(
                    "node {node} did not describe the offsets of group {id}"
                )));
            };
            let what = format!("the offsets of group {id} were not described");
            checked(&what, [(group.error_code, group.error_message.as_deref())].into_iter())?;
            for topic in &group.topics {
                let refused = topic
                    .partitions
                    .iter()
                    .map(|p| (p.error_code, p.error_message.as_deref()));
                checked(&format!("{what}: {}", topic.topic_name), refused)?;
            }
            Ok(group.topics)
        })
    }

    /// Sets where the records of a share group without members begin. Kafka: `Admin#alterShareGroupOffsets`.
    ///
    /// # Errors
    /// See [`AdminError`]; NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION: the offsets of other partitions may be set then.
    pub fn alter_share_group_offsets(
        &mut self,
        group_id: &str,
        offsets: &[(TopicPartition, i64)],
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let id: Arc<str> = group_id.into();
        let partitions = offsets.iter().map(|(tp, start_offset)| {
            let partition = AlterShareGroupOffsetsRequestPartition {
                partition_index: tp.partition,
                start_offset: *start_offset,
            };
            (Arc::clone(&tp.topic), partition)
        });
        let topics: Vec<_> = grouped(partitions)
            .into_iter()
            .map(|(topic_name, partitions)| AlterShareGroupOffsetsRequestTopic { topic_name, partitions })
            .collect();
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let request = AlterShareGroupOffsetsRequest {
                group_id: Arc::clone(&id),
                topics: topics.clone(),
            };
            let response = call.ask(node, request)?;
            let what = format!("the offsets of group {id} were not set");
            checked(
                &what,
                [(response.error_code, response.error_message.as_deref())].into_iter(),
            )?;
            for topic in &response.responses {
                let refused = topic
                    .partitions
                    .iter()
                    .map(|p| (p.error_code, p.error_message.as_deref()));
                checked(&format!("{what}: {}", topic.topic_name), refused)?;
            }
            Ok(())
        })
    }

    /// Deletes where the records of topics begin for a share group without members. Kafka: `Admin#deleteShareGroupOffsets`.
    ///
    /// # Errors
    /// See [`AdminError`]; GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION of the first topic that is refused.
    pub fn delete_share_group_offsets(
        &mut self,
        group_id: &str,
        topics: &[Arc<str>],
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let topic = |name: &Arc<str>| DeleteShareGroupOffsetsRequestTopic {
                topic_name: Arc::clone(name),
            };
            let request = DeleteShareGroupOffsetsRequest {
                group_id: Arc::clone(&id),
                topics: topics.iter().map(topic).collect(),
            };
            let response = call.ask(node, request)?;
            let what = format!("the offsets of group {id} were not deleted");
            checked(
                &what,
                [(response.error_code, response.error_message.as_deref())].into_iter(),
            )?;
            for topic in &response.responses {
                let refused = [(topic.error_code, topic.error_message.as_deref())];
                checked(&format!("{what}: {}", topic.topic_name), refused.into_iter())?;
            }
            Ok(())
        })
    }

    /// Deletes committed offsets of a group.
    ///
    /// # Errors
    /// See [`AdminError`]; GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION, of the first partition that
    /// is refused: the offsets of the others are deleted.
    pub fn delete_offsets(
        &mut self,
        group_id: &str,
        partitions: &[TopicPartition],
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let id: Arc<str> = group_id.into();
        let mut topics: Vec<offset_delete_request::OffsetDeleteRequestTopic> = Vec::new();
        for tp in partitions {
            let partition = offset_delete_request::OffsetDeleteRequestPartition {
                partition_index: tp.partition,
            };
            match topics.iter_mut().find(|t| t.name == tp.topic) {
                Some(topic) => topic.partitions.push(partition),
                None => topics.push(offset_delete_request::OffsetDeleteRequestTopic {
                    name: Arc::clone(&tp.topic),
                    partitions: vec![partition],
                }),
            }
        }
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let request = OffsetDeleteRequest {
                group_id: Arc::clone(&id),
                topics: topics.clone(),
            };
            let response = call.ask(node, request)?;
            let of_group = format!("offsets of group {id} were not deleted");
            checked(&of_group, [(response.error_code, None)].into_iter())?;
            for topic in &response.topics {
                for p in &topic.partitions {
                    let what = format!("the offset of {}-{} was not deleted", topic.name, p.partition_index);
                    checked(&what, [(p.error_code, None)].into_iter())?;
                }
            }
            Ok(())
        })
    }
}

impl Call<'_, '_> {
    fn group_offsets(&mut self, group_id: &Arc<str>) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, Stop> {
        let node = self.coordinator(group_id)?;
        let request = OffsetFetchRequest::of(Arc::clone(group_id), None, false);
        let response = self.ask(node, request)?;
        let what = format!("the offsets of group {group_id} were not fetched");
        let fetched = response.offsets().map_err(|error| refused(&what, error, None))?;
        let mut offsets = BTreeMap::new();
        for (tp, committed) in fetched {
            match committed {
                Ok(Some(offset)) => drop(offsets.insert(tp, offset)),
                Ok(None) => {}
                Err(code) => return Err(refused(&format!("{what}: {tp}"), code, None)),
            }
        }
        Ok(offsets)
    }

    /// The high watermarks of the partitions whose leaders report them: one request per leader.
    fn ends<'p>(
        &mut self,
        partitions: impl Iterator<Item = &'p TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, i64>, Stop> {
        let wanted: BTreeSet<&TopicPartition> = partitions.collect();
        let names: BTreeSet<&Arc<str>> = wanted.iter().map(|tp| &tp.topic).collect();
        let names: Vec<Arc<str>> = names.into_iter().cloned().collect();
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut by_leader: BTreeMap<NodeId, Vec<TopicPartition>> = BTreeMap::new();
        for topic in self.metadata_of_any(Some(&names))?.topics {
            let name = topic.name.unwrap_or_default();
            for p in topic.partitions {
                let tp = TopicPartition::new(Arc::clone(&name), p.partition_index);
                if let Some(leader) = p.leader().filter(|_| wanted.contains(&tp)) {
                    by_leader.entry(leader).or_default().push(tp);
                }
            }
        }
        let mut ends = BTreeMap::new();
        for (leader, partitions) in by_leader {
            let latest = ListOffsetsRequest::LATEST_TIMESTAMP;
            let listed = self.list_offsets(leader, &partitions, latest, IsolationLevel::ReadUncommitted)?;
            for (topic, listed) in listed.partitions() {
                let tp = TopicPartition::new(Arc::clone(topic), listed.partition_index);
                match listed.error_code {
                    ErrorCode::NONE => drop(ends.insert(tp, listed.offset)),
                    // Deleted since the metadata was read, or not visible to this client.
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::TOPIC_AUTHORIZATION_FAILED => {}
                    code => checked(&format!("the end of {tp} was not listed"), [(code, None)].into_iter())?,
                }
            }
        }
        Ok(ends)
    }
}
