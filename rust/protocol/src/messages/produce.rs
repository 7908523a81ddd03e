//! Produce, API key 0.

use std::sync::Arc;

use fletchlog_records::ErrorCode;

use crate::Message;
use crate::by_topic::grouped;
use crate::local::TransactionSupportedOperation;

message! {
    ProduceRequest, produce_request: key 0, versions 3 to 13, flexible from 9, with for_version of_version;
    ProduceRequest {
        transactional_id: Option<Arc<str>> = None, since(3).nullable(3);
        acks: i16, since(0);
        timeout_ms: i32, since(0);
        topic_data: Vec<TopicProduceData>, since(0);
        @local
        /// What happens to a batch whose partition is not in its transaction. Set by [`Self::of_version`].
        operation: crate::local::TransactionSupportedOperation;
    }
    TopicProduceData {
        name: Arc<str>, between(0, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partition_data: Vec<PartitionProduceData>, since(0);
    }
    PartitionProduceData {
        index: i32, since(0);
        records: Option<Bytes>, since(0).nullable(0);
    }
}

message! {
    ProduceResponse, produce_response: key 0, versions 3 to 13, flexible from 9;
    ProduceResponse {
        responses: Vec<TopicProduceResponse>, since(0);
        throttle_time_ms: i32, since(1).ignorable();
        node_endpoints: Vec<NodeEndpoint>, since(10).tag(0);
    }
    TopicProduceResponse {
        name: Arc<str>, between(0, 12).ignorable();
        topic_id: [u8; 16], since(13).ignorable();
        partition_responses: Vec<PartitionProduceResponse>, since(0);
    }
    PartitionProduceResponse {
        index: i32, since(0);
        error_code: ErrorCode, since(0);
        base_offset: i64, since(0);
        log_append_time_ms: i64 = -1, since(2).ignorable();
        log_start_offset: i64 = -1, since(5).ignorable();
        record_errors: Vec<BatchIndexAndErrorMessage>, since(8).ignorable();
        error_message: Option<Arc<str>> = None, since(8).nullable(8).ignorable();
        current_leader: LeaderIdAndEpoch, since(10).tag(0);
    }
    BatchIndexAndErrorMessage {
        batch_index: i32, since(8);
        batch_index_error_message: Option<Arc<str>> = None, since(8).nullable(8);
    }
    LeaderIdAndEpoch {
        leader_id: i32 = -1, since(10);
        leader_epoch: i32 = -1, since(10);
    }
    NodeEndpoint {
        node_id: i32, since(10);
        host: Arc<str>, since(10);
        port: i32, since(10);
        rack: Option<Arc<str>> = None, since(10).nullable(10);
    }
}

/// First version whose clients know TRANSACTION_ABORTABLE.
const ABORTABLE: i16 = 11;

impl ProduceRequest {
    /// The oldest and the newest version that names topics and means the same for the transaction.
    pub(crate) fn versions_of_transaction(&self) -> (i16, i16) {
        self.operation.versions(Self::MIN_VERSION, ABORTABLE)
    }

    /// Notes what the version of a request that was read means for it.
    fn of_version(mut self, version: i16) -> Self {
        self.operation = TransactionSupportedOperation::of_version(version, ABORTABLE);
        self
    }

    /// The partitions in the order of the request, each with its topic.
    pub fn partitions(&self) -> impl Iterator<Item = (&Arc<str>, &produce_request::PartitionProduceData)> {
        let topics = self.topic_data.iter();
        topics.flat_map(|topic| topic.partition_data.iter().map(move |p| (&topic.name, p)))
    }

    /// One entry for each topic, in the order of their first entries, as a client sends it. Kafka: `TopicProduceDataCollection`.
    fn for_version(mut self, _: i16) -> Self {
        if self.topic_data.len() > 1 {
            let topics = self
                .topic_data
                .into_iter()
                .map(|t| ((t.name, t.topic_id), t.partition_data));
            let topic = |((name, topic_id), partitions): (_, Vec<_>)| produce_request::TopicProduceData {
                name,
                topic_id,
                partition_data: partitions.into_iter().flatten().collect(),
            };
            self.topic_data = grouped(topics).into_iter().map(topic).collect();
        }
        self
    }
}

impl ProduceResponse {
    /// The partitions in the order of the response, each with its topic.
    pub fn partitions(&self) -> impl Iterator<Item = (&Arc<str>, &produce_response::PartitionProduceResponse)> {
        let topics = self.responses.iter();
        topics.flat_map(|topic| topic.partition_responses.iter().map(move |p| (&topic.name, p)))
    }
}

impl produce_response::PartitionProduceResponse {
    /// The response for a partition to which nothing was appended.
    pub fn refused(index: i32, error_code: ErrorCode) -> Self {
        Self {
            index,
            error_code,
            base_offset: -1,
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_sent_has_each_topic_once() {
        let order = [("b", 1), ("a", 2), ("a", 0), ("b", 4)];
        let topic = |(name, index): (&str, i32)| produce_request::TopicProduceData {
            name: name.into(),
            partition_data: vec![produce_request::PartitionProduceData { index, records: None }],
            ..Default::default()
        };
        let request = ProduceRequest {
            topic_data: order.map(topic).to_vec(),
            ..Default::default()
        };
        let of = |request: &ProduceRequest| -> Vec<_> {
            let partitions = request.partitions().map(|(topic, p)| (topic.to_string(), p.index));
            partitions.collect()
        };
        let named = |order: [(&str, i32); 4]| order.map(|(topic, index)| (topic.to_owned(), index));
        assert_eq!(of(&request), named(order));
        let request = request.for_version(ProduceRequest::MAX_VERSION);
        assert_eq!(request.topic_data.len(), 2);
        assert_eq!(of(&request), named([("b", 1), ("b", 4), ("a", 2), ("a", 0)]));
    }
}
