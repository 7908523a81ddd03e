//! AddPartitionsToTxn, API key 24.

use std::sync::Arc;

use fletchlog_records::{ErrorCode, TopicPartition};

use crate::by_topic::grouped;

message! {
    AddPartitionsToTxnRequest, add_partitions_to_txn_request: key 24, versions 0 to 5, flexible from 3;
    AddPartitionsToTxnRequest {
        transactions: Vec<AddPartitionsToTxnTransaction>, since(4);
        v3_and_below_transactional_id: Arc<str>, between(0, 3);
        v3_and_below_producer_id: i64, between(0, 3);
        v3_and_below_producer_epoch: i16, between(0, 3);
        v3_and_below_topics: Vec<AddPartitionsToTxnTopic>, between(0, 3);
    }
    AddPartitionsToTxnTransaction {
        transactional_id: Arc<str>, since(4);
        producer_id: i64, since(4);
        producer_epoch: i16, since(4);
        verify_only: bool, since(4);
        topics: Vec<AddPartitionsToTxnTopic>, since(4);
    }
    AddPartitionsToTxnTopic {
        name: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
}

message! {
    AddPartitionsToTxnResponse, add_partitions_to_txn_response: key 24, versions 0 to 5, flexible from 3;
    AddPartitionsToTxnResponse {
        throttle_time_ms: i32, since(0);
        error_code: ErrorCode, since(4).ignorable();
        results_by_transaction: Vec<AddPartitionsToTxnResult>, since(4);
        results_by_topic_v3_and_below: Vec<AddPartitionsToTxnTopicResult>, between(0, 3);
        @local
        /// What a broker in the same process could not write.
        failure: Option<crate::local::StorageFailure>;
    }
    AddPartitionsToTxnResult {
        transactional_id: Arc<str>, since(4);
        topic_results: Vec<AddPartitionsToTxnTopicResult>, since(4);
    }
    AddPartitionsToTxnTopicResult {
        name: Arc<str>, since(0);
        results_by_partition: Vec<AddPartitionsToTxnPartitionResult>, since(0);
    }
    AddPartitionsToTxnPartitionResult {
        partition_index: i32, since(0);
        partition_error_code: ErrorCode, since(0);
    }
}

impl AddPartitionsToTxnRequest {
    /// The topics of a request that adds these partitions.
    pub fn topics_of(
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Vec<add_partitions_to_txn_request::AddPartitionsToTxnTopic> {
        let topics = grouped(partitions.into_iter().map(|tp| (tp.topic, tp.partition))).into_iter();
        topics
            .map(|(name, partitions)| add_partitions_to_txn_request::AddPartitionsToTxnTopic { name, partitions })
            .collect()
    }

    /// The partitions to add.
    pub fn partitions(&self) -> impl Iterator<Item = TopicPartition> {
        add_partitions_to_txn_request::AddPartitionsToTxnTopic::all(&self.v3_and_below_topics)
    }

    /// The response with these errors, one for each partition in the order of the request.
    pub fn answered(&self, errors: impl IntoIterator<Item = ErrorCode>) -> AddPartitionsToTxnResponse {
        let mut errors = errors.into_iter();
        let topics = self.v3_and_below_topics.iter();
        let topics = topics.map(|topic| add_partitions_to_txn_response::AddPartitionsToTxnTopicResult {
            name: Arc::clone(&topic.name),
            results_by_partition: with_errors(&topic.partitions, &mut errors),
        });
        AddPartitionsToTxnResponse {
            results_by_topic_v3_and_below: topics.collect(),
            ..Default::default()
        }
    }
}

impl add_partitions_to_txn_request::AddPartitionsToTxnTopic {
    /// The partitions of these topics.
    pub fn all(topics: &[Self]) -> impl Iterator<Item = TopicPartition> {
        topics.iter().flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.map(|&partition| TopicPartition::new(Arc::clone(&topic.name), partition))
        })
    }
}

impl add_partitions_to_txn_response::AddPartitionsToTxnTopicResult {
    /// The results of these partitions, each topic once. Kafka: `AddPartitionsToTxnResponse#resultForTransaction`.
    pub fn by_topic(errors: impl IntoIterator<Item = (TopicPartition, ErrorCode)>) -> Vec<Self> {
        let results = errors.into_iter().map(|(tp, partition_error_code)| {
            let result = add_partitions_to_txn_response::AddPartitionsToTxnPartitionResult {
                partition_index: tp.partition,
                partition_error_code,
            };
            (tp.topic, result)
        });
        let topics = grouped(results).into_iter();
        topics
            .map(|(name, results_by_partition)| Self {
                name,
                results_by_partition,
            })
            .collect()
    }
}

fn with_errors(
    partitions: &[i32],
    errors: &mut impl Iterator<Item = ErrorCode>,
) -> Vec<add_partitions_to_txn_response::AddPartitionsToTxnPartitionResult> {
    let results = partitions.iter().zip(errors);
    results
        .map(|(&partition_index, partition_error_code)| {
            add_partitions_to_txn_response::AddPartitionsToTxnPartitionResult {
                partition_index,
                partition_error_code,
            }
        })
        .collect()
}

impl AddPartitionsToTxnResponse {
    /// The error of each partition.
    pub fn errors(&self) -> impl Iterator<Item = (TopicPartition, ErrorCode)> {
        let topics = self.results_by_topic_v3_and_below.iter();
        topics.flat_map(|topic| {
            let results = topic.results_by_partition.iter();
            results.map(|p| {
                let tp = TopicPartition::new(Arc::clone(&topic.name), p.partition_index);
                (tp, p.partition_error_code)
            })
        })
    }
}
