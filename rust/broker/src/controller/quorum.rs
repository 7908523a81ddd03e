//! Which node is the active controller. All nodes are voters, as in a cluster of combined nodes, and replicate nothing. Kafka: `QuorumState`,
//! `KafkaRaftClient#handleDescribeQuorumRequest`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId, Response};
use fletchlog_protocol::messages::{
    DescribeQuorumRequest, DescribeQuorumResponse, describe_quorum_request, describe_quorum_response,
};

use super::Controller;
use crate::sync::{Answer, Changes};

/// Kafka: `Topic#CLUSTER_METADATA_TOPIC_NAME`.
const CLUSTER_METADATA: &str = "__cluster_metadata";

/// The active controller, or the election of the next one.
#[derive(Debug)]
pub(super) struct Quorum {
    /// The active controller, or during an election the last one.
    leader: NodeId,
    /// Rises with each election.
    epoch: i32,
    /// How long the election takes once this leader has ended.
    election_ms: i64,
    /// When it ends (monotonic ms); `None`: there is no election.
    elects_at_ms: Option<i64>,
    /// Requests that wait for it.
    waiting: Vec<(DescribeQuorumRequest, Arc<Answer>)>,
}

impl Quorum {
    /// With this leader.
    pub(super) fn new(leader: NodeId) -> Self {
        Self {
            leader,
            epoch: 0,
            election_ms: 0,
            elects_at_ms: None,
            waiting: Vec::new(),
        }
    }
}

impl Controller {
    /// How long the election takes once a node has ended, if it is the active controller. Kafka: controller.quorum.fetch.timeout.ms, then
    /// votes.
    pub(crate) fn set_election_ms(&self, node: NodeId, election_ms: i64) {
        let mut quorum = self.quorum.lock();
        if quorum.leader == node {
            quorum.election_ms = election_ms;
        }
    }

    /// Begins an election if the active controller has ended, and ends one whose time is over: the first node that runs is elected, and what
    /// waits for it is answered. Kafka: `UnattachedState`, `CandidateState`.
    pub(crate) fn elect_controller(&self, changes: &Changes) {
        let now_ms = self.logs.clock().monotonic_ms();
        let running = self.nodes().into_iter().find(|node| self.runs(*node));
        let mut quorum = self.quorum.lock();
        if quorum.elects_at_ms.is_none() && !self.runs(quorum.leader) {
            quorum.elects_at_ms = Some(now_ms.saturating_add(std::mem::take(&mut quorum.election_ms)));
        }
        let (Some(next), Some(at_ms)) = (running, quorum.elects_at_ms) else {
            return;
        };
        if at_ms > now_ms {
            return;
        }
        let elected = (next, quorum.epoch.saturating_add(1));
        (quorum.leader, quorum.epoch) = elected;
        quorum.elects_at_ms = None;
        let waiting = std::mem::take(&mut quorum.waiting);
        drop(quorum);
        for (request, answer) in waiting {
            let response = self.described(elected, request);
            answer.complete(Response::DescribeQuorum(response), changes);
        }
    }

    /// When an election ends (monotonic ms); `None`: there is none, or no node runs.
    pub(crate) fn next_election(&self) -> Option<i64> {
        let at_ms = self.quorum.lock().elects_at_ms?;
        self.nodes().into_iter().any(|node| self.runs(node)).then_some(at_ms)
    }

    /// The quorum; during an election where its description will arrive: a node passes the request on to the active controller.
    pub(crate) fn describe_quorum(
        &self,
        request: DescribeQuorumRequest,
    ) -> Result<DescribeQuorumResponse, Arc<Answer>> {
        let mut quorum = self.quorum.lock();
        if quorum.elects_at_ms.is_some() {
            let answer = Arc::new(Answer::default());
            quorum.waiting.push((request, Arc::clone(&answer)));
            return Err(answer);
        }
        Ok(self.described((quorum.leader, quorum.epoch), request))
    }

    /// The response, without addresses of nodes.
    fn described(
        &self,
        (leader_id, leader_epoch): (NodeId, i32),
        request: DescribeQuorumRequest,
    ) -> DescribeQuorumResponse {
        let topics = request.topics;
        // Kafka describes a quorum only if the request names nothing but its one partition.
        let is_known = matches!(topics.as_slice(), [one] if is_quorum(one));
        let voter = |replica_id: NodeId| describe_quorum_response::ReplicaState {
            replica_id,
            ..Default::default()
        };
        let partition = |p: &describe_quorum_request::PartitionData| match is_known {
            true => describe_quorum_response::PartitionData {
                error_message: Some(Arc::default()),
                leader_id,
                leader_epoch,
                current_voters: self.nodes().into_iter().map(voter).collect(),
                ..Default::default()
            },
            false => describe_quorum_response::PartitionData {
                partition_index: p.partition_index,
                error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                error_message: Some("This server does not host this topic-partition.".into()),
                ..Default::default()
            },
        };
        let topic = |topic: describe_quorum_request::TopicData| describe_quorum_response::TopicData {
            partitions: topic.partitions.iter().map(partition).collect(),
            topic_name: topic.topic_name,
        };
        DescribeQuorumResponse {
            error_message: Some(Arc::default()),
            topics: topics.into_iter().map(topic).collect(),
            ..Default::default()
        }
    }
}

fn is_quorum(topic: &describe_quorum_request::TopicData) -> bool {
    &*topic.topic_name == CLUSTER_METADATA && matches!(topic.partitions.as_slice(), [one] if one.partition_index == 0)
}
