//! The broker's metrics under Kafka's names: counts since it was opened, and current sizes.

use std::sync::atomic::{AtomicU64, Ordering};

use fletchlog_api::{ErrorCode, FetchResponse};
use fletchlog_protocol::messages::fetch_response::PartitionData;

/// Kafka's name and the value.
pub type BrokerMetric = (&'static str, f64);

/// Counters of all topics together. Kafka: `BrokerTopicMetrics`.
#[derive(Debug, Default)]
pub(crate) struct BrokerTopicMetrics {
    messages_in: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    produce_requests: AtomicU64,
    failed_produce_requests: AtomicU64,
    fetch_requests: AtomicU64,
    failed_fetch_requests: AtomicU64,
}

fn add(to: &AtomicU64, number: usize) {
    to.fetch_add(number as u64, Ordering::Relaxed);
}

impl BrokerTopicMetrics {
    /// Counts a request to append batches to a partition: `messages` were appended, 0 for a repeated batch.
    pub(crate) fn produced(&self, error: ErrorCode, messages: i64, bytes: usize) {
        add(&self.produce_requests, 1);
        match error {
            ErrorCode::NONE => {
                add(&self.messages_in, usize::try_from(messages).unwrap_or(0));
                add(&self.bytes_in, bytes);
            }
            _ => add(&self.failed_produce_requests, 1),
        }
    }

    /// Counts a fetch response, for each of its partitions.
    pub(crate) fn fetched(&self, response: &FetchResponse) {
        let is_refused = |error: ErrorCode| error != ErrorCode::NONE;
        let partitions = || response.partitions().map(|(_, partition)| partition);
        let failed = partitions().filter(|p| is_refused(p.error_code)).count();
        add(&self.fetch_requests, partitions().count());
        add(&self.failed_fetch_requests, failed);
        add(&self.bytes_out, partitions().map(PartitionData::size).sum());
    }

    pub(crate) fn read(&self) -> [BrokerMetric; 7] {
        [
            ("messages-in-total", total(&self.messages_in)),
            ("bytes-in-total", total(&self.bytes_in)),
            ("bytes-out-total", total(&self.bytes_out)),
            ("produce-requests-total", total(&self.produce_requests)),
            ("failed-produce-requests-total", total(&self.failed_produce_requests)),
            ("fetch-requests-total", total(&self.fetch_requests)),
            ("failed-fetch-requests-total", total(&self.failed_fetch_requests)),
        ]
    }
}

fn total(of: &AtomicU64) -> f64 {
    value(of.load(Ordering::Relaxed))
}

/// A count as the value of a metric.
#[allow(clippy::cast_precision_loss)] // Exact up to 2^53.
pub(crate) fn value(count: u64) -> f64 {
    count as f64
}
