//! When to ask for the topics and leaders of a cluster (spec 9.3). Kafka: `Metadata`, which `ConsumerMetadata` and
//! `ProducerMetadata` extend by what they ask for and keep.

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

/// See the module. A request is due when one is wanted, none is in progress, and retry.backoff.ms have passed since the last
/// answer. Without a wish, one is due when the last answer is metadata.max.age.ms old.
#[derive(Debug)]
pub struct Metadata {
    refresh_backoff_ms: i64,
    /// Where doubling it ends; not above it: it is constant.
    refresh_backoff_max_ms: i64,
    /// Requests lost in a row.
    failed_attempts: u32,
    max_age_ms: i64,
    need_update: bool,
    /// Of the topics to ask for; grows with every new one.
    request_version: u64,
    /// Of the topics that the last answer was asked for.
    answered_version: u64,
    in_progress: Option<u64>,
    /// The last answer, or loss; `None`: the next request need not wait.
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

    /// The back-off doubles with every lost request, up to retry.backoff.max.ms (KIP-580). Kafka's also varies by a fifth at random.
    pub(crate) fn double_backoff_up_to(&mut self, max_ms: i64) {
        self.refresh_backoff_max_ms = max_ms;
    }

    /// Kafka: `Metadata#timeToAllowUpdate`.
    fn backoff_ms(&self) -> i64 {
        let doublings = self.failed_attempts.saturating_sub(1).min(30);
        let doubled = self.refresh_backoff_ms.saturating_mul(1 << doublings);
        doubled.min(self.refresh_backoff_max_ms.max(self.refresh_backoff_ms))
    }

    /// Asks again, not before the back-off has passed; the answer to a request in progress is enough.
    pub(crate) fn request_update(&mut self) {
        self.need_update = true;
    }

    /// Asks again without waiting for the back-off.
    pub(crate) fn request_update_now(&mut self) {
        self.need_update = true;
        self.last_refresh_ms = None;
    }

    /// There are other topics to ask for, at once; a request in progress does not ask for them.
    pub(crate) fn request_update_for_new_topics(&mut self) {
        self.request_version += 1;
        self.last_refresh_ms = None;
    }

    /// Whether other topics were asked for and the answer is still to come.
    pub(crate) fn awaits_new_topics(&self) -> bool {
        self.answered_version != self.request_version
    }

    pub(crate) fn is_update_requested(&self) -> bool {
        self.need_update || self.awaits_new_topics()
    }

    pub(crate) fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// Milliseconds until a request is due; `i64::MAX` while one is in progress, and before anything was wanted.
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

    /// An answer came.
    pub(crate) fn updated(&mut self, now: i64) {
        self.answered_version = self.in_progress.take().unwrap_or(self.request_version);
        self.need_update = false;
        self.failed_attempts = 0;
        self.last_refresh_ms = Some(now);
        self.last_successful_refresh_ms = Some(now);
    }

    /// The request was lost: again, after the back-off. Kafka: `Metadata#failedUpdate`.
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
