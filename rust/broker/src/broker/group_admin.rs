//! The broker's group operations for Kafka's admin tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId, OffsetAndMetadata};
use fletchlog_protocol::messages::alter_share_group_offsets_response::AlterShareGroupOffsetsResponseTopic;
use fletchlog_protocol::messages::consumer_group_describe_response::DescribedGroup;
use fletchlog_protocol::messages::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use fletchlog_protocol::messages::describe_share_group_offsets_response::DescribeShareGroupOffsetsResponseTopic;
use fletchlog_protocol::messages::share_group_describe_response::DescribedGroup as DescribedShareGroup;
use fletchlog_protocol::messages::{AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest};
use fletchlog_records::TopicPartition;

use super::Broker;
use crate::BrokerError;
use crate::group::{GroupDescription, GroupListing};

impl Broker {
    /// Every group, by id, including groups that only have committed offsets. Kafka: ListGroups.
    ///
    /// # Errors
    /// `Closed`; KAFKA_STORAGE_ERROR: `__consumer_offsets` cannot be read.
    pub fn groups(&self) -> Result<Vec<GroupListing>, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.groups()
    }

    /// A group and its members. Kafka: DescribeGroups.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND, `Closed`, KAFKA_STORAGE_ERROR.
    pub fn describe_group(&self, group_id: &str) -> Result<GroupDescription, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.describe_group(group_id)
    }

    /// A consumer group and its members. Kafka: ConsumerGroupDescribe.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND: there is none, or it is a classic group. UNSUPPORTED_VERSION: the broker does not serve them. `Closed`,
    /// KAFKA_STORAGE_ERROR.
    pub fn describe_consumer_group(&self, group_id: &str) -> Result<DescribedGroup, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.describe_consumer_group(group_id)
    }

    /// A share group and its members. Kafka: ShareGroupDescribe.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND: there is none, or it is a group of another kind. `Closed`, KAFKA_STORAGE_ERROR.
    pub fn describe_share_group(&self, group_id: &str) -> Result<DescribedShareGroup, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.describe_share_group(group_id)
    }

    /// Where the records of a share group begin, and its lag, for partitions of topics, or for all that it has read. Kafka:
    /// DescribeShareGroupOffsets.
    ///
    /// # Errors
    /// UNKNOWN_SERVER_ERROR (an empty id or list of partitions, a negative partition), `Closed`, KAFKA_STORAGE_ERROR.
    pub fn share_group_offsets(
        &self,
        group_id: &Arc<str>,
        topics: Option<Vec<(Arc<str>, Vec<i32>)>>,
    ) -> Result<Vec<DescribeShareGroupOffsetsResponseTopic>, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.share_group_offsets(group_id, topics)
    }

    /// Sets where the records of a share group without members begin; creates the group if it does not exist. Kafka:
    /// AlterShareGroupOffsets.
    ///
    /// # Errors
    /// NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND (a group of another kind), `ReadOnly`, `Closed`, storage errors.
    pub fn alter_share_group_offsets(
        &self,
        request: &AlterShareGroupOffsetsRequest,
    ) -> Result<Vec<AlterShareGroupOffsetsResponseTopic>, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.alter_share_group_offsets(request)
    }

    /// Deletes where the records of topics begin for a share group without members. Kafka: DeleteShareGroupOffsets.
    ///
    /// # Errors
    /// NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, `ReadOnly`, `Closed`, storage errors.
    pub fn delete_share_group_offsets(
        &self,
        request: &DeleteShareGroupOffsetsRequest,
    ) -> Result<Vec<DeleteShareGroupOffsetsResponseTopic>, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.delete_share_group_offsets(request)
    }

    /// Whether the protocol of consumer groups is served: `group.coordinator.rebalance.protocols` has `consumer`.
    pub fn serves_consumer_groups(&self) -> bool {
        self.groups.serves_consumer_groups()
    }

    /// The committed offsets of a group, by partition; empty if the group does not exist. Offsets of an open transaction are not
    /// included. Kafka: `Admin#listConsumerGroupOffsets`.
    ///
    /// # Errors
    /// `Closed`; KAFKA_STORAGE_ERROR: `__consumer_offsets` cannot be read.
    pub fn group_offsets(&self, group_id: &str) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.group_offsets(group_id)
    }

    /// As [`Broker::group_offsets`], with the high watermarks of the partitions. A partition that was deleted, or whose log cannot be
    /// opened, has none.
    ///
    /// # Errors
    /// As [`Broker::group_offsets`].
    pub fn lag(
        &self,
        group_id: &str,
    ) -> Result<BTreeMap<TopicPartition, (OffsetAndMetadata, Option<i64>)>, BrokerError> {
        let with_end = |(tp, offset): (TopicPartition, OffsetAndMetadata)| {
            let end = match self.partition_log(&tp) {
                Ok(log) => Some(log.high_watermark()),
                Err(BrokerError::Closed) => return Err(BrokerError::Closed),
                Err(error) => {
                    log::debug!("{tp} has no end to compare the offset of group {group_id} with: {error}");
                    None
                }
            };
            Ok((tp, (offset, end)))
        };
        self.group_offsets(group_id)?.into_iter().map(with_end).collect()
    }

    /// Deletes a group without members and its offsets, also those committed in open transactions. When it returns, the deletion is
    /// written the way a commit is. Kafka: DeleteGroups.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, `ReadOnly`, `Closed`, storage errors.
    pub fn delete_group(&self, group_id: &str) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.delete_group(group_id)
    }

    /// Deletes committed offsets. Results per partition, in request order: NONE (deleted, or no offset existed),
    /// UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC. Kafka: OffsetDelete.
    ///
    /// # Errors
    /// INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (its members are not consumers), `ReadOnly`, `Closed`, storage errors.
    pub fn delete_offsets(
        &self,
        group_id: &str,
        partitions: &[TopicPartition],
    ) -> Result<Vec<(TopicPartition, ErrorCode)>, BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.delete_offsets(group_id, partitions)
    }

    /// Commits offsets for a group without members; creates the group if it does not exist. Kafka: `Admin#alterConsumerGroupOffsets`.
    ///
    /// # Errors
    /// NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, `ReadOnly`, `Closed`, storage errors. After an error
    /// nothing was committed.
    pub fn alter_offsets(
        &self,
        group_id: &Arc<str>,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        self.do_scheduled_work();
        self.groups.alter_offsets(group_id, offsets)
    }

    /// Creates `__consumer_offsets` if it does not exist, as Kafka does when a client first asks for a group's coordinator. Kafka:
    /// `AutoTopicCreationManager#createTopics`.
    ///
    /// # Errors
    /// `Closed`, storage errors.
    pub fn create_offsets_topic(&self) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        match self.is_read_only() {
            true => Ok(()),
            false => self.replicas.controller().offsets_topic().map(drop),
        }
    }

    /// The node that coordinates a group, whether the group exists or not. Kafka: FindCoordinator.
    pub fn group_coordinator(&self, group_id: &str) -> NodeId {
        self.groups.coordinator_of(group_id)
    }
}
