//! Python objects for groups and their offsets, for `Broker` and `Cluster`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::NodeId;
use fletchlog_api::{ErrorCode, OffsetAndMetadata};
use fletchlog_broker::{GroupDescription, GroupListing, GroupMember};
use fletchlog_protocol::by_topic::grouped;
use fletchlog_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use fletchlog_protocol::messages::consumer_group_describe_response::{self, DescribedGroup};
use fletchlog_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use fletchlog_protocol::messages::describe_share_group_offsets_response::DescribeShareGroupOffsetsResponseTopic;
use fletchlog_protocol::messages::share_group_describe_response;
use fletchlog_protocol::messages::{AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest};
use fletchlog_protocol::values::ConsumerProtocolAssignment;
use fletchlog_protocol::values::consumer_protocol::{PROTOCOL_TYPE, flattened};
use fletchlog_records::TopicPartition;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::convert::{
    group_description_class, group_listing_class, group_member_class, offset_and_metadata_to_py, partition_lag_class,
    partition_to_py, partitions_to_py, share_group_offset_class,
};
use crate::errors::Failure;

/// The error of who asks for the lag of a share group, which commits no offsets.
pub fn no_lag_of_share_group(group_id: &str) -> Failure {
    Failure::argument(format!(
        "{group_id} is a share group, which commits no offsets: share_group_offsets({group_id:?}) has its start offsets and its lag"
    ))
}

/// `GroupListing`.
pub fn listing_to_py(py: Python<'_>, group: &GroupListing) -> PyResult<Py<PyAny>> {
    let row = (
        &*group.group_id,
        &*group.protocol_type,
        group.state,
        group.coordinator,
        &*group.group_type,
    );
    Ok(group_listing_class(py)?.call1(row)?.unbind())
}

/// `{TopicPartition: OffsetAndMetadata}`.
pub fn group_offsets_to_py(
    py: Python<'_>,
    offsets: BTreeMap<TopicPartition, OffsetAndMetadata>,
) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (tp, offset) in offsets {
        dict.set_item(partition_to_py(py, &tp)?, offset_and_metadata_to_py(py, &offset)?)?;
    }
    Ok(dict)
}

/// `{TopicPartition: PartitionLag}`.
pub fn lag_to_py(
    py: Python<'_>,
    partitions: BTreeMap<TopicPartition, (OffsetAndMetadata, Option<i64>)>,
) -> PyResult<Bound<'_, PyDict>> {
    let (class, dict) = (partition_lag_class(py)?, PyDict::new(py));
    for (tp, (committed, end)) in partitions {
        let lag = end.map(|end| end.saturating_sub(committed.offset).max(0));
        dict.set_item(partition_to_py(py, &tp)?, class.call1((committed.offset, end, lag))?)?;
    }
    Ok(dict)
}

/// `GroupDescription`.
pub fn description_to_py(py: Python<'_>, group: &GroupDescription) -> PyResult<Py<PyAny>> {
    let is_consumer = &*group.protocol_type == PROTOCOL_TYPE;
    let members = group.members.iter().map(|member| member_to_py(py, member, is_consumer));
    let row = (
        &*group.group_id,
        group.state,
        &*group.protocol_type,
        &*group.protocol,
        members.collect::<PyResult<Vec<_>>>()?,
        group.coordinator,
    );
    Ok(group_description_class(py)?.call1(row)?.unbind())
}

/// `{TopicPartition: ShareGroupOffset}`. Partitions that are refused are left out.
pub fn share_group_offsets_to_py(
    py: Python<'_>,
    topics: Vec<DescribeShareGroupOffsetsResponseTopic>,
) -> PyResult<Bound<'_, PyDict>> {
    let (class, dict) = (share_group_offset_class(py)?, PyDict::new(py));
    let known = |offset: i64| (offset != -1).then_some(offset);
    for topic in topics {
        for p in topic.partitions.iter().filter(|p| p.error_code == ErrorCode::NONE) {
            let tp = TopicPartition::new(Arc::clone(&topic.topic_name), p.partition_index);
            let row = (known(p.start_offset), known(p.lag));
            dict.set_item(partition_to_py(py, &tp)?, class.call1(row)?)?;
        }
    }
    Ok(dict)
}

/// A request that sets where the records of partitions begin.
pub fn alter_share_request(group_id: &str, starts: Vec<(TopicPartition, i64)>) -> AlterShareGroupOffsetsRequest {
    let partitions = starts.into_iter().map(|(tp, start_offset)| {
        let partition = AlterShareGroupOffsetsRequestPartition {
            partition_index: tp.partition,
            start_offset,
        };
        (tp.topic, partition)
    });
    let topics = grouped(partitions).into_iter();
    let topics = topics.map(|(topic_name, partitions)| AlterShareGroupOffsetsRequestTopic { topic_name, partitions });
    AlterShareGroupOffsetsRequest {
        group_id: group_id.into(),
        topics: topics.collect(),
    }
}

/// A request that deletes where the records of topics begin.
pub fn delete_share_request(group_id: &str, topics: Vec<Arc<str>>) -> DeleteShareGroupOffsetsRequest {
    let topic = |topic_name| DeleteShareGroupOffsetsRequestTopic { topic_name };
    DeleteShareGroupOffsetsRequest {
        group_id: group_id.into(),
        topics: topics.into_iter().map(topic).collect(),
    }
}

/// `GroupDescription` of a share group.
pub fn share_group_to_py(
    py: Python<'_>,
    group: &share_group_describe_response::DescribedGroup,
    coordinator: NodeId,
) -> PyResult<Py<PyAny>> {
    let members = group.members.iter().map(|member| {
        let topics = member.assignment.topic_partitions.iter();
        let partitions: Vec<TopicPartition> = topics
            .flat_map(|topic| {
                let partition = |&number| TopicPartition::new(Arc::clone(&topic.topic_name), number);
                topic.partitions.iter().map(partition)
            })
            .collect();
        let nothing = PyBytes::new(py, &[]);
        let row = (
            &*member.member_id,
            None::<&str>,
            &*member.client_id,
            &*member.client_host,
            partitions_to_py(py, &partitions)?,
            &nothing,
            &nothing,
        );
        Ok(group_member_class(py)?.call1(row)?.unbind())
    });
    let row = (
        &*group.group_id,
        &*group.group_state,
        "share",
        &*group.assignor_name,
        members.collect::<PyResult<Vec<Py<PyAny>>>>()?,
        coordinator,
    );
    Ok(group_description_class(py)?.call1(row)?.unbind())
}

/// `GroupDescription` of a consumer group.
pub fn consumer_group_to_py(py: Python<'_>, group: &DescribedGroup, coordinator: NodeId) -> PyResult<Py<PyAny>> {
    let members = group.members.iter().map(|member| consumer_member_to_py(py, member));
    let row = (
        &*group.group_id,
        &*group.group_state,
        PROTOCOL_TYPE,
        &*group.assignor_name,
        members.collect::<PyResult<Vec<_>>>()?,
        coordinator,
    );
    Ok(group_description_class(py)?.call1(row)?.unbind())
}

fn consumer_member_to_py(py: Python<'_>, member: &consumer_group_describe_response::Member) -> PyResult<Py<PyAny>> {
    let topics = member.assignment.topic_partitions.iter();
    let partitions: Vec<TopicPartition> = topics
        .flat_map(|topic| {
            let partition = |&number| TopicPartition::new(Arc::clone(&topic.topic_name), number);
            topic.partitions.iter().map(partition)
        })
        .collect();
    let nothing = PyBytes::new(py, &[]);
    let row = (
        &*member.member_id,
        member.instance_id.as_deref(),
        &*member.client_id,
        &*member.client_host,
        partitions_to_py(py, &partitions)?,
        &nothing,
        &nothing,
    );
    Ok(group_member_class(py)?.call1(row)?.unbind())
}

/// Assignments in groups of another type cannot be read: their members have no partitions.
fn member_to_py(py: Python<'_>, member: &GroupMember, is_consumer: bool) -> PyResult<Py<PyAny>> {
    let assigned = is_consumer
        .then(|| ConsumerProtocolAssignment::of_member(member.assignment.clone()).ok())
        .flatten();
    let partitions = assigned.map(|assigned| flattened(&assigned.assigned_partitions));
    let row = (
        &*member.member_id,
        member.group_instance_id.as_deref(),
        &*member.client_id,
        &*member.client_host,
        partitions_to_py(py, &partitions.unwrap_or_default())?,
        PyBytes::new(py, &member.metadata),
        PyBytes::new(py, &member.assignment),
    );
    Ok(group_member_class(py)?.call1(row)?.unbind())
}
