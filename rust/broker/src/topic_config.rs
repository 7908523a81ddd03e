//! From properties to the settings of a log: the topic's property if it is set, else the broker's `log.*` property.
//! Kafka: `LogConfig#fromProps`, `KafkaConfig#extractLogConfigMap`.

use fletchlog_api::{Config, ConfigError, Scope};
use fletchlog_log::LogConfig;
use fletchlog_log::config::Durability;
use fletchlog_records::{Compression, TimestampType};

/// Each topic property with the broker property that it inherits from. Kafka: `ServerTopicConfigSynonyms`.
pub(crate) const TOPIC_CONFIG_SYNONYMS: &[(&str, &str)] = &[
    ("cleanup.policy", "log.cleanup.policy"),
    ("compression.gzip.level", "compression.gzip.level"),
    ("compression.lz4.level", "compression.lz4.level"),
    ("compression.type", "compression.type"),
    ("compression.zstd.level", "compression.zstd.level"),
    ("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    ("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    ("fletchlog.durability", "fletchlog.durability"),
    ("fletchlog.strict.first.sequence", "fletchlog.strict.first.sequence"),
    ("flush.messages", "log.flush.interval.messages"),
    ("flush.ms", "log.flush.interval.ms"),
    ("index.interval.bytes", "log.index.interval.bytes"),
    ("local.retention.bytes", "log.local.retention.bytes"),
    ("local.retention.ms", "log.local.retention.ms"),
    ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("max.decompressed.message.bytes", "max.decompressed.message.bytes"),
    ("max.message.bytes", "message.max.bytes"),
    ("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    ("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    (
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.difference.max.ms",
    ),
    ("message.timestamp.type", "log.message.timestamp.type"),
    ("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    ("min.insync.replicas", "min.insync.replicas"),
    ("preallocate", "log.preallocate"),
    ("remote.copy.lag.bytes", "log.remote.copy.lag.bytes"),
    ("remote.copy.lag.ms", "log.remote.copy.lag.ms"),
    ("retention.bytes", "log.retention.bytes"),
    ("retention.ms", "log.retention.ms"),
    ("segment.bytes", "log.segment.bytes"),
    ("segment.index.bytes", "log.index.size.max.bytes"),
    ("segment.jitter.ms", "log.roll.jitter.ms"),
    ("segment.ms", "log.roll.ms"),
    ("unclean.leader.election.enable", "unclean.leader.election.enable"),
];

/// Settings of one topic's logs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopicConfig {
    /// For the log itself.
    pub(crate) log: LogConfig,
    /// fsync after this many unflushed messages.
    pub(crate) flush_messages: i64,
    /// fsync at an append this long after the last flush.
    pub(crate) flush_ms: i64,
    /// Replicas in sync that acks=all needs.
    pub(crate) min_insync_replicas: usize,
    /// Whether a replica that is not in sync may lead.
    pub(crate) unclean_leader_election: bool,
}

impl TopicConfig {
    /// Combines a topic's properties with the broker's defaults.
    pub(crate) fn new(broker: &Config, topic: &Config) -> Self {
        let pick = |name: &str, inherited: &str| {
            if topic.is_explicit(name) {
                topic.text(name).to_owned()
            } else {
                broker.text(inherited).to_owned()
            }
        };
        let long = |name: &str, inherited: &str| pick(name, inherited).parse().unwrap_or_else(|_| topic.long(name));
        let int = |name: &str, inherited: &str| pick(name, inherited).parse().unwrap_or_else(|_| topic.int(name));
        let policy = pick("cleanup.policy", "log.cleanup.policy");
        let has_policy = |wanted: &str| policy.split(',').any(|p| p.trim() == wanted);
        let (compression_type, compression_level) = compression(&pick("compression.type", "compression.type"), int);
        let log = LogConfig {
            segment_bytes: if topic.is_explicit("internal.segment.bytes") {
                topic.int("internal.segment.bytes")
            } else {
                int("segment.bytes", "log.segment.bytes")
            },
            segment_ms: if topic.is_explicit("segment.ms") {
                topic.long("segment.ms")
            } else {
                broker_roll_ms(broker)
            },
            segment_jitter_ms: long("segment.jitter.ms", "log.roll.jitter.ms"),
            segment_index_bytes: int("segment.index.bytes", "log.index.size.max.bytes"),
            index_interval_bytes: int("index.interval.bytes", "log.index.interval.bytes"),
            retention_ms: if topic.is_explicit("retention.ms") {
                topic.long("retention.ms")
            } else {
                broker_retention_ms(broker)
            },
            retention_bytes: long("retention.bytes", "log.retention.bytes"),
            max_message_bytes: int("max.message.bytes", "message.max.bytes"),
            max_decompressed_message_bytes: int("max.decompressed.message.bytes", "max.decompressed.message.bytes"),
            compression_type,
            compression_level,
            cleanup_delete: has_policy("delete"),
            cleanup_compact: has_policy("compact"),
            message_timestamp_type: match pick("message.timestamp.type", "log.message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            message_timestamp_before_max_ms: time_limit(
                broker,
                topic,
                "message.timestamp.before.max.ms",
                "log.message.timestamp.before.max.ms",
            ),
            message_timestamp_after_max_ms: time_limit(
                broker,
                topic,
                "message.timestamp.after.max.ms",
                "log.message.timestamp.after.max.ms",
            ),
            max_compaction_lag_ms: long("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
            min_compaction_lag_ms: long("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
            min_cleanable_dirty_ratio: pick("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio")
                .parse()
                .unwrap_or(0.5),
            delete_retention_ms: long("delete.retention.ms", "log.cleaner.delete.retention.ms"),
            file_delete_delay_ms: long("file.delete.delay.ms", "log.segment.delete.delay.ms"),
            producer_id_expiration_ms: broker.long("producer.id.expiration.ms"),
            strict_first_sequence: pick("fletchlog.strict.first.sequence", "fletchlog.strict.first.sequence") == "true",
            durability: match pick("fletchlog.durability", "fletchlog.durability").as_str() {
                "fsync" => Durability::Fsync,
                _ => Durability::PageCache,
            },
            ..LogConfig::default()
        };
        Self {
            log,
            flush_messages: long("flush.messages", "log.flush.interval.messages"),
            flush_ms: long("flush.ms", "log.flush.interval.ms"),
            min_insync_replicas: usize::try_from(int("min.insync.replicas", "min.insync.replicas")).unwrap_or(1),
            unclean_leader_election: pick("unclean.leader.election.enable", "unclean.leader.election.enable") == "true",
        }
    }

    /// Refuses properties that contradict each other. Kafka: `LogConfig#validateValues`.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let (min, max) = (self.log.min_compaction_lag_ms, self.log.max_compaction_lag_ms);
        if min > max {
            return Err(ConfigError::Conflict(format!(
                "conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})"
            )));
        }
        Ok(())
    }

    /// `__consumer_offsets` (spec 8.8): compacted, small segments, nothing re-compressed.
    pub(crate) fn offsets_topic(broker: &Config) -> [(String, String); 3] {
        [
            ("cleanup.policy".to_owned(), "compact".to_owned()),
            ("compression.type".to_owned(), "producer".to_owned()),
            (
                "segment.bytes".to_owned(),
                broker.text("offsets.topic.segment.bytes").to_owned(),
            ),
        ]
    }

    /// `__transaction_state` (spec 10.3): compacted, not compressed, without unclean elections. Kafka:
    /// `TransactionCoordinator#transactionStateTopicConfigs`.
    pub(crate) fn transaction_topic(broker: &Config) -> [(String, String); 5] {
        [
            ("cleanup.policy".to_owned(), "compact".to_owned()),
            ("compression.type".to_owned(), "uncompressed".to_owned()),
            (
                "min.insync.replicas".to_owned(),
                broker.text("transaction.state.log.min.isr").to_owned(),
            ),
            (
                "segment.bytes".to_owned(),
                broker.text("transaction.state.log.segment.bytes").to_owned(),
            ),
            ("unclean.leader.election.enable".to_owned(), "false".to_owned()),
        ]
    }

    /// `__share_group_state`: snapshots and updates, kept until they are deleted. Kafka: `ShareCoordinatorService#shareGroupStateTopicConfigs`.
    pub(crate) fn share_state_topic(broker: &Config) -> [(String, String); 5] {
        [
            ("cleanup.policy".to_owned(), "delete".to_owned()),
            ("compression.type".to_owned(), "producer".to_owned()),
            (
                "min.insync.replicas".to_owned(),
                broker.text("share.coordinator.state.topic.min.isr").to_owned(),
            ),
            ("retention.ms".to_owned(), "-1".to_owned()),
            (
                "segment.bytes".to_owned(),
                broker.text("share.coordinator.state.topic.segment.bytes").to_owned(),
            ),
        ]
    }
}

/// The value of a topic's property that is in effect, as text; `inherited` is the broker's property behind it, "" if there is none.
pub(crate) fn effective(broker: &Config, topic: &Config, name: &str, inherited: &'static str) -> Option<String> {
    let has_key = |scope, name: &str| {
        fletchlog_api::config_table::keys(scope)
            .iter()
            .any(|key| key.name == name)
    };
    if topic.is_explicit(name) {
        return topic.get(name).map(str::to_owned);
    }
    match name {
        "retention.ms" => Some(broker_retention_ms(broker).to_string()),
        "segment.ms" => Some(broker_roll_ms(broker).to_string()),
        "message.timestamp.after.max.ms" | "message.timestamp.before.max.ms" => {
            Some(time_limit(broker, topic, name, inherited).to_string())
        }
        _ => {
            let of_broker = has_key(Scope::Broker, inherited)
                .then(|| broker.get(inherited))
                .flatten();
            of_broker.or_else(|| topic.get(name)).map(str::to_owned)
        }
    }
}

/// A limit of spec 2.2: the new name wins where it is set, else the old name supplies it; first of the topic, then of
/// the broker.
fn time_limit(broker: &Config, topic: &Config, name: &str, inherited: &str) -> i64 {
    if topic.is_explicit(name) {
        topic.long(name)
    } else if topic.is_explicit("message.timestamp.difference.max.ms") {
        topic.long("message.timestamp.difference.max.ms")
    } else if broker.is_explicit(inherited) {
        broker.long(inherited)
    } else if broker.is_explicit("log.message.timestamp.difference.max.ms") {
        broker.long("log.message.timestamp.difference.max.ms")
    } else {
        topic.long(name)
    }
}

/// log.retention.ms, else .minutes, else .hours; negative = never.
fn broker_retention_ms(broker: &Config) -> i64 {
    let millis = [
        (broker.get("log.retention.ms"), 1),
        (broker.get("log.retention.minutes"), 60_000),
        (broker.get("log.retention.hours"), 3_600_000),
    ]
    .into_iter()
    .find_map(|(value, unit)| Some(value?.parse::<i64>().ok()?.saturating_mul(unit)))
    .unwrap_or(-1);
    millis.max(-1)
}

/// log.roll.ms, else log.roll.hours.
fn broker_roll_ms(broker: &Config) -> i64 {
    match broker.get("log.roll.ms") {
        Some(_) => broker.long("log.roll.ms"),
        None => broker.long("log.roll.hours").saturating_mul(3_600_000),
    }
}

fn compression(name: &str, int: impl Fn(&str, &str) -> i32) -> (Option<Compression>, Option<i32>) {
    match name {
        "uncompressed" => (Some(Compression::None), None),
        "gzip" => (
            Some(Compression::Gzip),
            Some(int("compression.gzip.level", "compression.gzip.level")).filter(|&l| l != -1),
        ),
        "snappy" => (Some(Compression::Snappy), None),
        "lz4" => (
            Some(Compression::Lz4),
            Some(int("compression.lz4.level", "compression.lz4.level")),
        ),
        "zstd" => (
            Some(Compression::Zstd),
            Some(int("compression.zstd.level", "compression.zstd.level")),
        ),
        _ => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(broker: &[(&str, &str)], topic: &[(&str, &str)]) -> TopicConfig {
        let broker = Config::parse(Scope::Broker, broker.iter().copied()).unwrap();
        TopicConfig::new(&broker, &Config::parse(Scope::Topic, topic.iter().copied()).unwrap())
    }

    #[test]
    fn the_defaults_are_the_logs_own() {
        assert_eq!(config(&[], &[]).log, LogConfig::default());
    }

    #[test]
    fn a_topic_inherits_the_brokers_log_properties_and_overrides_them() {
        let broker = [
            ("log.segment.bytes", "1000"),
            ("log.retention.minutes", "2"),
            ("log.message.timestamp.type", "LogAppendTime"),
        ];
        let inherited = config(&broker, &[]).log;
        assert_eq!((inherited.segment_bytes, inherited.retention_ms), (1000, 120_000));
        assert_eq!(inherited.message_timestamp_type, TimestampType::LogAppendTime);
        let own = config(
            &broker,
            &[
                ("segment.bytes", "2000"),
                ("retention.ms", "-1"),
                ("message.timestamp.type", "CreateTime"),
            ],
        )
        .log;
        assert_eq!((own.segment_bytes, own.retention_ms), (2000, -1));
        assert_eq!(own.message_timestamp_type, TimestampType::CreateTime);
    }

    #[test]
    fn the_old_time_difference_limit_supplies_both_new_ones_when_alone() {
        let alone = config(&[], &[("message.timestamp.difference.max.ms", "7")]).log;
        assert_eq!(
            (
                alone.message_timestamp_before_max_ms,
                alone.message_timestamp_after_max_ms
            ),
            (7, 7)
        );
        let both = config(
            &[],
            &[
                ("message.timestamp.difference.max.ms", "7"),
                ("message.timestamp.after.max.ms", "9"),
            ],
        )
        .log;
        assert_eq!(
            (
                both.message_timestamp_before_max_ms,
                both.message_timestamp_after_max_ms
            ),
            (7, 9)
        );
        let inherited = config(&[("log.message.timestamp.difference.max.ms", "5")], &[]).log;
        assert_eq!(
            (
                inherited.message_timestamp_before_max_ms,
                inherited.message_timestamp_after_max_ms
            ),
            (5, 5)
        );
    }

    #[test]
    fn the_finer_retention_unit_wins() {
        assert_eq!(config(&[("log.retention.hours", "1")], &[]).log.retention_ms, 3_600_000);
        assert_eq!(
            config(&[("log.retention.hours", "1"), ("log.retention.ms", "5")], &[])
                .log
                .retention_ms,
            5
        );
        assert_eq!(config(&[("log.retention.hours", "-1")], &[]).log.retention_ms, -1);
    }

    #[test]
    fn codecs_carry_their_level() {
        let log = config(&[], &[("compression.type", "zstd"), ("compression.zstd.level", "7")]).log;
        assert_eq!(
            (log.compression_type, log.compression_level),
            (Some(Compression::Zstd), Some(7))
        );
        let log = config(&[], &[("compression.type", "gzip")]).log;
        assert_eq!(
            (log.compression_type, log.compression_level),
            (Some(Compression::Gzip), None)
        );
    }
}
