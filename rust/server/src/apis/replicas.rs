//! ElectLeaders, AlterReplicaLogDirs and the reassignment of partitions. Every partition is led by its first replica, and
//! replicas share one copy of the bytes in one directory, so there is nothing to elect and nothing to move.
//! Kafka: `ReplicationControlManager`, `ReplicaManager`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fletchlog_api::NodeId;
use fletchlog_broker::AclOperation;
use fletchlog_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse, ElectLeadersRequest, ElectLeadersResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, alter_partition_reassignments_request, alter_partition_reassignments_response,
    alter_replica_log_dirs_response, elect_leaders_request, elect_leaders_response,
};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::authorization::cluster_refused;
use super::{CLOSED, Call, Handled, Unreadable, by_topic};

type Refusal = (ErrorCode, Option<Arc<str>>);

/// The replicas of a partition; `None`: the topic or the partition is unknown.
fn replicas(call: &Call<'_>, topic: &Arc<str>, partition: i32) -> Result<Option<Vec<NodeId>>, Unreadable> {
    let tp = TopicPartition::new(Arc::clone(topic), partition);
    call.broker().replicas_of(&tp).map_err(|_| CLOSED)
}

fn is_known(call: &Call<'_>, topic: &str) -> Result<bool, Unreadable> {
    Ok(call.broker().topic_id(topic).map_err(|_| CLOSED)?.is_some())
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
    let is_type_known = (0..=1).contains(&request.election_type);
    let topics: Vec<(Arc<str>, Vec<i32>)> = match request.topic_partitions {
        Some(topics) => topics.into_iter().map(|t| (t.topic, t.partitions)).collect(),
        // All partitions: those that need no election are left out of the response.
        None if !is_type_known => Vec::new(),
        None => {
            let all = call.broker().topics(true).map_err(|_| CLOSED)?;
            all.into_iter().map(|topic| (topic, Vec::new())).collect()
        }
    };
    let mut results = Vec::with_capacity(topics.len());
    for (topic, partitions) in topics {
        let mut of_topic = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let (error, text) = if is_type_known {
                no_election(call, &topic, partition)?
            } else {
                let text = format!("Unknown election type {}", request.election_type);
                (ErrorCode::INVALID_REQUEST, text)
            };
            of_topic.push(elected(partition, error, Some(text.into())));
        }
        results.push(elect_leaders_response::ReplicaElectionResult {
            topic,
            partition_result: of_topic,
        });
    }
    let error = if is_type_known {
        ErrorCode::NONE
    } else {
        ErrorCode::INVALID_REQUEST
    };
    elections(call, error, results)
}

/// The reason why a partition elects no leader. Kafka: `ReplicationControlManager#electLeader`.
fn no_election(call: &Call<'_>, topic: &Arc<str>, partition: i32) -> Result<(ErrorCode, String), Unreadable> {
    if replicas(call, topic, partition)?.is_some() {
        let text = "Leader election not needed for topic partition.".to_owned();
        return Ok((ErrorCode::ELECTION_NOT_NEEDED, text));
    }
    let text = if is_known(call, topic)? {
        format!("No such partition as {topic}-{partition}")
    } else {
        format!("No such topic as {topic}")
    };
    Ok((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, text))
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
    let mut responses = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let (error, error_message) = reassign(
                call,
                &topic.name,
                partition.partition_index,
                partition.replicas.as_deref(),
            )?;
            partitions.push(alter_partition_reassignments_response::ReassignablePartitionResponse {
                partition_index: partition.partition_index,
                error_code: error,
                error_message,
            });
        }
        responses.push(alter_partition_reassignments_response::ReassignableTopicResponse {
            name: topic.name,
            partitions,
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

/// `target`: the wanted replicas; `None`: cancel a reassignment.
fn reassign(
    call: &Call<'_>,
    topic: &Arc<str>,
    partition: i32,
    target: Option<&[NodeId]>,
) -> Result<Refusal, Unreadable> {
    let refused = |error, text: String| Ok((error, Some(text.into())));
    let Some(current) = replicas(call, topic, partition)? else {
        let text = match is_known(call, topic)? {
            true => format!("Unable to find partition {topic}:{partition}."),
            false => format!("Unable to find a topic named {topic}."),
        };
        return refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, text);
    };
    let Some(target) = target else {
        return Ok((ErrorCode::NO_REASSIGNMENT_IN_PROGRESS, None));
    };
    if let Err(error) = call.broker().check_assignment(target) {
        return refused(error.code(), error.kafka_message());
    }
    if target == current {
        return Ok((ErrorCode::NONE, None));
    }
    refused(
        ErrorCode::INVALID_REPLICA_ASSIGNMENT,
        format!("{topic}-{partition} is on {current:?} and cannot be moved: replicas share one copy of the bytes."),
    )
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
