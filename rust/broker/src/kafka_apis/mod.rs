//! Passes each request to its handler. Kafka: `KafkaApis#handle`.

mod coordinators;
mod metadata;

pub use metadata::TopicPage;

use std::sync::Arc;

use fletchlog_api::{LegacyGroupRequest, LegacyGroupResponse, NodeId, Request, Response};

use crate::group::{ClientLiveness, GroupCoordinator, LegacyGroups};
use crate::replica_manager::fetch::Fetched;
use crate::replica_manager::{Deferred, Produced, ReplicaManager};
use crate::share::SharePartitionManager;
use crate::sync::Answer;
use crate::transaction::TransactionCoordinator;

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Handled {
    /// The response.
    Now(Response),
    /// The response will arrive here.
    Later(Arc<Answer>),
    /// One of two responses will arrive: a coordinator's waits for its records.
    After(Box<Deferred>),
    /// The broker closes the connection without a response.
    CloseConnection,
}

impl Handled {
    /// The same for a client that only waits for the response.
    pub(crate) fn or_later(self) -> Self {
        match self {
            Self::After(deferred) => Self::Later(deferred.answer),
            other => other,
        }
    }
}

/// Passes requests to the objects that handle them. Thread-safe.
pub(crate) struct KafkaApis {
    replicas: Arc<ReplicaManager>,
    groups: Arc<GroupCoordinator>,
    transactions: Arc<TransactionCoordinator>,
    share: Arc<SharePartitionManager>,
    legacy_groups: LegacyGroups,
}

impl KafkaApis {
    /// Passes requests to these.
    pub(crate) fn new(
        replicas: Arc<ReplicaManager>,
        groups: Arc<GroupCoordinator>,
        transactions: Arc<TransactionCoordinator>,
        share: Arc<SharePartitionManager>,
    ) -> Self {
        Self {
            replicas,
            groups,
            transactions,
            share,
            legacy_groups: LegacyGroups::default(),
        }
    }

    /// Handles one request that a client sent to `node`.
    pub(crate) fn handle(&self, node: NodeId, client: &Arc<ClientLiveness>, request: Request) -> Handled {
        match request {
            Request::Produce(r) => match self.replicas.produce(node, r, &*self.transactions) {
                Produced::Answered(response) => Handled::Now(Response::Produce(response)),
                Produced::Later(answer) => Handled::Later(answer),
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
            Request::FindCoordinator(r) => Handled::Now(Response::FindCoordinator(self.find_coordinator(&r))),
            Request::JoinGroup(r) => self.join_group(node, client, r),
            Request::ShareFetch(r) => self.share_fetch(node, client, r),
            Request::ShareAcknowledge(r) => self.share_acknowledge(node, r),
            Request::SyncGroup(r) => Handled::Later(self.groups.sync_group(node, &r, client)),
            Request::DescribeQuorum(r) => match self.replicas.controller().describe_quorum(r) {
                Ok(response) => Handled::Now(Response::DescribeQuorum(response)),
                Err(answer) => Handled::Later(answer),
            },
            other => self.handle_by_coordinator(node, client, other),
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
