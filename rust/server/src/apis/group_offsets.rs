//! Offsets of groups. Kafka: `KafkaApis#handleOffsetCommitRequest`, `#handleTxnOffsetCommitRequest`, `#handleOffsetFetchRequest`.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse, offset_commit_request, offset_commit_response, offset_fetch_response,
    txn_offset_commit_response,
};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::{CLOSED, Call, Handled, Unreadable, by_topic, response};

/// The first version of OffsetCommit and OffsetFetch that names topics by their ids.
const TOPIC_IDS: i16 = 10;

pub(super) fn offset_commit(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: OffsetCommitRequest = call.message()?;
    if call.version() >= TOPIC_IDS {
        return offset_commit_by_id(call, request);
    }
    let answer = commit(call, &request, |topic| Ok(Arc::clone(&topic.name)))?;
    // The broker returns results in the order of the request, so a topic that is named twice gets two entries.
    let mut answer = answer.into_iter().map(|(_, partition)| partition);
    let topics = request
        .topics
        .iter()
        .map(|topic| offset_commit_response::OffsetCommitResponseTopic {
            name: Arc::clone(&topic.name),
            partitions: answer.by_ref().take(topic.partitions.len()).collect(),
            ..Default::default()
        });
    let is_known = |topic: &offset_commit_response::OffsetCommitResponseTopic| {
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        let has_known = topic.partitions.iter().any(|p| p.error_code != unknown);
        has_known || is_topic(call, &topic.name)
    };
    call.answer(&OffsetCommitResponse {
        topics: merged(topics.collect(), is_known),
        ..Default::default()
    })
}

/// Topics without partitions are left out, unless they are unknown. If a topic or a partition is unknown, unknown topics come first and
/// entries of one topic are merged; otherwise each entry is kept. Kafka: `OffsetCommitResponse.Builder`, into which the coordinator's
/// response is merged.
fn merged(
    topics: Vec<offset_commit_response::OffsetCommitResponseTopic>,
    is_known: impl Fn(&offset_commit_response::OffsetCommitResponseTopic) -> bool,
) -> Vec<offset_commit_response::OffsetCommitResponseTopic> {
    let (known, unknown): (Vec<_>, Vec<_>) = topics.into_iter().partition(is_known);
    let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let is_unknown = |p: &offset_commit_response::OffsetCommitResponsePartition| p.error_code == code;
    let any_unknown = !unknown.is_empty() || known.iter().flat_map(|topic| &topic.partitions).any(is_unknown);
    let known = known.into_iter().filter(|topic| !topic.partitions.is_empty());
    if !any_unknown {
        return known.collect();
    }
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    let mut merged: Vec<offset_commit_response::OffsetCommitResponseTopic> = Vec::new();
    for topic in unknown.into_iter().chain(known) {
        match places.entry(Arc::clone(&topic.name)) {
            Entry::Occupied(place) => merged[*place.get()].partitions.extend(topic.partitions),
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(topic);
            }
        }
    }
    merged
}

fn is_topic(call: &Call<'_>, name: &str) -> bool {
    call.broker().topic_id(name).is_ok_and(|id| id.is_some())
}

/// An unknown topic id is UNKNOWN_TOPIC_ID for each of its partitions.
fn offset_commit_by_id(call: &Call<'_>, mut request: OffsetCommitRequest) -> Result<Handled, Unreadable> {
    let mut names = HashMap::new();
    let mut topics = Vec::new();
    for topic in std::mem::take(&mut request.topics) {
        if let Some(name) = name_of(call, topic.topic_id) {
            names.insert(topic.topic_id, name);
            request.topics.push(topic);
        } else {
            let unknown = |p: &offset_commit_request::OffsetCommitRequestPartition| {
                committed(p.partition_index, ErrorCode::UNKNOWN_TOPIC_ID)
            };
            topics.push(offset_commit_response::OffsetCommitResponseTopic {
                topic_id: topic.topic_id,
                partitions: topic.partitions.iter().map(unknown).collect(),
                ..Default::default()
            });
        }
    }
    let named = |id: [u8; 16]| names.get(&id).cloned().ok_or(super::OTHER_KIND);
    let answer = commit(call, &request, |topic| named(topic.topic_id))?;
    let ids: HashMap<Arc<str>, [u8; 16]> = names.into_iter().map(|(id, name)| (name, id)).collect();
    for (name, partitions) in by_topic(answer) {
        let id = ids.get(&name).copied();
        topics.push(offset_commit_response::OffsetCommitResponseTopic {
            topic_id: id.unwrap_or_default(),
            partitions,
            ..Default::default()
        });
    }
    call.answer(&OffsetCommitResponse {
        topics,
        ..Default::default()
    })
}

fn name_of(call: &Call<'_>, id: [u8; 16]) -> Option<Arc<str>> {
    call.apis.broker().topic_name(id).ok().flatten()
}

/// Commits. Returns the result of each partition with the name of its topic.
fn commit(
    call: &Call<'_>,
    request: &OffsetCommitRequest,
    name: impl Fn(&offset_commit_request::OffsetCommitRequestTopic) -> Result<Arc<str>, Unreadable>,
) -> Result<Vec<(Arc<str>, offset_commit_response::OffsetCommitResponsePartition)>, Unreadable> {
    let mut offsets = Vec::new();
    // In the order of the request, with the error of each partition that is refused.
    let mut asked = Vec::new();
    let of_group = !call.may_group(AclOperation::Read, &request.group_id);
    for topic in &request.topics {
        let name = name(topic)?;
        let denied = match of_group {
            true => Some(ErrorCode::GROUP_AUTHORIZATION_FAILED),
            false => denied_topic(call, &name),
        };
        for p in &topic.partitions {
            asked.push((Arc::clone(&name), p.partition_index, denied));
            let value = offset(
                p.committed_offset,
                p.committed_leader_epoch,
                p.committed_metadata.as_ref(),
            );
            if denied.is_none() {
                offsets.push((TopicPartition::new(Arc::clone(&name), p.partition_index), value));
            }
        }
    }
    if offsets.is_empty() && !asked.is_empty() {
        return Ok(in_order(asked, Vec::new()));
    }
    let retention_ms = request.retention_time_ms;
    let request = api::OffsetCommitRequest {
        group_id: Arc::clone(&request.group_id),
        generation_id: request.generation_id_or_member_epoch,
        member_id: Arc::clone(&request.member_id),
        group_instance_id: request.group_instance_id.clone(),
        retention_ms: (retention_ms != -1).then_some(retention_ms),
        knows_group_id_not_found: call.version() >= 9,
        offsets,
    };
    let answer = response!(OffsetCommit, call.ask_now(api::Request::OffsetCommit(request))?)?;
    Ok(in_order(asked, answer.partitions))
}

/// The outcome of each partition, in the order of the request: its refusal, or the broker's result.
fn in_order(
    asked: Vec<(Arc<str>, i32, Option<ErrorCode>)>,
    answered: Vec<(TopicPartition, ErrorCode)>,
) -> Vec<(Arc<str>, offset_commit_response::OffsetCommitResponsePartition)> {
    let mut answered = answered.into_iter();
    let one = |(name, partition, denied): (Arc<str>, i32, Option<ErrorCode>)| match denied {
        Some(code) => Some((name, committed(partition, code))),
        None => answered
            .next()
            .map(|(tp, code)| (tp.topic, committed(tp.partition, code))),
    };
    asked.into_iter().filter_map(one).collect()
}

/// TOPIC_AUTHORIZATION_FAILED, if the client may not read the topic.
fn denied_topic(call: &Call<'_>, name: &str) -> Option<ErrorCode> {
    (!call.may_topic(AclOperation::Read, name)).then_some(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
}

fn committed(partition_index: i32, code: ErrorCode) -> offset_commit_response::OffsetCommitResponsePartition {
    offset_commit_response::OffsetCommitResponsePartition {
        partition_index,
        error_code: code,
    }
}

fn offset(offset: i64, leader_epoch: i32, metadata: Option<&Arc<str>>) -> api::OffsetAndMetadata {
    api::OffsetAndMetadata {
        offset,
        leader_epoch,
        metadata: metadata.cloned().unwrap_or_default(),
    }
}

pub(super) fn txn_offset_commit(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: TxnOffsetCommitRequest = call.message()?;
    let of_all = if !call.may_transaction(AclOperation::Write, &request.transactional_id) {
        Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    } else if !call.may_group(AclOperation::Read, &request.group_id) {
        Some(ErrorCode::GROUP_AUTHORIZATION_FAILED)
    } else {
        None
    };
    let mut denied = Vec::new();
    let mut denied_topics = HashSet::new();
    for topic in &request.topics {
        if let Some(code) = of_all.or_else(|| denied_topic(call, &topic.name)) {
            let refused = topic.partitions.iter().map(|p| {
                let tp = TopicPartition::new(Arc::clone(&topic.name), p.partition_index);
                (tp, code)
            });
            denied.extend(refused);
            denied_topics.insert(Arc::clone(&topic.name));
        }
    }
    let offsets = request
        .topics
        .iter()
        .filter(|topic| !denied_topics.contains(&topic.name))
        .flat_map(|topic| {
            topic.partitions.iter().map(|p| {
                let value = offset(
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.committed_metadata.as_ref(),
                );
                (TopicPartition::new(Arc::clone(&topic.name), p.partition_index), value)
            })
        });
    let offsets: Vec<_> = offsets.collect();
    let is_asked = !offsets.is_empty() || denied.is_empty();
    let request = api::TxnOffsetCommitRequest {
        offsets,
        transactional_id: request.transactional_id,
        group_id: request.group_id,
        producer_id: request.producer_id,
        producer_epoch: request.producer_epoch,
        generation_id: request.generation_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
    };
    let committed = match is_asked {
        true => response!(TxnOffsetCommit, call.ask_now(api::Request::TxnOffsetCommit(request))?)?.partitions,
        false => Vec::new(),
    };
    let answered = committed.into_iter().chain(denied).map(|(tp, code)| {
        let partition = txn_offset_commit_response::TxnOffsetCommitResponsePartition {
            partition_index: tp.partition,
            error_code: code,
        };
        (tp.topic, partition)
    });
    let topics = by_topic(answered)
        .map(|(name, partitions)| txn_offset_commit_response::TxnOffsetCommitResponseTopic { name, partitions });
    call.answer(&TxnOffsetCommitResponse {
        topics: topics.collect(),
        ..Default::default()
    })
}

/// The requested partitions of a topic, which is named by its name or its id.
struct AskedTopic {
    name: Arc<str>,
    topic_id: [u8; 16],
    partitions: Vec<i32>,
}

/// A requested group. `topics` is `None`: all partitions with an offset.
struct AskedGroup {
    group_id: Arc<str>,
    topics: Option<Vec<AskedTopic>>,
}

pub(super) fn offset_fetch(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: OffsetFetchRequest = call.message()?;
    let require_stable = request.require_stable;
    let is_batched = call.version() >= 8;
    let groups = asked_groups(call, request);
    let mut room = call.room();
    let groups = groups
        .into_iter()
        .map(|group| {
            let is_all = group.topics.is_none();
            let fetched = fetch(call, group, require_stable)?;
            let size = |p: &offset_fetch_response::OffsetFetchResponsePartitions| {
                size_of_val(p) + p.metadata.as_ref().map_or(0, |metadata| metadata.len())
            };
            let partitions = fetched.topics.iter().filter(|_| is_all).flat_map(|t| &t.partitions);
            room.take(partitions.map(size).sum())?;
            Ok(fetched)
        })
        .collect::<Result<Vec<_>, Unreadable>>()?;
    if is_batched {
        return call.answer(&OffsetFetchResponse {
            groups,
            ..Default::default()
        });
    }
    let only = groups.into_iter().next().ok_or(super::OTHER_KIND)?;
    call.answer(&OffsetFetchResponse {
        error_code: only.error_code,
        topics: only.topics.into_iter().map(of_version_below_8).collect(),
        ..Default::default()
    })
}

fn asked_groups(call: &Call<'_>, request: OffsetFetchRequest) -> Vec<AskedGroup> {
    if call.version() < 8 {
        let topics = request.topics.map(|topics| {
            let topics = topics.into_iter().map(|topic| AskedTopic {
                name: topic.name,
                topic_id: [0; 16],
                partitions: topic.partition_indexes,
            });
            topics.collect()
        });
        let group_id = request.group_id;
        return vec![AskedGroup { group_id, topics }];
    }
    let groups = request.groups.into_iter().map(|group| AskedGroup {
        group_id: group.group_id,
        topics: group.topics.map(|topics| {
            let topics = topics.into_iter().map(|topic| AskedTopic {
                name: if call.version() >= TOPIC_IDS {
                    name_of(call, topic.topic_id).unwrap_or_default()
                } else {
                    topic.name
                },
                topic_id: topic.topic_id,
                partitions: topic.partition_indexes,
            });
            topics.collect()
        }),
    });
    groups.collect()
}

/// Fetches the offsets of one group.
fn fetch(
    call: &Call<'_>,
    asked: AskedGroup,
    require_stable: bool,
) -> Result<offset_fetch_response::OffsetFetchResponseGroup, Unreadable> {
    let tps = asked.topics.as_ref().map(|topics| {
        let tps = topics.iter().flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.map(|p| TopicPartition::new(Arc::clone(&topic.name), *p))
        });
        tps.collect()
    });
    let request = api::OffsetFetchRequest {
        group_id: Arc::clone(&asked.group_id),
        partitions: tps,
        require_stable,
    };
    let mut answer = if call.may_group(AclOperation::Describe, &asked.group_id) {
        response!(OffsetFetch, call.ask_now(api::Request::OffsetFetch(request))?)?
    } else {
        api::OffsetFetchResponse {
            error: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            partitions: Vec::new(),
        }
    };
    if asked.topics.is_none() {
        answer
            .partitions
            .retain(|(tp, _)| call.may_topic(AclOperation::Describe, &tp.topic));
    }
    let topics = match asked.topics {
        // Before version 2 each partition carries the error of the group.
        Some(topics) if answer.error == ErrorCode::NONE || call.version() < 2 => in_asked_order(call, topics, &answer),
        Some(_) => Vec::new(),
        None => all_topics(call, answer.partitions)?,
    };
    Ok(offset_fetch_response::OffsetFetchResponseGroup {
        group_id: asked.group_id,
        topics,
        error_code: answer.error,
    })
}

fn in_asked_order(
    call: &Call<'_>,
    topics: Vec<AskedTopic>,
    answer: &api::OffsetFetchResponse,
) -> Vec<offset_fetch_response::OffsetFetchResponseTopics> {
    let mut answered = answer.partitions.iter();
    let topics = topics.into_iter().map(|topic| {
        let is_unknown = call.version() >= TOPIC_IDS && topic.name.is_empty();
        let is_denied = !is_unknown && !call.may_topic(AclOperation::Describe, &topic.name);
        let partitions = topic.partitions.into_iter().map(|p| match answered.next() {
            _ if is_unknown => fetched(p, Err(ErrorCode::UNKNOWN_TOPIC_ID)),
            Some(_) if is_denied => fetched(p, Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED)),
            Some((_, offset)) => fetched(p, offset.as_ref().map(Option::as_ref).map_err(|code| *code)),
            None => fetched(p, Err(answer.error)),
        });
        offset_fetch_response::OffsetFetchResponseTopics {
            partitions: partitions.collect(),
            name: topic.name,
            topic_id: topic.topic_id,
        }
    });
    topics.collect()
}

/// Every offset of a group, by topic. With ids, deleted topics are left out.
fn all_topics(
    call: &Call<'_>,
    partitions: Vec<(TopicPartition, Result<Option<api::OffsetAndMetadata>, ErrorCode>)>,
) -> Result<Vec<offset_fetch_response::OffsetFetchResponseTopics>, Unreadable> {
    let partitions = partitions.into_iter().map(|(tp, offset)| {
        let offset = offset.as_ref().map(Option::as_ref).map_err(|code| *code);
        (tp.topic, fetched(tp.partition, offset))
    });
    let mut topics = Vec::new();
    for (name, partitions) in by_topic(partitions) {
        let by_id = call.version() >= TOPIC_IDS;
        let topic_id = match by_id {
            true => call.broker().topic_id(&name).map_err(|_| CLOSED)?,
            false => Some([0; 16]),
        };
        let Some(topic_id) = topic_id else { continue };
        topics.push(offset_fetch_response::OffsetFetchResponseTopics {
            name,
            topic_id,
            partitions,
        });
    }
    Ok(topics)
}

fn fetched(
    partition_index: i32,
    offset: Result<Option<&api::OffsetAndMetadata>, ErrorCode>,
) -> offset_fetch_response::OffsetFetchResponsePartitions {
    let error = offset.err().unwrap_or(ErrorCode::NONE);
    let offset = offset.ok().flatten();
    offset_fetch_response::OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: offset.map_or(-1, |o| o.offset),
        committed_leader_epoch: offset.map_or(-1, |o| o.leader_epoch),
        metadata: Some(offset.map(|o| Arc::clone(&o.metadata)).unwrap_or_default()),
        error_code: error,
    }
}

fn of_version_below_8(
    topic: offset_fetch_response::OffsetFetchResponseTopics,
) -> offset_fetch_response::OffsetFetchResponseTopic {
    let partition =
        |p: offset_fetch_response::OffsetFetchResponsePartitions| offset_fetch_response::OffsetFetchResponsePartition {
            partition_index: p.partition_index,
            committed_offset: p.committed_offset,
            committed_leader_epoch: p.committed_leader_epoch,
            metadata: p.metadata,
            error_code: p.error_code,
        };
    offset_fetch_response::OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    }
}
