//! The properties of a subscription to the metrics of clients. Like a Kafka broker without a receiver, this broker asks no client for
//! metrics: subscriptions are only kept and described. Kafka: `ClientMetricsConfigs`, with the texts of its errors.

use fletchlog_api::ErrorCode;
use fletchlog_api::config_table::{Kind, kafka_refusal_of};
use regex::Regex;

use super::{Properties, refused};
use crate::BrokerError;

const INTERVAL: &str = "interval.ms";
const MATCH: &str = "match";

/// Name, type, default.
pub(crate) const CLIENT_METRICS: &[(&str, Kind, &str)] = &[
    (INTERVAL, Kind::Int(i32::MIN, i32::MAX), "300000"),
    (MATCH, Kind::ListOf(&[]), ""),
    ("metrics", Kind::ListOf(&[]), ""),
];

/// The attributes by which a client can be matched.
const MATCHED: &[&str] = &[
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

/// Checks that these are valid as all properties set for a subscription.
pub(super) fn validate(name: &str, properties: &Properties) -> Result<(), BrokerError> {
    if name.is_empty() {
        let text = "Subscription name can't be empty";
        return Err(refused(ErrorCode::INVALID_REQUEST, text));
    }
    let is_known = |name: &str| CLIENT_METRICS.iter().any(|(known, ..)| *known == name);
    if let Some(name) = properties.keys().find(|name| !is_known(name)) {
        let text = format!("Unknown client metrics configuration: {name}");
        return Err(refused(ErrorCode::INVALID_REQUEST, text));
    }
    for (name, kind, _) in CLIENT_METRICS {
        let refusal = properties
            .get(*name)
            .and_then(|value| kafka_refusal_of(name, kind, value));
        if let Some(text) = refusal {
            return Err(refused(ErrorCode::INVALID_CONFIG, text));
        }
    }
    if let Some(value) = properties.get(INTERVAL)
        && !value.parse().is_ok_and(|ms: i32| (100..=3_600_000).contains(&ms))
    {
        let text = format!("Invalid value {value} for interval.ms, interval must be between 100 and 3600000 (1 hour)");
        return Err(refused(ErrorCode::INVALID_REQUEST, text));
    }
    let patterns = properties
        .get(MATCH)
        .map_or("", String::as_str)
        .split(',')
        .map(str::trim);
    for pattern in patterns.filter(|pattern| !pattern.is_empty()) {
        let is_legal = pattern
            .split_once('=')
            .is_some_and(|(of, regex)| MATCHED.contains(&of.trim()) && Regex::new(regex.trim()).is_ok());
        if !is_legal {
            let text = format!("Illegal client matching pattern: {pattern}");
            return Err(refused(ErrorCode::INVALID_CONFIG, text));
        }
    }
    Ok(())
}
