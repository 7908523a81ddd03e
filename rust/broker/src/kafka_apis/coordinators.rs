//! Requests to coordinators whose responses wait until their records are on all replicas in sync. Kafka: `CoordinatorRuntime`,
//! `TransactionStateManager#appendTransactionToLog`.

use std::collections::BTreeMap;
use std::iter::repeat;
use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId, Request, Response};
use fletchlog_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use fletchlog_protocol::messages::{
    AddOffsetsToTxnResponse, ConsumerGroupHeartbeatResponse, EndTxnResponse, HeartbeatResponse, InitProducerIdResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupResponse, OffsetFetchRequest, OffsetFetchResponse,
    ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatResponse,
};

use super::{Handled, KafkaApis};
use crate::group::ClientLiveness;
use crate::partition::Partition;
use crate::share::ShareFetched;
use crate::topic_names::{CONSUMER_OFFSETS, TRANSACTION_STATE};

/// How long the coordinator of transactions waits for its records, in ms. Kafka: the broker's request.timeout.ms.
const TRANSACTION_TIMEOUT_MS: i64 = 30_000;
/// How often a leader asks the share coordinator to write a state. Kafka: `PersisterStateManager#MAX_FIND_COORD_ATTEMPTS`.
const STATE_WRITES: i64 = 5;
/// The error after this time.
const TIMED_OUT: ErrorCode = ErrorCode::COORDINATOR_NOT_AVAILABLE;

impl KafkaApis {
    /// Handles a request that a coordinator answers from what it knows and writes.
    pub(super) fn handle_by_coordinator(
        &self,
        node: NodeId,
        client: &Arc<ClientLiveness>,
        request: Request,
    ) -> Handled {
        let waits = match self.replicas.all_replicate_at_once() {
            true => None,
            false => self.waiting_for(&request),
        };
        let response = match request {
            Request::InitProducerId(r) => Response::InitProducerId(self.transactions.init_producer_id(node, &r)),
            Request::AddPartitionsToTxn(r) => {
                Response::AddPartitionsToTxn(self.transactions.add_partitions_to_txn(node, &r))
            }
            Request::AddOffsetsToTxn(r) => Response::AddOffsetsToTxn(self.transactions.add_offsets_to_txn(node, &r)),
            Request::TxnOffsetCommit(r) => {
                let transactions = &*self.transactions;
                Response::TxnOffsetCommit(self.groups.txn_offset_commit(node, &r, client, transactions))
            }
            Request::EndTxn(r) => Response::EndTxn(self.transactions.end_txn(node, &r)),
            Request::Heartbeat(r) => Response::Heartbeat(self.groups.heartbeat(node, &r, client)),
            Request::ConsumerGroupHeartbeat(r) => {
                Response::ConsumerGroupHeartbeat(self.groups.consumer_group_heartbeat(node, &r, client))
            }
            Request::ShareGroupHeartbeat(r) => {
                Response::ShareGroupHeartbeat(self.groups.share_group_heartbeat(node, &r, client))
            }
            Request::LeaveGroup(r) => Response::LeaveGroup(self.groups.leave_group(node, &r)),
            Request::OffsetCommit(r) => Response::OffsetCommit(self.groups.offset_commit(node, &r, client)),
            Request::OffsetFetch(r) => Response::OffsetFetch(self.groups.offset_fetch(node, &r)),
            // Clients of this process do not send them, and the listener calls the broker's methods.
            other => {
                log::error!("the broker has no handler of {}", other.api().name());
                return Handled::CloseConnection;
            }
        };
        match waits {
            Some(waits) if is_success(&response) => self.after_writes(waits, response),
            _ => Handled::Now(response),
        }
    }

    /// JoinGroup: most responses are given when the others have joined. One that is given at once may wait for its records.
    pub(super) fn join_group(&self, node: NodeId, client: &Arc<ClientLiveness>, request: JoinGroupRequest) -> Handled {
        let group_id = Arc::clone(&request.group_id);
        let waits = || Waits {
            topic: CONSUMER_OFFSETS,
            number: self.groups.partition_for(&group_id),
            written: None,
            refused: Response::JoinGroup(JoinGroupResponse {
                error_code: TIMED_OUT,
                protocol_name: Some(Arc::default()),
                ..Default::default()
            }),
        };
        let (answer, has_written) = self.groups.join_group(node, &request, client);
        if !has_written || self.replicas.all_replicate_at_once() {
            return Handled::Later(answer);
        }
        match answer.take() {
            Some(response) => self.after_writes(waits(), response),
            None => Handled::Later(answer),
        }
    }

    /// ShareAcknowledge: the response waits for the states that it has changed.
    pub(super) fn share_acknowledge(&self, node: NodeId, request: ShareAcknowledgeRequest) -> Handled {
        let topics = request.topics.iter();
        let acknowledged =
            topics.flat_map(|topic| topic.partitions.iter().map(|p| (topic.topic_id, p.partition_index)));
        let logs = self.state_logs(request.group_id.as_ref(), acknowledged);
        let response = self.share.share_acknowledge(node, request);
        if logs.is_empty() {
            return Handled::Now(Response::ShareAcknowledge(response));
        }
        let mut refused = response.clone();
        for partition in refused.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
            refuse(&mut partition.error_code, &mut partition.error_message);
        }
        let both = (
            Response::ShareAcknowledge(response),
            Response::ShareAcknowledge(refused),
        );
        self.after_state_writes(logs, both)
    }

    /// ShareFetch: the response waits for the states that its acknowledgements have changed.
    pub(super) fn share_fetch(&self, node: NodeId, client: &ClientLiveness, mut request: ShareFetchRequest) -> Handled {
        let topics = request.topics.iter();
        let partitions = topics.flat_map(|topic| topic.partitions.iter().map(|p| (topic.topic_id, p)));
        let acknowledged = partitions
            .filter(|(_, p)| !p.acknowledgement_batches.is_empty())
            .map(|(id, p)| (id, p.partition_index));
        let logs = self.state_logs(request.group_id.as_ref(), acknowledged);
        if !logs.is_empty() {
            // It waits for the states, and so not for records as well.
            request.max_wait_ms = 0;
        }
        let response = match self.share.share_fetch(node, (client.number(), node), request) {
            ShareFetched::Now(response) => response,
            ShareFetched::Later(answer) => return Handled::Later(answer),
        };
        if logs.is_empty() {
            return Handled::Now(Response::ShareFetch(response));
        }
        let mut refused = response.clone();
        for partition in refused.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
            refuse(
                &mut partition.acknowledge_error_code,
                &mut partition.acknowledge_error_message,
            );
        }
        let both = (Response::ShareFetch(response), Response::ShareFetch(refused));
        self.after_state_writes(logs, both)
    }

    /// While some nodes do not run or followers are late: the logs of the states of share partitions, and their ends.
    fn state_logs(
        &self,
        group_id: Option<&Arc<str>>,
        partitions: impl Iterator<Item = ([u8; 16], i32)>,
    ) -> Vec<(Arc<Partition>, i64)> {
        let Some(group_id) = group_id.filter(|_| !self.replicas.all_replicate_at_once()) else {
            return Vec::new();
        };
        let logs = partitions.filter_map(|(topic_id, partition)| self.share.state_log(group_id, topic_id, partition));
        let logs: BTreeMap<i32, Arc<Partition>> = logs.map(|log| (log.tp().partition, log)).collect();
        let with_end = |log: Arc<Partition>| {
            let end = log.log_end();
            (log, end)
        };
        logs.into_values().map(with_end).collect()
    }

    /// As long as leaders of partitions ask the share coordinator. Kafka: `PersisterStateManager`.
    fn after_state_writes(&self, logs: Vec<(Arc<Partition>, i64)>, both: (Response, Response)) -> Handled {
        let timeout_ms = i64::from(self.replicas.config().int("share.coordinator.write.timeout.ms"));
        match self.replicas.after_all_writes(logs, both, timeout_ms * STATE_WRITES) {
            Ok(response) => Handled::Now(response),
            Err(deferred) => Handled::After(deferred),
        }
    }

    /// What the response to a request waits for, while some nodes do not run or followers are late.
    fn waiting_for(&self, request: &Request) -> Option<Waits> {
        let refused = refused(request)?;
        let (topic, number) = match request {
            Request::InitProducerId(r) => {
                let id = r.transactional_id.as_ref()?;
                (TRANSACTION_STATE, self.transactions.partition_for(id))
            }
            Request::AddPartitionsToTxn(r) => {
                let id = &r.v3_and_below_transactional_id;
                (TRANSACTION_STATE, self.transactions.partition_for(id))
            }
            Request::AddOffsetsToTxn(r) => (TRANSACTION_STATE, self.transactions.partition_for(&r.transactional_id)),
            Request::EndTxn(r) => (TRANSACTION_STATE, self.transactions.partition_for(&r.transactional_id)),
            Request::TxnOffsetCommit(r) => (CONSUMER_OFFSETS, self.groups.partition_for(&r.group_id)),
            Request::Heartbeat(r) => (CONSUMER_OFFSETS, self.groups.partition_for(&r.group_id)),
            Request::ConsumerGroupHeartbeat(r) => (CONSUMER_OFFSETS, self.groups.partition_for(&r.group_id)),
            Request::ShareGroupHeartbeat(r) => (CONSUMER_OFFSETS, self.groups.partition_for(&r.group_id)),
            Request::LeaveGroup(r) => (CONSUMER_OFFSETS, self.groups.partition_for(&r.group_id)),
            Request::OffsetCommit(r) => (CONSUMER_OFFSETS, self.groups.partition_for(&r.group_id)),
            Request::OffsetFetch(r) => (CONSUMER_OFFSETS, self.groups.partition_for(&r.groups.first()?.group_id)),
            _ => return None,
        };
        let written = match topic {
            TRANSACTION_STATE => Some(self.log_end(topic, number)),
            _ => None,
        };
        Some(Waits {
            topic,
            number,
            written,
            refused,
        })
    }

    fn log_end(&self, topic: &str, number: i32) -> i64 {
        let table = self.replicas.topic_table();
        let partition = table.get(topic).and_then(|topic| topic.partition(number));
        partition.map_or(0, |partition| partition.log_end())
    }

    fn after_writes(&self, waits: Waits, response: Response) -> Handled {
        let found = self.replicas.topic_table().get(waits.topic).cloned();
        let Some(partition) = found.as_ref().and_then(|topic| topic.partition(waits.number)) else {
            return Handled::Now(response);
        };
        let wait_ms = match waits.topic {
            TRANSACTION_STATE => TRANSACTION_TIMEOUT_MS,
            _ => i64::from(self.replicas.config().int("offsets.commit.timeout.ms")),
        };
        let both = (response, waits.refused);
        match self.replicas.after_writes(partition, waits.written, both, wait_ms) {
            Ok(response) => Handled::Now(response),
            Err(deferred) => Handled::After(deferred),
        }
    }
}

/// The log that a response waits for.
struct Waits {
    topic: &'static str,
    number: i32,
    /// Its end before the request, if the response waits only for what the request writes.
    written: Option<i64>,
    refused: Response,
}

/// The response after the time-out; `None`: the response does not wait. Kafka: `CoordinatorOperationExceptionHelper`,
/// `GroupCoordinatorService#handleOffsetFetchException`.
fn refused(request: &Request) -> Option<Response> {
    let error_code = TIMED_OUT;
    Some(match request {
        Request::InitProducerId(_) => Response::InitProducerId(InitProducerIdResponse {
            error_code,
            producer_epoch: -1,
            ..Default::default()
        }),
        Request::AddPartitionsToTxn(r) if !r.v3_and_below_transactional_id.is_empty() => {
            Response::AddPartitionsToTxn(r.answered(repeat(error_code)))
        }
        Request::AddOffsetsToTxn(_) => Response::AddOffsetsToTxn(AddOffsetsToTxnResponse {
            error_code,
            ..Default::default()
        }),
        Request::EndTxn(_) => Response::EndTxn(EndTxnResponse {
            error_code,
            ..Default::default()
        }),
        Request::TxnOffsetCommit(r) => Response::TxnOffsetCommit(r.answered(repeat(error_code))),
        Request::Heartbeat(_) => Response::Heartbeat(HeartbeatResponse {
            error_code,
            ..Default::default()
        }),
        Request::ConsumerGroupHeartbeat(_) => Response::ConsumerGroupHeartbeat(ConsumerGroupHeartbeatResponse {
            error_code,
            ..Default::default()
        }),
        Request::ShareGroupHeartbeat(_) => Response::ShareGroupHeartbeat(ShareGroupHeartbeatResponse {
            error_code,
            ..Default::default()
        }),
        Request::LeaveGroup(_) => Response::LeaveGroup(LeaveGroupResponse {
            error_code,
            ..Default::default()
        }),
        Request::OffsetCommit(r) => Response::OffsetCommit(r.answered(repeat(error_code))),
        Request::OffsetFetch(r) if r.require_stable => Response::OffsetFetch(offsets_refused(r)),
        _ => return None,
    })
}

/// The error of acknowledgements whose states are not on all replicas in time.
fn refuse(error_code: &mut ErrorCode, message: &mut Option<Arc<str>>) {
    if *error_code == ErrorCode::NONE {
        *error_code = TIMED_OUT;
        *message = Some("Error in write state RPC. The states are not on all replicas in sync.".into());
    }
}

/// Older clients would not repeat the request after COORDINATOR_NOT_AVAILABLE.
fn offsets_refused(request: &OffsetFetchRequest) -> OffsetFetchResponse {
    let group = |group_id: &Arc<str>| OffsetFetchResponseGroup {
        group_id: Arc::clone(group_id),
        error_code: ErrorCode::NOT_COORDINATOR,
        ..Default::default()
    };
    OffsetFetchResponse {
        groups: request.groups.iter().map(|asked| group(&asked.group_id)).collect(),
        ..Default::default()
    }
}

/// Whether a response has no error: one that has was decided without the log, and is not delayed.
fn is_success(response: &Response) -> bool {
    let none = ErrorCode::NONE;
    match response {
        Response::InitProducerId(r) => r.error_code == none,
        Response::AddPartitionsToTxn(r) => {
            let topics = r.results_by_topic_v3_and_below.iter();
            let mut results = topics.flat_map(|topic| &topic.results_by_partition);
            results.all(|result| result.partition_error_code == none)
        }
        Response::AddOffsetsToTxn(r) => r.error_code == none,
        Response::EndTxn(r) => r.error_code == none,
        Response::TxnOffsetCommit(r) => {
            let mut results = r.topics.iter().flat_map(|topic| &topic.partitions);
            results.any(|result| result.error_code == none)
        }
        Response::Heartbeat(r) => r.error_code == none,
        Response::ConsumerGroupHeartbeat(r) => r.error_code == none,
        Response::ShareGroupHeartbeat(r) => r.error_code == none,
        Response::LeaveGroup(r) => r.error_code == none,
        Response::OffsetCommit(r) => {
            let mut results = r.topics.iter().flat_map(|topic| &topic.partitions);
            results.any(|result| result.error_code == none)
        }
        Response::OffsetFetch(r) => r.groups.iter().all(|group| group.error_code == none),
        _ => false,
    }
}
