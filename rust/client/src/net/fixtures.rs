//! Metadata responses of tests.

use fletchlog_api::{MetadataResponse, NodeId};
use fletchlog_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};

/// A cluster of these nodes.
pub(crate) fn cluster(
    nodes: impl IntoIterator<Item = NodeId>,
    topics: impl IntoIterator<Item = MetadataResponseTopic>,
) -> MetadataResponse {
    let broker = |node_id| MetadataResponseBroker {
        node_id,
        ..Default::default()
    };
    MetadataResponse {
        brokers: nodes.into_iter().map(broker).collect(),
        cluster_id: Some("test".into()),
        topics: topics.into_iter().collect(),
        ..Default::default()
    }
}

/// A topic whose partitions have these leaders and leader epochs.
pub(crate) fn topic(name: &str, leaders: impl IntoIterator<Item = (NodeId, i32)>) -> MetadataResponseTopic {
    let partitions = (0..).zip(leaders).map(
        |(partition_index, (leader_id, leader_epoch))| MetadataResponsePartition {
            partition_index,
            leader_id,
            leader_epoch,
            ..Default::default()
        },
    );
    MetadataResponseTopic {
        name: Some(name.into()),
        partitions: partitions.collect(),
        ..Default::default()
    }
}
