//! Metadata, API key 3.

use std::sync::Arc;

message! {
    MetadataRequest, metadata_request: key 3, versions 0 to 13, flexible from 9, with of_version;
    MetadataRequest {
        topics: Option<Vec<MetadataRequestTopic>>, since(0).nullable(1);
        allow_auto_topic_creation: bool = true, since(4);
        include_cluster_authorized_operations: bool, between(8, 10);
        include_topic_authorized_operations: bool, since(8);
    }
    MetadataRequestTopic {
        topic_id: [u8; 16], since(10).ignorable();
        name: Option<Arc<str>>, since(0).nullable(10);
    }
}

message! {
    MetadataResponse, metadata_response: key 3, versions 0 to 13, flexible from 9, with of_version;
    MetadataResponse {
        throttle_time_ms: i32, since(3).ignorable();
        brokers: Vec<MetadataResponseBroker>, since(0);
        cluster_id: Option<Arc<str>> = None, since(2).nullable(2).ignorable();
        controller_id: i32 = -1, since(1).ignorable();
        topics: Vec<MetadataResponseTopic>, since(0);
        cluster_authorized_operations: i32 = -2147483648, between(8, 10);
        error_code: ErrorCode, since(13).ignorable();
    }
    MetadataResponseBroker {
        node_id: i32, since(0);
        host: Arc<str>, since(0);
        port: i32, since(0);
        rack: Option<Arc<str>> = None, since(1).nullable(1).ignorable();
    }
    MetadataResponseTopic {
        error_code: ErrorCode, since(0);
        name: Option<Arc<str>>, since(0).nullable(12);
        topic_id: [u8; 16], since(10).ignorable();
        is_internal: bool, since(1).ignorable();
        partitions: Vec<MetadataResponsePartition>, since(0);
        topic_authorized_operations: i32 = -2147483648, since(8);
    }
    MetadataResponsePartition {
        error_code: ErrorCode, since(0);
        partition_index: i32, since(0);
        leader_id: i32, since(0);
        leader_epoch: i32 = -1, since(7).ignorable();
        replica_nodes: Vec<i32>, since(0);
        isr_nodes: Vec<i32>, since(0);
        offline_replicas: Vec<i32>, since(5).ignorable();
    }
}

impl MetadataRequest {
    /// A request for these topics; `None`: all. `allow_auto_topic_creation`: create unknown ones, if the broker's
    /// auto.create.topics.enable allows it. Kafka: `MetadataRequest.Builder`.
    pub fn for_topics(names: Option<Vec<Arc<str>>>, allow_auto_topic_creation: bool) -> Self {
        let topic = |name| metadata_request::MetadataRequestTopic {
            name: Some(name),
            ..Default::default()
        };
        Self {
            topics: names.map(|names| names.into_iter().map(topic).collect()),
            allow_auto_topic_creation,
            ..Self::default()
        }
    }

    /// Version 0 has no null: there no topics means all. Kafka: `MetadataRequest#isAllTopics`.
    fn of_version(mut self, version: i16) -> Self {
        self.topics = self.topics.filter(|topics| version > 0 || !topics.is_empty());
        self
    }
}

/// First version whose leader epochs can be trusted (KAFKA-9212). Kafka: `MetadataResponse#hasReliableLeaderEpochs`.
const RELIABLE_EPOCHS: i16 = 9;

impl MetadataResponse {
    /// What a client keeps of a response that it has read: topics that have a name, their partitions ascending, each once. A partition
    /// whose number is not below the number of partitions is left out: clients keep partitions in lists by number. Leader epochs of older
    /// versions are left out, too.
    fn of_version(mut self, version: i16) -> Self {
        self.topics.retain(|topic| topic.name.is_some());
        for topic in &mut self.topics {
            let count = topic.partitions.len();
            let has_place = |number: i32| usize::try_from(number).is_ok_and(|number| number < count);
            topic.partitions.retain(|p| has_place(p.partition_index));
            topic.partitions.sort_by_key(|p| p.partition_index);
            topic.partitions.dedup_by_key(|p| p.partition_index);
            if version < RELIABLE_EPOCHS {
                topic.partitions.iter_mut().for_each(|p| p.leader_epoch = -1);
            }
        }
        self
    }

    /// The ids of the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = i32> {
        self.brokers.iter().map(|broker| broker.node_id)
    }
}

impl metadata_response::MetadataResponsePartition {
    /// The node that leads the partition. Kafka: `MetadataResponse.NO_LEADER_ID`.
    pub fn leader(&self) -> Option<i32> {
        (self.leader_id >= 0).then_some(self.leader_id)
    }
}

#[cfg(test)]
mod tests {
    use super::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
    use super::*;

    #[test]
    fn a_client_keeps_topics_with_names_and_partitions_whose_numbers_fit_into_a_list() {
        let partition = |&(partition_index, leader_id): &(i32, i32)| MetadataResponsePartition {
            partition_index,
            leader_id,
            leader_epoch: 7,
            ..Default::default()
        };
        let topic = |name: Option<&str>| MetadataResponseTopic {
            name: name.map(Into::into),
            partitions: [(1, 4), (-1, 4), (5, 4), (0, -1), (1, 3)]
                .iter()
                .map(partition)
                .collect(),
            ..Default::default()
        };
        let response = MetadataResponse {
            topics: vec![topic(None), topic(Some("t"))],
            ..Default::default()
        };
        for (version, leader_epoch) in [(8, -1), (9, 7)] {
            let kept = response.clone().of_version(version);
            assert_eq!(kept.topics.len(), 1);
            let partitions = kept.topics[0].partitions.iter();
            let partitions = partitions.map(|p| (p.partition_index, p.leader(), p.leader_epoch));
            let expected = [(0, None, leader_epoch), (1, Some(4), leader_epoch)];
            assert_eq!(partitions.collect::<Vec<_>>(), expected, "version {version}");
        }
    }

    #[test]
    fn no_topics_are_all_topics_in_version_0_alone() {
        let none = MetadataRequest::for_topics(Some(Vec::new()), true);
        assert_eq!(none.clone().of_version(0).topics, None);
        assert_eq!(none.of_version(1).topics, Some(Vec::new()));
    }
}
