//! When to request the topics and leaders of a cluster (spec 9.3). Kafka: `Metadata`, which `ConsumerMetadata` and
//! `ProducerMetadata` extend by what they request and keep.

use fletchlog_api::ErrorCode;

/// Codes that ask for new metadata (spec 9.3). Kafka: `InvalidMetadataException`.
pub(crate) fn is_metadata_error(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::REPLICA_NOT_AVAILABLE
            | ErrorCode::NETWORK_EXCEPTION
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID
    )
}

/// Decides when a metadata request is due: if an update is wanted, none is in progress, and retry.backoff.ms have
/// passed since the last response. Without a wanted update, when the last response is metadata.max.age.ms old.
#[derive(Debug, Clone)]
pub struct Metadata {
    refresh_backoff_ms: i64,
    /// The back-off doubles up to this; if it is not above `refresh_backoff_ms`, the back-off is constant.
    refresh_backoff_max_ms: i64,
    /// Number of consecutive failed requests.
    failed_attempts: u32,
    max_age_ms: i64,
    need_update: bool,
    /// Version of the wanted topics; increases with every change.
    request_version: u64,
    /// Version of the topics that the last response was requested for.
    answered_version: u64,
    in_progress: Option<u64>,
    /// Time of the last response or failure; `None`: the next request need not wait.
    last_refresh_ms: Option<i64>,
    last_successful_refresh_ms: Option<i64>,
}

impl Metadata {
    /// `refresh_backoff_ms`: retry.backoff.ms. `max_age_ms`: metadata.max.age.ms.
    pub(crate) fn new(refresh_backoff_ms: i64, max_age_ms: i64) -> Self {
        Self {
            refresh_backoff_ms,
            refresh_backoff_max_ms: refresh_backoff_ms,
            failed_attempts: 0,
            max_age_ms,
            need_update: false,
            request_version: 0,
            answered_version: 0,
            in_progress: None,
            last_refresh_ms: None,
            last_successful_refresh_ms: None,
        }
    }

    /// The back-off doubles with every failed request, up to retry.backoff.max.ms (KIP-580). Kafka's also varies at
    /// random by a fifth.
    pub(crate) fn double_backoff_up_to(&mut self, max_ms: i64) {
        self.refresh_backoff_max_ms = max_ms;
    }

    /// Kafka: `Metadata#timeToAllowUpdate`.
    fn backoff_ms(&self) -> i64 {
        let doublings = self.failed_attempts.saturating_sub(1).min(30);
        let doubled = self.refresh_backoff_ms.saturating_mul(1 << doublings);
        doubled.min(self.refresh_backoff_max_ms.max(self.refresh_backoff_ms))
    }

    /// Requests an update, after the back-off; the response to a request in progress is enough.
    pub(crate) fn request_update(&mut self) {
        self.need_update = true;
    }

    /// Requests an update without waiting for the back-off.
    pub(crate) fn request_update_now(&mut self) {
        self.need_update = true;
        self.last_refresh_ms = None;
    }

    /// Requests an update at once, because the wanted topics have changed: a request in progress does not have them.
    pub(crate) fn request_update_for_new_topics(&mut self) {
        self.request_version += 1;
        self.last_refresh_ms = None;
    }

    /// Whether the response for the changed topics has not arrived yet.
    pub(crate) fn awaits_new_topics(&self) -> bool {
        self.answered_version != self.request_version
    }

    pub(crate) fn is_update_requested(&self) -> bool {
        self.need_update || self.awaits_new_topics()
    }

    pub(crate) fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// Milliseconds until a request is due; `i64::MAX` while one is in progress, and before the first update is
    /// requested.
    pub(crate) fn time_to_next_update(&self, now: i64) -> i64 {
        if self.is_in_progress() {
            return i64::MAX;
        }
        let left = |since: i64, wait: i64| since.saturating_add(wait).saturating_sub(now).max(0);
        let to_expire = match self.last_successful_refresh_ms {
            _ if self.is_update_requested() => 0,
            None => return i64::MAX,
            Some(last) => left(last, self.max_age_ms),
        };
        let to_allow = self.last_refresh_ms.map_or(0, |last| left(last, self.backoff_ms()));
        to_expire.max(to_allow)
    }

    /// Kafka: `NetworkClient.DefaultMetadataUpdater#isUpdateDue`.
    pub(crate) fn is_update_due(&self, now: i64) -> bool {
        self.time_to_next_update(now) == 0
    }

    pub(crate) fn start_request(&mut self) {
        self.in_progress = Some(self.request_version);
    }

    /// Records a response.
    pub(crate) fn updated(&mut self, now: i64) {
        self.answered_version = self.in_progress.take().unwrap_or(self.request_version);
        self.need_update = false;
        self.failed_attempts = 0;
        self.last_refresh_ms = Some(now);
        self.last_successful_refresh_ms = Some(now);
    }

    /// Records that a request failed: it is repeated after the back-off. Kafka: `Metadata#failedUpdate`.
    pub(crate) fn failed_update(&mut self, now: i64) {
        self.in_progress = None;
        self.need_update = true;
        self.failed_attempts = self.failed_attempts.saturating_add(1);
        self.last_refresh_ms = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(metadata: &mut Metadata) -> Vec<i64> {
        let lose = |metadata: &mut Metadata| {
            metadata.start_request();
            metadata.failed_update(0);
            metadata.time_to_next_update(0)
        };
        (0..5).map(|_| lose(metadata)).collect()
    }

    #[test]
    fn the_wait_after_a_lost_request_doubles_up_to_its_bound_until_an_answer_comes() {
        let mut metadata = Metadata::new(100, 300_000);
        assert_eq!(waits(&mut metadata), [100; 5], "releases before 3.7");
        metadata.double_backoff_up_to(500);
        metadata.start_request();
        metadata.updated(0);
        assert_eq!(waits(&mut metadata), [100, 200, 400, 500, 500]);
        metadata.start_request();
        metadata.updated(0);
        metadata.request_update();
        assert_eq!(metadata.time_to_next_update(0), 100);
        metadata.double_backoff_up_to(50);
        assert_eq!(waits(&mut metadata), [100; 5], "a bound below it bounds nothing");
    }
}
