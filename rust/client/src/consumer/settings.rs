//! The consumer's properties as typed values, and the rules between them.

use std::sync::Arc;

use fletchlog_api::{Config, ConfigError, IsolationLevel};

use super::decision_table::{ReadMode, Row, row_of};
use crate::group::session_timeout_ms;
use crate::net::Reconnect;

/// First release whose retry backoff grows (KIP-580).
const DOUBLED_BACKOFF: (u32, u32) = (3, 7);

/// Order in which the records of buffered fetches are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchOrder {
    /// Kafka's: a fetch to its end before the next (spec 7.5).
    Partition,
    /// Another fetch after each turn (spec 7.11).
    Kip387,
    /// All partitions merged by timestamp.
    Timestamp,
}

/// Typed properties of one consumer.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Settings {
    pub row: &'static Row,
    pub read_mode: ReadMode,
    pub fetch_order: FetchOrder,
    pub max_lateness_ms: i64,
    pub max_idle_ms: i64,
    pub has_group_id: bool,
    pub trace: bool,
    pub max_poll_records: usize,
    pub max_partition_fetch_bytes: i32,
    pub fetch_max_bytes: i32,
    pub fetch_min_bytes: i32,
    pub fetch_max_wait_ms: i32,
    pub isolation_level: IsolationLevel,
    pub rack: Arc<str>,
    pub check_crcs: bool,
    pub decompression_limit: usize,
    pub retry_backoff_ms: i64,
    pub retry_backoff_max_ms: i64,
    pub request_timeout_ms: i64,
    pub reconnect: Reconnect,
    pub metadata_max_age_ms: i64,
    pub allow_auto_create_topics: bool,
    pub exclude_internal_topics: bool,
}

impl Settings {
    /// From a validated configuration.
    ///
    /// # Errors
    /// [`ConfigError::Conflict`] where two properties contradict each other.
    pub fn of(config: &Config) -> Result<Self, ConfigError> {
        let (heartbeat, session) = (config.int("heartbeat.interval.ms"), session_timeout_ms(config));
        if config.get("group.id").is_some() && heartbeat >= session {
            return Err(ConfigError::Conflict(format!(
                "heartbeat.interval.ms ({heartbeat}) must be lower than session.timeout.ms ({session}); a third of it is usual"
            )));
        }
        if config.get("group.id").is_some_and(str::is_empty) {
            return Err(ConfigError::Conflict(
                "group.id is empty; leave it out, or give the group a name".to_owned(),
            ));
        }
        Ok(Self {
            row: row_of(config.release("fletchlog.consumer.version")),
            read_mode: ReadMode::of(config),
            fetch_order: match config.text("fletchlog.fetch.order") {
                "kip-387" => FetchOrder::Kip387,
                "timestamp" => FetchOrder::Timestamp,
                _ => FetchOrder::Partition,
            },
            max_lateness_ms: config.long("fletchlog.timestamp.max.lateness.ms"),
            max_idle_ms: config.long("fletchlog.timestamp.max.idle.ms"),
            has_group_id: config.get("group.id").is_some(),
            trace: config.boolean("fletchlog.trace"),
            max_poll_records: usize::try_from(config.int("max.poll.records")).unwrap_or(1),
            max_partition_fetch_bytes: config.int("max.partition.fetch.bytes"),
            fetch_max_bytes: config.int("fetch.max.bytes"),
            fetch_min_bytes: config.int("fetch.min.bytes"),
            fetch_max_wait_ms: config.int("fetch.max.wait.ms"),
            isolation_level: match config.text("isolation.level") {
                "read_committed" => IsolationLevel::ReadCommitted,
                _ => IsolationLevel::ReadUncommitted,
            },
            rack: config.text("client.rack").into(),
            check_crcs: config.boolean("check.crcs"),
            decompression_limit: usize::try_from(config.long("fletchlog.decompression.limit.bytes"))
                .unwrap_or(usize::MAX),
            retry_backoff_ms: config.long("retry.backoff.ms"),
            retry_backoff_max_ms: match config.release("fletchlog.consumer.version") {
                release if release >= DOUBLED_BACKOFF => config.long("retry.backoff.max.ms"),
                _ => config.long("retry.backoff.ms"),
            },
            request_timeout_ms: i64::from(config.int("request.timeout.ms")),
            reconnect: Reconnect::of(config),
            metadata_max_age_ms: config.long("metadata.max.age.ms"),
            allow_auto_create_topics: config.boolean("allow.auto.create.topics"),
            exclude_internal_topics: config.boolean("exclude.internal.topics"),
        })
    }
}
