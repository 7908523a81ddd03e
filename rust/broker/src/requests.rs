//! Which handler answers which request. Kafka: `KafkaApis#handle`.

use std::sync::Arc;

use fletchlog_api::{NodeId, Request, Response};

use crate::Broker;
use crate::fetch::Fetched;
use crate::group::ClientLiveness;
use crate::produce::Produced;
use crate::sync::Answer;

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Handled {
    /// Answered.
    Now(Response),
    /// Will be answered here.
    Later(Arc<Answer>),
    /// The broker closes the connection without an answer.
    CloseConnection,
}

impl Broker {
    /// Handles one request that a client sent to `node`.
    pub(crate) fn handle(&self, node: NodeId, client: &Arc<ClientLiveness>, request: Request) -> Handled {
        let Ok(_open) = self.enter() else {
            return Handled::CloseConnection;
        };
        self.do_scheduled_work();
        match request {
            Request::Produce(r) => match self.produce(node, r) {
                Produced::Answered(response) => Handled::Now(Response::Produce(response)),
                Produced::CloseConnection => Handled::CloseConnection,
            },
            Request::Fetch(r) => match self.fetch(node, r) {
                Fetched::Now(response) => Handled::Now(Response::Fetch(response)),
                Fetched::Later(answer) => Handled::Later(answer),
            },
            Request::ListOffsets(r) => Handled::Now(Response::ListOffsets(self.list_offsets(node, &r))),
            Request::OffsetForLeaderEpoch(r) => {
                Handled::Now(Response::OffsetForLeaderEpoch(self.offsets_for_leader_epoch(node, &r)))
            }
            Request::Metadata(r) => match self.metadata_response(&r) {
                Ok(response) => Handled::Now(Response::Metadata(response)),
                Err(error) => {
                    log::error!("the broker's metadata cannot be read: {error}");
                    Handled::CloseConnection
                }
            },
            Request::InitProducerId(r) => Handled::Now(Response::InitProducerId(self.init_producer_id(node, &r))),
            Request::AddPartitionsToTxn(r) => {
                Handled::Now(Response::AddPartitionsToTxn(self.add_partitions_to_txn(node, &r)))
            }
            Request::AddOffsetsToTxn(r) => Handled::Now(Response::AddOffsetsToTxn(self.add_offsets_to_txn(node, &r))),
            Request::TxnOffsetCommit(r) => Handled::Now(Response::TxnOffsetCommit(self.txn_offset_commit(node, &r))),
            Request::EndTxn(r) => Handled::Now(Response::EndTxn(self.end_txn(node, &r))),
            Request::FindCoordinator(r) => Handled::Now(Response::FindCoordinator(self.find_coordinator(&r))),
            Request::JoinGroup(r) => Handled::Later(self.join_group(node, &r, client)),
            Request::SyncGroup(r) => Handled::Later(self.sync_group(node, &r, client)),
            Request::Heartbeat(r) => Handled::Now(Response::Heartbeat(self.heartbeat(node, &r, client))),
            Request::LeaveGroup(r) => Handled::Now(Response::LeaveGroup(self.leave_group(node, &r))),
            Request::OffsetCommit(r) => Handled::Now(Response::OffsetCommit(self.offset_commit(node, &r))),
            Request::LegacyGroup(r) => {
                let partitions = |topic: &str| self.topic(topic).ok().map(|t| t.record.partitions);
                Handled::Now(Response::LegacyGroup(self.legacy_groups.handle(
                    client,
                    &r,
                    self.clock.monotonic_ms(),
                    &partitions,
                )))
            }
            Request::OffsetFetch(r) => Handled::Now(Response::OffsetFetch(self.offset_fetch(node, &r))),
        }
    }

    /// Does what every call of the broker does first if it is due: no thread does it.
    pub(crate) fn do_scheduled_work(&self) {
        let now_ms = self.clock.monotonic_ms();
        self.tick_transactions(now_ms);
        self.tick_producer_ids(now_ms);
    }

    /// Does what is due: waiting fetches and joins whose time is over, members that have gone.
    pub(crate) fn run_due(&self) {
        let Ok(_open) = self.enter() else { return };
        let now_ms = self.clock.monotonic_ms();
        self.purgatory.expire(self, now_ms, self.is_read_only());
        self.tick_groups(now_ms);
        self.do_scheduled_work();
    }

    /// When something is due next, on the monotonic clock.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        [
            self.purgatory.next_deadline(),
            self.groups.next_deadline(),
            self.transaction_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
