//! A share group of the crash points: what its members send, and what is persisted of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{ErrorCode, Request, Response, TopicId};
use fletchlog_broker::Broker;
use fletchlog_protocol::messages::share_fetch_request::{FetchPartition, FetchTopic};
use fletchlog_protocol::messages::share_group_describe_response::DescribedGroup;
use fletchlog_protocol::messages::{
    ReadShareGroupStateRequest, ReadShareGroupStateSummaryRequest, ShareAcknowledgeRequest, ShareFetchRequest,
    ShareGroupHeartbeatRequest, read_share_group_state_request, read_share_group_state_summary_request,
    share_acknowledge_request,
};
use fletchlog_records::{BatchBuilder, BatchParams, TopicPartition};

use crate::coordinator_disk::NOW_MS;
use crate::port_client::PortClient;

pub(crate) const GROUP: &str = "s";
pub(crate) const TOPIC: &str = "a";
pub(crate) const PARTITIONS: i32 = 2;
/// share.record.lock.duration.ms of [`crate::coordinator_disk`].
pub(crate) const LOCK_MS: i64 = 1_000;
/// share.delivery.count.limit
pub(crate) const MOST_DELIVERIES: i16 = 3;
/// The states of records that are not delivered again.
pub(crate) const DONE: [i8; 2] = [2, 4];

/// What is persisted of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Persisted {
    pub state_epoch: i32,
    pub start: i64,
    /// State and delivery count by offset, from the start on.
    pub records: BTreeMap<i64, (i8, i16)>,
}

/// What is persisted of the group.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Shared {
    pub group: Option<DescribedGroup>,
    pub partitions: BTreeMap<i32, Persisted>,
    /// Ends of the logs.
    pub ends: BTreeMap<i32, i64>,
}

impl Persisted {
    /// Whether a record is not delivered again.
    pub(crate) fn is_done(&self, offset: i64) -> bool {
        offset < self.start || self.records.get(&offset).is_some_and(|(state, _)| DONE.contains(state))
    }
}

pub(crate) fn partition(number: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, number)
}

pub(crate) fn partitions() -> std::ops::Range<i32> {
    0..PARTITIONS
}

/// A batch of so many records.
pub(crate) fn batch(count: usize) -> bytes::Bytes {
    let mut builder = BatchBuilder::with_capacity(128);
    (0..count).for_each(|_| builder.append(NOW_MS, None, Some(b"value"), &[]));
    builder.build(&BatchParams::default())
}

pub(crate) fn heartbeat(member: &str, epoch: i32) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        group_id: GROUP.into(),
        member_id: member.into(),
        member_epoch: epoch,
        subscribed_topic_names: (epoch == 0).then(|| vec![TOPIC.into()]),
        ..Default::default()
    }
}

/// Sends a heartbeat. Returns the member's epoch.
pub(crate) fn beat(client: &PortClient, member: &str, epoch: i32) -> Result<i32, ErrorCode> {
    match client.ask(Request::ShareGroupHeartbeat(heartbeat(member, epoch)))? {
        Response::ShareGroupHeartbeat(answer) if answer.error_code == ErrorCode::NONE => Ok(answer.member_epoch),
        Response::ShareGroupHeartbeat(answer) => Err(answer.error_code),
        _ => Err(ErrorCode::NETWORK_EXCEPTION),
    }
}

/// What a fetch has acquired: (first, last, deliveries) of a partition.
pub(crate) type Acquired = (i32, (i64, i64, i16));

/// Opens a session, and fetches all partitions at once.
pub(crate) fn fetch(
    client: &PortClient,
    topic_id: TopicId,
    member: &str,
    most: i32,
) -> Result<Vec<Acquired>, ErrorCode> {
    let request = ShareFetchRequest {
        group_id: Some(GROUP.into()),
        member_id: Some(member.into()),
        max_bytes: 1 << 20,
        max_records: most,
        batch_size: most,
        share_acquire_mode: 1,
        topics: vec![FetchTopic {
            topic_id,
            partitions: partitions()
                .map(|partition_index| FetchPartition {
                    partition_index,
                    ..Default::default()
                })
                .collect(),
        }],
        ..Default::default()
    };
    let Response::ShareFetch(response) = client.ask(Request::ShareFetch(request))? else {
        return Err(ErrorCode::NETWORK_EXCEPTION);
    };
    if response.error_code != ErrorCode::NONE {
        return Err(response.error_code);
    }
    let mut acquired = Vec::new();
    for data in response.responses.into_iter().flat_map(|topic| topic.partitions) {
        if data.error_code != ErrorCode::NONE {
            return Err(data.error_code);
        }
        let ranges = data.acquired_records.into_iter();
        acquired.extend(ranges.map(|r| (data.partition_index, (r.first_offset, r.last_offset, r.delivery_count))));
    }
    Ok(acquired)
}

/// Acknowledges a range, with a type for each offset, in the session's `epoch`.
pub(crate) fn acknowledge(
    client: &PortClient,
    topic_id: TopicId,
    (member, epoch): (&str, i32),
    at: (i32, i64, i64),
    types: Vec<i8>,
) -> Result<(), ErrorCode> {
    use share_acknowledge_request::{AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch};
    let batch = AcknowledgementBatch {
        first_offset: at.1,
        last_offset: at.2,
        acknowledge_types: types,
    };
    let request = ShareAcknowledgeRequest {
        group_id: Some(GROUP.into()),
        member_id: Some(member.into()),
        share_session_epoch: epoch,
        topics: vec![AcknowledgeTopic {
            topic_id,
            partitions: vec![AcknowledgePartition {
                partition_index: at.0,
                acknowledgement_batches: vec![batch],
            }],
        }],
        ..Default::default()
    };
    let Response::ShareAcknowledge(response) = client.ask(Request::ShareAcknowledge(request))? else {
        return Err(ErrorCode::NETWORK_EXCEPTION);
    };
    let of_partition = response.responses.iter().flat_map(|topic| &topic.partitions);
    let codes = std::iter::once(response.error_code).chain(of_partition.map(|data| data.error_code));
    match codes.into_iter().find(|code| *code != ErrorCode::NONE) {
        Some(code) => Err(code),
        None => Ok(()),
    }
}

/// What a broker has of the group.
pub(crate) fn described(broker: &Arc<Broker>) -> Result<Shared, String> {
    let mut shared = Shared::default();
    match broker.describe_share_group(GROUP) {
        Ok(mut group) => {
            group.members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
            shared.group = Some(group);
        }
        Err(error) if error.code() == ErrorCode::GROUP_ID_NOT_FOUND => {}
        Err(error) => return Err(error.to_string()),
    }
    let Ok(Some(topic_id)) = broker.topic_id(TOPIC) else {
        return Ok(shared);
    };
    for of in broker.describe_topic(TOPIC).map_err(|e| e.to_string())?.partitions {
        shared.ends.insert(of.partition, of.high_watermark);
        if let Some(persisted) = persisted(broker, topic_id, of.partition)? {
            shared.partitions.insert(of.partition, persisted);
        }
    }
    Ok(shared)
}

/// What the share coordinator has of a partition; `None`: nothing.
fn persisted(broker: &Broker, topic_id: TopicId, number: i32) -> Result<Option<Persisted>, String> {
    use read_share_group_state_request as read;
    use read_share_group_state_summary_request as summary;
    let asked = ReadShareGroupStateSummaryRequest {
        group_id: GROUP.into(),
        topics: vec![summary::ReadStateSummaryData {
            topic_id,
            partitions: vec![summary::PartitionData {
                partition: number,
                leader_epoch: -1,
            }],
        }],
    };
    let response = broker.read_state_summary(&asked).map_err(|e| e.to_string())?;
    let found = response.results.into_iter().flat_map(|topic| topic.partitions).next();
    let found = found.ok_or("a summary has no partition")?;
    if found.error_code != ErrorCode::NONE {
        return Err(format!("the summary of a state: {}", found.error_code));
    }
    // The epoch of the last leader writes nothing.
    let asked = ReadShareGroupStateRequest {
        group_id: GROUP.into(),
        topics: vec![read::ReadStateData {
            topic_id,
            partitions: vec![read::PartitionData {
                partition: number,
                leader_epoch: found.leader_epoch,
            }],
        }],
    };
    let response = broker.read_state(&asked).map_err(|e| e.to_string())?;
    let state = response.results.into_iter().flat_map(|topic| topic.partitions).next();
    let state = state.ok_or("a state has no partition")?;
    match state.error_code {
        ErrorCode::NONE => {}
        ErrorCode::INVALID_REQUEST => return Ok(None),
        code => return Err(format!("a state: {code}")),
    }
    let records = state.state_batches.iter().flat_map(|batch| {
        let state = (batch.delivery_state, batch.delivery_count);
        (batch.first_offset..=batch.last_offset).map(move |at| (at, state))
    });
    Ok(Some(Persisted {
        state_epoch: state.state_epoch,
        start: state.start_offset,
        records: records.filter(|(at, _)| *at >= state.start_offset).collect(),
    }))
}
