//! Rules of the client that `fletchlog.explain` shows: the rows of the decision table, and the hash table that determines an order.

use fletchlog_api::config_table;
use fletchlog_api::java_hash::topic_partition_hash;
use fletchlog_client::consumer::subscription_state::table_behind;
use fletchlog_client::consumer::{ROWS, SubscribeOrder, row_of};
use fletchlog_records::TopicPartition;
use pyo3::prelude::*;

use crate::errors::Failure;

/// A release: (major, minor).
type Release = (u32, u32);

#[doc = stub!(decision_rows)]
#[pyfunction]
pub fn decision_rows() -> Vec<(Release, Release, bool)> {
    ROWS.iter()
        .map(|row| {
            (
                row.releases.0,
                row.releases.1,
                row.subscribe_order == SubscribeOrder::Sorted,
            )
        })
        .collect()
}

#[doc = stub!(parse_release)]
#[pyfunction]
pub fn parse_release(text: &str) -> PyResult<Release> {
    let unknown = || Failure::argument(format!("`{text}` is no release of Kafka's clients from 2.4 to 4.4")).into();
    config_table::parse_release(text).ok_or_else(unknown)
}

#[doc = stub!(java_hash)]
#[pyfunction]
pub fn java_hash(topic: &str, partition: i32) -> i32 {
    topic_partition_hash(&TopicPartition::new(topic, partition))
}

#[doc = stub!(hash_buckets)]
#[pyfunction]
pub fn hash_buckets(order: Vec<(String, i32)>, release: Release, subscribe: bool) -> Option<(usize, Vec<usize>)> {
    let order: Vec<_> = order
        .into_iter()
        .map(|(topic, partition)| TopicPartition::new(topic, partition))
        .collect();
    table_behind(&order, subscribe.then(|| row_of(release).subscribe_order))
}
