//! What changes topics, groups and records of a cluster. Kafka: `KafkaAdminClient`, one method each.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, Failure, NodeId, OffsetAndMetadata, OffsetCommitRequest, Request, Response};
use fletchlog_records::TopicPartition;
use fletchlog_wire::ApiKey;
use fletchlog_wire::messages::describe_configs_response::DescribeConfigsResourceResult;
use fletchlog_wire::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, DeleteGroupsRequest, DeleteGroupsResponse, DeleteRecordsRequest,
    DeleteRecordsResponse, DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, OffsetDeleteRequest, OffsetDeleteResponse, create_partitions_request,
    delete_records_request, describe_configs_request, incremental_alter_configs_request, offset_delete_request,
};

use super::{AdminClient, AdminError, Call, Interrupt, Stop, TOPIC_RESOURCE, checked, failed};

/// Kafka: `ConfigResource.Type#BROKER`.
const BROKER_RESOURCE: i8 = 4;
/// Kafka: `AlterConfigOp.OpType#SET`.
const SET: i8 = 0;
/// Kafka: `AlterConfigOp.OpType#DELETE`.
const DELETE: i8 = 1;
/// The end of a log. Kafka: `DeleteRecordsRequest.HIGH_WATERMARK`.
const HIGH_WATERMARK: i64 = -1;

impl AdminClient {
    /// Gives a topic more partitions: `count` in all.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS.
    pub fn create_partitions(
        &mut self,
        topic: &str,
        count: i32,
        validate_only: bool,
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let timeout_ms = i32::try_from(self.limit_ms).unwrap_or(i32::MAX);
        self.call(stop, |call| {
            let node = call.any_node()?;
            let more = create_partitions_request::CreatePartitionsTopic {
                name: topic.into(),
                count,
                assignments: None,
            };
            let response: CreatePartitionsResponse =
                call.exchange(node, ApiKey::CreatePartitions, move |_| CreatePartitionsRequest {
                    topics: vec![more],
                    timeout_ms,
                    validate_only,
                })?;
            let refused = response
                .results
                .iter()
                .map(|t| (t.error_code, t.error_message.as_deref()));
            checked(&format!("topic {topic} was not given more partitions"), refused)
        })
    }

    /// Changes properties of a topic; `None` takes the topic's own value away.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG.
    pub fn alter_topic_config(
        &mut self,
        topic: &str,
        changes: &[(String, Option<String>)],
        validate_only: bool,
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let change = |(name, value): &(String, Option<String>)| incremental_alter_configs_request::AlterableConfig {
            name: name.as_str().into(),
            config_operation: if value.is_some() { SET } else { DELETE },
            value: value.as_deref().map(Arc::from),
        };
        let resource = incremental_alter_configs_request::AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: topic.into(),
            configs: changes.iter().map(change).collect(),
        };
        self.call(stop, |call| {
            let node = call.any_node()?;
            let resources = vec![resource.clone()];
            let response: IncrementalAlterConfigsResponse =
                call.exchange(node, ApiKey::IncrementalAlterConfigs, move |_| {
                    IncrementalAlterConfigsRequest {
                        resources,
                        validate_only,
                    }
                })?;
            let refused = response
                .responses
                .iter()
                .map(|r| (r.error_code, r.error_message.as_deref()));
            checked(&format!("topic {topic} was not altered"), refused)
        })
    }

    /// Every property of a topic, or of the node that is asked, by name.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION.
    pub fn describe_config(
        &mut self,
        topic: Option<&str>,
        stop: Interrupt<'_>,
    ) -> Result<Vec<DescribeConfigsResourceResult>, AdminError> {
        self.call(stop, |call| {
            let node = match topic {
                Some(_) => call.any_node()?,
                None => call.a_broker()?,
            };
            let resource = describe_configs_request::DescribeConfigsResource {
                resource_type: if topic.is_some() {
                    TOPIC_RESOURCE
                } else {
                    BROKER_RESOURCE
                },
                resource_name: topic.map_or_else(|| node.to_string().into(), Arc::from),
                configuration_keys: None,
            };
            let response: DescribeConfigsResponse =
                call.exchange(node, ApiKey::DescribeConfigs, move |version| DescribeConfigsRequest {
                    resources: vec![resource],
                    include_synonyms: true,
                    include_documentation: version >= 3,
                })?;
            let refused = response
                .results
                .iter()
                .map(|r| (r.error_code, r.error_message.as_deref()));
            checked("properties were not described", refused)?;
            let mut entries: Vec<_> = response.results.into_iter().flat_map(|r| r.configs).collect();
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        })
    }

    /// Moves the start of a log to `before_offset` (`None`: its end), on its leader; returns the new start.
    ///
    /// # Errors
    /// See [`AdminError`]; UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OUT_OF_RANGE, POLICY_VIOLATION.
    pub fn delete_records(
        &mut self,
        tp: &TopicPartition,
        before_offset: Option<i64>,
        stop: Interrupt<'_>,
    ) -> Result<i64, AdminError> {
        let timeout_ms = i32::try_from(self.limit_ms).unwrap_or(i32::MAX);
        self.call(stop, |call| {
            let leader = call.leader(tp)?;
            let topic = delete_records_request::DeleteRecordsTopic {
                name: Arc::clone(&tp.topic),
                partitions: vec![delete_records_request::DeleteRecordsPartition {
                    partition_index: tp.partition,
                    offset: before_offset.unwrap_or(HIGH_WATERMARK),
                }],
            };
            let response: DeleteRecordsResponse =
                call.exchange(leader, ApiKey::DeleteRecords, move |_| DeleteRecordsRequest {
                    topics: vec![topic],
                    timeout_ms,
                })?;
            let deleted = response.topics.iter().flat_map(|t| &t.partitions);
            checked(
                &format!("records of {tp} were not deleted"),
                deleted.clone().map(|p| (p.error_code, None)),
            )?;
            let start = deleted.map(|p| p.low_watermark).next();
            start.ok_or_else(|| Stop::Again(format!("node {leader} did not answer for {tp}")))
        })
    }

    /// Deletes a group without members, and its offsets.
    ///
    /// # Errors
    /// See [`AdminError`]; GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    pub fn delete_group(&mut self, group_id: &str, stop: Interrupt<'_>) -> Result<(), AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let groups_names = vec![Arc::clone(&id)];
            let response: DeleteGroupsResponse = call.exchange(node, ApiKey::DeleteGroups, move |_| {
                DeleteGroupsRequest { groups_names }
            })?;
            let refused = response.results.iter().map(|group| (group.error_code, None));
            checked(&format!("group {id} was not deleted"), refused)
        })
    }

    /// Commits offsets for a group without members.
    ///
    /// # Errors
    /// See [`AdminError`]; NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION: the offsets of other partitions may be committed then.
    pub fn alter_offsets(
        &mut self,
        group_id: &str,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let id: Arc<str> = group_id.into();
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let commit = Request::OffsetCommit(OffsetCommitRequest {
                group_id: Arc::clone(&id),
                generation_id: -1,
                member_id: "".into(),
                group_instance_id: None,
                offsets: offsets.to_vec(),
                knows_group_id_not_found: false,
                retention_ms: None,
            });
            let Response::OffsetCommit(response) = call.ask(node, commit)? else {
                return Err(failed(
                    node,
                    Failure::Malformed("another answer than to a commit".into()),
                ));
            };
            for (tp, error) in response.partitions {
                // A group with members does not know one without a name.
                let error = match error {
                    ErrorCode::UNKNOWN_MEMBER_ID => ErrorCode::NON_EMPTY_GROUP,
                    other => other,
                };
                let what = format!("the offset of {tp} was not committed for group {id}");
                checked(&what, [(error.code(), None)].into_iter())?;
            }
            Ok(())
        })
    }

    /// Deletes committed offsets of a group.
    ///
    /// # Errors
    /// See [`AdminError`]; GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION, of the first partition that
    /// is refused: the offsets of the others are deleted.
    pub fn delete_offsets(
        &mut self,
        group_id: &str,
        partitions: &[TopicPartition],
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        let id: Arc<str> = group_id.into();
        let mut topics: Vec<offset_delete_request::OffsetDeleteRequestTopic> = Vec::new();
        for tp in partitions {
            let partition = offset_delete_request::OffsetDeleteRequestPartition {
                partition_index: tp.partition,
            };
            match topics.iter_mut().find(|t| t.name == tp.topic) {
                Some(topic) => topic.partitions.push(partition),
                None => topics.push(offset_delete_request::OffsetDeleteRequestTopic {
                    name: Arc::clone(&tp.topic),
                    partitions: vec![partition],
                }),
            }
        }
        self.call(stop, |call| {
            let node = call.coordinator(&id)?;
            let request = OffsetDeleteRequest {
                group_id: Arc::clone(&id),
                topics: topics.clone(),
            };
            let response: OffsetDeleteResponse = call.exchange(node, ApiKey::OffsetDelete, move |_| request)?;
            let of_group = format!("offsets of group {id} were not deleted");
            checked(&of_group, [(response.error_code, None)].into_iter())?;
            for topic in &response.topics {
                for p in &topic.partitions {
                    let what = format!("the offset of {}-{} was not deleted", topic.name, p.partition_index);
                    checked(&what, [(p.error_code, None)].into_iter())?;
                }
            }
            Ok(())
        })
    }
}

impl Call<'_, '_> {
    /// A node by its own number: those of bootstrap.servers have none yet.
    fn a_broker(&mut self) -> Result<NodeId, Stop> {
        let nodes = self.metadata(Some(&[]))?.nodes;
        let first = nodes.first().copied();
        first.ok_or_else(|| Stop::Again("the metadata names no node".to_owned()))
    }

    fn leader(&mut self, tp: &TopicPartition) -> Result<NodeId, Stop> {
        let topics = self.metadata(Some(&[Arc::clone(&tp.topic)]))?.topics;
        let partitions = topics.iter().flat_map(|t| &t.partitions);
        match partitions
            .clone()
            .find(|p| p.partition == tp.partition)
            .map(|p| p.leader)
        {
            Some(leader) if leader >= 0 => Ok(leader),
            Some(_) => Err(Stop::Again(format!("{tp} has no leader"))),
            None => {
                let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
                Err(Stop::Final(AdminError::Refused(
                    code,
                    format!("{tp}: {}", code.message()),
                )))
            }
        }
    }
}
