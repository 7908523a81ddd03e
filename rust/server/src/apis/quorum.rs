//! DescribeQuorum. No metadata log exists: all nodes are voters, as in a cluster of combined nodes, and replicate nothing. The first one leads until it
//! ends. Kafka:
//! `KafkaRaftClient#handleDescribeQuorumRequest`.

use std::sync::Arc;

use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::{
    DescribeQuorumRequest, DescribeQuorumResponse, describe_quorum_request, describe_quorum_response,
};
use fletchlog_records::ErrorCode;

use super::authorization::cluster_refused;
use super::{Apis, Call, Handled, Unreadable};

/// Kafka: `Topic#CLUSTER_METADATA_TOPIC_NAME`.
const CLUSTER_METADATA: &str = "__cluster_metadata";

pub(super) fn describe_quorum(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeQuorumRequest = call.message()?;
    if let Err(error) = call.check_cluster(AclOperation::Describe) {
        return call.answer(DescribeQuorumResponse {
            error_code: error,
            error_message: cluster_refused(),
            ..Default::default()
        });
    }
    let topics = request.topics;
    // Kafka describes a quorum only if the request names nothing but its one partition.
    let is_known = matches!(topics.as_slice(), [one] if is_quorum(one));
    let topics = topics.into_iter().map(|topic| describe_quorum_response::TopicData {
        partitions: topic
            .partitions
            .iter()
            .map(|p| match is_known {
                true => call.apis.quorum(),
                false => unknown(p.partition_index),
            })
            .collect(),
        topic_name: topic.topic_name,
    });
    let handled = call.answer(DescribeQuorumResponse {
        error_message: Some(Arc::default()),
        topics: topics.collect(),
        nodes: if is_known { call.apis.voters() } else { Vec::new() },
        ..Default::default()
    })?;
    // A node passes the request on to the active controller.
    Ok(match (handled, call.peer.port.await_controller()) {
        (Handled::Answer(chunks), Some(ticket)) => Handled::Later(ticket, Box::new(move |_| Ok(chunks))),
        (handled, _) => handled,
    })
}

fn is_quorum(topic: &describe_quorum_request::TopicData) -> bool {
    &*topic.topic_name == CLUSTER_METADATA && matches!(topic.partitions.as_slice(), [one] if one.partition_index == 0)
}

fn unknown(partition_index: i32) -> describe_quorum_response::PartitionData {
    describe_quorum_response::PartitionData {
        partition_index,
        error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        error_message: Some("This server does not host this topic-partition.".into()),
        ..Default::default()
    }
}

impl Apis {
    fn quorum(&self) -> describe_quorum_response::PartitionData {
        let (leader_id, leader_epoch) = self.broker.quorum();
        let voter = |e: &crate::Endpoint| describe_quorum_response::ReplicaState {
            replica_id: e.node,
            ..Default::default()
        };
        describe_quorum_response::PartitionData {
            error_message: Some(Arc::default()),
            leader_id,
            leader_epoch,
            current_voters: self.endpoints.iter().map(voter).collect(),
            ..Default::default()
        }
    }

    fn voters(&self) -> Vec<describe_quorum_response::Node> {
        let node = |e: &crate::Endpoint| describe_quorum_response::Node {
            node_id: e.node,
            listeners: vec![describe_quorum_response::Listener {
                name: "PLAINTEXT".into(),
                host: e.host.as_str().into(),
                port: e.port,
            }],
        };
        self.endpoints.iter().map(node).collect()
    }
}
