//! CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords. Kafka: `ControllerApis`, `KafkaApis#handleDeleteRecordsRequest`.

use std::collections::HashMap;
use std::sync::Arc;

use fletchlog_broker::{AclOperation, BrokerError, ConfigEntry, CreatedTopic, MorePartitions, NewTopic};
use fletchlog_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteRecordsRequest,
    DeleteRecordsResponse, DeleteTopicsRequest, DeleteTopicsResponse, create_partitions_request,
    create_partitions_response, create_topics_request, create_topics_response, delete_records_response,
    delete_topics_request, delete_topics_response,
};
use fletchlog_records::{ErrorCode, TopicPartition};

use super::{CLOSED, Call, Handled, Unreadable, by_topic, repeated};

/// Least segment.bytes of a topic in Kafka 4.
const MIN_SEGMENT_BYTES: i64 = 1024 * 1024;

/// Most partitions in one request. Kafka: `ReplicationControlManager#MAX_PARTITIONS_PER_BATCH`.
const MAX_PARTITIONS: i64 = 10_000;

const DUPLICATE: &str = "Duplicate topic name.";

/// The text of a refusal; Kafka has none for an unknown topic.
fn message(error: &BrokerError) -> Option<Arc<str>> {
    (error.code() != ErrorCode::UNKNOWN_TOPIC_OR_PARTITION).then(|| error.kafka_message().into())
}

pub(super) fn create_topics(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: CreateTopicsRequest = call.message()?;
    let twice = repeated(request.topics.iter().map(|t| Arc::clone(&t.name)));
    if partitions_of(call, request.topics.iter().filter(|t| !twice.contains(&t.name))) > MAX_PARTITIONS {
        let refused = |t: &create_topics_request::CreatableTopic| create_topics_response::CreatableTopicResult {
            error_code: ErrorCode::POLICY_VIOLATION,
            error_message: Some("Excessively large number of partitions per request.".into()),
            ..not_created(&t.name)
        };
        return call.answer(CreateTopicsResponse {
            topics: request.topics.iter().map(refused).collect(),
            ..Default::default()
        });
    }
    let mut topics: Vec<_> = twice
        .iter()
        .map(|name| create_topics_response::CreatableTopicResult {
            error_code: ErrorCode::INVALID_REQUEST,
            error_message: Some(DUPLICATE.into()),
            ..not_created(name)
        })
        .collect();
    let wanted = request.topics.into_iter().filter(|t| !twice.contains(&t.name));
    let wanted: Vec<_> = wanted
        .map(|topic| Wanted::new(call, topic, request.validate_only))
        .collect();
    let allowed = wanted.iter().filter_map(|w| Some((&*w.name, w.new.as_ref()?)));
    let created = call
        .broker()
        .create_topics(&allowed.collect::<Vec<_>>())
        .map_err(|_| CLOSED)?;
    let mut created = created.into_iter();
    for Wanted { name, gone, new } in wanted {
        let refused = |error: ErrorCode, text: String| create_topics_response::CreatableTopicResult {
            error_code: error,
            error_message: Some(text.into()),
            ..not_created(&name)
        };
        let outcome = new.and_then(|_| created.next());
        topics.push(match (outcome, gone) {
            (None, _) => refused(
                ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                "Authorization failed.".to_owned(),
            ),
            (Some(Ok(_)), Some(text)) => refused(ErrorCode::INVALID_CONFIG, text),
            (Some(Err(error)), Some(text)) if error.code() == ErrorCode::INVALID_CONFIG => refused(error.code(), text),
            (Some(Ok(created)), None) => match call.may_topic(AclOperation::DescribeConfigs, &name) {
                true => created_topic(name, created),
                false => without_config(created_topic(name, created)),
            },
            (Some(Err(error)), _) => refused(error.code(), error.kafka_message()),
        });
    }
    call.answer(CreateTopicsResponse {
        topics,
        ..Default::default()
    })
}

/// A topic of a request.
struct Wanted {
    name: Arc<str>,
    /// Why Kafka 4 refuses its configuration.
    gone: Option<String>,
    /// `None`: the client may not create it.
    new: Option<NewTopic>,
}

impl Wanted {
    fn new(call: &Call<'_>, topic: create_topics_request::CreatableTopic, validate_only: bool) -> Self {
        let name = Arc::clone(&topic.name);
        let gone = gone_in_4(topic.configs.iter().map(|c| (&*c.name, c.value.as_deref())));
        let may = call.may_cluster(AclOperation::Create) || call.may_topic(AclOperation::Create, &name);
        let new = may.then(|| new_topic(topic, validate_only || gone.is_some()));
        Self { name, gone, new }
    }
}

/// Number of partitions of all these topics. Kafka: `ReplicationControlManager#validateTotalNumberOfPartitions`.
fn partitions_of<'a>(call: &Call<'_>, topics: impl Iterator<Item = &'a create_topics_request::CreatableTopic>) -> i64 {
    let of_topic = |topic: &create_topics_request::CreatableTopic| match (&topic.assignments[..], topic.num_partitions)
    {
        ([], -1) => i64::from(call.broker().config().int("num.partitions")),
        ([], count) => i64::from(count.max(0)),
        (assigned, _) => assigned.len() as i64,
    };
    topics.map(of_topic).sum()
}

/// Kafka 4's text for a property that it removed or limits more narrowly; `None`: all are accepted. The broker still knows them, for older
/// directories. Kafka: `TopicConfig`, KIP-1030.
pub(super) fn gone_in_4<'a>(mut config: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Option<String> {
    config.find_map(|(name, value)| match (name, value?.trim().parse::<i64>()) {
        ("segment.bytes", Ok(bytes)) if bytes < MIN_SEGMENT_BYTES => Some(format!(
            "Invalid value {bytes} for configuration segment.bytes: Value must be at least {MIN_SEGMENT_BYTES}"
        )),
        ("message.timestamp.difference.max.ms", _) => Some(format!("Unknown topic config name: {name}")),
        _ => None,
    })
}

fn new_topic(topic: create_topics_request::CreatableTopic, validate_only: bool) -> NewTopic {
    NewTopic {
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .into_iter()
            .map(|a| (a.partition_index, a.broker_ids))
            .collect(),
        config: topic
            .configs
            .into_iter()
            .map(|c| (c.name.to_string(), c.value.map(|value| value.to_string())))
            .collect(),
        validate_only,
    }
}

fn not_created(name: &Arc<str>) -> create_topics_response::CreatableTopicResult {
    create_topics_response::CreatableTopicResult {
        name: Arc::clone(name),
        configs: Some(Vec::new()),
        ..Default::default()
    }
}

fn created_topic(name: Arc<str>, created: CreatedTopic) -> create_topics_response::CreatableTopicResult {
    let config = |entry: ConfigEntry| create_topics_response::CreatableTopicConfigs {
        name: entry.name.into(),
        value: entry.value.map(Into::into),
        read_only: entry.read_only,
        config_source: entry.source.id(),
        is_sensitive: false,
    };
    create_topics_response::CreatableTopicResult {
        name,
        error_message: None,
        topic_id: created.topic_id,
        num_partitions: created.partitions,
        replication_factor: created.replication_factor,
        configs: Some(
            created
                .config
                .into_iter()
                .filter(ConfigEntry::is_listed)
                .map(config)
                .collect(),
        ),
        ..Default::default()
    }
}

/// For a client that may create a topic but not see its configuration. Kafka: `ReplicationControlManager#createTopics`.
fn without_config(
    created: create_topics_response::CreatableTopicResult,
) -> create_topics_response::CreatableTopicResult {
    create_topics_response::CreatableTopicResult {
        topic_config_error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        num_partitions: -1,
        replication_factor: -1,
        configs: Some(Vec::new()),
        ..created
    }
}

pub(super) fn delete_topics(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let topics = call.message::<DeleteTopicsRequest>()?.topics;
    let twice = repeated(topics.iter().map(|t| (t.name.clone(), t.topic_id)));
    let mut responses: Vec<_> = twice
        .iter()
        .map(|(name, topic_id)| delete_topics_response::DeletableTopicResult {
            name: name.clone(),
            topic_id: *topic_id,
            error_code: ErrorCode::INVALID_REQUEST,
            error_message: Some(
                if name.is_some() {
                    DUPLICATE
                } else {
                    "Duplicate topic id."
                }
                .into(),
            ),
        })
        .collect();
    let once = topics
        .into_iter()
        .filter(|topic| !twice.contains(&(topic.name.clone(), topic.topic_id)));
    let judged: Vec<_> = once.map(|topic| judge_deletion(call, topic)).collect();
    let names = judged.iter().flatten().map(|(name, _)| &**name);
    let deleted = call
        .broker()
        .delete_topics(&names.collect::<Vec<_>>())
        .map_err(|_| CLOSED)?;
    let mut deleted = deleted.into_iter();
    for topic in judged {
        match topic {
            Err(refused) => responses.push(refused),
            Ok((name, topic_id)) => responses.extend(deleted.next().map(|deleted| deletion(name, topic_id, deleted))),
        }
    }
    call.answer(DeleteTopicsResponse {
        responses,
        ..Default::default()
    })
}

/// The name and the id of a topic that the client may delete, or why not.
fn judge_deletion(
    call: &Call<'_>,
    topic: delete_topics_request::DeleteTopicState,
) -> Result<(Arc<str>, [u8; 16]), delete_topics_response::DeletableTopicResult> {
    let topic_id = topic.topic_id;
    let has_id = topic_id != [0; 16];
    let refused = |name, error: ErrorCode, text: &str| delete_topics_response::DeletableTopicResult {
        name,
        topic_id,
        error_code: error,
        error_message: Some(text.into()),
    };
    if topic.name.is_some() == has_id {
        let text = match has_id {
            true => "You may not specify both topic name and topic id.",
            false => "Neither topic name nor id were specified.",
        };
        return Err(refused(topic.name, ErrorCode::INVALID_REQUEST, text));
    }
    let found = match topic.name {
        Some(name) => Ok(Some(name)),
        None => call.broker().topic_name(topic_id),
    };
    let denied = |name| {
        refused(
            name,
            ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            "Topic authorization failed.",
        )
    };
    match found {
        // A client that may not describe the topic does not learn the name behind an id.
        Ok(Some(name)) if !call.may_topic(AclOperation::Describe, &name) => Err(denied((!has_id).then_some(name))),
        Ok(Some(name)) if !call.may_topic(AclOperation::Delete, &name) => Err(denied(Some(name))),
        Ok(Some(name)) => {
            let id = call.broker().topic_id(&name).ok().flatten().unwrap_or(topic_id);
            Ok((name, id))
        }
        Ok(None) => Err(refused(
            None,
            ErrorCode::UNKNOWN_TOPIC_ID,
            "This server does not host this topic ID.",
        )),
        Err(error) => Err(refused(None, error.code(), &error.kafka_message())),
    }
}

fn deletion(
    name: Arc<str>,
    topic_id: [u8; 16],
    deleted: Result<(), BrokerError>,
) -> delete_topics_response::DeletableTopicResult {
    let (error, error_message) = match deleted {
        Ok(()) => (ErrorCode::NONE, None),
        Err(error) => {
            let text = match error.code() {
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => "This server does not host this topic-partition.".into(),
                _ => error.kafka_message().into(),
            };
            (error.code(), Some(text))
        }
    };
    delete_topics_response::DeletableTopicResult {
        name: Some(name),
        topic_id,
        error_code: error,
        error_message,
    }
}

pub(super) fn create_partitions(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: CreatePartitionsRequest = call.message()?;
    let twice = repeated(request.topics.iter().map(|t| Arc::clone(&t.name)));
    let mut results: Vec<_> = twice
        .iter()
        .map(|name| create_partitions_response::CreatePartitionsTopicResult {
            name: Arc::clone(name),
            error_code: ErrorCode::INVALID_REQUEST,
            error_message: Some(DUPLICATE.into()),
        })
        .collect();
    let once = request.topics.into_iter().filter(|t| !twice.contains(&t.name));
    let (allowed, denied): (Vec<_>, Vec<_>) = once.partition(|t| call.may_topic(AclOperation::Alter, &t.name));
    results.extend(
        denied
            .into_iter()
            .map(|topic| create_partitions_response::CreatePartitionsTopicResult {
                name: topic.name,
                error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                error_message: None,
            }),
    );
    let nodes = |a: create_partitions_request::CreatePartitionsAssignment| a.broker_ids;
    let more = allowed.into_iter().map(|topic| MorePartitions {
        topic: topic.name,
        count: topic.count,
        assignments: topic.assignments.map(|all| all.into_iter().map(nodes).collect()),
    });
    let more: Vec<MorePartitions> = more.collect();
    let created = call
        .broker()
        .grow_topics(&more, request.validate_only)
        .map_err(|_| CLOSED)?;
    results.extend(
        more.into_iter()
            .zip(created)
            .map(|(MorePartitions { topic: name, .. }, created)| {
                let error = created.err();
                create_partitions_response::CreatePartitionsTopicResult {
                    name,
                    error_code: error.as_ref().map_or(ErrorCode::NONE, BrokerError::code),
                    error_message: error.as_ref().and_then(message),
                }
            }),
    );
    call.answer(CreatePartitionsResponse {
        results,
        ..Default::default()
    })
}

/// The offset that means the high watermark. Kafka: `DeleteRecordsRequest#HIGH_WATERMARK`.
const HIGH_WATERMARK: i64 = -1;

pub(super) fn delete_records(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DeleteRecordsRequest = call.message()?;
    let asked = request.topics.into_iter().flat_map(|topic| {
        let name = topic.name;
        let of_topic = topic.partitions.into_iter();
        of_topic.map(move |p| (TopicPartition::new(Arc::clone(&name), p.partition_index), p.offset))
    });
    // For a partition that is named twice, the later offset counts.
    let asked: HashMap<TopicPartition, i64> = asked.collect();
    let (allowed, denied): (Vec<_>, Vec<_>) = asked
        .iter()
        .partition(|(tp, _)| call.may_topic(AclOperation::Delete, &tp.topic));
    let before = |offset: i64| (offset != HIGH_WATERMARK).then_some(offset);
    let wanted: Vec<_> = allowed.iter().map(|(tp, offset)| (*tp, before(**offset))).collect();
    let deleted = call.broker().delete_records_of(&wanted).map_err(|_| CLOSED)?;
    let deleted = deleted.into_iter().map(|deleted| deleted.map_err(|error| error.code()));
    let deleted = allowed.iter().map(|(tp, _)| *tp).zip(deleted);
    let denied = denied
        .iter()
        .map(|(tp, _)| (*tp, Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED)));
    let results = deleted.chain(denied).map(|(tp, deleted)| {
        let result = delete_records_response::DeleteRecordsPartitionResult {
            partition_index: tp.partition,
            low_watermark: deleted.unwrap_or(-1),
            error_code: deleted.err().unwrap_or(ErrorCode::NONE),
        };
        (Arc::clone(&tp.topic), result)
    });
    let topics = by_topic(results)
        .map(|(name, partitions)| delete_records_response::DeleteRecordsTopicResult { name, partitions })
        .collect();
    call.answer(DeleteRecordsResponse {
        topics,
        ..Default::default()
    })
}
