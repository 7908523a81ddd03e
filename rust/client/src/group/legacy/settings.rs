//! A legacy consumer's properties as typed values, and those of the engine behind each of its streams.

use std::sync::Arc;

use fletchlog_api::{Config, Scope};

use super::consumer_id::consumer_id;
use crate::ClientError;

/// Properties of one legacy consumer.
#[derive(Debug)]
pub(super) struct Settings {
    pub group_id: Arc<str>,
    pub consumer_id: Arc<str>,
    pub session_timeout_ms: i32,
    pub round_robin: bool,
    pub max_retries: i32,
    pub backoff_ms: i64,
    pub auto_commit_interval_ms: Option<i64>,
    pub timeout_ms: i64,
    /// How long an iteration waits for a record; `i64::MAX`: for ever.
    pub consumer_timeout_ms: i64,
}

impl Settings {
    /// From a validated configuration; `now_ms` (wall clock) goes into a generated consumer id.
    pub fn of(config: &Config, now_ms: i64) -> Result<Self, ClientError> {
        let Some(group_id) = config.get("group.id").filter(|id| !id.is_empty()) else {
            return Err(ClientError::InvalidGroupId(
                "a legacy consumer needs a group: set group.id".to_owned(),
            ));
        };
        let group_id: Arc<str> = group_id.into();
        Ok(Self {
            consumer_id: consumer_id(&group_id, config.get("consumer.id"), now_ms),
            session_timeout_ms: config.int("zookeeper.session.timeout.ms"),
            round_robin: config.text("partition.assignment.strategy") == "roundrobin",
            max_retries: config.int("rebalance.max.retries"),
            backoff_ms: i64::from(match config.get("rebalance.backoff.ms") {
                Some(_) => config.int("rebalance.backoff.ms"),
                None => config.int("zookeeper.sync.time.ms"),
            }),
            auto_commit_interval_ms: config
                .boolean("auto.commit.enable")
                .then(|| i64::from(config.int("auto.commit.interval.ms"))),
            timeout_ms: i64::from(config.int("socket.timeout.ms")),
            consumer_timeout_ms: match config.int("consumer.timeout.ms") {
                -1 => i64::MAX,
                ms => i64::from(ms),
            },
            group_id,
        })
    }
}

/// Properties of the modern consumer behind each stream: assigned by hand, positions from the group's committed
/// offsets.
pub(super) fn engine_config(config: &Config) -> Result<Config, ClientError> {
    let reset = match config.text("auto.offset.reset") {
        "smallest" | "earliest" => "earliest",
        _ => "latest",
    };
    let client_id = match config.text("client.id") {
        "" => config.text("group.id"),
        given => given,
    };
    let pairs = [
        ("group.id", config.text("group.id")),
        ("client.id", client_id),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", reset),
        ("fetch.min.bytes", config.text("fetch.min.bytes")),
        ("fetch.max.wait.ms", config.text("fetch.wait.max.ms")),
        ("max.partition.fetch.bytes", config.text("fetch.message.max.bytes")),
        ("max.poll.records", config.text("max.poll.records")),
        ("request.timeout.ms", config.text("socket.timeout.ms")),
    ];
    Ok(Config::parse(Scope::Consumer, pairs)?)
}
