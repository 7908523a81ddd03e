//! ElectLeaders, AlterReplicaLogDirs and the reassignment of partitions. Replicas share one copy of the bytes, so a reassignment is complete
//! at once, and a replica has one directory. Kafka: `ReplicationControlManager`, `ReplicaManager`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fletchlog_api::NodeId;
use fletchlog_broker::{AclOperation, BrokerError, ElectionType};
use fletchlog_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse, ElectLeadersRequest, ElectLeadersResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, alter_partition_reassignments_request, alter_partition_reassignments_response,
    alter_replica_log_dirs_response, elect_leaders_request, elect_leaders_response,
};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::authorization::cluster_refused;
use super::{CLOSED, Call, Handled, Unreadable, by_topic};

/// The replicas of a partition; `None`: the topic or the partition is unknown.
fn replicas(call: &Call<'_>, topic: &Arc<str>, partition: i32) -> Result<Option<Vec<NodeId>>, Unreadable> {
    let tp = TopicPartition::new(Arc::clone(topic), partition);
    call.broker().replicas_of(&tp).map_err(|_| CLOSED)
}

pub(super) fn elect_leaders(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ElectLeadersRequest = call.message()?;
    if let Err(error) = call.check_cluster(AclOperation::Alter) {
        let topics = request.topic_partitions.unwrap_or_default().into_iter();
        let of_topic = |topic: elect_leaders_request::TopicPartitions| elect_leaders_response::ReplicaElectionResult {
            topic: topic.topic,
            partition_result: topic
                .partitions
                .into_iter()
                .map(|partition| elected(partition, error, cluster_refused()))
                .collect(),
        };
        return elections(call, error, topics.map(of_topic).collect());
    }
    if request.topic_partitions.as_ref().is_some_and(Vec::is_empty) {
        // Kafka does not check the authorizer in this case.
        return call.answer(ElectLeadersResponse::default());
    }
    let how = match request.election_type {
        0 => Some(ElectionType::Preferred),
        1 => Some(ElectionType::Unclean),
        _ => None,
    };
    let Some(how) = how else {
        let text: Arc<str> = format!("Unknown election type {}", request.election_type).into();
        let error = ErrorCode::INVALID_REQUEST;
        let refused = |topic: elect_leaders_request::TopicPartitions| elect_leaders_response::ReplicaElectionResult {
            topic: topic.topic,
            partition_result: topic
                .partitions
                .into_iter()
                .map(|partition| elected(partition, error, Some(Arc::clone(&text))))
                .collect(),
        };
        let topics = request.topic_partitions.unwrap_or_default().into_iter();
        let results = topics.map(refused).collect();
        return elections(call, error, results);
    };
    let results = match request.topic_partitions {
        Some(topics) => elect_named(call, how, topics)?,
        None => elect_all(call, how)?,
    };
    elections(call, ErrorCode::NONE, results)
}

type Results = Vec<elect_leaders_response::ReplicaElectionResult>;

/// Elects leaders of the partitions that a request names; the response has its order.
fn elect_named(
    call: &Call<'_>,
    how: ElectionType,
    topics: Vec<elect_leaders_request::TopicPartitions>,
) -> Result<Results, Unreadable> {
    let of_topic = |t: &elect_leaders_request::TopicPartitions| {
        let topic = Arc::clone(&t.topic);
        let partitions = t.partitions.clone().into_iter();
        partitions.map(move |partition| TopicPartition::new(Arc::clone(&topic), partition))
    };
    let wanted: Vec<TopicPartition> = topics.iter().flat_map(of_topic).collect();
    let elections = call.broker().elect_leaders(how, Some(&wanted)).map_err(|_| CLOSED)?;
    let mut results = elections.into_iter().map(result_of);
    let topic = |t: elect_leaders_request::TopicPartitions| elect_leaders_response::ReplicaElectionResult {
        partition_result: results.by_ref().take(t.partitions.len()).collect(),
        topic: t.topic,
    };
    Ok(topics.into_iter().map(topic).collect())
}

/// Elects leaders of all partitions: those that need no election are left out of the response, their topics are not.
fn elect_all(call: &Call<'_>, how: ElectionType) -> Result<Results, Unreadable> {
    let mut by_topic: BTreeMap<Arc<str>, Vec<elect_leaders_response::PartitionResult>> = BTreeMap::new();
    for topic in call.broker().topics(true).map_err(|_| CLOSED)? {
        by_topic.insert(topic, Vec::new());
    }
    for election in call.broker().elect_leaders(how, None).map_err(|_| CLOSED)? {
        let topic = Arc::clone(&election.0.topic);
        by_topic.entry(topic).or_default().push(result_of(election));
    }
    let topic = |(topic, partition_result)| elect_leaders_response::ReplicaElectionResult {
        topic,
        partition_result,
    };
    Ok(by_topic.into_iter().map(topic).collect())
}

fn result_of((tp, result): (TopicPartition, Result<(), BrokerError>)) -> elect_leaders_response::PartitionResult {
    match result {
        Ok(()) => elected(tp.partition, ErrorCode::NONE, None),
        Err(error) => elected(tp.partition, error.code(), Some(error.kafka_message().into())),
    }
}

fn elected(partition_id: i32, error: ErrorCode, text: Option<Arc<str>>) -> elect_leaders_response::PartitionResult {
    elect_leaders_response::PartitionResult {
        partition_id,
        error_code: error,
        error_message: text,
    }
}

/// The response to ElectLeaders. Version 0 has no field for the error of the whole request.
fn elections(
    call: &mut Call<'_>,
    error: ErrorCode,
    replica_election_results: Vec<elect_leaders_response::ReplicaElectionResult>,
) -> Result<Handled, Unreadable> {
    call.answer(ElectLeadersResponse {
        error_code: if call.version() >= 1 { error } else { ErrorCode::NONE },
        replica_election_results,
        ..Default::default()
    })
}

pub(super) fn alter_partition_reassignments(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: AlterPartitionReassignmentsRequest = call.message()?;
    if let Err(error) = call.check_cluster(AclOperation::Alter) {
        return call.answer(AlterPartitionReassignmentsResponse {
            error_code: error,
            error_message: cluster_refused(),
            responses: request
                .topics
                .into_iter()
                .map(|topic| refused_topic(topic, error))
                .collect(),
            ..Default::default()
        });
    }
    let of_topic = |t: &alter_partition_reassignments_request::ReassignableTopic| {
        let topic = Arc::clone(&t.name);
        let partitions = t.partitions.clone().into_iter();
        partitions.map(move |p| (TopicPartition::new(Arc::clone(&topic), p.partition_index), p.replicas))
    };
    let wanted: Vec<_> = request.topics.iter().flat_map(of_topic).collect();
    let may_change_factor = request.allow_replication_factor_change;
    let results = call.broker().reassign_partitions(&wanted, may_change_factor);
    let mut results = results.map_err(|_| CLOSED)?.into_iter();
    let mut partition = |p: alter_partition_reassignments_request::ReassignablePartition| {
        let (error_code, error_message) = match results.next() {
            None | Some(Ok(())) => (ErrorCode::NONE, None),
            Some(Err(error)) if error.code() == ErrorCode::NO_REASSIGNMENT_IN_PROGRESS => (error.code(), None),
            Some(Err(error)) => (error.code(), Some(error.kafka_message().into())),
        };
        alter_partition_reassignments_response::ReassignablePartitionResponse {
            partition_index: p.partition_index,
            error_code,
            error_message,
        }
    };
    let mut responses = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        responses.push(alter_partition_reassignments_response::ReassignableTopicResponse {
            name: topic.name,
            partitions: topic.partitions.into_iter().map(&mut partition).collect(),
        });
    }
    call.answer(AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: responses.is_empty() || request.allow_replication_factor_change,
        error_message: responses.is_empty().then(|| "".into()),
        responses,
        ..Default::default()
    })
}

fn refused_topic(
    topic: alter_partition_reassignments_request::ReassignableTopic,
    error: ErrorCode,
) -> alter_partition_reassignments_response::ReassignableTopicResponse {
    let refused = |p: alter_partition_reassignments_request::ReassignablePartition| {
        alter_partition_reassignments_response::ReassignablePartitionResponse {
            partition_index: p.partition_index,
            error_code: error,
            error_message: cluster_refused(),
        }
    };
    alter_partition_reassignments_response::ReassignableTopicResponse {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(refused).collect(),
    }
}

pub(super) fn list_partition_reassignments(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let _: ListPartitionReassignmentsRequest = call.message()?;
    if let Err(error) = call.check_cluster(AclOperation::Describe) {
        return call.answer(ListPartitionReassignmentsResponse {
            error_code: error,
            error_message: cluster_refused(),
            ..Default::default()
        });
    }
    call.answer(ListPartitionReassignmentsResponse {
        error_message: None,
        ..Default::default()
    })
}

/// Longest file name.
const FILE_NAME: usize = 255;

/// Length of the name of a partition's directory while it moves: `TOPIC-PARTITION.ID-future`, with an id of 32 letters.
fn future_dir_name(topic: &str, partition: i32) -> usize {
    format!("{topic}-{partition}.").len() + 32 + "-future".len()
}

/// A replica may be "moved" only to its current directory. Kafka: `ReplicaManager#alterReplicaLogDirs`.
pub(super) fn alter_replica_log_dirs(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: AlterReplicaLogDirsRequest = call.message()?;
    let allowed = call.check_cluster(AclOperation::Alter);
    let node = call.peer.port.node();
    let dirs = call.broker().describe_log_dirs().map_err(|_| CLOSED)?;
    let of_node = dirs.iter().filter(|dir| dir.node == node);
    let paths: HashSet<_> = of_node.map(|dir| dir.path.to_string_lossy()).collect();
    // For a partition that is named twice, the last directory counts.
    let mut wanted: BTreeMap<(Arc<str>, i32), bool> = BTreeMap::new();
    for dir in request.dirs {
        let is_known = paths.contains(&*dir.path);
        for topic in dir.topics {
            let partitions = topic.partitions.into_iter();
            wanted.extend(partitions.map(|partition| ((Arc::clone(&topic.name), partition), is_known)));
        }
    }
    let mut results = Vec::new();
    for (topic, partitions) in by_topic(wanted.into_iter().map(|((topic, p), is_known)| (topic, (p, is_known)))) {
        let moved = |(partition_index, is_dir_known): (i32, bool)| {
            let error = match allowed {
                Err(error) => error,
                Ok(()) if future_dir_name(&topic, partition_index) > FILE_NAME => ErrorCode::INVALID_TOPIC_EXCEPTION,
                Ok(()) if !is_dir_known => ErrorCode::LOG_DIR_NOT_FOUND,
                Ok(()) => match replicas(call, &topic, partition_index)? {
                    None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    Some(nodes) if !nodes.contains(&node) => ErrorCode::REPLICA_NOT_AVAILABLE,
                    Some(_) => ErrorCode::NONE,
                },
            };
            Ok(alter_replica_log_dirs_response::AlterReplicaLogDirPartitionResult {
                partition_index,
                error_code: error,
            })
        };
        results.push(alter_replica_log_dirs_response::AlterReplicaLogDirTopicResult {
            partitions: partitions.into_iter().map(moved).collect::<Result<_, Unreadable>>()?,
            topic_name: Arc::clone(&topic),
        });
    }
    call.answer(AlterReplicaLogDirsResponse {
        results,
        ..Default::default()
    })
}
