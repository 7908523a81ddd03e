//! Offsets of groups. Kafka: `KafkaApis#handleOffsetCommitRequest`, `#handleTxnOffsetCommitRequest`, `#handleOffsetFetchRequest`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::iter::repeat;
use std::sync::Arc;

use fletchlog_api as api;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::by_topic::grouped;
use fletchlog_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use fletchlog_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use fletchlog_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use fletchlog_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse, txn_offset_commit_response,
};
use fletchlog_records::ErrorCode;

use super::{CLOSED, Call, Handled, Unreadable, response};

/// The first version of TxnOffsetCommit that names topics by their ids.
const TXN_TOPIC_IDS: i16 = 6;

/// The first version of OffsetCommit and OffsetFetch that names topics by their ids.
const TOPIC_IDS: i16 = 10;

pub(super) fn offset_commit(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: OffsetCommitRequest = call.message()?;
    let topics = if call.version() >= TOPIC_IDS {
        commit_by_id(call, request)?
    } else {
        let is_known = |topic: &OffsetCommitResponseTopic| {
            let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            let has_known = topic.partitions.iter().any(|p| p.error_code != unknown);
            has_known || is_topic(call, &topic.name)
        };
        merged(commit(call, request)?, is_known)
    };
    call.answer(OffsetCommitResponse {
        topics,
        ..Default::default()
    })
}

/// Topics without partitions are left out, unless they are unknown. If a topic or a partition is unknown, unknown topics come first and
/// entries of one topic are merged; otherwise each entry is kept. Kafka: `OffsetCommitResponse.Builder`, into which the coordinator's
/// response is merged.
fn merged(
    topics: Vec<OffsetCommitResponseTopic>,
    is_known: impl Fn(&OffsetCommitResponseTopic) -> bool,
) -> Vec<OffsetCommitResponseTopic> {
    let (known, unknown): (Vec<_>, Vec<_>) = topics.into_iter().partition(is_known);
    let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let is_unknown = |p: &OffsetCommitResponsePartition| p.error_code == code;
    let any_unknown = !unknown.is_empty() || known.iter().flat_map(|topic| &topic.partitions).any(is_unknown);
    let known = known.into_iter().filter(|topic| !topic.partitions.is_empty());
    if !any_unknown {
        return known.collect();
    }
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    let mut merged: Vec<OffsetCommitResponseTopic> = Vec::new();
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

/// As [`commit`], for topics that are named by their ids. An unknown one is UNKNOWN_TOPIC_ID for each of its partitions.
fn commit_by_id(
    call: &Call<'_>,
    mut request: OffsetCommitRequest,
) -> Result<Vec<OffsetCommitResponseTopic>, Unreadable> {
    let mut topics = Vec::new();
    for mut topic in std::mem::take(&mut request.topics) {
        if let Some(name) = name_of(call, topic.topic_id) {
            topic.name = name;
            request.topics.push(topic);
        } else {
            topics.push(topic.answered(repeat(ErrorCode::UNKNOWN_TOPIC_ID)));
        }
    }
    let committed = commit(call, request)?.into_iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic.partitions.into_iter().map(move |partition| (id, partition))
    });
    topics.extend(
        grouped(committed)
            .into_iter()
            .map(|(topic_id, partitions)| OffsetCommitResponseTopic {
                topic_id,
                partitions,
                ..Default::default()
            }),
    );
    Ok(topics)
}

fn name_of(call: &Call<'_>, id: [u8; 16]) -> Option<Arc<str>> {
    call.apis.broker().topic_name(id).ok().flatten()
}

/// Commits what the client may commit. Returns the results nested as the request.
fn commit(call: &Call<'_>, mut request: OffsetCommitRequest) -> Result<Vec<OffsetCommitResponseTopic>, Unreadable> {
    let of_group =
        (!call.may_group(AclOperation::Read, &request.group_id)).then_some(ErrorCode::GROUP_AUTHORIZATION_FAILED);
    // In the order of the request: the entries of the topics that the broker is not asked for.
    let mut refused = Vec::new();
    for topic in std::mem::take(&mut request.topics) {
        let denied = of_group.or_else(|| denied_topic(call, &topic.name));
        refused.push(denied.map(|code| topic.answered(repeat(code))));
        if denied.is_none() {
            request.topics.push(topic);
        }
    }
    let is_asked = !request.topics.is_empty() || refused.is_empty();
    let committed = match is_asked {
        true => response!(OffsetCommit, call.ask_now(api::Request::OffsetCommit(request))?)?.topics,
        false => Vec::new(),
    };
    let mut committed = committed.into_iter();
    let topics = refused.into_iter();
    Ok(topics
        .filter_map(|refused| refused.or_else(|| committed.next()))
        .collect())
}

/// TOPIC_AUTHORIZATION_FAILED, if the client may not read the topic.
fn denied_topic(call: &Call<'_>, name: &str) -> Option<ErrorCode> {
    (!call.may_topic(AclOperation::Read, name)).then_some(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
}

pub(super) fn txn_offset_commit(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let mut request: TxnOffsetCommitRequest = call.message()?;
    let of_all = if !call.may_transaction(AclOperation::Write, &request.transactional_id) {
        Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    } else if !call.may_group(AclOperation::Read, &request.group_id) {
        Some(ErrorCode::GROUP_AUTHORIZATION_FAILED)
    } else {
        None
    };
    let by_id = call.version() >= TXN_TOPIC_IDS;
    let mut denied = Vec::new();
    for mut topic in std::mem::take(&mut request.topics) {
        let mut refused = of_all;
        if by_id {
            match name_of(call, topic.topic_id) {
                Some(name) => topic.name = name,
                None => refused = refused.or(Some(ErrorCode::UNKNOWN_TOPIC_ID)),
            }
        }
        match refused.or_else(|| denied_topic(call, &topic.name)) {
            Some(code) => denied.push(topic.answered(repeat(code))),
            None => request.topics.push(topic),
        }
    }
    let is_asked = !request.topics.is_empty() || denied.is_empty();
    let committed = match is_asked {
        true => response!(TxnOffsetCommit, call.ask_now(api::Request::TxnOffsetCommit(request))?)?.topics,
        false => Vec::new(),
    };
    let answered = committed.into_iter().chain(denied).flat_map(|topic| {
        let named = (topic.name, topic.topic_id);
        let partitions = topic.partitions.into_iter();
        partitions.map(move |partition| (named.clone(), partition))
    });
    let topics = grouped(answered).into_iter().map(|((name, topic_id), partitions)| {
        txn_offset_commit_response::TxnOffsetCommitResponseTopic {
            name,
            topic_id,
            partitions,
        }
    });
    call.answer(TxnOffsetCommitResponse {
        topics: topics.collect(),
        ..Default::default()
    })
}

pub(super) fn offset_fetch(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: OffsetFetchRequest = call.message()?;
    let require_stable = request.require_stable;
    let mut room = call.room();
    // One by one: a group can be named many times.
    let groups = request
        .groups
        .into_iter()
        .map(|group| {
            let is_all = group.topics.is_none();
            let fetched = fetch(call, group, require_stable)?;
            let size = |p: &OffsetFetchResponsePartitions| {
                size_of_val(p) + p.metadata.as_ref().map_or(0, |metadata| metadata.len())
            };
            let partitions = fetched.topics.iter().filter(|_| is_all).flat_map(|t| &t.partitions);
            room.take(partitions.map(size).sum())?;
            Ok(fetched)
        })
        .collect::<Result<Vec<_>, Unreadable>>()?;
    let answer = OffsetFetchResponse {
        groups,
        ..Default::default()
    };
    call.answer(answer)
}

/// Fetches the offsets of one group.
fn fetch(
    call: &Call<'_>,
    mut group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> Result<OffsetFetchResponseGroup, Unreadable> {
    if call.version() >= TOPIC_IDS {
        for topic in group.topics.iter_mut().flatten() {
            topic.name = name_of(call, topic.topic_id).unwrap_or_default();
        }
    }
    let is_all = group.topics.is_none();
    // Before version 2 each partition carries the error of the group.
    let asked = (call.version() < 2).then(|| group.topics.clone()).flatten();
    let mut fetched = match call.may_group(AclOperation::Describe, &group.group_id) {
        true => fetch_of_broker(call, group, require_stable)?,
        false => OffsetFetchResponseGroup {
            group_id: group.group_id,
            error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED,
            ..Default::default()
        },
    };
    if fetched.error_code != ErrorCode::NONE {
        let refused = asked.iter().flatten();
        fetched.topics = refused
            .map(|topic| topic.answered(|_| Err(fetched.error_code)))
            .collect();
    } else if is_all {
        keep_visible(call, &mut fetched.topics)?;
    } else {
        refuse_invisible(call, &mut fetched.topics);
    }
    Ok(fetched)
}

fn fetch_of_broker(
    call: &Call<'_>,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> Result<OffsetFetchResponseGroup, Unreadable> {
    let request = OffsetFetchRequest {
        groups: vec![group],
        require_stable,
        ..Default::default()
    };
    let answer = response!(OffsetFetch, call.ask_now(api::Request::OffsetFetch(request))?)?;
    answer.groups.into_iter().next().ok_or(super::OTHER_KIND)
}

/// Leaves out the topics that the client may not see; with ids also those that were deleted.
fn keep_visible(call: &Call<'_>, topics: &mut Vec<OffsetFetchResponseTopics>) -> Result<(), Unreadable> {
    topics.retain(|topic| call.may_topic(AclOperation::Describe, &topic.name));
    if call.version() >= TOPIC_IDS {
        let mut known = Vec::new();
        for topic in std::mem::take(topics) {
            if let Some(topic_id) = call.broker().topic_id(&topic.name).map_err(|_| CLOSED)? {
                known.push(OffsetFetchResponseTopics { topic_id, ..topic });
            }
        }
        *topics = known;
    }
    Ok(())
}

/// Replaces the offsets of topics that are unknown, or that the client may not see.
fn refuse_invisible(call: &Call<'_>, topics: &mut [OffsetFetchResponseTopics]) {
    for topic in topics {
        let is_unknown = call.version() >= TOPIC_IDS && topic.name.is_empty();
        let error = if is_unknown {
            ErrorCode::UNKNOWN_TOPIC_ID
        } else if call.may_topic(AclOperation::Describe, &topic.name) {
            continue;
        } else {
            ErrorCode::TOPIC_AUTHORIZATION_FAILED
        };
        for p in &mut topic.partitions {
            *p = OffsetFetchResponsePartitions::of(p.partition_index, Err(error));
        }
    }
}
