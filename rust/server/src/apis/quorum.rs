//! DescribeQuorum. Kafka: `KafkaApis#handleDescribeQuorumRequest`.

use fletchlog_api as api;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::{DescribeQuorumRequest, DescribeQuorumResponse, describe_quorum_response};
use fletchlog_records::ErrorCode;

use super::authorization::cluster_refused;
use super::{Apis, Call, Handled, Unreadable, response};

pub(super) fn describe_quorum(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeQuorumRequest = call.message()?;
    if let Err(error) = call.check_cluster(AclOperation::Describe) {
        return call.answer(DescribeQuorumResponse {
            error_code: error,
            error_message: cluster_refused(),
            ..Default::default()
        });
    }
    let voters = call.apis.voters();
    call.ask(api::Request::DescribeQuorum(request), move |answer| {
        let mut quorum = response!(DescribeQuorum, answer)?;
        let mut partitions = quorum.topics.iter().flat_map(|topic| &topic.partitions);
        if partitions.any(|partition| partition.error_code == ErrorCode::NONE) {
            quorum.nodes = voters;
        }
        Ok(quorum)
    })
}

impl Apis {
    /// The addresses of all nodes.
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
