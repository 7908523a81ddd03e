//! Passes each request to its handler. Kafka: `KafkaApis#handle`.

mod metadata;

pub use metadata::TopicPage;

use std::sync::Arc;

use fletchlog_api::{LegacyGroupRequest, LegacyGroupResponse, NodeId, Request, Response};

use crate::group::{ClientLiveness, GroupCoordinator, LegacyGroups};
use crate::replica_manager::fetch::Fetched;
use crate::replica_manager::{Produced, ReplicaManager};
use crate::sync::Answer;
use crate::transaction::TransactionCoordinator;

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Handled {
    /// The response.
    Now(Response),
    /// The response will arrive here.
    Later(Arc<Answer>),
    /// The broker closes the connection without a response.
    CloseConnection,
}

/// Passes requests to the objects that handle them. Thread-safe.
pub(crate) struct KafkaApis {
    replicas: Arc<ReplicaManager>,
    groups: Arc<GroupCoordinator>,
    transactions: Arc<TransactionCoordinator>,
    legacy_groups: LegacyGroups,
}

impl KafkaApis {
    /// Passes requests to these.
    pub(crate) fn new(
        replicas: Arc<ReplicaManager>,
        groups: Arc<GroupCoordinator>,
        transactions: Arc<TransactionCoordinator>,
    ) -> Self {
        Self {
            replicas,
            groups,
            transactions,
            legacy_groups: LegacyGroups::default(),
        }
    }

    /// Handles one request that a client sent to `node`.
    pub(crate) fn handle(&self, node: NodeId, client: &Arc<ClientLiveness>, request: Request) -> Handled {
        match request {
            Request::Produce(r) => match self.replicas.produce(node, r, &*self.transactions) {
                Produced::Answered(response) => Handled::Now(Response::Produce(response)),
                Produced::CloseConnection => Handled::CloseConnection,
            },
            Request::Fetch(r) => match self.replicas.fetch(node, r) {
                Fetched::Now(response) => Handled::Now(Response::Fetch(response)),
                Fetched::Later(answer) => Handled::Later(answer),
            },
            Request::ListOffsets(r) => Handled::Now(Response::ListOffsets(self.replicas.list_offsets(node, &r))),
            Request::OffsetForLeaderEpoch(r) => Handled::Now(Response::OffsetForLeaderEpoch(
                self.replicas.offsets_for_leader_epoch(node, &r),
            )),
            Request::Metadata(r) => match self.metadata_response(&r) {
                Ok(response) => Handled::Now(Response::Metadata(response)),
                Err(error) => {
                    log::error!("the broker's metadata cannot be read: {error}");
                    Handled::CloseConnection
                }
            },
            Request::InitProducerId(r) => {
                Handled::Now(Response::InitProducerId(self.transactions.init_producer_id(node, &r)))
            }
            Request::AddPartitionsToTxn(r) => Handled::Now(Response::AddPartitionsToTxn(
                self.transactions.add_partitions_to_txn(node, &r),
            )),
            Request::AddOffsetsToTxn(r) => Handled::Now(Response::AddOffsetsToTxn(
                self.transactions.add_offsets_to_txn(node, &r),
            )),
            Request::TxnOffsetCommit(r) => Handled::Now(Response::TxnOffsetCommit(self.groups.txn_offset_commit(
                node,
                &r,
                client,
                &*self.transactions,
            ))),
            Request::EndTxn(r) => Handled::Now(Response::EndTxn(self.transactions.end_txn(node, &r))),
            Request::FindCoordinator(r) => Handled::Now(Response::FindCoordinator(self.find_coordinator(&r))),
            Request::JoinGroup(r) => Handled::Later(self.groups.join_group(node, &r, client)),
            Request::SyncGroup(r) => Handled::Later(self.groups.sync_group(node, &r, client)),
            Request::Heartbeat(r) => Handled::Now(Response::Heartbeat(self.groups.heartbeat(node, &r, client))),
            Request::ConsumerGroupHeartbeat(r) => Handled::Now(Response::ConsumerGroupHeartbeat(
                self.groups.consumer_group_heartbeat(node, &r, client),
            )),
            Request::LeaveGroup(r) => Handled::Now(Response::LeaveGroup(self.groups.leave_group(node, &r))),
            Request::OffsetCommit(r) => {
                Handled::Now(Response::OffsetCommit(self.groups.offset_commit(node, &r, client)))
            }
            Request::OffsetFetch(r) => Handled::Now(Response::OffsetFetch(self.groups.offset_fetch(node, &r))),
            // Clients of this process do not send them, and the listener calls the broker's methods.
            other => {
                log::error!("the broker has no handler of {}", other.api().name());
                Handled::CloseConnection
            }
        }
    }

    /// One step of a legacy consumer, which is not a Kafka request.
    pub(crate) fn legacy_group(
        &self,
        client: &Arc<ClientLiveness>,
        request: &LegacyGroupRequest,
    ) -> LegacyGroupResponse {
        let partitions = |topic: &str| self.replicas.topic(topic).ok().map(|t| t.record.partitions);
        let now_ms = self.replicas.clock().monotonic_ms();
        self.legacy_groups.handle(client, request, now_ms, &partitions)
    }
}
