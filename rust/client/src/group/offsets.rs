//! Commits, lookups of committed offsets, and the auto commit (spec 7.12). Kafka: `ConsumerCoordinator#commitOffsets...`,
//! `fetchCommittedOffsets`, `maybeAutoCommitOffsetsAsync`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::{
    ErrorCode, OffsetAndMetadata, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    Request, Response,
};
use fletchlog_records::TopicPartition;
use rustc_hash::FxHashSet;

use super::coordinator::{ConsumerCoordinator, Purpose};
use super::membership::{NO_GENERATION, State};
use crate::ClientError;
use crate::consumer::consumer_network_client::ConsumerNetworkClient;
use crate::consumer::metadata::ConsumerMetadata;
use crate::consumer::subscription_state::SubscriptionState;

/// Identifies a started commit or lookup.
pub type OperationId = u64;

/// Committed offsets by partition; `None` = nothing committed.
pub type CommittedOffsets = Vec<(TopicPartition, Option<OffsetAndMetadata>)>;

/// The origin of a commit, which decides what happens if it is refused for the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// commitAsync and the timer: the refusal is the result.
    Once,
    /// commitSync: repeated until the caller cancels.
    Sync,
    /// The auto commit of close() and before a rebalance: as `Sync`, but offsets of deleted topics are left out. See
    /// [`ConsumerCoordinator::leave_out_deleted`].
    Last,
}

/// A generation of the group, and this member's id in it.
pub type Generation = (i32, Arc<str>);

/// A lookup of committed offsets for partitions without position. It may take several polls, even across unsubscribe()
/// if the same partitions are assigned again. It ends with the generation, because after that another member may
/// commit. Kafka: `PendingCommittedOffsetRequest#sameRequest` (spec 7.12).
#[derive(Debug)]
pub(crate) struct CommittedLookup {
    pub(crate) id: OperationId,
    pub(crate) partitions: BTreeSet<TopicPartition>,
    pub(crate) generation: Option<Generation>,
}

#[derive(Debug)]
enum Kind {
    Commit {
        offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
        kind: Commit,
        result: Option<Result<(), ClientError>>,
    },
    Fetch {
        partitions: Vec<TopicPartition>,
        result: Option<Result<CommittedOffsets, ClientError>>,
    },
}

#[derive(Debug)]
struct Operation {
    kind: Kind,
    in_flight: bool,
    retry_at_ms: i64,
    /// The last temporary refusal by the coordinator.
    refusal: Option<String>,
}

impl Operation {
    fn is_done(&self) -> bool {
        match &self.kind {
            Kind::Commit { result, .. } => result.is_some(),
            Kind::Fetch { result, .. } => result.is_some(),
        }
    }
    fn fail(&mut self, error: ClientError) {
        match &mut self.kind {
            Kind::Commit { result, .. } => *result = Some(Err(error)),
            Kind::Fetch { result, .. } => *result = Some(Err(error)),
        }
    }
}

/// Operations in progress, oldest first.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    operations: BTreeMap<OperationId, Operation>,
    next_id: OperationId,
    /// When the timer commits next; `None` until the first turn, and without auto commit.
    pub auto_commit_at_ms: Option<i64>,
    auto_commits: Vec<OperationId>,
    /// The last failure of the timer's commits that was logged.
    auto_commit_failure: Option<String>,
    /// A commit of [`Commit::Last`] that was refused because a topic is unknown, and the version of the metadata then;
    /// `None`: new metadata has not been requested yet.
    unknown: Option<(OperationId, Option<u64>)>,
}

impl Offsets {
    fn start(&mut self, kind: Kind) -> OperationId {
        self.next_id += 1;
        self.operations.insert(
            self.next_id,
            Operation {
                kind,
                in_flight: false,
                retry_at_ms: i64::MIN,
                refusal: None,
            },
        );
        self.next_id
    }

    /// When an operation may be sent (again); `i64::MAX` if none waits to be sent.
    pub fn next_retry_ms(&self) -> i64 {
        self.operations
            .values()
            .filter(|op| !op.in_flight && !op.is_done())
            .map(|op| op.retry_at_ms)
            .min()
            .unwrap_or(i64::MAX)
    }
}

impl ConsumerCoordinator {
    /// Starts a commit.
    pub fn start_commit(&mut self, offsets: Vec<(TopicPartition, OffsetAndMetadata)>, kind: Commit) -> OperationId {
        let result = if offsets.is_empty() { Some(Ok(())) } else { None };
        self.offsets.start(Kind::Commit { offsets, kind, result })
    }

    /// The last refusal of an operation that is being repeated.
    pub fn last_refusal(&self, id: OperationId) -> Option<&str> {
        self.offsets.operations.get(&id)?.refusal.as_deref()
    }

    /// The last commit of a member waits for topics that the coordinator does not know. If newer metadata does not have
    /// them either, they were deleted, and their offsets are left out, as nobody will ever read them. (Java repeats the
    /// commit until close() or max.poll.interval.ms is over.)
    pub fn leave_out_deleted(&mut self, metadata: &mut ConsumerMetadata) {
        let Some((id, asked)) = &mut self.offsets.unknown else {
            return;
        };
        let Some(version) = asked else {
            *asked = Some(metadata.version());
            metadata.request_update();
            return;
        };
        if metadata.version() == *version {
            return;
        }
        let id = *id;
        self.offsets.unknown = None;
        let Some(Operation {
            kind: Kind::Commit { offsets, result, .. },
            ..
        }) = self.offsets.operations.get_mut(&id)
        else {
            return;
        };
        let (known, gone) = std::mem::take(offsets)
            .into_iter()
            .partition(|(tp, _)| metadata.knows(&tp.topic));
        *offsets = known;
        for (tp, offset) in gone {
            log::info!(
                "group {}: offset {} of {tp} is not committed: its topic was deleted",
                self.settings.group_id,
                offset.offset
            );
        }
        if offsets.is_empty() {
            *result = Some(Ok(()));
        }
    }

    /// Takes the result, once; `None` while the operation is in progress.
    pub fn commit_result(&mut self, id: OperationId) -> Option<Result<(), ClientError>> {
        match self.offsets.operations.get_mut(&id).map(|op| &mut op.kind) {
            Some(Kind::Commit {
                result: result @ Some(_),
                ..
            }) => {
                let result = result.take();
                self.offsets.operations.remove(&id);
                result
            }
            _ => None,
        }
    }

    /// Starts a lookup of committed offsets; retriable errors are repeated until the caller cancels.
    pub fn start_fetch_committed(&mut self, partitions: Vec<TopicPartition>) -> OperationId {
        let result = if partitions.is_empty() {
            Some(Ok(Vec::new()))
        } else {
            None
        };
        self.offsets.start(Kind::Fetch { partitions, result })
    }

    /// Takes the result, once; `None` while the operation is in progress.
    pub fn committed_result(&mut self, id: OperationId) -> Option<Result<CommittedOffsets, ClientError>> {
        match self.offsets.operations.get_mut(&id).map(|op| &mut op.kind) {
            Some(Kind::Fetch {
                result: result @ Some(_),
                ..
            }) => {
                let result = result.take();
                self.offsets.operations.remove(&id);
                result
            }
            _ => None,
        }
    }

    /// Drops an operation; a response to it is ignored. A commit that was sent may still take effect.
    pub fn cancel(&mut self, id: OperationId) {
        self.offsets.operations.remove(&id);
    }

    /// Starts the timer's commit if it is due, with the current positions; does not wait for it.
    /// Kafka: `maybeAutoCommitOffsetsAsync`.
    pub fn maybe_auto_commit(&mut self, subs: &SubscriptionState, now_ms: i64) {
        let Some(interval) = self.settings.auto_commit_interval_ms else {
            return;
        };
        let due_at = *self.offsets.auto_commit_at_ms.get_or_insert(now_ms + interval);
        if now_ms < due_at {
            return;
        }
        self.offsets.auto_commit_at_ms = Some(now_ms + interval);
        let offsets = subs.all_consumed();
        if !offsets.is_empty() {
            let id = self.start_commit(offsets, Commit::Once);
            self.offsets.auto_commits.push(id);
        }
    }

    /// A new assignment restarts the timer. Kafka: `onJoinComplete`.
    pub(super) fn restart_auto_commit_timer(&mut self, now_ms: i64) {
        self.offsets.auto_commit_at_ms = self.settings.auto_commit_interval_ms.map(|interval| now_ms + interval);
    }

    /// Takes the results of the timer's commits. A retriable failure is repeated after the backoff, with the positions
    /// at that time.
    fn settle_auto_commits(&mut self, now_ms: i64) {
        for id in std::mem::take(&mut self.offsets.auto_commits) {
            match self.commit_result(id) {
                None if self.offsets.operations.contains_key(&id) => self.offsets.auto_commits.push(id),
                None => {}
                Some(Ok(())) => self.offsets.auto_commit_failure = None,
                // The other offsets are committed, and a deleted topic will not exist after the next back-off.
                Some(Err(ClientError::Kafka {
                    code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    message,
                })) => log::debug!("group {}: auto commit: {message}", self.settings.group_id),
                Some(Err(ClientError::Kafka { code, message })) if code.is_retriable() => {
                    log::debug!("group {}: auto commit is repeated: {message}", self.settings.group_id);
                    self.offsets.auto_commit_at_ms = Some(now_ms + self.settings.retry_backoff_ms);
                }
                Some(Err(error)) => {
                    let why = Some(error.to_string());
                    if self.offsets.auto_commit_failure != why {
                        log::warn!("group {}: auto commit failed: {error}", self.settings.group_id);
                    }
                    self.offsets.auto_commit_failure = why;
                }
            }
        }
    }

    /// Sends every operation that is due.
    pub(super) fn send_operations(&mut self, net: &mut ConsumerNetworkClient, subs: &SubscriptionState, now_ms: i64) {
        self.settle_auto_commits(now_ms);
        let due: Vec<OperationId> = self
            .offsets
            .operations
            .iter()
            .filter(|(_, op)| !op.in_flight && !op.is_done() && now_ms >= op.retry_at_ms)
            .map(|(&id, _)| id)
            .collect();
        for id in due {
            let Some(connection) = self.coordinator(net, now_ms) else {
                return;
            };
            let request = match self.request(id, subs) {
                Ok(Some(request)) => request,
                Ok(None) => continue,
                Err(error) => {
                    self.fail_operation(id, error);
                    continue;
                }
            };
            let request_id = net.send(connection, request);
            self.outstanding.insert(request_id, Purpose::Operation(id));
            if let Some(op) = self.offsets.operations.get_mut(&id) {
                op.in_flight = true;
            }
        }
        self.settle_auto_commits(now_ms);
    }

    fn request(&self, id: OperationId, subs: &SubscriptionState) -> Result<Option<Request>, ClientError> {
        let Some(op) = self.offsets.operations.get(&id) else {
            return Ok(None);
        };
        let group_id = Arc::clone(&self.settings.group_id);
        Ok(Some(match &op.kind {
            Kind::Fetch { partitions, .. } => {
                Request::OffsetFetch(OffsetFetchRequest::of(group_id, Some(partitions), true))
            }
            Kind::Commit { offsets, .. } => {
                let (generation_id, member_id) = self.generation_for_commit(subs)?;
                Request::OffsetCommit(OffsetCommitRequest {
                    group_id,
                    generation_id_or_member_epoch: generation_id,
                    member_id,
                    group_instance_id: self.settings.group_instance_id.clone(),
                    topics: OffsetCommitRequest::topics_of(offsets.iter().cloned()),
                    // as the versions with epochs
                    knows_group_id_not_found: self.consumer.is_some(),
                    ..Default::default()
                })
            }
        }))
    }

    /// The generation of this member; `None` while it joins, or if no group assigns partitions.
    /// Kafka: `AbstractCoordinator#generationIfStable`.
    pub fn generation_if_stable(&self) -> Option<Generation> {
        if let Some(member) = &self.consumer {
            return member
                .is_member()
                .then(|| (member.epoch, Arc::clone(&member.member_id)));
        }
        let member = &self.membership;
        member
            .is_stable()
            .then(|| (member.generation, Arc::clone(&member.member_id)))
    }

    /// Kafka: `sendOffsetCommitRequest`.
    fn generation_for_commit(&self, subs: &SubscriptionState) -> Result<Generation, ClientError> {
        let member = &self.membership;
        if !subs.has_auto_assigned_partitions() {
            return Ok((NO_GENERATION, "".into()));
        }
        if let Some(generation) = self.generation_if_stable() {
            return Ok(generation);
        }
        if member.state == State::Unjoined || self.consumer.is_some() {
            return Err(self.not_a_member());
        }
        Err(self.refused(
            ErrorCode::REBALANCE_IN_PROGRESS,
            "offsets cannot be committed now; poll() until the rebalance is over and commit again",
        ))
    }

    fn not_a_member(&self) -> ClientError {
        ClientError::CommitFailed(format!(
            "this consumer is not a member of group {} at the moment (it was removed, or has not been polled since subscribe()); poll() to rejoin",
            self.settings.group_id
        ))
    }

    /// The member has lost its partitions: commits that are not confirmed fail. Repeated, they would carry the epoch of its next membership,
    /// when another member may have committed more. Java's member joins again only after the application has seen the failure.
    pub(super) fn fail_commits(&mut self) {
        let waits = |op: &Operation| matches!(op.kind, Kind::Commit { result: None, .. });
        let ids = self.offsets.operations.iter().filter(|(_, op)| waits(op));
        for id in ids.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.fail_operation(id, self.not_a_member());
        }
    }

    pub(super) fn on_operation_response(&mut self, id: OperationId, response: Response, now_ms: i64) {
        match response {
            Response::OffsetCommit(response) => self.on_commit_response(id, &response, now_ms),
            Response::OffsetFetch(response) => self.on_fetch_response(id, &response, now_ms),
            other => self.fail_operation(
                id,
                ClientError::IllegalState(format!("the coordinator answered an offset request with {other:?}")),
            ),
        }
    }

    /// Kafka: `OffsetCommitResponseHandler`: the first error decides.
    fn on_commit_response(&mut self, id: OperationId, response: &OffsetCommitResponse, now_ms: i64) {
        let Some((tp, code)) = response.errors().find(|(_, code)| *code != ErrorCode::NONE) else {
            if let Some(Operation {
                kind: Kind::Commit { result, .. },
                ..
            }) = self.offsets.operations.get_mut(&id)
            {
                *result = Some(Ok(()));
            }
            return;
        };
        let group = Arc::clone(&self.settings.group_id);
        let why = response.error_message.as_ref().map(|message| format!(" ({message})"));
        let refused = format!("the commit of {tp} was refused{}", why.unwrap_or_default());
        match code {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                self.note_unknown(id, response);
                self.repeat_operation(id, code, refused, now_ms);
            }
            // The epoch has grown meanwhile: the next attempt has the new one.
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS | ErrorCode::STALE_MEMBER_EPOCH => {
                self.repeat_operation(id, code, refused, now_ms);
            }
            ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR | ErrorCode::REQUEST_TIMED_OUT => {
                self.coordinator_unknown();
                self.repeat_operation(id, code, refused, now_ms);
            }
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION => {
                if self.membership.is_stable() {
                    self.reset_generation();
                }
                let error = ClientError::CommitFailed(format!(
                    "group {group} has rebalanced and given the partitions to another member ({code}); poll() to rejoin, and raise max.poll.interval.ms or lower max.poll.records if processing takes longer than that"
                ));
                self.fail_operation(id, error);
            }
            ErrorCode::REBALANCE_IN_PROGRESS => {
                self.membership.rejoin_needed = true;
                let error = self.refused(
                    code,
                    "the group is rebalancing; poll() until it is done and commit again",
                );
                self.fail_operation(id, error);
            }
            code => {
                let context = format!("the commit of {tp} for group {group} was refused");
                let error = match &response.error_message {
                    Some(message) => ClientError::Kafka {
                        code,
                        message: format!("{context}: {message}"),
                    },
                    None => ClientError::kafka(code, context),
                };
                self.fail_operation(id, error);
            }
        }
    }

    /// Kafka: `OffsetFetchResponseHandler`.
    fn on_fetch_response(&mut self, id: OperationId, response: &OffsetFetchResponse, now_ms: i64) {
        let offsets = response.offsets();
        match offsets.and_then(|offsets| offsets.map(|(tp, offset)| Ok((tp, offset?))).collect()) {
            Ok(partitions) => {
                if let Some(Operation {
                    kind: Kind::Fetch { result, .. },
                    ..
                }) = self.offsets.operations.get_mut(&id)
                {
                    *result = Some(Ok(partitions));
                }
            }
            Err(code) if code.is_retriable() => {
                if matches!(code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE) {
                    self.coordinator_unknown();
                }
                self.repeat_operation(id, code, "the committed offsets cannot be read now".to_owned(), now_ms);
            }
            Err(code) => {
                let error = self.refused(code, "committed offsets could not be read");
                self.fail_operation(id, error);
            }
        }
    }

    /// Keeps only the refused offsets of a commit, to be repeated: the others are committed.
    fn note_unknown(&mut self, id: OperationId, response: &OffsetCommitResponse) {
        let Some(Operation {
            kind:
                Kind::Commit {
                    offsets,
                    kind: Commit::Last,
                    ..
                },
            ..
        }) = self.offsets.operations.get_mut(&id)
        else {
            return;
        };
        let refused = response.errors().filter(|(_, code)| *code != ErrorCode::NONE);
        let refused: FxHashSet<TopicPartition> = refused.map(|(tp, _)| tp).collect();
        offsets.retain(|(tp, _)| refused.contains(tp));
        if self.offsets.unknown.is_none_or(|(of, _)| of != id) {
            self.offsets.unknown = Some((id, None));
        }
    }

    /// The connection was lost: repeats the operation after the backoff, or ends it if the caller does not want
    /// retries.
    pub(super) fn operation_lost(&mut self, id: OperationId, now_ms: i64) {
        let code = ErrorCode::NETWORK_EXCEPTION;
        self.repeat_operation(id, code, "the commit was not confirmed".to_owned(), now_ms);
        if let Some(op) = self.offsets.operations.get_mut(&id) {
            op.refusal = None;
        }
    }

    /// A retriable error: repeats the operation after the backoff, or ends it if the caller does not want retries.
    fn repeat_operation(&mut self, id: OperationId, code: ErrorCode, what: String, now_ms: i64) {
        let error = self.refused(code, &what);
        let retry_at_ms = now_ms + self.settings.retry_backoff_ms;
        let Some(op) = self.offsets.operations.get_mut(&id) else {
            return;
        };
        op.in_flight = false;
        op.retry_at_ms = retry_at_ms;
        op.refusal = Some(format!("{what}: {code}"));
        if let Kind::Commit {
            kind: Commit::Once,
            result,
            ..
        } = &mut op.kind
        {
            *result = Some(Err(error));
        }
    }

    fn fail_operation(&mut self, id: OperationId, error: ClientError) {
        if let Some(op) = self.offsets.operations.get_mut(&id) {
            op.fail(error);
        }
    }
}
