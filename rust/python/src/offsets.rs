//! Offsets of partitions for `Broker` and `Cluster`, as a consumer without a group finds them: one request per leader.

use fletchlog_api::Config;
use fletchlog_client::Consumer as Engine;
use fletchlog_client::consumer::OffsetAndTimestamp;
use fletchlog_records::TopicPartition;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{as_dict, describe, offset_and_timestamp_to_py, partition_from_py, partition_to_py};
use crate::errors::Failure;
use crate::fork::Stop;
use crate::peer::Peer;
use crate::time::TimeBound;

/// A consumer for one call, and how long it may take (ms). A broker in this process knows its partitions: one that does not exist is an error
/// at once. A cluster's are waited for, since its nodes learn of a new topic one after the other.
fn consumer<'a>(
    peer: &Peer,
    config: &Config,
    partitions: impl Iterator<Item = &'a TopicPartition>,
    isolation_level: &str,
) -> Result<(Engine, i64), Failure> {
    if let Peer::Broker(broker) = peer {
        broker.check_partitions(partitions)?;
    }
    let own = [("isolation.level", isolation_level), ("enable.auto.commit", "false")];
    let config = config.clone().with(own)?;
    let limit_ms = i64::from(config.int("default.api.timeout.ms"));
    let clock = peer.clock();
    let transport = peer.connect(&config, &clock)?;
    Ok((Engine::new(config, transport, clock)?, limit_ms))
}

/// Log start offsets.
pub fn beginnings(
    peer: &Peer,
    config: &Config,
    partitions: &[TopicPartition],
    stop: Stop<'_>,
) -> Result<Vec<(TopicPartition, i64)>, Failure> {
    let (mut consumer, limit_ms) = consumer(peer, config, partitions.iter(), "read_uncommitted")?;
    Ok(consumer.beginning_offsets(partitions, limit_ms, stop)?)
}

/// Ends for an isolation level.
pub fn ends(
    peer: &Peer,
    config: &Config,
    partitions: &[TopicPartition],
    isolation_level: &str,
    stop: Stop<'_>,
) -> Result<Vec<(TopicPartition, i64)>, Failure> {
    let (mut consumer, limit_ms) = consumer(peer, config, partitions.iter(), isolation_level)?;
    Ok(consumer.end_offsets(partitions, limit_ms, stop)?)
}

/// The first records at or after times (ms).
pub fn of_times(
    peer: &Peer,
    config: &Config,
    times: &[(TopicPartition, i64)],
    stop: Stop<'_>,
) -> Result<Vec<(TopicPartition, Option<OffsetAndTimestamp>)>, Failure> {
    let (mut consumer, limit_ms) = consumer(peer, config, times.iter().map(|(tp, _)| tp), "read_uncommitted")?;
    Ok(consumer.offsets_for_times(times, limit_ms, stop)?)
}

/// Takes `{tp: time}`.
pub fn times_from_py(times: &Bound<'_, PyAny>) -> PyResult<Vec<(TopicPartition, i64)>> {
    let dict = as_dict(times)?.ok_or_else(|| {
        let text = format!("expected {{TopicPartition: time}}, got {}", describe(times));
        pyo3::exceptions::PyTypeError::new_err(text)
    })?;
    let pair = |(tp, time): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        Ok((partition_from_py(&tp)?, time.extract::<TimeBound>()?.0))
    };
    dict.iter().map(pair).collect()
}

/// `{TopicPartition: offset}`.
pub fn offsets_to_py(py: Python<'_>, offsets: Vec<(TopicPartition, i64)>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (tp, offset) in offsets {
        dict.set_item(partition_to_py(py, &tp)?, offset)?;
    }
    Ok(dict)
}

/// `{TopicPartition: OffsetAndTimestamp or None}`.
pub fn found_to_py(
    py: Python<'_>,
    found: Vec<(TopicPartition, Option<OffsetAndTimestamp>)>,
) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (tp, offset) in found {
        let offset = offset.map(|found| offset_and_timestamp_to_py(py, found)).transpose()?;
        dict.set_item(partition_to_py(py, &tp)?, offset)?;
    }
    Ok(dict)
}
