//! Keys and values of the records of `__consumer_offsets` (spec 8.8). Kafka: `GroupCoordinatorRecordHelpers`.
//!
//! The version of a key is the record's type: 0 and 1 an offset, 2 a classic group, 3 and 5 to 8 and 16 what a consumer group is made of
//! (KIP-848), 10 to 15 what a share group is made of (KIP-932). A value of an unknown version is refused.

use bytes::Bytes;

use crate::error::WireError;
use crate::table::Value;

value! {
    OffsetCommitKey, offset_commit_key: versions 0 to 1, flexible from i16::MAX;
    OffsetCommitKey {
        group: Arc<str>, since(0);
        topic: Arc<str>, since(0);
        partition: i32, since(0);
    }
}

value! {
    OffsetCommitValue, offset_commit_value: versions 0 to 4, flexible from 4;
    OffsetCommitValue {
        offset: i64, since(0);
        leader_epoch: i32 = -1, since(3).ignorable();
        metadata: Arc<str>, since(0);
        commit_timestamp: i64, since(0);
        expire_timestamp: i64 = -1, between(1, 1).ignorable();
        topic_id: [u8; 16], since(4).tag(0).ignorable();
    }
}

value! {
    GroupMetadataKey, group_metadata_key: versions 2 to 2, flexible from i16::MAX;
    GroupMetadataKey {
        group: Arc<str>, since(2);
    }
}

// In Kafka's table the members and their bytes are never null; here null is read as well, as empty.
value! {
    GroupMetadataValue, group_metadata_value: versions 0 to 4, flexible from 4;
    GroupMetadataValue {
        protocol_type: Arc<str>, since(0);
        generation: i32, since(0);
        protocol: Option<Arc<str>>, since(0).nullable(0);
        leader: Option<Arc<str>>, since(0).nullable(0);
        current_state_timestamp: i64 = -1, since(2).ignorable();
        members: Option<Vec<MemberMetadata>>, since(0).nullable(0);
    }
    MemberMetadata {
        member_id: Arc<str>, since(0);
        group_instance_id: Option<Arc<str>> = None, since(3).nullable(3).ignorable();
        client_id: Arc<str>, since(0);
        client_host: Arc<str>, since(0);
        rebalance_timeout: i32 = -1, since(1).ignorable();
        session_timeout: i32, since(0);
        subscription: Option<Bytes>, since(0).nullable(0);
        assignment: Option<Bytes>, since(0).nullable(0);
    }
}

value! {
    ConsumerGroupMetadataKey, consumer_group_metadata_key: versions 3 to 3, flexible from i16::MAX;
    ConsumerGroupMetadataKey {
        group_id: Arc<str>, since(3);
    }
}

value! {
    ConsumerGroupMetadataValue, consumer_group_metadata_value: versions 0 to 0, flexible from 0;
    ConsumerGroupMetadataValue {
        epoch: i32, since(0);
        metadata_hash: i64, since(0).tag(0);
    }
}

// Its value was written by early releases only.
value! {
    ConsumerGroupPartitionMetadataKey, consumer_group_partition_metadata_key: versions 4 to 4, flexible from i16::MAX;
    ConsumerGroupPartitionMetadataKey {
        group_id: Arc<str>, since(4);
    }
}

value! {
    ConsumerGroupMemberMetadataKey, consumer_group_member_metadata_key: versions 5 to 5, flexible from i16::MAX;
    ConsumerGroupMemberMetadataKey {
        group_id: Arc<str>, since(5);
        member_id: Arc<str>, since(5);
    }
}

value! {
    ConsumerGroupMemberMetadataValue, consumer_group_member_metadata_value: versions 0 to 0, flexible from 0;
    ConsumerGroupMemberMetadataValue {
        instance_id: Option<Arc<str>>, since(0).nullable(0);
        rack_id: Option<Arc<str>>, since(0).nullable(0);
        client_id: Arc<str>, since(0);
        client_host: Arc<str>, since(0);
        subscribed_topic_names: Vec<Arc<str>>, since(0);
        subscribed_topic_regex: Option<Arc<str>>, since(0).nullable(0);
        rebalance_timeout_ms: i32 = -1, since(0);
        server_assignor: Option<Arc<str>>, since(0).nullable(0);
        classic_member_metadata: Option<ClassicMemberMetadata> = None, since(0).nullable(0).tag(0);
    }
    ClassicMemberMetadata {
        session_timeout_ms: i32, since(0);
        supported_protocols: Vec<ClassicProtocol>, since(0);
    }
    ClassicProtocol {
        name: Arc<str>, since(0);
        metadata: Bytes, since(0);
    }
}

value! {
    ConsumerGroupTargetAssignmentMetadataKey, consumer_group_target_assignment_metadata_key: versions 6 to 6, flexible from i16::MAX;
    ConsumerGroupTargetAssignmentMetadataKey {
        group_id: Arc<str>, since(6);
    }
}

value! {
    ConsumerGroupTargetAssignmentMetadataValue, consumer_group_target_assignment_metadata_value: versions 0 to 0, flexible from 0;
    ConsumerGroupTargetAssignmentMetadataValue {
        assignment_epoch: i32, since(0);
        assignment_timestamp: i64, since(0).tag(0);
    }
}

value! {
    ConsumerGroupTargetAssignmentMemberKey, consumer_group_target_assignment_member_key: versions 7 to 7, flexible from i16::MAX;
    ConsumerGroupTargetAssignmentMemberKey {
        group_id: Arc<str>, since(7);
        member_id: Arc<str>, since(7);
    }
}

value! {
    ConsumerGroupTargetAssignmentMemberValue, consumer_group_target_assignment_member_value: versions 0 to 0, flexible from 0;
    ConsumerGroupTargetAssignmentMemberValue {
        topic_partitions: Vec<TopicPartition>, since(0);
    }
    TopicPartition {
        topic_id: [u8; 16], since(0);
        partitions: Vec<i32>, since(0);
    }
}

value! {
    ConsumerGroupCurrentMemberAssignmentKey, consumer_group_current_member_assignment_key: versions 8 to 8, flexible from i16::MAX;
    ConsumerGroupCurrentMemberAssignmentKey {
        group_id: Arc<str>, since(8);
        member_id: Arc<str>, since(8);
    }
}

value! {
    ConsumerGroupCurrentMemberAssignmentValue, consumer_group_current_member_assignment_value: versions 0 to 0, flexible from 0;
    ConsumerGroupCurrentMemberAssignmentValue {
        member_epoch: i32, since(0);
        previous_member_epoch: i32, since(0);
        state: i8, since(0);
        assigned_partitions: Vec<TopicPartitions>, since(0);
        partitions_pending_revocation: Vec<TopicPartitions>, since(0);
    }
    TopicPartitions {
        topic_id: [u8; 16], since(0);
        partitions: Vec<i32>, since(0);
        assignment_epochs: Option<Vec<i32>> = None, since(0).nullable(0).tag(0);
    }
}

value! {
    ConsumerGroupRegularExpressionKey, consumer_group_regular_expression_key: versions 16 to 16, flexible from i16::MAX;
    ConsumerGroupRegularExpressionKey {
        group_id: Arc<str>, since(16);
        regular_expression: Arc<str>, since(16);
    }
}

value! {
    ConsumerGroupRegularExpressionValue, consumer_group_regular_expression_value: versions 0 to 0, flexible from 0;
    ConsumerGroupRegularExpressionValue {
        topics: Vec<Arc<str>>, since(0);
        version: i64, since(0);
        timestamp: i64, since(0);
    }
}

value! {
    ShareGroupMemberMetadataKey, share_group_member_metadata_key: versions 10 to 10, flexible from i16::MAX;
    ShareGroupMemberMetadataKey {
        group_id: Arc<str>, since(10);
        member_id: Arc<str>, since(10);
    }
}

value! {
    ShareGroupMemberMetadataValue, share_group_member_metadata_value: versions 0 to 0, flexible from 0;
    ShareGroupMemberMetadataValue {
        rack_id: Option<Arc<str>>, since(0).nullable(0);
        client_id: Arc<str>, since(0);
        client_host: Arc<str>, since(0);
        subscribed_topic_names: Vec<Arc<str>>, since(0);
    }
}

value! {
    ShareGroupMetadataKey, share_group_metadata_key: versions 11 to 11, flexible from i16::MAX;
    ShareGroupMetadataKey {
        group_id: Arc<str>, since(11);
    }
}

value! {
    ShareGroupMetadataValue, share_group_metadata_value: versions 0 to 0, flexible from 0;
    ShareGroupMetadataValue {
        epoch: i32, since(0);
        metadata_hash: i64, since(0);
    }
}

value! {
    ShareGroupTargetAssignmentMetadataKey, share_group_target_assignment_metadata_key: versions 12 to 12, flexible from i16::MAX;
    ShareGroupTargetAssignmentMetadataKey {
        group_id: Arc<str>, since(12);
    }
}

value! {
    ShareGroupTargetAssignmentMetadataValue, share_group_target_assignment_metadata_value: versions 0 to 0, flexible from 0;
    ShareGroupTargetAssignmentMetadataValue {
        assignment_epoch: i32, since(0);
        assignment_timestamp: i64, since(0).tag(0);
    }
}

value! {
    ShareGroupTargetAssignmentMemberKey, share_group_target_assignment_member_key: versions 13 to 13, flexible from i16::MAX;
    ShareGroupTargetAssignmentMemberKey {
        group_id: Arc<str>, since(13);
        member_id: Arc<str>, since(13);
    }
}

value! {
    ShareGroupTargetAssignmentMemberValue, share_group_target_assignment_member_value: versions 0 to 0, flexible from 0;
    ShareGroupTargetAssignmentMemberValue {
        topic_partitions: Vec<TopicPartition>, since(0);
    }
    TopicPartition {
        topic_id: [u8; 16], since(0);
        partitions: Vec<i32>, since(0);
    }
}

value! {
    ShareGroupCurrentMemberAssignmentKey, share_group_current_member_assignment_key: versions 14 to 14, flexible from i16::MAX;
    ShareGroupCurrentMemberAssignmentKey {
        group_id: Arc<str>, since(14);
        member_id: Arc<str>, since(14);
    }
}

value! {
    ShareGroupCurrentMemberAssignmentValue, share_group_current_member_assignment_value: versions 0 to 0, flexible from 0;
    ShareGroupCurrentMemberAssignmentValue {
        member_epoch: i32, since(0);
        previous_member_epoch: i32, since(0);
        state: i8, since(0);
        assigned_partitions: Vec<TopicPartitions>, since(0);
    }
    TopicPartitions {
        topic_id: [u8; 16], since(0);
        partitions: Vec<i32>, since(0);
    }
}

value! {
    ShareGroupStatePartitionMetadataKey, share_group_state_partition_metadata_key: versions 15 to 15, flexible from i16::MAX;
    ShareGroupStatePartitionMetadataKey {
        group_id: Arc<str>, since(15);
    }
}

value! {
    ShareGroupStatePartitionMetadataValue, share_group_state_partition_metadata_value: versions 0 to 0, flexible from 0;
    ShareGroupStatePartitionMetadataValue {
        initializing_topics: Vec<TopicPartitionsInfo>, since(0);
        initialized_topics: Vec<TopicPartitionsInfo>, since(0);
        deleting_topics: Vec<TopicInfo>, since(0);
    }
    TopicPartitionsInfo {
        topic_id: [u8; 16], since(0);
        topic_name: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
    TopicInfo {
        topic_id: [u8; 16], since(0);
        topic_name: Arc<str>, since(0);
    }
}

/// The key of a record. Kafka: `CoordinatorRecordType`.
#[derive(Debug, Clone, PartialEq)]
pub enum ConsumerOffsetsKey {
    /// A committed offset.
    Offset(OffsetCommitKey),
    /// A classic group.
    Group(GroupMetadataKey),
    /// A consumer group: its epoch.
    ConsumerGroup(ConsumerGroupMetadataKey),
    /// A member of a consumer group.
    ConsumerGroupMember(ConsumerGroupMemberMetadataKey),
    /// The target assignment of a consumer group: its epoch.
    TargetAssignment(ConsumerGroupTargetAssignmentMetadataKey),
    /// The target assignment of a member.
    TargetAssignmentMember(ConsumerGroupTargetAssignmentMemberKey),
    /// What a member of a consumer group has.
    CurrentMemberAssignment(ConsumerGroupCurrentMemberAssignmentKey),
    /// A regular expression to which members of a consumer group subscribe.
    RegularExpression(ConsumerGroupRegularExpressionKey),
    /// A member of a share group.
    ShareGroupMember(ShareGroupMemberMetadataKey),
    /// A share group: its epoch.
    ShareGroup(ShareGroupMetadataKey),
    /// The target assignment of a share group: its epoch.
    ShareTargetAssignment(ShareGroupTargetAssignmentMetadataKey),
    /// The target assignment of a member of a share group.
    ShareTargetAssignmentMember(ShareGroupTargetAssignmentMemberKey),
    /// What a member of a share group has.
    ShareCurrentMemberAssignment(ShareGroupCurrentMemberAssignmentKey),
    /// The partitions of a share group whose state is initialized.
    ShareStatePartitions(ShareGroupStatePartitionMetadataKey),
    /// A type that has no table here: streams groups, newer ones.
    Other(i16),
}

impl ConsumerOffsetsKey {
    /// Reads a key of any type.
    ///
    /// # Errors
    /// Bytes that are no key.
    pub fn decode(bytes: Bytes) -> Result<Self, WireError> {
        match bytes.first_chunk().map(|version| i16::from_be_bytes(*version)) {
            Some(OffsetCommitKey::MIN_VERSION..=OffsetCommitKey::MAX_VERSION) | None => {
                OffsetCommitKey::decode(bytes).map(Self::Offset)
            }
            Some(GroupMetadataKey::MIN_VERSION) => GroupMetadataKey::decode(bytes).map(Self::Group),
            Some(ConsumerGroupMetadataKey::MIN_VERSION) => {
                ConsumerGroupMetadataKey::decode(bytes).map(Self::ConsumerGroup)
            }
            Some(ConsumerGroupMemberMetadataKey::MIN_VERSION) => {
                ConsumerGroupMemberMetadataKey::decode(bytes).map(Self::ConsumerGroupMember)
            }
            Some(ConsumerGroupTargetAssignmentMetadataKey::MIN_VERSION) => {
                ConsumerGroupTargetAssignmentMetadataKey::decode(bytes).map(Self::TargetAssignment)
            }
            Some(ConsumerGroupTargetAssignmentMemberKey::MIN_VERSION) => {
                ConsumerGroupTargetAssignmentMemberKey::decode(bytes).map(Self::TargetAssignmentMember)
            }
            Some(ConsumerGroupCurrentMemberAssignmentKey::MIN_VERSION) => {
                ConsumerGroupCurrentMemberAssignmentKey::decode(bytes).map(Self::CurrentMemberAssignment)
            }
            Some(ConsumerGroupRegularExpressionKey::MIN_VERSION) => {
                ConsumerGroupRegularExpressionKey::decode(bytes).map(Self::RegularExpression)
            }
            Some(ShareGroupMemberMetadataKey::MIN_VERSION) => {
                ShareGroupMemberMetadataKey::decode(bytes).map(Self::ShareGroupMember)
            }
            Some(ShareGroupMetadataKey::MIN_VERSION) => ShareGroupMetadataKey::decode(bytes).map(Self::ShareGroup),
            Some(ShareGroupTargetAssignmentMetadataKey::MIN_VERSION) => {
                ShareGroupTargetAssignmentMetadataKey::decode(bytes).map(Self::ShareTargetAssignment)
            }
            Some(ShareGroupTargetAssignmentMemberKey::MIN_VERSION) => {
                ShareGroupTargetAssignmentMemberKey::decode(bytes).map(Self::ShareTargetAssignmentMember)
            }
            Some(ShareGroupCurrentMemberAssignmentKey::MIN_VERSION) => {
                ShareGroupCurrentMemberAssignmentKey::decode(bytes).map(Self::ShareCurrentMemberAssignment)
            }
            Some(ShareGroupStatePartitionMetadataKey::MIN_VERSION) => {
                ShareGroupStatePartitionMetadataKey::decode(bytes).map(Self::ShareStatePartitions)
            }
            Some(other) => Ok(Self::Other(other)),
        }
    }
}

impl OffsetCommitValue {
    /// The version that is written: 1 for an offset that expires at a time of its own, 4 with the topic's id, else 3. Kafka:
    /// `GroupCoordinatorRecordHelpers#newOffsetCommitRecord`.
    pub fn written_version(&self) -> i16 {
        match self.topic_id {
            _ if self.expire_timestamp != -1 => 1,
            [0, ..] if self.topic_id == [0; 16] => 3,
            _ => 4,
        }
    }
}

impl group_metadata_value::MemberMetadata {
    /// How long the member may take to rejoin: older versions do not say it, and then it is the session's time-out. Kafka:
    /// `GroupMetadataManager#replay`.
    pub fn rebalance_timeout_ms(&self) -> i32 {
        match self.rebalance_timeout {
            -1 => self.session_timeout,
            timeout => timeout,
        }
    }
}
