//! The properties of a share group that the leaders of partitions read (spec 14.5). Kafka: `ShareGroupConfigProvider`.

use fletchlog_api::config_table::{BY_DURATION, parse_duration_ms};
use fletchlog_api::{Config, IsolationLevel};

use super::share_partition::Limits;
use crate::dynamic_config::BrokerConfigs;

/// The properties of one group as they are now.
pub(super) struct ShareGroupConfig<'a> {
    configs: &'a BrokerConfigs,
    group_id: &'a str,
}

/// share.auto.offset.reset: where a partition without a state begins. Kafka: `ShareGroupAutoOffsetResetStrategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OffsetReset {
    Earliest,
    Latest,
    /// This many ms before now.
    Before(i64),
}

impl<'a> ShareGroupConfig<'a> {
    /// Of a group.
    pub(super) fn new(configs: &'a BrokerConfigs, group_id: &'a str) -> Self {
        Self { configs, group_id }
    }

    fn number(&self, name: &str) -> i64 {
        self.text(name).trim().parse().unwrap_or(0)
    }

    fn text(&self, name: &str) -> String {
        self.configs.group_value(self.group_id, name)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.text(name).trim().eq_ignore_ascii_case(value)
    }

    /// share.record.lock.duration.ms
    pub(super) fn lock_ms(&self) -> i64 {
        self.number("share.record.lock.duration.ms")
    }

    /// The limits of records in flight.
    pub(super) fn limits(&self) -> Limits {
        let max_deliveries = self.number("share.delivery.count.limit");
        Limits {
            lock_ms: self.lock_ms(),
            max_deliveries: u16::try_from(max_deliveries).unwrap_or(u16::MAX),
            max_locks: self.number("share.partition.max.record.locks"),
            dead_letters: self.dead_letter_topic().is_some(),
        }
    }

    /// share.isolation.level
    pub(super) fn isolation(&self) -> IsolationLevel {
        match self.text("share.isolation.level").as_str() {
            "read_committed" => IsolationLevel::ReadCommitted,
            _ => IsolationLevel::ReadUncommitted,
        }
    }

    /// share.renew.acknowledge.enable
    pub(super) fn may_renew(&self) -> bool {
        !self.is("share.renew.acknowledge.enable", "false")
    }

    /// share.auto.offset.reset
    pub(super) fn offset_reset(&self) -> OffsetReset {
        let text = self.text("share.auto.offset.reset");
        match text.as_str() {
            "earliest" => OffsetReset::Earliest,
            other => match other.strip_prefix(BY_DURATION).and_then(parse_duration_ms) {
                Some(ms) => OffsetReset::Before(ms),
                None => OffsetReset::Latest,
            },
        }
    }

    /// errors.deadletterqueue.topic.name
    pub(super) fn dead_letter_topic(&self) -> Option<String> {
        Some(self.text("errors.deadletterqueue.topic.name")).filter(|name| !name.is_empty())
    }

    /// errors.deadletterqueue.copy.record.enable
    pub(super) fn copies_dead_letters(&self) -> bool {
        self.is("errors.deadletterqueue.copy.record.enable", "true")
    }

    /// The broker's properties.
    pub(super) fn broker(&self) -> &Config {
        self.configs.of(1)
    }
}
