//! The broker's properties of share groups, and the bounds that they set to those of a group. Kafka: `ShareGroupConfig`,
//! `GroupCoordinatorConfig`.

use fletchlog_api::{Config, ConfigError};

use super::consumer_group::Limited;

/// The numbers that a group can have its own values for.
pub(crate) struct ShareGroupConfig {
    assignment_interval: Limited,
    delivery_count: Limited,
    heartbeat_interval: Limited,
    record_locks: Limited,
    lock_duration: Limited,
    session_timeout: Limited,
}

impl ShareGroupConfig {
    /// Reads the broker's properties.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            assignment_interval: Limited {
                name: "assignment.interval.ms",
                value: config.int("group.share.assignment.interval.ms"),
                min: config.int("group.share.min.assignment.interval.ms"),
                max: config.int("group.share.max.assignment.interval.ms"),
            },
            delivery_count: Limited {
                name: "delivery.count.limit",
                value: config.int("group.share.delivery.count.limit"),
                min: config.int("group.share.min.delivery.count.limit"),
                max: config.int("group.share.max.delivery.count.limit"),
            },
            heartbeat_interval: Limited {
                name: "heartbeat.interval.ms",
                value: config.int("group.share.heartbeat.interval.ms"),
                min: config.int("group.share.min.heartbeat.interval.ms"),
                max: config.int("group.share.max.heartbeat.interval.ms"),
            },
            record_locks: Limited {
                name: "partition.max.record.locks",
                value: config.int("group.share.partition.max.record.locks"),
                min: config.int("group.share.min.partition.max.record.locks"),
                max: config.int("group.share.max.partition.max.record.locks"),
            },
            lock_duration: Limited {
                name: "record.lock.duration.ms",
                value: config.int("group.share.record.lock.duration.ms"),
                min: config.int("group.share.min.record.lock.duration.ms"),
                max: config.int("group.share.max.record.lock.duration.ms"),
            },
            session_timeout: Limited {
                name: "session.timeout.ms",
                value: config.int("group.share.session.timeout.ms"),
                min: config.int("group.share.min.session.timeout.ms"),
                max: config.int("group.share.max.session.timeout.ms"),
            },
        }
    }

    /// Refuses properties that contradict each other.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        for limited in self.all() {
            limited.validate("share")?;
        }
        if self.session_timeout.value <= self.heartbeat_interval.value {
            let text = "group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms";
            return Err(ConfigError::Conflict(text.to_owned()));
        }
        Ok(())
    }

    fn all(&self) -> [&Limited; 6] {
        [
            &self.assignment_interval,
            &self.delivery_count,
            &self.heartbeat_interval,
            &self.record_locks,
            &self.lock_duration,
            &self.session_timeout,
        ]
    }

    /// Why a group cannot have this value of a property `share.*`. Kafka: `GroupConfig#validateValues`.
    pub(super) fn refusal(&self, property: &str, value: i64) -> Option<String> {
        let name = property.strip_prefix("share.")?;
        let limited = self.all().into_iter().find(|limited| limited.name == name)?;
        let Limited { min, max, .. } = limited;
        let fits = (i64::from(*min)..=i64::from(*max)).contains(&value);
        (!fits).then(|| format!("{property} must be in the range {min} to {max} inclusive."))
    }

    /// Whether a group with these values of its own has a session time-out above its heartbeat interval.
    pub(super) fn is_session_longer(&self, session_timeout: Option<i32>, heartbeat_interval: Option<i32>) -> bool {
        let session_timeout = session_timeout.unwrap_or(self.session_timeout.value);
        session_timeout > heartbeat_interval.unwrap_or(self.heartbeat_interval.value)
    }
}
