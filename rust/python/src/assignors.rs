//! The assignors as pure functions: dicts in, dicts out. `fletchlog.assign` wraps them with their public names and keywords.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_api::TopicId;
use fletchlog_broker::{GroupSpec, ServerAssignor, UnknownTopic};
use fletchlog_client::assignor::legacy_range::{StreamCounts, legacy_range};
use fletchlog_client::assignor::legacy_round_robin::legacy_round_robin;
use fletchlog_client::assignor::{
    AssignmentByTopic, Assignor, AssignorError, MemberSubscription, PartitionRacks, Subscriptions, TopicCounts,
    by_topic,
};
use fletchlog_records::TopicPartition;
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::gate::gate;

/// Assigned partitions by member and topic, as Python gets them.
type PyAssignment = BTreeMap<String, BTreeMap<String, Vec<i32>>>;

/// Most partitions, or streams, in one call: an assignment lists each of them. Five times what Kafka advises for a cluster.
const MOST: i64 = 1_000_000;

/// Refuses results too large for memory.
fn check_sum(what: &str, counts: impl Iterator<Item = i32>) -> Result<(), Failure> {
    let sum: i64 = counts.map(i64::from).sum();
    if sum > MOST {
        return Err(Failure::argument(format!("{sum} {what} in all; give at most {MOST}")));
    }
    Ok(())
}

fn topic_counts(topics: BTreeMap<String, i32>) -> Result<TopicCounts, Failure> {
    check_sum("partitions", topics.values().map(|&partitions| partitions.max(0)))?;
    topics
        .into_iter()
        .map(|(name, partitions)| {
            if partitions < 0 {
                return Err(Failure::argument(format!(
                    "topic {name} has {partitions} partitions; give 0 or more"
                )));
            }
            Ok((Arc::from(name), partitions))
        })
        .collect()
}

fn to_py(assignment: AssignmentByTopic) -> PyAssignment {
    let topics_of =
        |topics: BTreeMap<Arc<str>, Vec<i32>>| topics.into_iter().map(|(t, p)| (t.to_string(), p)).collect();
    assignment
        .into_iter()
        .map(|(member, topics)| (member.to_string(), topics_of(topics)))
        .collect()
}

#[doc = stub!(assign_legacy)]
#[pyfunction]
pub fn assign_legacy(
    py: Python<'_>,
    strategy: &str,
    topics: BTreeMap<String, i32>,
    consumers: BTreeMap<String, BTreeMap<String, i32>>,
) -> PyResult<PyAssignment> {
    let topics = topic_counts(topics)?;
    let streams = consumers.values().flat_map(|streams| streams.values().copied());
    check_sum("streams", streams.map(|streams| streams.max(0)))?;
    let members: StreamCounts = consumers
        .into_iter()
        .map(|(consumer, streams)| {
            (
                Arc::from(consumer),
                streams.into_iter().map(|(topic, n)| (Arc::from(topic), n)).collect(),
            )
        })
        .collect();
    let assign = match strategy {
        "range" => legacy_range,
        "roundrobin" => legacy_round_robin,
        other => {
            return Err(
                Failure::argument(format!("no legacy assignor `{other}`; there are range and roundrobin")).into(),
            );
        }
    };
    gate(py, |_| {
        assign(&topics, &members)
            .map_err(|e: AssignorError| e.into())
            .map(|a| to_py(a.threads))
    })
}

/// One member: topics, instance id, owned partitions by topic, generation, rack.
#[derive(FromPyObject)]
pub struct Member(
    Vec<String>,
    Option<String>,
    BTreeMap<String, Vec<i32>>,
    Option<i32>,
    Option<String>,
);

/// Racks of the replicas of each partition of a topic.
type ReplicaRacks = BTreeMap<String, Vec<Vec<String>>>;

/// Racks, each name kept once.
fn partition_racks(topics: &TopicCounts, given: ReplicaRacks) -> Result<PartitionRacks, Failure> {
    let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut name = |rack: String| {
        let rack: Arc<str> = rack.into();
        names.get(&rack).cloned().unwrap_or_else(|| {
            names.insert(Arc::clone(&rack));
            rack
        })
    };
    let mut racks = PartitionRacks::new();
    for (topic, partitions) in given {
        let count = topics.get(topic.as_str()).copied();
        if count.and_then(|count| usize::try_from(count).ok()) != Some(partitions.len()) {
            return Err(Failure::argument(format!(
                "replica_racks has {} partitions of topic {topic}, topics has {}; give the racks of each partition",
                partitions.len(),
                count.unwrap_or(0)
            )));
        }
        let of_partitions = partitions
            .into_iter()
            .map(|racks| racks.into_iter().map(&mut name).collect());
        racks.insert(topic.into(), of_partitions.collect());
    }
    Ok(racks)
}

#[doc = stub!(assign)]
#[pyfunction]
pub fn assign(
    py: Python<'_>,
    strategy: &str,
    topics: BTreeMap<String, i32>,
    members: BTreeMap<String, Member>,
    replica_racks: ReplicaRacks,
) -> PyResult<PyAssignment> {
    let topics = topic_counts(topics)?;
    let racks = partition_racks(&topics, replica_racks)?;
    let members: Subscriptions = members
        .into_iter()
        .map(|(id, Member(names, instance, owned, generation, rack))| {
            let owned = owned
                .into_iter()
                .flat_map(|(topic, partitions)| {
                    let topic: Arc<str> = topic.into();
                    partitions
                        .into_iter()
                        .map(move |p| TopicPartition::new(Arc::clone(&topic), p))
                })
                .collect();
            let subscription = MemberSubscription {
                topics: names.into_iter().map(Into::into).collect(),
                group_instance_id: instance.map(Into::into),
                owned,
                generation,
                rack: rack.map(Into::into),
                place: 0,
            };
            (Arc::from(id), subscription)
        })
        .collect();
    let assignor = Assignor::from_name(strategy).ok_or_else(|| {
        Failure::argument(format!(
            "no assignor `{strategy}`; there are range, roundrobin, sticky and cooperative-sticky"
        ))
    })?;
    gate(py, |_| Ok(to_py(by_topic(&assignor.assign(&topics, &racks, &members)))))
}

/// One member of a group with an assignor of the coordinator: id, topics, instance id, what the present target gives it.
#[derive(FromPyObject)]
pub struct RemoteMember(String, Vec<String>, Option<String>, BTreeMap<String, Vec<i32>>);

#[doc = stub!(assign_uniform)]
#[pyfunction]
pub fn assign_uniform(
    py: Python<'_>,
    topics: BTreeMap<String, (TopicId, i32)>,
    members: Vec<RemoteMember>,
) -> PyResult<PyAssignment> {
    let (ids, counts): (BTreeMap<String, TopicId>, BTreeMap<String, i32>) = topics
        .into_iter()
        .map(|(name, (id, partitions))| ((name.clone(), id), (name, partitions)))
        .unzip();
    topic_counts(counts.clone())?;
    let names: BTreeMap<TopicId, String> = ids.iter().map(|(name, id)| (*id, name.clone())).collect();
    if names.len() != ids.len() {
        return Err(Failure::argument("two topics have one id; give each topic an id of its own").into());
    }
    let id_of = |name: &String| {
        let unknown = || {
            Failure::argument(format!(
                "a member subscribes to topic {name}, which is not among the topics"
            ))
        };
        ids.get(name).copied().ok_or_else(unknown)
    };
    let member = |RemoteMember(id, subscribed, instance, assigned): RemoteMember| {
        Ok(fletchlog_broker::MemberSubscription {
            member_id: id.into(),
            instance_id: instance.map(Into::into),
            topics: subscribed.iter().map(id_of).collect::<Result<_, Failure>>()?,
            // what is assigned of a topic that is gone is nobody's
            assigned: assigned
                .into_iter()
                .filter_map(|(topic, partitions)| Some((*ids.get(&topic)?, partitions)))
                .collect(),
        })
    };
    let group = GroupSpec {
        topics: ids.iter().map(|(name, id)| (*id, counts[name])).collect(),
        members: members.into_iter().map(member).collect::<Result<_, Failure>>()?,
    };
    gate(py, |_| {
        let assigned = ServerAssignor::Uniform
            .assign(&group)
            .map_err(|UnknownTopic(id)| Failure::argument(format!("topic {} is unknown", names[&id])))?;
        let topics_of = |topics: BTreeMap<TopicId, Vec<i32>>| {
            let named = topics
                .into_iter()
                .filter_map(|(id, p)| Some((names.get(&id)?.clone(), p)));
            named.collect()
        };
        Ok(assigned
            .into_iter()
            .map(|(id, topics)| (id.to_string(), topics_of(topics)))
            .collect())
    })
}
