//! The properties of a share group that the leaders of partitions read (spec 14.5). Kafka: `ShareGroupConfigProvider`.

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
        self.configs.group_value(self.group_id, name).parse().unwrap_or(0)
    }

    fn text(&self, name: &str) -> String {
        self.configs.group_value(self.group_id, name)
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
        self.text("share.renew.acknowledge.enable") != "false"
    }

    /// share.auto.offset.reset
    pub(super) fn offset_reset(&self) -> OffsetReset {
        let text = self.text("share.auto.offset.reset");
        match text.as_str() {
            "earliest" => OffsetReset::Earliest,
            other => match other.strip_prefix("by_duration:").and_then(duration_ms) {
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
        self.text("errors.deadletterqueue.copy.record.enable") == "true"
    }

    /// The broker's properties.
    pub(super) fn broker(&self) -> &Config {
        self.configs.of(1)
    }
}

/// The milliseconds of an ISO 8601 duration of days and less. Kafka: `java.time.Duration#parse`.
fn duration_ms(text: &str) -> Option<i64> {
    let (days, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((days, time)) => (days, time),
        None => (text.strip_prefix('P')?, ""),
    };
    let mut total = 0.0f64;
    let mut rest = days;
    for (part, unit_ms) in [('D', 86_400_000.0), ('H', 3_600_000.0), ('M', 60_000.0), ('S', 1_000.0)] {
        if part == 'H' {
            if !rest.is_empty() {
                return None;
            }
            rest = time;
        }
        if let Some((number, behind)) = rest.split_once(part) {
            total += number.parse::<f64>().ok()? * unit_ms;
            rest = behind;
        }
    }
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a duration of more milliseconds than an i64 has is the largest one"
    )]
    rest.is_empty().then_some(total.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::duration_ms;

    #[test]
    fn durations_are_those_of_java() {
        let cases = [
            ("PT1H", Some(3_600_000)),
            ("PT0S", Some(0)),
            ("P1D", Some(86_400_000)),
            ("P1DT2H3M4.5S", Some(93_784_500)),
            ("PT15M", Some(900_000)),
            ("1H", None),
            ("PT1X", None),
            ("P1H", None),
        ];
        for (text, expected) in cases {
            assert_eq!(duration_ms(text), expected, "{text}");
        }
    }
}
