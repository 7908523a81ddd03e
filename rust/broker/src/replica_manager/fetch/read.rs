//! The reading loop (spec 6.2-6.4). Kafka: `ReplicaManager#readFromLog`, `Partition#fetchRecords`.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, IsolationLevel, NodeId};
use fletchlog_log::{FetchBound, FetchDataInfo, LogBounds, PartitionLog};
use fletchlog_protocol::messages::fetch_request::FetchPartition;
use fletchlog_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData,
};
use fletchlog_records::{TopicPartition, next_batch_size};

use super::FetchParams;
use crate::error::ReadRefusal;
use crate::partition::Partition;
use crate::replica_manager::ReplicaManager;

/// A partition and its response.
pub(crate) type PartitionResponse = (TopicPartition, PartitionData);

/// The result of one pass over the partitions.
#[derive(Debug)]
pub(crate) struct ReadResult {
    /// Readable partitions in order, then those that do not exist (spec 6.1).
    pub(crate) responses: Vec<PartitionResponse>,
    /// Total number of bytes.
    pub(crate) bytes: i64,
    /// Whether any partition that exists has an error.
    pub(crate) has_error: bool,
    /// Whether the client has records of any partition that its log does not have.
    pub(crate) diverges: bool,
    /// Whether the client is sent to a follower for any partition.
    pub(crate) is_elsewhere: bool,
    /// Where each readable partition was read, to find out later how much has been added.
    pub(crate) positions: Vec<Position>,
}

/// What a fetch asks for of a partition, and where it was last read: which segment, how far into it.
#[derive(Debug, Clone)]
pub(crate) struct Position {
    pub(crate) tp: TopicPartition,
    pub(crate) request: FetchPartition,
    pub(crate) segment_base_offset: i64,
    pub(crate) position: u64,
    /// There was nothing to read, and there will be nothing until the log changes.
    pub(crate) at_end: bool,
}

impl Position {
    /// Of a partition that has not been read.
    pub(super) fn unread(topic: &Arc<str>, request: &FetchPartition) -> Self {
        Self {
            tp: TopicPartition::new(Arc::clone(topic), request.partition),
            request: request.clone(),
            segment_base_offset: -1,
            position: 0,
            at_end: false,
        }
    }
}

/// Reads the partitions in order under the limits.
pub(crate) fn read_partitions<'a>(
    replicas: &ReplicaManager,
    params: &FetchParams,
    partitions: impl IntoIterator<Item = &'a Position>,
) -> ReadResult {
    let partitions = partitions.into_iter();
    let mut result = ReadResult {
        responses: Vec::with_capacity(partitions.size_hint().1.unwrap_or(0)),
        bytes: 0,
        has_error: false,
        diverges: false,
        is_elsewhere: false,
        positions: Vec::new(),
    };
    let mut unknown: Vec<(&TopicPartition, ErrorCode)> = Vec::new();
    let mut limit = params.max_bytes;
    let mut min_one = true;
    for Position { tp, request, .. } in partitions {
        match read_one(replicas, params, (tp, request), limit, min_one) {
            Ok((response, position)) => {
                let size = response.size();
                min_one &= size == 0;
                result.diverges |= response.diverging_epoch().is_some();
                result.is_elsewhere |= response.preferred_read_replica().is_some();
                let size = i64::try_from(size).unwrap_or(i64::MAX);
                limit = limit.saturating_sub(size).max(0);
                result.bytes = result.bytes.saturating_add(size);
                result.responses.push((tp.clone(), response));
                result.positions.push(position);
            }
            Err(refusal) => {
                if is_unknown_error(refusal.code) {
                    unknown.push((tp, refusal.code))
                } else {
                    result.has_error = true;
                    limit = limit.max(0);
                    let response = PartitionData {
                        current_leader: current_leader(replicas, params, tp, refusal.code),
                        ..failed(tp, refusal)
                    };
                    result.responses.push((tp.clone(), response));
                }
            }
        }
    }
    // Kafka: `FetchResponse#partitionResponse`
    result.responses.extend(unknown.into_iter().map(|(tp, code)| {
        let response = PartitionData {
            aborted_transactions: Some(Vec::new()),
            ..failed(tp, code.into())
        };
        (tp.clone(), response)
    }));
    result
}

/// Whether there is no such partition, or no topic with this id.
pub(super) fn is_unknown_error(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID
    )
}

fn read_one(
    replicas: &ReplicaManager,
    params: &FetchParams,
    (tp, request): (&TopicPartition, &FetchPartition),
    limit: i64,
    min_one: bool,
) -> Result<(PartitionData, Position), ReadRefusal> {
    let partition = replicas.fetched_partition(tp, params.by_topic_ids)?;
    let log = replicas.log_as_replica(&partition, params.node)?;
    check_replica(replicas, params, &partition, request)?;
    // The bounds from before the read: what is added after this belongs to the next fetch.
    let end = partition.end_of(params.node);
    let bounds = bounds_until(log.bounds()?, end);
    if let Some(rack) = &params.rack
        && let Some(follower) = preferred_read_replica(replicas, params.node, &partition, rack, request, &bounds)
    {
        return Ok(sent_to(follower, tp, request, &bounds));
    }
    let bound = fetch_bound(params.isolation);
    let diverging_epoch = diverging_epoch(log, request, &bounds)?;
    if diverging_epoch.is_none() && request.fetch_offset > bounds.log_end_offset {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE.into());
    }
    let at_end = diverging_epoch.is_none() && bounds.is_at_end(request.fetch_offset, bound);
    let data = if at_end || diverging_epoch.is_some() {
        None
    } else {
        // Kafka's read fails on a negative limit, but checks the offset first. Only the first partition can meet the request's limit.
        let max_bytes = i64::from(request.partition_max_bytes).min(limit);
        let read = log.read(
            request.fetch_offset,
            usize::try_from(max_bytes).unwrap_or(0),
            min_one,
            bound,
        )?;
        if max_bytes < 0 {
            return Err(ErrorCode::INVALID_REQUEST.into());
        }
        Some(read_until(read, end))
    };
    let (segment_base_offset, position) = place_of(log, request, &bounds, data.as_ref())?;
    let (records, aborted) = data.map_or_else(Default::default, |d| (d.records, d.aborted_transactions));
    let aborted_transactions = match params.isolation {
        IsolationLevel::ReadCommitted if diverging_epoch.is_none() => Some(aborted_transactions(aborted)),
        _ => None,
    };
    let diverging_epoch = diverging_epoch.map(|(epoch, end_offset)| EpochEndOffset { epoch, end_offset });
    let response = PartitionData {
        partition_index: tp.partition,
        high_watermark: bounds.high_watermark,
        last_stable_offset: bounds.last_stable_offset,
        log_start_offset: bounds.log_start_offset,
        diverging_epoch: diverging_epoch.unwrap_or_default(),
        aborted_transactions,
        records: Some(records),
        ..Default::default()
    };
    Ok((
        response,
        Position {
            tp: tp.clone(),
            request: request.clone(),
            segment_base_offset,
            position,
            at_end,
        },
    ))
}

/// The follower that a client in this rack is sent to: one in sync in that rack, unless the leader is there. Kafka:
/// `ReplicaManager#findPreferredReadReplica`, `RackAwareReplicaSelector#select`.
fn preferred_read_replica(
    replicas: &ReplicaManager,
    node: NodeId,
    partition: &Partition,
    rack: &Arc<str>,
    request: &FetchPartition,
    bounds: &LogBounds,
) -> Option<NodeId> {
    let is_in_rack = |node: &NodeId| replicas.controller.rack_of(*node) == Some(rack);
    let is_leader = partition.leader() == node;
    let has_offset = (bounds.log_start_offset..=bounds.log_end_offset).contains(&request.fetch_offset);
    if !is_leader || !has_offset || is_in_rack(&node) {
        return None;
    }
    let (_, isr) = partition.replicas_and_isr();
    isr.into_iter().filter(is_in_rack).max()
}

/// The response that sends a client to a follower. It has no records.
fn sent_to(
    follower: NodeId,
    tp: &TopicPartition,
    request: &FetchPartition,
    bounds: &LogBounds,
) -> (PartitionData, Position) {
    let response = PartitionData {
        partition_index: tp.partition,
        high_watermark: bounds.high_watermark,
        last_stable_offset: bounds.last_stable_offset,
        log_start_offset: bounds.log_start_offset,
        preferred_read_replica: follower,
        records: Some(Bytes::new()),
        ..Default::default()
    };
    (response, Position::unread(&tp.topic, request))
}

/// The bounds of a replica that is not in sync and ends there.
fn bounds_until(bounds: LogBounds, end: Option<i64>) -> LogBounds {
    let Some(end) = end else { return bounds };
    LogBounds {
        log_end_offset: bounds.log_end_offset.min(end),
        high_watermark: bounds.high_watermark.min(end),
        last_stable_offset: bounds.last_stable_offset.min(end),
        ..bounds
    }
}

/// Leaves out the batches beyond the end of a replica that is not in sync.
fn read_until(mut read: FetchDataInfo, end: Option<i64>) -> FetchDataInfo {
    let Some(end) = end else { return read };
    let mut kept = 0;
    while let Some(batch) = read.records.get(kept..)
        && let Ok(Some(size)) = next_batch_size(batch)
        && batch
            .first_chunk()
            .is_some_and(|offset| i64::from_be_bytes(*offset) < end)
    {
        kept += size;
    }
    read.records.truncate(kept);
    read
}

/// Segment and position of the fetch offset.
fn place_of(
    log: &PartitionLog,
    request: &FetchPartition,
    bounds: &LogBounds,
    data: Option<&FetchDataInfo>,
) -> Result<(i64, u64), ReadRefusal> {
    Ok(match data {
        Some(data) if !data.records.is_empty() || request.fetch_offset < bounds.high_watermark => {
            (data.segment_base_offset, data.position)
        }
        // The next record may not be read yet: its transaction is open, or it is not on disk.
        _ if request.fetch_offset < bounds.log_end_offset => {
            let at = log.read(request.fetch_offset, 0, false, FetchBound::LogEnd)?;
            (at.segment_base_offset, at.position)
        }
        _ => (bounds.active_base_offset, bounds.active_size),
    })
}

fn aborted_transactions(read: Option<Vec<(i64, i64)>>) -> Vec<AbortedTransaction> {
    let of = |(producer_id, first_offset)| AbortedTransaction {
        producer_id,
        first_offset,
    };
    read.unwrap_or_default().into_iter().map(of).collect()
}

/// What a waiting fetch learns about one partition (spec 6.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Complete now: the partition was removed, fenced, truncated or created again, or its position is in an older segment.
    Answer,
    /// The number of bytes that could be sent.
    Bytes(i64),
}

/// Kafka: `DelayedFetch#tryComplete`, one partition.
pub(crate) fn progress(replicas: &ReplicaManager, params: &FetchParams, at: &Position) -> Progress {
    let request = &at.request;
    let Ok(partition) = replicas.fetched_partition(&at.tp, params.by_topic_ids) else {
        return Progress::Answer;
    };
    let Ok(log) = replicas.log_of(&partition) else {
        return Progress::Answer;
    };
    let Ok(bounds) = log.bounds() else {
        return Progress::Answer;
    };
    let bounds = bounds_until(bounds, partition.end_of(params.node));
    let bound = bounds.of(fetch_bound(params.isolation));
    if request.fetch_offset > bounds.log_end_offset
        || request.fetch_offset < bounds.log_start_offset
        || check_replica(replicas, params, &partition, request).is_err()
        || !matches!(diverging_epoch(log, request, &bounds), Ok(None))
    {
        return Progress::Answer;
    }
    if bound <= request.fetch_offset {
        return Progress::Bytes(0);
    }
    if at.segment_base_offset != bounds.active_base_offset {
        return Progress::Answer;
    }
    let partition_max = i64::from(request.partition_max_bytes.max(0));
    let readable = if bound == bounds.log_end_offset {
        match bounds.active_size.checked_sub(at.position) {
            Some(bytes @ 1..) => i64::try_from(bytes).unwrap_or(i64::MAX),
            // Another log than the one that was read: the topic was deleted and created again meanwhile.
            _ => return Progress::Answer,
        }
    } else {
        // The bound is inside the segment: only reading shows how many bytes are before it.
        let max = usize::try_from(partition_max).unwrap_or(usize::MAX);
        match log.read(request.fetch_offset, max, true, fetch_bound(params.isolation)) {
            Ok(data) => i64::try_from(data.records.len()).unwrap_or(i64::MAX),
            Err(_) => return Progress::Answer,
        }
    };
    Progress::Bytes(readable.min(partition_max))
}

/// Where the log and the client's copy of it begin to differ; the last records that the client fetched have `last_fetched_epoch`
/// (spec 6.4.6). Kafka: `Partition#readRecords`.
fn diverging_epoch(
    log: &PartitionLog,
    request: &FetchPartition,
    bounds: &LogBounds,
) -> Result<Option<(i32, i64)>, ErrorCode> {
    if request.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let (epoch, end_offset) = log.end_offset_for_epoch(request.last_fetched_epoch);
    if epoch < 0 || end_offset < 0 || request.fetch_offset < bounds.log_start_offset {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    let end_offset = end_offset.min(bounds.log_end_offset);
    let diverges = epoch < request.last_fetched_epoch || end_offset < request.fetch_offset;
    Ok(diverges.then_some((epoch, end_offset)))
}

fn failed(tp: &TopicPartition, refusal: ReadRefusal) -> PartitionData {
    PartitionData {
        error_message: refusal.message.map(Into::into),
        ..PartitionData::failed(tp.partition, refusal.code)
    }
}

/// Whether the node may answer the fetch of a partition. In a fetch any negative epoch says that the client does not know it
/// (`FetchRequest#optionalEpoch`).
fn check_replica(
    replicas: &ReplicaManager,
    params: &FetchParams,
    partition: &Partition,
    request: &FetchPartition,
) -> Result<(), ReadRefusal> {
    let known_epoch = request.current_leader_epoch.max(-1);
    partition.check_replica(replicas.logs.directory(), params.node, known_epoch, params.leader_only)?;
    Ok(())
}

/// The leader that a client should ask instead, for the errors that say so (KIP-951). Kafka: `KafkaApis#processFetchResponse`.
fn current_leader(
    replicas: &ReplicaManager,
    params: &FetchParams,
    tp: &TopicPartition,
    error: ErrorCode,
) -> LeaderIdAndEpoch {
    let is_moved = matches!(
        error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH
    );
    let partition = is_moved.then(|| replicas.fetched_partition(tp, params.by_topic_ids).ok());
    let Some(partition) = partition.flatten() else {
        return LeaderIdAndEpoch::default();
    };
    LeaderIdAndEpoch {
        leader_id: partition.leader(),
        leader_epoch: replicas.leader_epoch_of(&partition).unwrap_or(-1),
    }
}

/// How far a client with this isolation level may read.
pub(crate) fn fetch_bound(isolation: IsolationLevel) -> FetchBound {
    match isolation {
        IsolationLevel::ReadCommitted => FetchBound::LastStableOffset,
        // The listener refuses other levels.
        IsolationLevel::ReadUncommitted | IsolationLevel::Other(_) => FetchBound::HighWatermark,
    }
}
