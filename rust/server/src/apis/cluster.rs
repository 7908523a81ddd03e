//! DescribeCluster, DescribeTopicPartitions, DescribeLogDirs. Kafka: `KafkaApis`, `DescribeTopicPartitionsRequestHandler`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use fletchlog_broker::{AclOperation, CLUSTER_NAME, LogDirDescription, ResourceType, TopicPage};
use fletchlog_protocol::messages::{
    DescribeClusterRequest, DescribeClusterResponse, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, describe_cluster_response,
    describe_log_dirs_request, describe_log_dirs_response, describe_topic_partitions_response, metadata_response,
};
use fletchlog_records::ErrorCode;

use super::metadata::{CLUSTER_OPERATIONS, OPERATIONS_OMITTED, TOPIC_OPERATIONS, metadata_of};
use super::{CLOSED, Call, Handled, Unreadable, by_topic};

/// The types of endpoints. Kafka: `EndpointType`.
const BROKER: i8 = 1;
const CONTROLLER: i8 = 2;

pub(super) fn describe_cluster(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeClusterRequest = call.message()?;
    let refused = |error: ErrorCode, text: String| DescribeClusterResponse {
        error_code: error,
        error_message: Some(text.into()),
        ..Default::default()
    };
    if request.endpoint_type != BROKER {
        return call.answer(match request.endpoint_type {
            CONTROLLER => refused(
                ErrorCode::MISMATCHED_ENDPOINT_TYPE,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
                    .to_owned(),
            ),
            other => refused(
                ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
                format!("Unsupported endpoint type {other}"),
            ),
        });
    }
    let cluster = metadata_of(call, Some(Vec::new()), false)?;
    let broker = |e: &crate::Endpoint| describe_cluster_response::DescribeClusterBroker {
        broker_id: e.node,
        host: e.host.as_str().into(),
        port: i32::from(e.port),
        rack: call.broker().rack_of(e.node).cloned(),
        is_fenced: call.broker().is_node_fenced(e.node),
    };
    let endpoints = call.apis.endpoints.iter();
    let shown = endpoints.filter(|e| request.include_fenced_brokers || !call.broker().is_node_fenced(e.node));
    call.answer(DescribeClusterResponse {
        cluster_id: cluster.cluster_id.unwrap_or_default(),
        controller_id: cluster.controller_id,
        brokers: shown.map(broker).collect(),
        cluster_authorized_operations: match request.include_cluster_authorized_operations {
            true => call.authorized_operations(CLUSTER_OPERATIONS, ResourceType::Cluster, CLUSTER_NAME),
            false => OPERATIONS_OMITTED,
        },
        ..Default::default()
    })
}

/// Most partitions in one response. Kafka: `max.request.partition.size.limit`.
const PARTITION_LIMIT: i32 = 2000;

pub(super) fn describe_topic_partitions(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeTopicPartitionsRequest = call.message()?;
    let is_all = request.topics.is_empty();
    let names: BTreeSet<Arc<str>> = match is_all {
        true => call.broker().topics(true).map_err(|_| CLOSED)?.into_iter().collect(),
        false => request.topics.iter().map(|t| Arc::clone(&t.name)).collect(),
    };
    let (first, from) = match &request.cursor {
        Some(cursor) => (Arc::clone(&cursor.topic_name), cursor.partition_index),
        None => (Arc::default(), 0),
    };
    let is_listed = is_all || names.contains(&first);
    if from < 0 || (request.cursor.is_some() && !is_listed) {
        let refused = |name| refused_topic(ErrorCode::INVALID_REQUEST, name);
        return call.answer(DescribeTopicPartitionsResponse {
            topics: request.topics.into_iter().map(|topic| refused(topic.name)).collect(),
            ..Default::default()
        });
    }
    if request.cursor.is_none() && names.contains("") && call.may_topic(AclOperation::Describe, "") {
        // Kafka's handler fails on it.
        let asked = request.topics.into_iter().map(|topic| topic.name);
        return call.answer(DescribeTopicPartitionsResponse {
            topics: asked
                .map(|name| refused_topic(ErrorCode::UNKNOWN_SERVER_ERROR, name))
                .collect(),
            ..Default::default()
        });
    }
    let mut room = usize::try_from(request.response_partition_limit.clamp(1, PARTITION_LIMIT)).unwrap_or(1);
    let mut topics = Vec::new();
    let mut next_cursor = None;
    for name in names.range(Arc::clone(&first)..) {
        if !call.may_topic(AclOperation::Describe, name) {
            // A topic that the request does not name is left out, not refused.
            let denied = refused_topic(ErrorCode::TOPIC_AUTHORIZATION_FAILED, Arc::clone(name));
            topics.extend((!is_all).then_some(denied));
            continue;
        }
        if room == 0 {
            next_cursor = Some(cursor(name, 0));
            break;
        }
        let skip = if *name == first {
            usize::try_from(from).unwrap_or(0)
        } else {
            0
        };
        let page = call.broker().topic_page(name, skip, room).map_err(|_| CLOSED)?;
        let operations = call.authorized_operations(TOPIC_OPERATIONS, ResourceType::Topic, name);
        let end = skip.saturating_add(page.topic.partitions.len());
        room -= page.topic.partitions.len();
        let all = page.all;
        topics.push(described_topic(page, operations));
        if end < all {
            next_cursor = Some(cursor(name, i32::try_from(end).unwrap_or(i32::MAX)));
        }
        if next_cursor.is_some() {
            break;
        }
    }
    call.answer(DescribeTopicPartitionsResponse {
        topics,
        next_cursor,
        ..Default::default()
    })
}

fn cursor(name: &Arc<str>, partition_index: i32) -> describe_topic_partitions_response::Cursor {
    describe_topic_partitions_response::Cursor {
        topic_name: Arc::clone(name),
        partition_index,
    }
}

fn refused_topic(
    error: ErrorCode,
    name: Arc<str>,
) -> describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic {
    describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic {
        error_code: error,
        name: Some(name),
        ..Default::default()
    }
}

fn described_topic(
    TopicPage { topic, eligible, .. }: TopicPage,
    topic_authorized_operations: i32,
) -> describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic {
    let partition = |(p, (elr, last_known_elr)): (metadata_response::MetadataResponsePartition, (Vec<_>, Vec<_>))| {
        describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition {
            partition_index: p.partition_index,
            leader_id: p.leader_id,
            leader_epoch: p.leader_epoch,
            replica_nodes: p.replica_nodes,
            isr_nodes: p.isr_nodes,
            offline_replicas: p.offline_replicas,
            eligible_leader_replicas: Some(elr),
            last_known_elr: Some(last_known_elr),
            ..Default::default()
        }
    };
    describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic {
        error_code: topic.error_code,
        name: topic.name,
        topic_id: topic.topic_id,
        is_internal: topic.is_internal,
        partitions: topic.partitions.into_iter().zip(eligible).map(partition).collect(),
        topic_authorized_operations,
    }
}

pub(super) fn describe_log_dirs(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeLogDirsRequest = call.message()?;
    if let Err(error) = call.check_cluster(AclOperation::Describe) {
        return call.answer(DescribeLogDirsResponse {
            error_code: error,
            ..Default::default()
        });
    }
    let dirs = call.broker().describe_log_dirs().map_err(|_| CLOSED)?;
    let of_node = dirs.into_iter().filter(|dir| dir.node == call.peer.port.node());
    let asked: Option<HashSet<(&str, i32)>> = request.topics.as_ref().map(|topics| {
        let of_topic = |t: &'_ describe_log_dirs_request::DescribableLogDirTopic| t.partitions.len();
        let mut asked = HashSet::with_capacity(topics.iter().map(of_topic).sum());
        for topic in topics {
            asked.extend(topic.partitions.iter().map(|p| (&*topic.topic, *p)));
        }
        asked
    });
    let results = of_node.map(|dir| described_dir(dir, asked.as_ref())).collect();
    call.answer(DescribeLogDirsResponse {
        results,
        ..Default::default()
    })
}

/// `asked`: the requested partitions by topic; `None`: all.
fn described_dir(
    dir: LogDirDescription,
    asked: Option<&HashSet<(&str, i32)>>,
) -> describe_log_dirs_response::DescribeLogDirsResult {
    let is_asked =
        |tp: &fletchlog_records::TopicPartition| asked.is_none_or(|asked| asked.contains(&(&*tp.topic, tp.partition)));
    let sizes = dir
        .partitions
        .into_iter()
        .filter(|(tp, _)| is_asked(tp))
        .map(|(tp, bytes)| {
            let partition = describe_log_dirs_response::DescribeLogDirsPartition {
                partition_index: tp.partition,
                partition_size: i64::try_from(bytes).unwrap_or(i64::MAX),
                ..Default::default()
            };
            (tp.topic, partition)
        });
    describe_log_dirs_response::DescribeLogDirsResult {
        log_dir: dir.path.to_string_lossy().as_ref().into(),
        topics: by_topic(sizes)
            .map(|(name, partitions)| describe_log_dirs_response::DescribeLogDirsTopic { name, partitions })
            .collect(),
        total_bytes: dir.total_bytes,
        usable_bytes: dir.usable_bytes,
        ..Default::default()
    }
}
