//! WriteTxnMarkers, API key 27.

use std::sync::Arc;

use fletchlog_records::{ErrorCode, TopicPartition};

message! {
    WriteTxnMarkersRequest, write_txn_markers_request: key 27, versions 1 to 2, flexible from 1;
    WriteTxnMarkersRequest {
        markers: Vec<WritableTxnMarker>, since(0);
    }
    WritableTxnMarker {
        producer_id: i64, since(0);
        producer_epoch: i16, since(0);
        transaction_result: bool, since(0);
        topics: Vec<WritableTxnMarkerTopic>, since(0);
        coordinator_epoch: i32, since(0);
        transaction_version: i8, since(2).ignorable();
    }
    WritableTxnMarkerTopic {
        name: Arc<str>, since(0);
        partition_indexes: Vec<i32>, since(0);
    }
}

message! {
    WriteTxnMarkersResponse, write_txn_markers_response: key 27, versions 1 to 2, flexible from 1;
    WriteTxnMarkersResponse {
        markers: Vec<WritableTxnMarkerResult>, since(0);
    }
    WritableTxnMarkerResult {
        producer_id: i64, since(0);
        topics: Vec<WritableTxnMarkerTopicResult>, since(0);
    }
    WritableTxnMarkerTopicResult {
        name: Arc<str>, since(0);
        partitions: Vec<WritableTxnMarkerPartitionResult>, since(0);
    }
    WritableTxnMarkerPartitionResult {
        partition_index: i32, since(0);
        error_code: ErrorCode, since(0);
    }
}

impl WriteTxnMarkersRequest {
    /// The response with the outcome of each marker in each partition.
    pub fn answered(
        &self,
        outcome: impl Fn(&write_txn_markers_request::WritableTxnMarker, &TopicPartition) -> ErrorCode,
    ) -> WriteTxnMarkersResponse {
        let markers = self.markers.iter().map(|marker| {
            let topics = marker.topics.iter().map(|topic| {
                let partitions = topic.partition_indexes.iter().map(|&partition_index| {
                    let tp = TopicPartition::new(Arc::clone(&topic.name), partition_index);
                    write_txn_markers_response::WritableTxnMarkerPartitionResult {
                        partition_index,
                        error_code: outcome(marker, &tp),
                    }
                });
                write_txn_markers_response::WritableTxnMarkerTopicResult {
                    name: Arc::clone(&topic.name),
                    partitions: partitions.collect(),
                }
            });
            write_txn_markers_response::WritableTxnMarkerResult {
                producer_id: marker.producer_id,
                topics: topics.collect(),
            }
        });
        WriteTxnMarkersResponse {
            markers: markers.collect(),
        }
    }
}
