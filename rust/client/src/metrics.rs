//! What a client counts and measures since it was created, under the names of Kafka's metrics. Averages and maxima
//! cover all of that time, where Kafka's cover the last 30 to 60 seconds.

/// Kafka's name and the value; NaN if nothing was measured yet, as in Kafka.
pub type Metric = (&'static str, f64);

/// Number of values, their sum and the largest.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    count: i64,
    sum: i64,
    max: i64,
}

#[allow(clippy::cast_precision_loss)] // Exact up to 2^53.
fn float(number: i64) -> f64 {
    number as f64
}

impl Measured {
    /// Adds a value, which must not be negative.
    #[inline]
    pub(crate) fn add(&mut self, value: i64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    pub(crate) fn count(&self) -> f64 {
        float(self.count)
    }

    pub(crate) fn sum(&self) -> f64 {
        float(self.sum)
    }

    pub(crate) fn avg(&self) -> f64 {
        float(self.sum) / float(self.count)
    }

    pub(crate) fn max(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { float(self.max) }
    }
}

/// Requests of a client. Kafka: `Selector.SelectorMetrics`, summed over all nodes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestMetrics {
    /// Written to the wire.
    pub(crate) requests: i64,
    /// Milliseconds from a request to its response.
    pub(crate) latency: Measured,
}

impl RequestMetrics {
    pub(crate) fn read(&self) -> [Metric; 4] {
        [
            ("request-total", float(self.requests)),
            ("response-total", self.latency.count()),
            ("request-latency-avg", self.latency.avg()),
            ("request-latency-max", self.latency.max()),
        ]
    }
}

/// Metrics of a consumer. Kafka: `FetchMetricsRegistry`, `KafkaConsumerMetrics`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConsumerMetrics {
    /// Number of records of each poll that returned some.
    pub(crate) records: Measured,
    /// Their bytes.
    pub(crate) bytes: Measured,
    /// Bytes of each fetch response.
    pub(crate) fetch_size: Measured,
    /// Milliseconds from a fetch to its response.
    pub(crate) fetch_latency: Measured,
    /// Milliseconds from poll to poll.
    pub(crate) between_polls: Measured,
    pub(crate) last_poll_ms: Option<i64>,
}

impl ConsumerMetrics {
    pub(crate) fn poll_begins(&mut self, now_ms: i64) {
        if let Some(last) = self.last_poll_ms.replace(now_ms) {
            self.between_polls.add(now_ms.saturating_sub(last));
        }
    }

    /// A poll returns records, with so many bytes.
    pub(crate) fn returned(&mut self, records: usize, bytes: usize) {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.records.add(number(records));
        self.bytes.add(number(bytes));
    }

    /// `lag_max`: the largest lag of all partitions whose end is known.
    pub(crate) fn read(&self, requests: &RequestMetrics, lag_max: Option<i64>) -> Vec<Metric> {
        let mut all = vec![
            ("records-consumed-total", self.records.sum()),
            ("bytes-consumed-total", self.bytes.sum()),
            ("records-lag-max", lag_max.map_or(f64::NAN, float)),
            (
                "records-per-request-avg",
                self.records.sum() / self.fetch_latency.count(),
            ),
            ("fetch-total", self.fetch_latency.count()),
            ("fetch-size-avg", self.fetch_size.avg()),
            ("fetch-size-max", self.fetch_size.max()),
            ("fetch-latency-avg", self.fetch_latency.avg()),
            ("fetch-latency-max", self.fetch_latency.max()),
            ("time-between-poll-avg", self.between_polls.avg()),
            ("time-between-poll-max", self.between_polls.max()),
        ];
        all.extend(requests.read());
        all
    }
}

/// Metrics of a share consumer. Kafka: `ShareFetchMetricsRegistry`, `KafkaShareConsumerMetrics`.
#[derive(Debug, Default)]
pub(crate) struct ShareConsumerMetrics {
    /// Those that a consumer has too.
    pub(crate) fetches: ConsumerMetrics,
    /// Records whose acknowledgement was sent, renewals and gaps among them.
    pub(crate) acknowledgements_sent: u64,
    /// Records whose acknowledgement was refused, lost, or not sent because the leader has moved.
    pub(crate) acknowledgements_failed: u64,
}

impl ShareConsumerMetrics {
    pub(crate) fn read(&self, requests: &RequestMetrics) -> Vec<Metric> {
        let number = |count: u64| float(i64::try_from(count).unwrap_or(i64::MAX));
        let mut all = self.fetches.read(requests, None);
        all.retain(|(name, _)| *name != "records-lag-max");
        all.push(("acknowledgements-send-total", number(self.acknowledgements_sent)));
        all.push(("acknowledgements-error-total", number(self.acknowledgements_failed)));
        all
    }
}

/// Metrics of a producer. Kafka: `SenderMetricsRegistry`.
#[derive(Debug, Default)]
pub(crate) struct ProducerMetrics {
    /// Number of records of each produce request, repeated ones included.
    pub(crate) records: Measured,
    pub(crate) retried: i64,
    /// Bytes of each batch as it is sent.
    pub(crate) batch_size: Measured,
    /// Milliseconds from the first record of a batch until it is sent.
    pub(crate) queue_time: Measured,
    /// Copied from the sender.
    pub(crate) requests: RequestMetrics,
}

impl ProducerMetrics {
    /// `failed`: the number of records that have failed.
    pub(crate) fn read(&self, failed: i64) -> Vec<Metric> {
        let mut all = vec![
            ("record-send-total", self.records.sum()),
            ("record-retry-total", float(self.retried)),
            ("record-error-total", float(failed)),
            ("records-per-request-avg", self.records.avg()),
            ("batch-size-avg", self.batch_size.avg()),
            ("batch-size-max", self.batch_size.max()),
            ("record-queue-time-avg", self.queue_time.avg()),
            ("record-queue-time-max", self.queue_time.max()),
        ];
        all.extend(self.requests.read());
        all
    }
}
