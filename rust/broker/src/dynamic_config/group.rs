//! The properties of a group. Those of streams groups, which this broker does not serve, are only kept and described; as in Kafka, none has an
//! effect on classic groups. Kafka: `GroupConfig`, with the texts of its errors.

use fletchlog_api::config_table::{BY_DURATION, Kind, kafka_refusal_of, parse_duration_ms};
use fletchlog_api::{Config, ErrorCode};

use super::consumer_group::ConsumerGroupConfig;
use super::share_group::ShareGroupConfig;
use super::{Properties, refused};
use crate::BrokerError;

/// A property of a group.
pub(crate) struct GroupProperty {
    pub(crate) name: &'static str,
    /// The broker's property with the same meaning. Kafka: `GroupConfig#ALL_GROUP_CONFIG_SYNONYMS`.
    pub(crate) synonym: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    /// The bounds that the defaults of the broker's own properties set; for `consumer.*` and `share.*`, the broker's table has them.
    bounds: Option<(i64, i64)>,
}

const fn row(
    name: &'static str,
    synonym: &'static str,
    kind: Kind,
    default: &'static str,
    bounds: Option<(i64, i64)>,
) -> GroupProperty {
    GroupProperty {
        name,
        synonym,
        kind,
        default,
        bounds,
    }
}

const fn at_least(low: i32) -> Kind {
    Kind::Int(low, i32::MAX)
}

const SESSION: Option<(i64, i64)> = Some((45_000, 60_000));
const HEARTBEAT: Option<(i64, i64)> = Some((5_000, 15_000));
const ASSIGNMENT: Option<(i64, i64)> = Some((0, 15_000));

/// Every property of a group, by name.
#[rustfmt::skip]
pub(crate) const GROUP: &[GroupProperty] = &[
    row("consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms", at_least(0), "1000", None),
    row("consumer.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms", at_least(1), "5000", None),
    row("consumer.session.timeout.ms", "group.consumer.session.timeout.ms", at_least(1), "45000", None),
    row("errors.deadletterqueue.copy.record.enable", "errors.deadletterqueue.copy.record.enable", Kind::Boolean, "false", None),
    row("errors.deadletterqueue.topic.name", "errors.deadletterqueue.topic.name", Kind::Text, "", None),
    row("share.assignment.interval.ms", "group.share.assignment.interval.ms", at_least(0), "1000", None),
    row("share.auto.offset.reset", "share.auto.offset.reset", Kind::Text, "latest", None),
    row("share.delivery.count.limit", "group.share.delivery.count.limit", at_least(2), "5", None),
    row("share.heartbeat.interval.ms", "group.share.heartbeat.interval.ms", at_least(1), "5000", None),
    row("share.isolation.level", "share.isolation.level", Kind::OneOf(&["read_committed", "read_uncommitted"]), "read_uncommitted", None),
    row("share.partition.max.record.locks", "group.share.partition.max.record.locks", at_least(100), "2000", None),
    row("share.record.lock.duration.ms", "group.share.record.lock.duration.ms", at_least(1_000), "30000", None),
    row("share.renew.acknowledge.enable", "share.renew.acknowledge.enable", Kind::Boolean, "true", None),
    row("share.session.timeout.ms", "group.share.session.timeout.ms", at_least(1), "45000", None),
    row("streams.assignment.interval.ms", "group.streams.assignment.interval.ms", at_least(0), "1000", ASSIGNMENT),
    row("streams.assignor.name", "streams.assignor.name", Kind::Text, "sticky", None),
    row("streams.heartbeat.interval.ms", "group.streams.heartbeat.interval.ms", at_least(1), "5000", HEARTBEAT),
    row("streams.initial.rebalance.delay.ms", "group.streams.initial.rebalance.delay.ms", at_least(0), "3000", None),
    row("streams.num.standby.replicas", "group.streams.num.standby.replicas", at_least(0), "0", Some((0, 2))),
    row("streams.rack.aware.assignment.tags", "group.streams.rack.aware.assignment.tags", Kind::ListOf(&[]), "", None),
    row("streams.session.timeout.ms", "group.streams.session.timeout.ms", at_least(1), "45000", SESSION),
];

/// Checks that these are valid as all properties set for a group of a broker with these properties.
pub(super) fn validate(group: &str, properties: &Properties, broker: &Config) -> Result<(), BrokerError> {
    if group.is_empty() {
        let text = "Default group resources are not allowed.";
        return Err(refused(ErrorCode::INVALID_REQUEST, text));
    }
    let known = |name: &str| GROUP.iter().find(|property| property.name == name);
    if let Some(name) = properties.keys().find(|name| known(name).is_none()) {
        let text = format!("Unknown group config name: {name}");
        return Err(refused(ErrorCode::INVALID_CONFIG, text));
    }
    let rows = || {
        properties
            .iter()
            .filter_map(|(name, value)| Some((known(name)?, value)))
    };
    let of_type = rows().find_map(|(property, value)| property.refusal_of_type(value));
    let consumer = ConsumerGroupConfig::new(broker);
    let share = ShareGroupConfig::new(broker);
    let of_bounds = || {
        rows().find_map(|(property, value)| {
            let of_share = || share.refusal(property.name, value.parse().ok()?);
            property.refusal_of_bounds(value, &consumer).or_else(of_share)
        })
    };
    let number = |name: &str| properties.get(name)?.parse().ok();
    let of_session = || {
        let (session, heartbeat) = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms");
        let is_longer = consumer.is_session_longer(number(session), number(heartbeat));
        (!is_longer).then(|| format!("{session} must be greater than {heartbeat}"))
    };
    let of_share_session = || {
        let (session, heartbeat) = ("share.session.timeout.ms", "share.heartbeat.interval.ms");
        let is_longer = share.is_session_longer(number(session), number(heartbeat));
        (!is_longer).then(|| format!("{session} must be greater than {heartbeat}"))
    };
    let of_dead_letters = || {
        let name = "errors.deadletterqueue.topic.name";
        let is_internal = properties.get(name).is_some_and(|topic| topic.starts_with("__"));
        is_internal.then(|| format!("{name}: DLQ topic name must not start with '__'"))
    };
    let refusal = of_type
        .or_else(of_bounds)
        .or_else(of_session)
        .or_else(of_share_session)
        .or_else(of_dead_letters);
    refusal.map_or(Ok(()), |text| Err(refused(ErrorCode::INVALID_CONFIG, text)))
}

impl GroupProperty {
    fn refusal_of_type(&self, value: &str) -> Option<String> {
        let name = self.name;
        if name == "share.auto.offset.reset" && !is_reset(value) {
            return Some(format!(
                "Invalid value {value} for configuration {name}: Invalid value `{value}` for configuration {name}. The value must be \
                 either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            ));
        }
        kafka_refusal_of(name, &self.kind, value)
    }

    /// Kafka: `GroupConfig#validateValues`.
    fn refusal_of_bounds(&self, value: &str, consumer: &ConsumerGroupConfig) -> Option<String> {
        let (low, high) = self.bounds.or_else(|| consumer.bounds(self.name))?;
        let number = value.parse::<i64>().ok()?;
        let (protocol, rest) = self.name.split_once('.')?;
        let rest = rest.trim_start_matches("num.");
        let (comparison, bound) = match number {
            _ if number < low => ("greater", "min"),
            _ if number > high => ("less", "max"),
            _ => return None,
        };
        Some(format!(
            "{} must be {comparison} than or equal to group.{protocol}.{bound}.{rest}",
            self.name
        ))
    }
}

/// earliest, latest, or by_duration with an ISO 8601 duration of days and less. Kafka: `ShareGroupAutoOffsetResetStrategy`.
fn is_reset(value: &str) -> bool {
    let duration = value.strip_prefix(BY_DURATION);
    matches!(value, "earliest" | "latest") || duration.is_some_and(|text| parse_duration_ms(text).is_some())
}
