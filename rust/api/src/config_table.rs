//! The table of every configuration property: the single source of names, defaults, ranges and docs.
//! Kafka: `ConfigDef`. The rows are in one module per scope.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::nearest::nearest_name;
use crate::other_clients::{self, Foreign};

mod broker;
mod consumer;
mod legacy_consumer;
mod producer;
mod topic;

/// The part of the product that a property belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// `Consumer`.
    Consumer,
    /// `Producer`.
    Producer,
    /// `create_topic(config=...)`.
    Topic,
    /// `Broker(config=...)`.
    Broker,
    /// `LegacyConsumer` (the 0.8 high-level consumer).
    LegacyConsumer,
}

/// Type and range of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// true or false.
    Boolean,
    /// 32-bit integer in a closed range.
    Int(i32, i32),
    /// 64-bit integer in a closed range.
    Long(i64, i64),
    /// Floating point in a closed range.
    Double(f64, f64),
    /// Any text.
    Text,
    /// Any text; a secret that is never shown. Kafka: `ConfigDef.Type.PASSWORD`.
    Password,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// Comma-separated list of these (empty slice: anything).
    ListOf(&'static [&'static str]),
    /// A level of gzip: 1 to 9, or -1 for the codec's default. Kafka: `CompressionType#levelValidator`.
    GzipLevel,
    /// `*`, or a comma-separated list of `PARTITION:NODE`. Kafka: `ThrottledReplicaListValidator`.
    ThrottledReplicas,
    /// earliest, latest, none or by_duration with a duration of ISO 8601. Kafka: `AutoOffsetResetStrategy` (KIP-1106).
    OffsetReset,
    /// A client release such as 2.6 or 2.6.3, within 2.4 .. 4.4.
    Release,
    /// Only its default is accepted: a property of Kafka for something that is not supported here. The inner type is Kafka's.
    Only(&'static Kind),
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct ConfigKey {
    /// Kafka's dotted name.
    pub name: &'static str,
    /// The part that it belongs to.
    pub scope: Scope,
    /// Type and range.
    pub kind: Kind,
    /// Default as text; `None` = unset.
    pub default: Option<&'static str>,
    /// One or two sentences: what it does, its unit.
    pub doc: &'static str,
}

impl ConfigKey {
    /// A value as it may be shown.
    fn shown<'a>(&self, value: &'a str) -> &'a str {
        if self.kind == Kind::Password { HIDDEN } else { value }
    }
}

/// Rows of one scope, by name.
pub fn keys(scope: Scope) -> &'static [ConfigKey] {
    match scope {
        Scope::Consumer => consumer::KEYS,
        Scope::Producer => producer::KEYS,
        Scope::Topic => topic::KEYS,
        Scope::Broker => broker::KEYS,
        Scope::LegacyConsumer => legacy_consumer::KEYS,
    }
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No such property.
    #[error("unknown configuration `{name}` for a {scope:?}{}", suggestion.as_ref().map_or(String::new(), |s| format!("; did you mean `{s}`?")))]
    Unknown {
        /// The name given.
        name: String,
        /// The part whose configuration it was.
        scope: Scope,
        /// The nearest known name.
        suggestion: Option<String>,
    },
    /// A property of another client that asks for something that is not supported here.
    #[error("configuration `{name}` of another client cannot be followed: {instead}")]
    Refused {
        /// The name given.
        name: String,
        /// What to do.
        instead: &'static str,
    },
    /// The value does not fit.
    #[error("invalid value `{value}` for configuration `{name}`: {reason}")]
    Invalid {
        /// The name given.
        name: String,
        /// The value given.
        value: String,
        /// What is expected.
        reason: String,
    },
    /// Two properties contradict each other.
    #[error("{0}")]
    Conflict(String),
}

impl ConfigError {
    /// The text of a Kafka broker's refusal of a property of a topic or of the broker. Kafka: `ConfigDef`, `LogConfig#validateNames`.
    pub fn kafka_message(&self) -> String {
        match self {
            Self::Unknown { name, .. } => format!("Unknown topic config name: {name}"),
            Self::Invalid { name, value, reason } => {
                let mut rows = keys(Scope::Topic).iter().chain(keys(Scope::Broker));
                match rows.find(|key| key.name == name) {
                    // Kafka: `LogConfig#validateRemoteStorageOnlyIfSystemEnabled`.
                    Some(ConfigKey { name: "remote.storage.enable", kind: Kind::Only(kind), .. }) if parses(kind, value) => {
                        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
                            .to_owned()
                    }
                    Some(key) => kafka_refusal(name, &key.kind, key.default, value),
                    None => format!("Invalid value {value} for configuration {name}: {reason}"),
                }
            }
            Self::Refused { .. } => self.to_string(),
            Self::Conflict(text) => text.clone(),
        }
    }
}

/// Kafka's text for a value that is not of this type or not in its range; `None`: the value is valid. For properties that a Kafka broker
/// accepts and that are in no table of this module. Kafka: `ConfigDef#parseValue`.
pub fn kafka_refusal_of(name: &str, kind: &Kind, value: &str) -> Option<String> {
    (!parses(kind, value)).then(|| kafka_refusal(name, kind, None, value))
}

fn kafka_refusal(name: &str, kind: &Kind, default: Option<&str>, value: &str) -> String {
    let (value, reason) = kafka_reason(name, kind, default, value);
    format!("Invalid value {value} for configuration {name}: {reason}")
}

/// The value that Kafka refuses, and the text of its error. Kafka: `ConfigDef#parseType`, `ConfigDef.Range`, `ConfigDef.ValidString`.
fn kafka_reason<'a>(name: &str, kind: &Kind, default: Option<&str>, value: &'a str) -> (Cow<'a, str>, String) {
    fn range<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
        value: &str,
        low: T,
        high: T,
        name: &str,
    ) -> String {
        match value.parse::<T>() {
            Err(_) => format!("Not a number of type {name}"),
            Ok(number) if number < low => format!("Value must be at least {low}"),
            Ok(_) => format!("Value must be no more than {high}"),
        }
    }
    let one_of = |choices: &[&str]| format!("String must be one of: {}", choices.join(", "));
    let reason = match *kind {
        Kind::Boolean => "Expected value to be either true or false".to_owned(),
        Kind::Int(low, high) => range(value, low, high, "INT"),
        Kind::Long(low, high) => range(value, low, high, "LONG"),
        Kind::Double(low, high) => {
            let number = value.parse::<f64>().map(|number| format!("{number:?}"));
            let reason = range(value, low, high, "DOUBLE");
            return (number.map_or(Cow::Borrowed(value), Cow::Owned), reason);
        }
        Kind::OneOf(choices) => one_of(choices),
        Kind::ListOf(choices) => {
            let mut items = value.split(',').map(str::trim);
            let wrong = items.find(|item| !item.is_empty() && !choices.contains(item));
            return (wrong.unwrap_or(value).into(), one_of(choices));
        }
        Kind::Only(kind) if parses(kind, value) => one_of(&[default.unwrap_or("")]),
        Kind::Only(kind) => return kafka_reason(name, kind, default, value),
        Kind::GzipLevel => match value.parse::<i32>() {
            Err(_) => "Not a number of type INT".to_owned(),
            Ok(_) => "Value must be between 1 and 9 or equal to -1".to_owned(),
        },
        Kind::ThrottledReplicas => {
            let items: Vec<&str> = value.split(',').map(str::trim).collect();
            let reason = "must be the literal '*' or a list of replicas in the following format: \
                          [partitionId]:[brokerId],[partitionId]:[brokerId],...";
            return (format!("[{}]", items.join(", ")).into(), format!("{name} {reason}"));
        }
        Kind::Text | Kind::Password | Kind::Release | Kind::OffsetReset => "not understood".to_owned(),
    };
    (Cow::Borrowed(value), reason)
}

/// Whether a value is of this type and in its range.
fn parses(kind: &Kind, value: &str) -> bool {
    check(kind, None, value).is_ok()
}

/// What is shown in place of a secret. Kafka: `Password#HIDDEN`.
pub const HIDDEN: &str = "[hidden]";

/// Validated properties of one client, topic or broker: every key of the scope that is set or has a default. `Debug` shows those that
/// were set, and no secret.
#[derive(Clone, PartialEq)]
pub struct Config {
    scope: Scope,
    pub(crate) values: BTreeMap<&'static str, String>,
    explicit: Vec<&'static str>,
    ignored: Vec<(&'static str, &'static str)>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.shown()).finish()
    }
}

const GROUP_PROTOCOL: &str = "group.protocol";

impl Config {
    /// Validates `given` (names and values as text) against the rows of `scope` and adds the defaults.
    ///
    /// # Errors
    /// [`ConfigError::Unknown`] with the nearest name, [`ConfigError::Invalid`] with what is expected.
    pub fn parse<'a>(scope: Scope, given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ConfigError> {
        let defaults = keys(scope)
            .iter()
            .filter_map(|key| Some((key.name, key.default?.to_owned())));
        let config = Self {
            scope,
            values: defaults.collect(),
            explicit: Vec::new(),
            ignored: Vec::new(),
        };
        config.with(given)
    }

    /// The same properties with these ones changed.
    ///
    /// # Errors
    /// As for [`Config::parse`].
    pub fn with<'a>(mut self, given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ConfigError> {
        let scope = self.scope;
        for (name, value) in given {
            let name = other_clients::own_name(scope, without_listener_name(scope, name));
            let Some(key) = keys(scope).iter().find(|k| k.name == name) else {
                match other_clients::outcome(scope, name, value) {
                    Foreign::Ignored(row) => self.ignored.push(row),
                    Foreign::Holds => {}
                    Foreign::Refused(instead) => {
                        return Err(ConfigError::Refused {
                            name: name.to_owned(),
                            instead,
                        });
                    }
                    Foreign::Unknown => {
                        return Err(ConfigError::Unknown {
                            name: name.to_owned(),
                            scope,
                            suggestion: nearest(scope, name),
                        });
                    }
                }
                continue;
            };
            let value = other_clients::own_value(scope, name, value.trim());
            check(&key.kind, key.default, value).map_err(|reason| ConfigError::Invalid {
                name: name.to_owned(),
                value: key.shown(value).to_owned(),
                reason,
            })?;
            let value = if matches!(key.kind, Kind::Boolean | Kind::Only(Kind::Boolean)) {
                value.to_ascii_lowercase()
            } else {
                value.to_owned()
            };
            self.values.insert(key.name, value);
            if !self.explicit.contains(&key.name) {
                self.explicit.push(key.name);
            }
        }
        self.check_reset_of_release()?;
        self.check_group_protocol()?;
        Ok(self)
    }

    /// Properties of a member that only one of the two group protocols has. Kafka: `ConsumerConfig#checkUnsupportedConfigsPostProcess`.
    fn check_group_protocol(&self) -> Result<(), ConfigError> {
        if self.scope != Scope::Consumer {
            return Ok(());
        }
        let (names, reason): (&[&'static str], &str) = match self.text(GROUP_PROTOCOL) {
            "consumer" => (
                &[
                    "heartbeat.interval.ms",
                    "partition.assignment.strategy",
                    "session.timeout.ms",
                ],
                "under group.protocol=consumer the broker decides it (group.consumer.*, or the properties of the group; for the assignor group.remote.assignor): leave it out",
            ),
            _ => (
                &["group.remote.assignor"],
                "only a group of group.protocol=consumer has it: set that too, or use partition.assignment.strategy",
            ),
        };
        match names.iter().find(|name| self.is_explicit(name)) {
            Some(name) => Err(ConfigError::Invalid {
                name: (*name).to_owned(),
                value: self.text(name).to_owned(),
                reason: reason.to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// auto.offset.reset may be a duration only from release 4.0 on (KIP-1106).
    fn check_reset_of_release(&self) -> Result<(), ConfigError> {
        if self.scope != Scope::Consumer || self.release("fletchlog.consumer.version") >= (4, 0) {
            return Ok(());
        }
        let name = "auto.offset.reset";
        match self.text(name) {
            value if value.starts_with(BY_DURATION) => Err(ConfigError::Invalid {
                name: name.to_owned(),
                value: value.to_owned(),
                reason:
                    "expected one of: earliest, latest, none; by_duration needs fletchlog.consumer.version 4.0 or later"
                        .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Properties of other clients that were given and have no effect, each with the reason.
    pub fn ignored(&self) -> &[(&'static str, &'static str)] {
        &self.ignored
    }

    /// The part that this configuration belongs to.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Whether the user set this property.
    pub fn is_explicit(&self, name: &str) -> bool {
        self.explicit.contains(&name)
    }

    /// The properties the user set, as text that may be shown: [`HIDDEN`] for a secret.
    pub fn shown(&self) -> impl Iterator<Item = (&'static str, &str)> + '_ {
        let keys = keys(self.scope).iter().filter(|key| self.is_explicit(key.name));
        keys.map(|key| (key.name, key.shown(self.text(key.name))))
    }

    /// The value as text; `None` when unset and without default.
    ///
    /// # Panics
    /// If the table has no such row in this scope: a mistake in the code, never in input.
    pub fn get(&self, name: &str) -> Option<&str> {
        assert!(
            keys(self.scope).iter().any(|k| k.name == name),
            "no configuration `{name}` in the table"
        );
        self.values.get(name).map(String::as_str)
    }

    /// A text that has a default or was set; "" otherwise.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or("")
    }

    /// A boolean.
    pub fn boolean(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    /// A 32-bit integer (validated at parse); 0 when unset.
    pub fn int(&self, name: &str) -> i32 {
        self.text(name).parse().unwrap_or(0)
    }

    /// A 64-bit integer (validated at parse); 0 when unset.
    pub fn long(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// A floating point number (validated at parse); 0 when unset.
    pub fn double(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or(0.0)
    }

    /// A comma-separated list, trimmed, empties dropped.
    pub fn list(&self, name: &str) -> Vec<&str> {
        self.text(name)
            .split(',')
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .collect()
    }

    /// A client release as (major, minor), e.g. (2, 6); a patch number is ignored.
    pub fn release(&self, name: &str) -> (u32, u32) {
        parse_release(self.text(name)).unwrap_or((2, 6))
    }
}

/// Removes the prefix by which Kafka sets a property for one listener. Here such a property is the default of every listener;
/// `listen(config=...)` overrides it.
fn without_listener_name(scope: Scope, name: &str) -> &str {
    let of_listener = (scope == Scope::Broker)
        .then(|| name.strip_prefix("listener.name."))
        .flatten();
    of_listener
        .and_then(|rest| rest.split_once('.'))
        .map_or(name, |(_, property)| property)
}

/// The prefix of a value of auto.offset.reset that is a duration.
pub const BY_DURATION: &str = "by_duration:";

/// Parses a non-negative duration of ISO 8601 into ms: days, hours, minutes, seconds with a fraction. Java: `Duration#parse`.
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    let text = text.to_ascii_uppercase().replace(',', ".");
    let text = text.strip_prefix('+').unwrap_or(&text).strip_prefix('P')?;
    let (days, time) = match text.split_once('T') {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return None,
        None if text.is_empty() => return None,
        None => (text, ""),
    };
    let (days_ms, rest) = part(days, 'D', 86_400_000)?;
    let (hours_ms, time) = part(time, 'H', 3_600_000)?;
    let (minutes_ms, time) = part(time, 'M', 60_000)?;
    let (seconds, fraction) = match time.strip_suffix('S') {
        Some(seconds) => seconds.split_once('.').unwrap_or((seconds, "")),
        None if time.is_empty() => ("0", ""),
        None => return None,
    };
    let are_digits = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
    if !rest.is_empty() || !are_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let (seconds_ms, _) = part(&format!("{seconds}S"), 'S', 1_000)?;
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    let parts = [days_ms, hours_ms, minutes_ms, seconds_ms, thousandths.parse().ok()?];
    parts.into_iter().try_fold(0_i64, i64::checked_add)
}

/// The number before a unit, in ms, and the text after the unit; 0 if the unit is missing.
fn part(text: &str, unit: char, ms: i64) -> Option<(i64, &str)> {
    let Some((number, rest)) = text.split_once(unit) else {
        return Some((0, text));
    };
    let digits = number.strip_prefix('+').unwrap_or(number);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number: i64 = digits.parse().ok().filter(|_| is_number)?;
    Some((number.checked_mul(ms)?, rest))
}

/// Major and minor number of a client release that can be selected, from 2.4 to 4.4; a patch number is ignored.
pub fn parse_release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    let release = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    if let Some(patch) = parts.next() {
        patch.parse::<u32>().ok()?;
    }
    let known = match release {
        (2, minor) => (4..=8).contains(&minor),
        (3, minor) => minor <= 9,
        (4, minor) => minor <= 4,
        _ => false,
    };
    (parts.next().is_none() && known).then_some(release)
}

fn check(kind: &Kind, default: Option<&str>, value: &str) -> Result<(), String> {
    fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
        value: &str,
        low: T,
        high: T,
        what: &str,
    ) -> Result<(), String> {
        let parsed: T = value.parse().map_err(|_| format!("expected {what}"))?;
        if parsed < low || parsed > high {
            return Err(format!("expected {what} from {low} to {high}"));
        }
        Ok(())
    }
    match *kind {
        Kind::Boolean => match value.to_ascii_lowercase().as_str() {
            "true" | "false" => Ok(()),
            _ => Err("expected true or false".to_owned()),
        },
        Kind::Int(low, high) => number(value, low, high, "an integer"),
        Kind::Long(low, high) => number(value, low, high, "an integer"),
        Kind::Double(low, high) => number(value, low, high, "a number"),
        Kind::Text | Kind::Password => Ok(()),
        Kind::OneOf(choices) => {
            if choices.contains(&value) {
                Ok(())
            } else {
                Err(format!("expected one of: {}", choices.join(", ")))
            }
        }
        Kind::ListOf(choices) => {
            for item in value.split(',').map(str::trim).filter(|s| !s.is_empty()) {
                if !choices.is_empty() && !choices.contains(&item) {
                    return Err(format!("`{item}` is not one of: {}", choices.join(", ")));
                }
            }
            Ok(())
        }
        Kind::GzipLevel => match value.parse() {
            Ok(-1 | 1..=9) => Ok(()),
            _ => Err("expected 1 to 9, or -1 for the codec's default".to_owned()),
        },
        Kind::ThrottledReplicas => {
            let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let is_replica = |item: &str| item.split_once(':').is_some_and(|(p, node)| is_number(p) && is_number(node));
            let mut items = value.split(',').map(str::trim).filter(|item| !item.is_empty());
            match items.clone().all(is_replica) || items.next() == Some("*") && items.next().is_none() {
                true => Ok(()),
                false => Err("expected `*`, or a list of PARTITION:NODE such as 0:1,1:2".to_owned()),
            }
        }
        Kind::Only(Kind::Boolean) if default.is_some_and(|default| default.eq_ignore_ascii_case(value)) => Ok(()),
        Kind::Only(_) if default == Some(value) => Ok(()),
        Kind::Only(_) => Err(format!(
            "only `{}` is accepted: the property is Kafka's, and what it asks for is not done here",
            default.unwrap_or("")
        )),
        Kind::OffsetReset => match value.strip_prefix(BY_DURATION) {
            Some(duration) => parse_duration_ms(duration).map(|_| ()).ok_or_else(|| {
                "expected by_duration:PnDTnHnMn.nS, a duration of ISO 8601 that is not negative, such as by_duration:PT1H30M".to_owned()
            }),
            None if ["earliest", "latest", "none"].contains(&value) => Ok(()),
            None => Err("expected one of: earliest, latest, none, by_duration:PnDTnHnMn.nS".to_owned()),
        },
        Kind::Release => parse_release(value)
            .map(|_| ())
            .ok_or_else(|| "expected a Kafka client release from 2.4 to 4.4, such as 2.6".to_owned()),
    }
}

/// The known name that ends with this one, or the one it was probably meant to be.
fn nearest(scope: Scope, name: &str) -> Option<String> {
    let given = name.to_ascii_lowercase().replace('_', ".");
    let ends_so = |known: &&str| known.strip_suffix(&*given).is_some_and(|before| before.ends_with('.'));
    let names = || keys(scope).iter().map(|k| k.name);
    let is_spelt_otherwise = names().find(|known| *known == given);
    is_spelt_otherwise
        .or_else(|| names().filter(ends_so).min())
        .or_else(|| nearest_name(&given, names()))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_java() {
        for (text, expected) in [
            ("PT1H", Some(3_600_000)),
            ("PT1H30M", Some(5_400_000)),
            ("P1DT2H3M4.5S", Some(93_784_500)),
            ("pt0.0015s", Some(1)),
            ("P2D", Some(172_800_000)),
            ("PT0S", Some(0)),
            ("+PT+5M", Some(300_000)),
            ("PT1,25S", Some(1_250)),
            ("", None),
            ("P", None),
            ("PT", None),
            ("P1DT", None),
            ("1H", None),
            ("PT-1H", None),
            ("-PT1H", None),
            ("P1H", None),
            ("PT1D", None),
            ("PT1M1H", None),
            ("PT1.5H", None),
            ("PT1.1234567890S", None),
            ("PT1 H", None),
            ("P9223372036854775807D", None),
        ] {
            assert_eq!(parse_duration_ms(text), expected, "{text}");
        }
    }

    #[test]
    fn a_consumer_can_begin_by_a_duration_from_4_0_on() {
        let of = |version, reset| {
            let given = [("auto.offset.reset", reset), ("fletchlog.consumer.version", version)];
            Config::parse(Scope::Consumer, given).map_err(|error| error.to_string())
        };
        assert!(of("4.0", "by_duration:PT1H").is_ok() && of("4.3", "latest").is_ok());
        let old = of("3.9", "by_duration:PT1H").unwrap_err();
        assert!(
            old.contains("expected one of: earliest, latest, none") && old.contains("4.0 or later"),
            "{old}"
        );
        let bad = of("4.3", "by_duration:1h").unwrap_err();
        assert!(bad.contains("by_duration:PT1H30M"), "{bad}");
        assert!(of("2.6", "soonest").unwrap_err().contains("by_duration"));
    }
}
