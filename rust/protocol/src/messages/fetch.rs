//! Fetch, API key 1.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_records::{ErrorCode, TopicPartition};

use crate::by_topic::grouped;
use crate::topic_ids::{topic_by_id, topic_id_of};

message! {
    FetchRequest, fetch_request: key 1, versions 4 to 18, flexible from 12, with for_version of_version;
    FetchRequest {
        cluster_id: Option<Arc<str>> = None, since(12).nullable(12).tag(0).ignorable();
        replica_id: i32 = -1, between(0, 14);
        replica_state: ReplicaState, since(15).tag(1);
        max_wait_ms: i32, since(0);
        min_bytes: i32, since(0);
        max_bytes: i32 = 2147483647, since(3).ignorable();
        isolation_level: IsolationLevel, since(4).ignorable();
        session_id: i32, since(7).ignorable();
        session_epoch: i32 = -1, since(7).ignorable();
        topics: Vec<FetchTopic>, since(0);
        forgotten_topics_data: Vec<ForgottenTopic>, since(7);
        rack_id: Arc<str>, since(11).ignorable();
        @local
        /// Whether topics are named by their ids.
        topic_ids: crate::local::FetchTopicIds;
    }
    ReplicaState {
        replica_id: i32 = -1, since(15);
        replica_epoch: i64 = -1, since(15);
    }
    FetchTopic {
        topic: Arc<str>, between(0, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partitions: Vec<FetchPartition>, since(0);
    }
    FetchPartition {
        partition: i32, since(0);
        current_leader_epoch: i32 = -1, since(9).ignorable();
        fetch_offset: i64, since(0);
        last_fetched_epoch: i32 = -1, since(12);
        log_start_offset: i64 = -1, since(5).ignorable();
        partition_max_bytes: i32, since(0);
        replica_directory_id: [u8; 16], since(17).tag(0).ignorable();
        high_watermark: i64 = 9223372036854775807, since(18).tag(1).ignorable();
    }
    ForgottenTopic {
        topic: Arc<str>, between(7, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partitions: Vec<i32>, since(7);
    }
}

message! {
    FetchResponse, fetch_response: key 1, versions 4 to 18, flexible from 12, with for_version of_version;
    FetchResponse {
        throttle_time_ms: i32, since(1).ignorable();
        error_code: ErrorCode, since(7).ignorable();
        session_id: i32, since(7);
        responses: Vec<FetchableTopicResponse>, since(0);
        node_endpoints: Vec<NodeEndpoint>, since(16).tag(0);
    }
    FetchableTopicResponse {
        topic: Arc<str>, between(0, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partitions: Vec<PartitionData>, since(0);
    }
    PartitionData {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
        high_watermark: i64, since(0);
        last_stable_offset: i64 = -1, since(4).ignorable();
        log_start_offset: i64 = -1, since(5).ignorable();
        diverging_epoch: EpochEndOffset, since(12).tag(0);
        current_leader: LeaderIdAndEpoch, since(12).tag(1);
        snapshot_id: SnapshotId, since(12).tag(2);
        aborted_transactions: Option<Vec<AbortedTransaction>>, since(4).nullable(4).ignorable();
        preferred_read_replica: i32 = -1, since(11);
        records: Option<Bytes>, since(0).nullable(0);
        @local
        /// Why the log cannot be read, with KAFKA_STORAGE_ERROR and CORRUPT_MESSAGE: Kafka's reasons stay in the broker's log.
        error_message: Option<Arc<str>>;
    }
    EpochEndOffset {
        epoch: i32 = -1, since(12);
        end_offset: i64 = -1, since(12);
    }
    LeaderIdAndEpoch {
        leader_id: i32 = -1, since(12);
        leader_epoch: i32 = -1, since(12);
    }
    SnapshotId {
        end_offset: i64 = -1, since(0);
        epoch: i32 = -1, since(0);
    }
    AbortedTransaction {
        producer_id: i64, since(4);
        first_offset: i64, since(4);
    }
    NodeEndpoint {
        node_id: i32, since(16);
        host: Arc<str>, since(16);
        port: i32, since(16);
        rack: Option<Arc<str>> = None, since(16).nullable(16);
    }
}

/// First version that names topics by their ids alone.
const BY_ID: i16 = 13;
/// First version that followers may answer (KIP-392). Kafka: `FetchParams#fetchOnlyLeader`.
const FROM_FOLLOWERS: i16 = 11;

impl FetchRequest {
    /// The newest version that can carry it. Kafka: `AbstractFetch#createFetchRequest`.
    pub fn newest_version(&self) -> i16 {
        match self.topic_ids.by_ids {
            true => i16::MAX,
            false => BY_ID - 1,
        }
    }

    /// Forgets partitions by their topics' names or by the ids, as the version does; by ids also those whose topic has another id now.
    /// Kafka: `FetchRequest.Builder#build`.
    fn for_version(mut self, version: i16) -> Self {
        let forgotten = std::mem::take(&mut self.forgotten_topics_data).into_iter();
        self.forgotten_topics_data = match version < BY_ID {
            true => {
                let topics = grouped(forgotten.map(|t| (t.topic, t.partitions))).into_iter();
                let topic = |(topic, partitions): (_, Vec<_>)| fetch_request::ForgottenTopic {
                    topic,
                    partitions: partitions.concat(),
                    ..Default::default()
                };
                topics.map(topic).collect()
            }
            false => {
                let replaced = std::mem::take(&mut self.topic_ids.replaced).into_iter();
                let replaced = replaced.map(|(id, partition)| (id, vec![partition]));
                let topics = grouped(forgotten.map(|t| (t.topic_id, t.partitions)).chain(replaced)).into_iter();
                let topic = |(topic_id, partitions): (_, Vec<_>)| fetch_request::ForgottenTopic {
                    topic_id,
                    partitions: partitions.concat(),
                    ..Default::default()
                };
                topics.map(topic).collect()
            }
        };
        self
    }

    /// Notes what the version means. In a version with topic ids, puts what stands for an id ([`topic_by_id`]) in the place of each topic's
    /// name.
    fn of_version(mut self, version: i16) -> Self {
        self.topic_ids.by_ids = version >= BY_ID;
        self.topic_ids.leader_only = version < FROM_FOLLOWERS;
        if version >= BY_ID {
            for topic in &mut self.topics {
                topic.topic = topic_by_id(topic.topic_id);
            }
            for topic in &mut self.forgotten_topics_data {
                topic.topic = topic_by_id(topic.topic_id);
            }
        }
        self
    }

    /// The partitions in the order of the request, each with its topic.
    pub fn partitions(&self) -> impl Iterator<Item = (&Arc<str>, &fetch_request::FetchPartition)> {
        let topics = self.topics.iter();
        topics.flat_map(|topic| topic.partitions.iter().map(move |p| (&topic.topic, p)))
    }

    /// The partitions to forget, each with its topic.
    pub fn forgotten(&self) -> impl Iterator<Item = (&Arc<str>, i32)> {
        let topics = self.forgotten_topics_data.iter();
        topics.flat_map(|topic| topic.partitions.iter().map(move |p| (&topic.topic, *p)))
    }
}

impl FetchResponse {
    /// A response with these partitions in this order: only consecutive ones of a topic share its entry.
    pub fn of(partitions: Vec<(TopicPartition, fetch_response::PartitionData)>) -> Self {
        let mut responses = Vec::new();
        let mut partitions = partitions.into_iter();
        while let Some((first, _)) = partitions.as_slice().first() {
            let topic = Arc::clone(&first.topic);
            // Counted first, so that a topic is one allocation; the last topic takes over the list, so that a large one is not copied.
            let is_of_topic = |p: &&(TopicPartition, _)| p.0.topic == topic;
            let len = partitions.as_slice().iter().take_while(is_of_topic).count();
            let partitions = match len == partitions.len() {
                true => std::mem::take(&mut partitions)
                    .map(|(_, partition)| partition)
                    .collect(),
                false => partitions.by_ref().take(len).map(|(_, partition)| partition).collect(),
            };
            responses.push(fetch_response::FetchableTopicResponse {
                topic,
                partitions,
                ..Default::default()
            });
        }
        Self {
            responses,
            ..Default::default()
        }
    }

    /// The partitions in the order of the response, each with its topic.
    pub fn partitions(&self) -> impl Iterator<Item = (&Arc<str>, &fetch_response::PartitionData)> {
        let topics = self.responses.iter();
        topics.flat_map(|topic| topic.partitions.iter().map(move |p| (&topic.topic, p)))
    }

    /// The partitions in the order of the response.
    pub fn into_partitions(self) -> impl Iterator<Item = (TopicPartition, fetch_response::PartitionData)> {
        let topics = self.responses.into_iter();
        topics.flat_map(|topic| {
            let tp = move |partition| TopicPartition::new(Arc::clone(&topic.topic), partition);
            topic.partitions.into_iter().map(move |p| (tp(p.partition_index), p))
        })
    }

    /// In a version with topic ids, sets those that the names stand for. The reverse of [`Self::of_version`].
    fn for_version(mut self, version: i16) -> Self {
        if version >= BY_ID {
            for topic in &mut self.responses {
                topic.topic_id = topic_id_of(&topic.topic).unwrap_or_default();
            }
        }
        self
    }

    /// In a version with topic ids, puts what stands for an id ([`topic_by_id`]) in the place of each topic's name.
    fn of_version(mut self, version: i16) -> Self {
        if version >= BY_ID {
            for topic in &mut self.responses {
                topic.topic = topic_by_id(topic.topic_id);
            }
        }
        self
    }
}

impl fetch_response::PartitionData {
    /// The response for a partition that cannot be read: -1 everywhere and no records (spec 6.4.1).
    pub fn failed(partition_index: i32, error_code: ErrorCode) -> Self {
        Self {
            partition_index,
            error_code,
            high_watermark: -1,
            aborted_transactions: None,
            records: Some(Bytes::new()),
            ..Default::default()
        }
    }

    /// Bytes of its records.
    pub fn size(&self) -> usize {
        self.records.as_ref().map_or(0, Bytes::len)
    }

    /// Where the log differs from what was fetched before: leader epoch, and its end in the log. There are no records then.
    pub fn diverging_epoch(&self) -> Option<(i32, i64)> {
        let fetch_response::EpochEndOffset { epoch, end_offset } = self.diverging_epoch;
        (epoch >= 0).then_some((epoch, end_offset))
    }

    /// A follower near the client, from which it should read; then there are no records (KIP-392).
    pub fn preferred_read_replica(&self) -> Option<i32> {
        Some(self.preferred_read_replica).filter(|&node| node >= 0)
    }
}
