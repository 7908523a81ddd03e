//! The broker's properties of consumer groups, and the bounds that they set to those of a group. Kafka: `GroupCoordinatorConfig`.

use fletchlog_api::{Config, ConfigError};

/// A number with its bounds.
pub(super) struct Limited {
    /// Name of the group's property, without `consumer.` or `share.`.
    pub(super) name: &'static str,
    pub(super) value: i32,
    pub(super) min: i32,
    pub(super) max: i32,
}

impl Limited {
    /// Refuses bounds that contradict each other or the value; `protocol`: `consumer` or `share`.
    pub(super) fn validate(&self, protocol: &str) -> Result<(), ConfigError> {
        let Self { name, value, min, max } = self;
        let refuse = |text: String| Err(ConfigError::Conflict(text));
        let (high, low) = (
            format!("group.{protocol}.max.{name}"),
            format!("group.{protocol}.min.{name}"),
        );
        if max < min {
            return refuse(format!("{high} must be greater than or equal to {low}"));
        }
        if value < min {
            return refuse(format!(
                "group.{protocol}.{name} must be greater than or equal to {low}"
            ));
        }
        if value > max {
            return refuse(format!("group.{protocol}.{name} must be less than or equal to {high}"));
        }
        Ok(())
    }
}

/// The times that a group can have its own values for.
pub(crate) struct ConsumerGroupConfig {
    assignment_interval: Limited,
    heartbeat_interval: Limited,
    session_timeout: Limited,
}

impl ConsumerGroupConfig {
    /// Reads the broker's properties.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            assignment_interval: Limited {
                name: "assignment.interval.ms",
                value: config.int("group.consumer.assignment.interval.ms"),
                min: config.int("group.consumer.min.assignment.interval.ms"),
                max: config.int("group.consumer.max.assignment.interval.ms"),
            },
            heartbeat_interval: Limited {
                name: "heartbeat.interval.ms",
                value: config.int("group.consumer.heartbeat.interval.ms"),
                min: config.int("group.consumer.min.heartbeat.interval.ms"),
                max: config.int("group.consumer.max.heartbeat.interval.ms"),
            },
            session_timeout: Limited {
                name: "session.timeout.ms",
                value: config.int("group.consumer.session.timeout.ms"),
                min: config.int("group.consumer.min.session.timeout.ms"),
                max: config.int("group.consumer.max.session.timeout.ms"),
            },
        }
    }

    /// Refuses properties that contradict each other.
    pub(crate) fn validate(&self, config: &Config) -> Result<(), ConfigError> {
        let refuse = |text: String| Err(ConfigError::Conflict(text));
        for limited in self.all() {
            limited.validate("consumer")?;
        }
        if self.session_timeout.value <= self.heartbeat_interval.value {
            return refuse(
                "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms".to_owned(),
            );
        }
        if config.list("group.consumer.assignors").is_empty() {
            return refuse("group.consumer.assignors must contain at least one assignor".to_owned());
        }
        // Kafka: `KafkaConfig#groupCoordinatorRebalanceProtocols`.
        if !config
            .list("group.coordinator.rebalance.protocols")
            .contains(&"classic")
        {
            return refuse("Disabling the 'classic' protocol is not supported.".to_owned());
        }
        Ok(())
    }

    fn all(&self) -> [&Limited; 3] {
        [
            &self.assignment_interval,
            &self.heartbeat_interval,
            &self.session_timeout,
        ]
    }

    /// Least and largest value of a property of a group, `consumer.*`.
    pub(super) fn bounds(&self, property: &str) -> Option<(i64, i64)> {
        let name = property.strip_prefix("consumer.")?;
        let limited = self.all().into_iter().find(|limited| limited.name == name)?;
        Some((limited.min.into(), limited.max.into()))
    }

    /// Whether a group with these values of its own has a session time-out above its heartbeat interval. Kafka:
    /// `GroupConfig#validateValues`.
    pub(super) fn is_session_longer(&self, session_timeout: Option<i32>, heartbeat_interval: Option<i32>) -> bool {
        let session_timeout = session_timeout.unwrap_or(self.session_timeout.value);
        session_timeout > heartbeat_interval.unwrap_or(self.heartbeat_interval.value)
    }
}
