//! ShareFetch (spec 14.6, 14.8). Kafka: `KafkaApis#handleShareFetchRequest`, `SharePartitionManager#fetchMessages`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_protocol::local::ClientName;
use fletchlog_protocol::messages::share_fetch_response::{
    AcquiredRecords, LeaderIdAndEpoch, PartitionData, ShareFetchableTopicResponse,
};
use fletchlog_protocol::messages::{ShareFetchRequest, ShareFetchResponse};

use super::acquire::AcquireMode;
use super::delayed_share_fetch::{DelayedShareFetch, Params};
use super::session::{Asked, ConnectionId, FINAL_EPOCH, INITIAL_EPOCH, ShareSessionKey, TopicIdPartition};
use super::share_acknowledge::{Acknowledgements, Effect, Outcome, session_key};
use super::share_partition::Acquired;
use super::share_partition_manager::SharePartitionManager;
use crate::panics::place;
use crate::sync::Answer;

/// A response now, or the place where it will arrive.
#[derive(Debug)]
pub(crate) enum ShareFetched {
    Now(ShareFetchResponse),
    Later(Arc<Answer>),
}

/// What a fetch found in a partition.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) at: TopicIdPartition,
    pub(super) error: ErrorCode,
    pub(super) records: Bytes,
    pub(super) acquired: Vec<Acquired>,
}

impl Found {
    pub(super) fn nothing(at: TopicIdPartition, error: ErrorCode) -> Self {
        Self {
            at,
            error,
            records: Bytes::new(),
            acquired: Vec::new(),
        }
    }
}

/// A response of the whole request.
pub(super) fn top_level(error_code: ErrorCode) -> ShareFetchResponse {
    ShareFetchResponse {
        error_code,
        ..Default::default()
    }
}

/// What a request names: the partitions in order, each once, their acknowledgements, and what is forgotten.
struct Named {
    partitions: Vec<TopicIdPartition>,
    acknowledgements: Acknowledgements,
    forgotten: Vec<TopicIdPartition>,
}

fn named(request: &mut ShareFetchRequest) -> Named {
    let (mut partitions, mut seen) = (Vec::new(), HashSet::new());
    let mut acknowledgements = Acknowledgements::of(request.reader.take());
    for topic in std::mem::take(&mut request.topics) {
        for partition in topic.partitions {
            let at = TopicIdPartition {
                topic_id: topic.topic_id,
                partition: partition.partition_index,
            };
            if seen.insert(at) {
                partitions.push(at);
            }
            let batches = partition.acknowledgement_batches.into_iter();
            let batches: Vec<_> = batches
                .map(|batch| (batch.first_offset, batch.last_offset, batch.acknowledge_types))
                .collect();
            acknowledgements.insert(at, batches);
        }
    }
    if acknowledgements.is_empty() {
        acknowledgements = Acknowledgements::of(acknowledgements.reader);
    }
    let forgotten = std::mem::take(&mut request.forgotten_topics_data).into_iter();
    let forgotten = forgotten.flat_map(|topic| {
        let of = move |partition| TopicIdPartition {
            topic_id: topic.topic_id,
            partition,
        };
        topic.partitions.into_iter().map(of)
    });
    Named {
        partitions,
        acknowledgements,
        forgotten: forgotten.collect(),
    }
}

impl SharePartitionManager {
    /// A ShareFetch request to `node`.
    pub(crate) fn share_fetch(
        &self,
        node: NodeId,
        connection: ConnectionId,
        mut request: ShareFetchRequest,
    ) -> ShareFetched {
        place(|| "fetch of a share group");
        let refused = |code| ShareFetched::Now(top_level(code));
        let key = match session_key(node, request.group_id.as_ref(), request.member_id.as_ref()) {
            Ok(key) => key,
            Err(code) => return refused(code),
        };
        let limits = [
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.max_records,
        ];
        if request.is_renew_ack && limits.iter().any(|limit| *limit != 0) {
            return refused(ErrorCode::INVALID_REQUEST);
        }
        let epoch = request.share_session_epoch;
        let named = named(&mut request);
        let asked = match self.session_partitions(&key, connection, epoch, &named) {
            Ok(asked) => asked,
            Err(ErrorCode::SHARE_SESSION_LIMIT_REACHED) => return self.refuse_later(&key, &request),
            Err(code) => return refused(code),
        };
        // Kafka fails with UNKNOWN_SERVER_ERROR, after it has taken the epoch.
        let Some(mode) = AcquireMode::from_id(request.share_acquire_mode) else {
            return refused(ErrorCode::INVALID_REQUEST);
        };
        if epoch == FINAL_EPOCH || request.is_renew_ack {
            let acknowledgements = &named.acknowledgements;
            let acknowledged = self.acknowledge_all(&key, acknowledgements, request.is_renew_ack, Effect::Persisted);
            if epoch == FINAL_EPOCH {
                self.close_session(&key);
            }
            let response = self.share_fetch_response(&key.group_id, Vec::new(), acknowledged);
            return ShareFetched::Now(response);
        }
        let fetch = self.new_fetch(key, &request, mode);
        self.begin_share_fetch(fetch, request.max_wait_ms, &asked, &named.acknowledgements)
    }

    /// Opens the session, or takes the request's epoch; returns the partitions to be fetched, in order.
    fn session_partitions(
        &self,
        key: &ShareSessionKey,
        connection: ConnectionId,
        epoch: i32,
        named: &Named,
    ) -> Result<Vec<Asked>, ErrorCode> {
        let asked = |at: &TopicIdPartition| Asked {
            at: *at,
            was_known: self.is_known_topic(&at.topic_id),
        };
        let added: Vec<Asked> = named.partitions.iter().map(asked).collect();
        let mut sessions = self.sessions.lock();
        match epoch {
            INITIAL_EPOCH if !named.acknowledgements.is_empty() => Err(ErrorCode::INVALID_REQUEST),
            INITIAL_EPOCH => sessions.open(key, connection, &added).map(|()| added),
            FINAL_EPOCH => sessions.take_epoch(key, epoch).map(|()| Vec::new()),
            _ => {
                sessions.take_epoch(key, epoch)?;
                Ok(sessions.update(key, epoch, &added, &named.forgotten))
            }
        }
    }

    /// There are too many sessions: as in Kafka the response comes after the time that the client would wait.
    fn refuse_later(&self, key: &ShareSessionKey, request: &ShareFetchRequest) -> ShareFetched {
        let refusal = top_level(ErrorCode::SHARE_SESSION_LIMIT_REACHED);
        if request.max_wait_ms <= 0 {
            return ShareFetched::Now(refusal);
        }
        let mut fetch = self.new_fetch(key.clone(), request, AcquireMode::BatchOptimized);
        fetch.refusal = Some(ErrorCode::SHARE_SESSION_LIMIT_REACHED);
        ShareFetched::Later(self.wait(fetch))
    }

    fn new_fetch(&self, key: ShareSessionKey, request: &ShareFetchRequest, mode: AcquireMode) -> DelayedShareFetch {
        let max_bytes = request.max_bytes.min(self.replicas.config().int("fetch.max.bytes"));
        let params = Params {
            epoch: request.share_session_epoch,
            min_bytes: i64::from(request.min_bytes),
            max_bytes: i64::from(max_bytes),
            max_records: i64::from(request.max_records),
            batch_size: i64::from(request.batch_size),
            mode,
        };
        let deadline_ms = self.now_ms().saturating_add(i64::from(request.max_wait_ms));
        let session = self.sessions.lock().number_of(&key);
        DelayedShareFetch::new(key, session, params, deadline_ms)
    }

    /// Reads what is in memory of the group; partitions that are new to it join one by one. As in Kafka, where their state arrives later,
    /// a fetch is answered without them as soon as it has something. The acknowledgements of the request count after that: in Kafka they are
    /// being persisted meanwhile.
    fn begin_share_fetch(
        &self,
        mut fetch: DelayedShareFetch,
        max_wait_ms: i32,
        asked: &[Asked],
        acknowledgements: &Acknowledgements,
    ) -> ShareFetched {
        for one in asked {
            match self.check_asked(fetch.key.node, *one, acknowledgements.reader.as_ref()) {
                Ok(()) => fetch.partitions.push(one.at),
                Err(code) => fetch.errors.push((one.at, code)),
            }
        }
        let wants_nothing = fetch.params.max_records == 0 || fetch.params.max_bytes == 0;
        if wants_nothing {
            // No state is read either.
            fetch.partitions.clear();
        }
        // A partition with an error does not end the wait for the others. Kafka: `KafkaApis#handleFetchFromShareFetchRequest`.
        let is_at_once = max_wait_ms <= 0 || fetch.partitions.is_empty();
        let (node, group_id) = (fetch.key.node, Arc::clone(&fetch.key.group_id));
        let is_in_memory = |at: &TopicIdPartition| self.loaded(node, &group_id, *at).is_some();
        let partitions = fetch.partitions.iter().copied();
        let missing: Vec<TopicIdPartition> = partitions.filter(|at| !is_in_memory(at)).collect();
        let checked = self.acknowledge_all(&fetch.key, acknowledgements, false, Effect::Checked);
        let found = match max_wait_ms <= 0 || missing.len() < fetch.partitions.len() {
            true => self.read_first(&mut fetch, max_wait_ms <= 0 || asked.is_empty()),
            false => None,
        };
        fetch.acknowledged = self.acknowledge_checked(&fetch.key, acknowledgements, checked);
        let response = found.map(|found| self.end_share_fetch(&fetch, found));
        let are_all_new = max_wait_ms > 0 && missing.len() == fetch.partitions.len();
        let mut response = self.load_missing(&mut fetch, &missing, are_all_new, response);
        if response.is_none() && is_at_once {
            response = self.try_share_fetch(&fetch, true);
        }
        match response {
            Some(response) => ShareFetched::Now(response),
            None => ShareFetched::Later(self.wait(fetch)),
        }
    }

    /// The first attempt, without the partitions that an answer of the opening fetch was not kept for and that join later.
    fn read_first(&self, fetch: &mut DelayedShareFetch, is_over: bool) -> Option<Vec<Found>> {
        let all = std::mem::take(&mut fetch.partitions);
        let joins_later = |at: &TopicIdPartition| {
            let managed = self.loaded(fetch.key.node, &fetch.key.group_id, *at);
            let member =
                managed.and_then(|managed| managed.lock().as_mut().and_then(|loaded| loaded.joins_after.take()));
            member.is_some_and(|member| member == fetch.key.member_id && fetch.params.epoch == INITIAL_EPOCH + 1)
        };
        let now: Vec<TopicIdPartition> = all.iter().copied().filter(|at| !joins_later(at)).collect();
        fetch.partitions = now;
        let found = self.try_read(fetch, is_over);
        fetch.partitions = all;
        found
    }

    /// Loads partitions that are new to the group, until one of them answers the fetch. If all are new, the others that are loaded after the
    /// answer join after the member's next fetch: Kafka asks for the state of the first partition alone, and for the others meanwhile. A fetch
    /// that does not wait has its answer before any state arrives; the next one finds what is loaded.
    fn load_missing(
        &self,
        fetch: &mut DelayedShareFetch,
        missing: &[TopicIdPartition],
        are_all_new: bool,
        mut response: Option<ShareFetchResponse>,
    ) -> Option<ShareFetchResponse> {
        let (node, group_id) = (fetch.key.node, Arc::clone(&fetch.key.group_id));
        let mut failed = HashSet::new();
        for at in missing {
            match self.load(node, &group_id, *at) {
                Err(failure) => {
                    failed.insert(*at);
                    fetch.errors.push((*at, failure.code));
                }
                Ok(()) if response.is_none() => {
                    if self.has_something(fetch, *at) {
                        response = self.try_share_fetch(fetch, true);
                    }
                }
                Ok(()) if are_all_new => {
                    if let Some(managed) = self.loaded(node, &group_id, *at)
                        && let Some(loaded) = &mut *managed.lock()
                    {
                        loaded.joins_after = Some(Arc::clone(&fetch.key.member_id));
                    }
                }
                Ok(()) => {}
            }
        }
        fetch.partitions.retain(|at| !failed.contains(at));
        response
    }

    /// Acknowledges where nothing was refused before.
    fn acknowledge_checked(
        &self,
        key: &ShareSessionKey,
        acknowledgements: &Acknowledgements,
        checked: Vec<(TopicIdPartition, Outcome)>,
    ) -> Vec<(TopicIdPartition, Outcome)> {
        let is_refused = |(code, _): &Outcome| *code != ErrorCode::NONE;
        let refused: HashSet<TopicIdPartition> = checked
            .iter()
            .filter(|(_, outcome)| is_refused(outcome))
            .map(|(at, _)| *at)
            .collect();
        let accepted = acknowledgements.without(&refused);
        let mut outcomes: HashMap<TopicIdPartition, Outcome> = self
            .acknowledge_all(key, &accepted, false, Effect::Persisted)
            .into_iter()
            .collect();
        let latest = |(at, outcome)| (at, outcomes.remove(&at).unwrap_or(outcome));
        checked.into_iter().map(latest).collect()
    }

    fn check_asked(&self, node: NodeId, asked: Asked, reader: Option<&ClientName>) -> Result<(), ErrorCode> {
        if !asked.was_known && !self.is_known_topic(&asked.at.topic_id) {
            return Err(ErrorCode::UNKNOWN_TOPIC_ID);
        }
        self.check_may_read(reader, &asked.at.topic_id)?;
        match self.partition_of(asked.at) {
            None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            Some(partition) if partition.leader() != node => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            Some(_) => Ok(()),
        }
    }

    /// The response of a fetch that has ended: what the session has to learn. Kafka: `ShareSessionContext#updateAndGenerateResponseData`.
    pub(super) fn end_share_fetch(&self, fetch: &DelayedShareFetch, mut found: Vec<Found>) -> ShareFetchResponse {
        found.extend(fetch.errors.iter().map(|(at, code)| Found::nothing(*at, *code)));
        let epoch = fetch.params.epoch;
        if epoch != INITIAL_EPOCH {
            let mut sessions = self.sessions.lock();
            if sessions.has_moved_on(&fetch.key, fetch.session, epoch) {
                return ShareFetchResponse {
                    acquisition_lock_timeout_ms: self.lock_timeout_ms(&fetch.key.group_id),
                    ..top_level(ErrorCode::INVALID_SHARE_SESSION_EPOCH)
                };
            }
            found.retain(|found| {
                let has_error = found.error != ErrorCode::NONE;
                sessions.must_answer(
                    &fetch.key,
                    fetch.session,
                    found.at,
                    !found.records.is_empty(),
                    has_error,
                )
            });
        }
        self.share_fetch_response(&fetch.key.group_id, found, fetch.acknowledged.clone())
    }

    /// The response with what was found, and the errors of acknowledgements.
    fn share_fetch_response(
        &self,
        group_id: &str,
        found: Vec<Found>,
        acknowledged: Vec<(TopicIdPartition, Outcome)>,
    ) -> ShareFetchResponse {
        let mut acknowledged: HashMap<TopicIdPartition, (usize, Outcome)> = acknowledged
            .into_iter()
            .enumerate()
            .map(|(nth, (at, outcome))| (at, (nth, outcome)))
            .collect();
        let mut partitions: Vec<(TopicIdPartition, PartitionData)> = Vec::new();
        for found in found {
            let outcome = acknowledged.remove(&found.at).map(|(_, outcome)| outcome);
            partitions.push((
                found.at,
                self.partition_data(found, outcome.unwrap_or((ErrorCode::NONE, None))),
            ));
        }
        let mut rest: Vec<_> = acknowledged.into_iter().collect();
        rest.sort_by_key(|(_, (nth, _))| *nth);
        for (at, (_, outcome)) in rest {
            let nothing = Found::nothing(at, ErrorCode::NONE);
            partitions.push((at, self.partition_data(nothing, outcome)));
        }
        let mut topics: Vec<ShareFetchableTopicResponse> = Vec::new();
        let mut places: HashMap<[u8; 16], usize> = HashMap::new();
        for (at, data) in partitions {
            let place = *places.entry(at.topic_id).or_insert_with(|| {
                topics.push(ShareFetchableTopicResponse {
                    topic_id: at.topic_id,
                    partitions: Vec::new(),
                });
                topics.len() - 1
            });
            topics[place].partitions.push(data);
        }
        ShareFetchResponse {
            acquisition_lock_timeout_ms: self.lock_timeout_ms(group_id),
            responses: topics,
            ..Default::default()
        }
    }

    fn partition_data(
        &self,
        found: Found,
        (acknowledge_error_code, acknowledge_error_message): Outcome,
    ) -> PartitionData {
        let moved = match found.error {
            ErrorCode::NONE => acknowledge_error_code,
            error => error,
        };
        let (leader_id, leader_epoch) = self.hint(found.at, moved);
        let range = |acquired: Acquired| AcquiredRecords {
            first_offset: acquired.first,
            last_offset: acquired.last,
            delivery_count: i16::try_from(acquired.deliveries).unwrap_or(i16::MAX),
        };
        PartitionData {
            partition_index: found.at.partition,
            error_code: found.error,
            error_message: None,
            acknowledge_error_code,
            acknowledge_error_message,
            current_leader: LeaderIdAndEpoch {
                leader_id,
                leader_epoch,
            },
            records: Some(found.records),
            acquired_records: found.acquired.into_iter().map(range).collect(),
        }
    }
}
