//! The share consumer's properties as typed values, and those that it does not take. Kafka: `ShareConsumerConfig`.

use std::sync::Arc;

use fletchlog_api::{Config, ConfigError};

use super::share_completed_fetch::Reading;
use crate::ClientError;
use crate::net::Reconnect;

/// How records are acknowledged. Kafka: `ShareAcknowledgementMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcknowledgementMode {
    /// The next poll accepts what the last one returned.
    Implicit,
    /// Each record is acknowledged before the next poll.
    Explicit,
}

/// How the leader counts the records of a fetch. Kafka: `ShareAcquireMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShareAcquireMode {
    /// Whole batches, until there are enough.
    BatchOptimized = 0,
    /// Exactly max.poll.records at most.
    RecordLimit = 1,
}

/// Properties of a consumer that mean nothing in a share group: the group decides, or the leader of the partition. Kafka:
/// `ShareConsumerConfig.SHARE_GROUP_UNSUPPORTED_CONFIGS`.
const UNSUPPORTED: &[&str] = &[
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "enable.auto.commit",
    "fletchlog.fetch.order",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "isolation.level",
    "partition.assignment.strategy",
    "session.timeout.ms",
];

/// Typed properties of one share consumer.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub group_id: Arc<str>,
    pub client_id: Arc<str>,
    pub rack: Option<Arc<str>>,
    pub acknowledgement_mode: AcknowledgementMode,
    pub acquire_mode: ShareAcquireMode,
    pub max_poll_records: i32,
    pub max_poll_interval_ms: i64,
    pub fetch_max_wait_ms: i32,
    pub fetch_min_bytes: i32,
    pub fetch_max_bytes: i32,
    pub reading: Reading,
    pub retry_backoff_ms: i64,
    pub retry_backoff_max_ms: i64,
    pub request_timeout_ms: i64,
    pub default_api_timeout_ms: i64,
    pub reconnect: Reconnect,
    pub metadata_max_age_ms: i64,
    pub allow_auto_create_topics: bool,
}

impl Settings {
    /// From a validated configuration.
    ///
    /// # Errors
    /// `InvalidGroupId` without group.id; `Config` for a property that a share consumer does not have.
    pub fn of(config: &Config) -> Result<Self, ClientError> {
        let group_id: Arc<str> = config.get("group.id").unwrap_or_default().into();
        if group_id.is_empty() {
            return Err(ClientError::InvalidGroupId(
                "a share consumer reads as a member of a share group: set group.id".to_owned(),
            ));
        }
        if let Some(name) = UNSUPPORTED.iter().find(|name| config.is_explicit(name)) {
            return Err(ClientError::Config(ConfigError::Conflict(format!(
                "a share consumer has no {name}: leave it out; what concerns the group is set for the group (share.auto.offset.reset, share.isolation.level, share.session.timeout.ms, ...)"
            ))));
        }
        Ok(Self {
            group_id,
            client_id: config.text("client.id").into(),
            rack: Some(config.text("client.rack"))
                .filter(|rack| !rack.is_empty())
                .map(Arc::from),
            acknowledgement_mode: match config.text("share.acknowledgement.mode") {
                "explicit" => AcknowledgementMode::Explicit,
                _ => AcknowledgementMode::Implicit,
            },
            acquire_mode: match config.text("share.acquire.mode") {
                "record_limit" => ShareAcquireMode::RecordLimit,
                _ => ShareAcquireMode::BatchOptimized,
            },
            max_poll_records: config.int("max.poll.records"),
            max_poll_interval_ms: i64::from(config.int("max.poll.interval.ms")),
            fetch_max_wait_ms: config.int("fetch.max.wait.ms"),
            fetch_min_bytes: config.int("fetch.min.bytes"),
            fetch_max_bytes: config.int("fetch.max.bytes"),
            reading: Reading {
                check_crcs: config.boolean("check.crcs"),
                decompression_limit: usize::try_from(config.long("fletchlog.decompression.limit.bytes"))
                    .unwrap_or(usize::MAX),
            },
            retry_backoff_ms: config.long("retry.backoff.ms"),
            retry_backoff_max_ms: config.long("retry.backoff.max.ms"),
            request_timeout_ms: i64::from(config.int("request.timeout.ms")),
            default_api_timeout_ms: i64::from(config.int("default.api.timeout.ms")),
            reconnect: Reconnect::of(config),
            metadata_max_age_ms: config.long("metadata.max.age.ms"),
            allow_auto_create_topics: config.boolean("allow.auto.create.topics"),
        })
    }
}
