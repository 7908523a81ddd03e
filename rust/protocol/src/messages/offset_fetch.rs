//! OffsetFetch, API key 9.

use std::sync::Arc;

use fletchlog_records::{ErrorCode, TopicPartition};

use crate::OffsetAndMetadata;
use crate::by_topic::grouped;

message! {
    OffsetFetchRequest, offset_fetch_request: key 9, versions 1 to 10, flexible from 6, with for_version of_version;
    OffsetFetchRequest {
        group_id: Arc<str>, between(0, 7);
        topics: Option<Vec<OffsetFetchRequestTopic>>, between(0, 7).nullable(2);
        groups: Vec<OffsetFetchRequestGroup>, since(8);
        require_stable: bool, since(7);
    }
    OffsetFetchRequestTopic {
        name: Arc<str>, between(0, 7);
        partition_indexes: Vec<i32>, between(0, 7);
    }
    OffsetFetchRequestGroup {
        group_id: Arc<str>, since(8);
        member_id: Option<Arc<str>> = None, since(9).nullable(9).ignorable();
        member_epoch: i32 = -1, since(9).ignorable();
        topics: Option<Vec<OffsetFetchRequestTopics>>, since(8).nullable(8);
    }
    OffsetFetchRequestTopics {
        name: Arc<str>, between(8, 9).ignorable();
        topic_id: [u8; 16], since(10).ignorable();
        partition_indexes: Vec<i32>, since(8);
    }
}

message! {
    OffsetFetchResponse, offset_fetch_response: key 9, versions 1 to 10, flexible from 6, with for_version of_version;
    OffsetFetchResponse {
        throttle_time_ms: i32, since(3).ignorable();
        topics: Vec<OffsetFetchResponseTopic>, between(0, 7);
        error_code: ErrorCode, between(2, 7).ignorable();
        groups: Vec<OffsetFetchResponseGroup>, since(8);
    }
    OffsetFetchResponseTopic {
        name: Arc<str>, between(0, 7);
        partitions: Vec<OffsetFetchResponsePartition>, between(0, 7);
    }
    OffsetFetchResponsePartition {
        partition_index: i32, between(0, 7);
        committed_offset: i64, between(0, 7);
        committed_leader_epoch: i32 = -1, between(5, 7).ignorable();
        metadata: Option<Arc<str>>, between(0, 7).nullable(0);
        error_code: ErrorCode, between(0, 7);
    }
    OffsetFetchResponseGroup {
        group_id: Arc<str>, since(8);
        topics: Vec<OffsetFetchResponseTopics>, since(8);
        error_code: ErrorCode, since(8);
    }
    OffsetFetchResponseTopics {
        name: Arc<str>, between(8, 9).ignorable();
        topic_id: [u8; 16], since(10).ignorable();
        partitions: Vec<OffsetFetchResponsePartitions>, since(8);
    }
    OffsetFetchResponsePartitions {
        partition_index: i32, since(8);
        committed_offset: i64, since(8);
        committed_leader_epoch: i32 = -1, since(8).ignorable();
        metadata: Option<Arc<str>>, since(8).nullable(8);
        error_code: ErrorCode, since(8);
    }
}

/// First version with many groups.
const MANY_GROUPS: i16 = 8;
/// First version that can ask for stable offsets. Below, Java continues without them. Kafka: `OffsetFetchRequest.Builder`.
const REQUIRE_STABLE: i16 = 7;

/// The offset of a partition; `None`: nothing is committed.
type Committed<T> = Result<Option<T>, ErrorCode>;

impl OffsetFetchRequest {
    /// Asks for the offsets of one group; `None`: of every partition that has one.
    #[must_use]
    pub fn of(group_id: Arc<str>, partitions: Option<&[TopicPartition]>, require_stable: bool) -> Self {
        let topic = |(name, partition_indexes)| offset_fetch_request::OffsetFetchRequestTopics {
            name,
            partition_indexes,
            ..Default::default()
        };
        let topics = partitions.map(|partitions| {
            let topics = grouped(partitions.iter().map(|tp| (Arc::clone(&tp.topic), tp.partition)));
            topics.into_iter().map(topic).collect()
        });
        Self {
            groups: vec![offset_fetch_request::OffsetFetchRequestGroup {
                group_id,
                topics,
                ..Default::default()
            }],
            require_stable,
            ..Default::default()
        }
    }

    /// In an older version, moves the only group of the list into the fields of that version. Several groups stay, and the encoder
    /// refuses them. Kafka: `OffsetFetchRequest.Builder#build`.
    fn for_version(mut self, version: i16) -> Self {
        self.require_stable &= version >= REQUIRE_STABLE;
        if version < MANY_GROUPS && self.groups.len() == 1 {
            let topic =
                |topic: offset_fetch_request::OffsetFetchRequestTopics| offset_fetch_request::OffsetFetchRequestTopic {
                    name: topic.name,
                    partition_indexes: topic.partition_indexes,
                };
            let only = self.groups.swap_remove(0);
            self.group_id = only.group_id;
            self.topics = only.topics.map(|topics| topics.into_iter().map(topic).collect());
        }
        self
    }

    /// The reverse of [`Self::for_version`]: the groups are in the list, whatever version was read. Kafka: `OffsetFetchRequest#groups`.
    fn of_version(mut self, version: i16) -> Self {
        if version < MANY_GROUPS {
            let topic =
                |topic: offset_fetch_request::OffsetFetchRequestTopic| offset_fetch_request::OffsetFetchRequestTopics {
                    name: topic.name,
                    partition_indexes: topic.partition_indexes,
                    ..Default::default()
                };
            let topics = self.topics.replace(Vec::new());
            self.groups = vec![offset_fetch_request::OffsetFetchRequestGroup {
                group_id: std::mem::take(&mut self.group_id),
                topics: topics.map(|topics| topics.into_iter().map(topic).collect()),
                ..Default::default()
            }];
        }
        self
    }
}

impl offset_fetch_request::OffsetFetchRequestTopics {
    /// Its entry in the response, with the offset of each partition.
    pub fn answered<'a>(
        &self,
        committed: impl Fn(i32) -> Committed<&'a OffsetAndMetadata>,
    ) -> offset_fetch_response::OffsetFetchResponseTopics {
        let partitions = self.partition_indexes.iter();
        let partitions = partitions.map(|&p| offset_fetch_response::OffsetFetchResponsePartitions::of(p, committed(p)));
        offset_fetch_response::OffsetFetchResponseTopics {
            name: Arc::clone(&self.name),
            topic_id: self.topic_id,
            partitions: partitions.collect(),
        }
    }
}

impl OffsetFetchResponse {
    /// In an older version, moves the only group of the list into the fields of that version. Kafka: `OffsetFetchResponse.Builder#build`.
    fn for_version(mut self, version: i16) -> Self {
        if version < MANY_GROUPS && self.groups.len() == 1 {
            let only = self.groups.swap_remove(0);
            self.error_code = only.error_code;
            self.topics = only.topics.into_iter().map(in_old_version).collect();
        }
        self
    }

    /// The reverse of [`Self::for_version`], but for the group's id, which an older version does not repeat. Kafka:
    /// `OffsetFetchResponse#group`.
    fn of_version(mut self, version: i16) -> Self {
        if version < MANY_GROUPS {
            let topics = std::mem::take(&mut self.topics);
            self.groups = vec![offset_fetch_response::OffsetFetchResponseGroup {
                group_id: Arc::default(),
                topics: topics.into_iter().map(of_old_version).collect(),
                error_code: std::mem::replace(&mut self.error_code, ErrorCode::NONE),
            }];
        }
        self
    }

    /// The offsets of the group that was asked for with [`OffsetFetchRequest::of`], or the group's error.
    pub fn offsets(&self) -> Result<impl Iterator<Item = (TopicPartition, Committed<OffsetAndMetadata>)>, ErrorCode> {
        let group = self.groups.first().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        if group.error_code != ErrorCode::NONE {
            return Err(group.error_code);
        }
        Ok(group.topics.iter().flat_map(|topic| {
            let of = |partition| TopicPartition::new(Arc::clone(&topic.name), partition);
            let partitions = topic.partitions.iter();
            partitions.map(move |p| (of(p.partition_index), p.committed()))
        }))
    }
}

fn in_old_version(
    topic: offset_fetch_response::OffsetFetchResponseTopics,
) -> offset_fetch_response::OffsetFetchResponseTopic {
    let partition =
        |p: offset_fetch_response::OffsetFetchResponsePartitions| offset_fetch_response::OffsetFetchResponsePartition {
            partition_index: p.partition_index,
            committed_offset: p.committed_offset,
            committed_leader_epoch: p.committed_leader_epoch,
            metadata: p.metadata,
            error_code: p.error_code,
        };
    offset_fetch_response::OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    }
}

fn of_old_version(
    topic: offset_fetch_response::OffsetFetchResponseTopic,
) -> offset_fetch_response::OffsetFetchResponseTopics {
    let partition =
        |p: offset_fetch_response::OffsetFetchResponsePartition| offset_fetch_response::OffsetFetchResponsePartitions {
            partition_index: p.partition_index,
            committed_offset: p.committed_offset,
            committed_leader_epoch: p.committed_leader_epoch,
            metadata: p.metadata,
            error_code: p.error_code,
        };
    offset_fetch_response::OffsetFetchResponseTopics {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
        ..Default::default()
    }
}

impl offset_fetch_response::OffsetFetchResponsePartitions {
    /// A partition with what is committed, or its error.
    pub fn of(partition_index: i32, committed: Committed<&OffsetAndMetadata>) -> Self {
        let error_code = committed.err().unwrap_or(ErrorCode::NONE);
        let committed = committed.ok().flatten();
        Self {
            partition_index,
            committed_offset: committed.map_or(-1, |c| c.offset),
            committed_leader_epoch: committed.map_or(-1, |c| c.leader_epoch),
            metadata: Some(committed.map(|c| Arc::clone(&c.metadata)).unwrap_or_default()),
            error_code,
        }
    }

    /// The reverse of [`Self::of`]. An offset below 0 means that nothing is committed. Kafka: `OffsetFetchResponse#INVALID_OFFSET`.
    fn committed(&self) -> Committed<OffsetAndMetadata> {
        match self.error_code {
            ErrorCode::NONE => Ok((self.committed_offset >= 0).then(|| OffsetAndMetadata {
                offset: self.committed_offset,
                leader_epoch: self.committed_leader_epoch,
                metadata: self.metadata.clone().unwrap_or_default(),
            })),
            refused => Err(refused),
        }
    }
}
