//! ShareAcknowledge, and the acknowledgements in a ShareFetch (spec 14.7). Kafka: `KafkaApis#handleShareAcknowledgeRequest`,
//! `SharePartitionManager#acknowledge`, `#releaseSession`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_protocol::local::ClientName;
use fletchlog_protocol::messages::share_acknowledge_response::{
    LeaderIdAndEpoch, PartitionData, ShareAcknowledgeTopicResponse,
};
use fletchlog_protocol::messages::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};

use super::change::{AcknowledgementBatch, Refusal};
use super::record_state::AcknowledgeType;
use super::session::{FINAL_EPOCH, INITIAL_EPOCH, ShareSessionKey, TopicIdPartition};
use super::share_partition_manager::SharePartitionManager;
use crate::panics::place;

/// Longest member id. Kafka: `ShareRequestMetadata`, which has its characters.
const MAX_MEMBER_ID: usize = 36;

/// A range of a request: first and last offset, types.
pub(super) type RequestBatch = (i64, i64, Vec<i8>);

/// Acknowledgements of partitions, each once. Of a partition that is named twice the last entry counts.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    order: Vec<TopicIdPartition>,
    batches: HashMap<TopicIdPartition, Vec<RequestBatch>>,
    /// Who acknowledges.
    pub(super) reader: Option<ClientName>,
}

/// What acknowledgements do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing: they are only checked.
    Checked,
    Persisted,
}

/// The error of a partition's acknowledgements, and its text.
pub(super) type Outcome = (ErrorCode, Option<Arc<str>>);

impl Acknowledgements {
    /// None, of this client.
    pub(super) fn of(reader: Option<ClientName>) -> Self {
        Self {
            reader,
            ..Self::default()
        }
    }

    pub(super) fn insert(&mut self, at: TopicIdPartition, batches: Vec<RequestBatch>) {
        if self.batches.insert(at, batches).is_none() {
            self.order.push(at);
        }
    }

    /// Those of other partitions.
    pub(super) fn without(&self, partitions: &HashSet<TopicIdPartition>) -> Self {
        let mut others = Self::of(self.reader.clone());
        for at in self.order.iter().filter(|at| !partitions.contains(at)) {
            others.insert(*at, self.batches.get(at).cloned().unwrap_or_default());
        }
        others
    }

    /// Whether nothing is acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.values().all(Vec::is_empty)
    }
}

/// Who sends a share request; INVALID_REQUEST without a group or a valid member id.
pub(super) fn session_key(
    node: NodeId,
    group_id: Option<&Arc<str>>,
    member_id: Option<&Arc<str>>,
) -> Result<ShareSessionKey, ErrorCode> {
    let member_id = member_id.filter(|id| !id.is_empty() && id.encode_utf16().count() <= MAX_MEMBER_ID);
    match (group_id, member_id) {
        (Some(group_id), Some(member_id)) => Ok(ShareSessionKey {
            node,
            group_id: Arc::clone(group_id),
            member_id: Arc::clone(member_id),
        }),
        _ => Err(ErrorCode::INVALID_REQUEST),
    }
}

impl SharePartitionManager {
    /// A ShareAcknowledge request to `node`.
    pub(crate) fn share_acknowledge(&self, node: NodeId, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse {
        place(|| "acknowledgements of a share group");
        let refused = |error_code| ShareAcknowledgeResponse {
            error_code,
            ..Default::default()
        };
        let key = match session_key(node, request.group_id.as_ref(), request.member_id.as_ref()) {
            Ok(key) => key,
            Err(code) => return refused(code),
        };
        let epoch = request.share_session_epoch;
        let taken = match epoch {
            INITIAL_EPOCH => Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH),
            epoch => self.sessions.lock().take_epoch(&key, epoch),
        };
        if let Err(code) = taken {
            return refused(code);
        }
        let mut acknowledgements = Acknowledgements::of(request.reader);
        for topic in request.topics {
            for partition in topic.partitions {
                let at = TopicIdPartition {
                    topic_id: topic.topic_id,
                    partition: partition.partition_index,
                };
                let batches = partition.acknowledgement_batches.into_iter();
                let batches = batches.map(|batch| (batch.first_offset, batch.last_offset, batch.acknowledge_types));
                acknowledgements.insert(at, batches.collect());
            }
        }
        let outcomes = self.acknowledge_all(&key, &acknowledgements, request.is_renew_ack, Effect::Persisted);
        if epoch == FINAL_EPOCH {
            self.close_session(&key);
        }
        ShareAcknowledgeResponse {
            acquisition_lock_timeout_ms: self.lock_timeout_ms(&key.group_id),
            responses: self.acknowledge_responses(outcomes),
            ..Default::default()
        }
    }

    fn acknowledge_responses(&self, outcomes: Vec<(TopicIdPartition, Outcome)>) -> Vec<ShareAcknowledgeTopicResponse> {
        let mut topics: Vec<ShareAcknowledgeTopicResponse> = Vec::new();
        let mut places: HashMap<[u8; 16], usize> = HashMap::new();
        for (at, (error_code, error_message)) in outcomes {
            let (leader_id, leader_epoch) = self.hint(at, error_code);
            let partition = PartitionData {
                partition_index: at.partition,
                error_code,
                error_message,
                current_leader: LeaderIdAndEpoch {
                    leader_id,
                    leader_epoch,
                },
            };
            let place = *places.entry(at.topic_id).or_insert_with(|| {
                topics.push(ShareAcknowledgeTopicResponse {
                    topic_id: at.topic_id,
                    partitions: Vec::new(),
                });
                topics.len() - 1
            });
            topics[place].partitions.push(partition);
        }
        topics
    }

    /// The leader that a client should ask instead, for the error that says so.
    pub(super) fn hint(&self, at: TopicIdPartition, error: ErrorCode) -> (NodeId, i32) {
        if error != ErrorCode::NOT_LEADER_OR_FOLLOWER {
            return (0, 0);
        }
        let found = self.partition_of(at);
        found.map_or((0, 0), |partition| {
            let epoch = self.replicas.leader_epoch_of(&partition).unwrap_or(0);
            (partition.leader(), epoch)
        })
    }

    /// Ends a session and releases what its member has.
    pub(super) fn close_session(&self, key: &ShareSessionKey) {
        let partitions = self.sessions.lock().close(key);
        self.release(key, &partitions);
    }

    /// share.record.lock.duration.ms as it is now.
    pub(super) fn lock_timeout_ms(&self, group_id: &str) -> i32 {
        let ms = self.with_config(group_id, |config| config.lock_ms());
        i32::try_from(ms).unwrap_or(i32::MAX)
    }

    /// Acknowledges in partitions; each by itself succeeds or fails. A partition without ranges is answered only if another one has ranges
    /// that are valid. Kafka: `KafkaApis#handleAcknowledgements`.
    pub(super) fn acknowledge_all(
        &self,
        key: &ShareSessionKey,
        acknowledgements: &Acknowledgements,
        may_renew: bool,
        effect: Effect,
    ) -> Vec<(TopicIdPartition, Outcome)> {
        let mut is_any_valid = false;
        let mut outcomes = Vec::with_capacity(acknowledgements.order.len());
        for at in &acknowledgements.order {
            let batches = acknowledgements.batches.get(at).map_or(&[][..], Vec::as_slice);
            let valid = self.valid_batches(key, *at, batches, acknowledgements.reader.as_ref(), may_renew);
            is_any_valid |= valid.as_ref().is_ok_and(|batches| !batches.is_empty());
            outcomes.push((*at, valid));
        }
        let outcomes = outcomes.into_iter().filter_map(|(at, valid)| match valid {
            Err(code) => Some((at, (code, None))),
            Ok(batches) if batches.is_empty() => is_any_valid.then_some((at, (ErrorCode::NONE, None))),
            Ok(batches) => {
                let acknowledged = self.acknowledge_one(key, at, &batches, effect);
                Some((at, acknowledged.err().unwrap_or((ErrorCode::NONE, None))))
            }
        });
        outcomes.collect()
    }

    fn valid_batches(
        &self,
        key: &ShareSessionKey,
        at: TopicIdPartition,
        batches: &[RequestBatch],
        reader: Option<&ClientName>,
        may_renew: bool,
    ) -> Result<Vec<AcknowledgementBatch>, ErrorCode> {
        if !self.is_known_topic(&at.topic_id) {
            return Err(ErrorCode::UNKNOWN_TOPIC_ID);
        }
        let batches = validated(batches, may_renew)?;
        self.check_may_read(reader, &at.topic_id)?;
        let partition = self.partition_of(at).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        match batches.is_empty() || partition.leader() == key.node {
            true => Ok(batches),
            false => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        }
    }

    fn acknowledge_one(
        &self,
        key: &ShareSessionKey,
        at: TopicIdPartition,
        batches: &[AcknowledgementBatch],
        effect: Effect,
    ) -> Result<(), Outcome> {
        let managed = self.loaded(key.node, &key.group_id, at).ok_or_else(|| {
            let text = "This server does not host this topic-partition.";
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Some(text.into()))
        })?;
        let renews = batches
            .iter()
            .any(|batch| batch.types.contains(&AcknowledgeType::Renew));
        let config = |config: &super::group_config::ShareGroupConfig<'_>| (config.limits(), config.may_renew());
        let (limits, is_renewing_enabled) = self.with_config(&key.group_id, config);
        if renews && !is_renewing_enabled {
            let text = "Renewing acquisition locks is not enabled for the group.";
            return Err((ErrorCode::INVALID_RECORD_STATE, Some(text.into())));
        }
        let mut state = managed.lock();
        let Some(loaded) = &mut *state else {
            return Err((ErrorCode::NOT_LEADER_OR_FOLLOWER, None));
        };
        let acknowledged = loaded.partition.acknowledge(&key.member_id, batches, &limits);
        let acknowledged = match effect {
            Effect::Checked => acknowledged.map(|change| {
                loaded.partition.roll_back(change);
                false
            }),
            Effect::Persisted => acknowledged.and_then(|change| self.persist(&managed, loaded, change, &limits)),
        };
        self.note_locks(&managed, loaded);
        drop(state);
        match acknowledged {
            Ok(is_news) => {
                if is_news {
                    self.available(&managed);
                }
                Ok(())
            }
            Err(refusal) => {
                self.maybe_fence(&managed, &refusal);
                let Refusal { code, message } = refusal;
                Err((code, Some(message)))
            }
        }
    }
}

/// The ranges in order, with known types: one, or one for each offset. Kafka: `KafkaApis#validateAcknowledgementBatches`.
fn validated(batches: &[RequestBatch], may_renew: bool) -> Result<Vec<AcknowledgementBatch>, ErrorCode> {
    let mut last_before = -1;
    let mut valid = Vec::with_capacity(batches.len());
    for &(first, last, ref types) in batches {
        let fits = match types.len() {
            0 => false,
            1 => true,
            length => i64::try_from(length).is_ok_and(|length| last.checked_sub(first) == Some(length - 1)),
        };
        let known = |id: i8| AcknowledgeType::from_id(id).filter(|t| may_renew || *t != AcknowledgeType::Renew);
        let types: Option<Vec<AcknowledgeType>> = types.iter().copied().map(known).collect();
        match types {
            Some(types) if first <= last && first >= last_before && fits => {
                last_before = last;
                valid.push(AcknowledgementBatch { first, last, types });
            }
            _ => return Err(ErrorCode::INVALID_REQUEST),
        }
    }
    Ok(valid)
}
