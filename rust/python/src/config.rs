//! The table of every property, for `fletchlog.admin.config_table()` and `fletchlog config`.

use fletchlog_api::Scope;
use fletchlog_api::config_table::{ConfigKey, Kind, keys};
use pyo3::prelude::*;

use crate::convert::config_key_class;

const SCOPES: &[(Scope, &str)] = &[
    (Scope::Broker, "broker"),
    (Scope::Topic, "topic"),
    (Scope::Producer, "producer"),
    (Scope::Consumer, "consumer"),
    (Scope::LegacyConsumer, "legacy-consumer"),
];

/// The type and the range of a property, in words.
fn kind_text(kind: Kind) -> String {
    fn range<T: PartialEq + std::fmt::Display>(what: &str, low: T, high: T, least: &T, most: &T) -> String {
        match (low == *least, high == *most) {
            (true, true) => what.to_owned(),
            (false, true) => format!("{what} >= {low}"),
            (true, false) => format!("{what} <= {high}"),
            (false, false) => format!("{what} {low}..{high}"),
        }
    }
    match kind {
        Kind::Boolean => "true | false".to_owned(),
        Kind::Int(low, high) => range("int", low, high, &i32::MIN, &i32::MAX),
        Kind::Long(low, high) => range("long", low, high, &i64::MIN, &i64::MAX),
        Kind::Double(low, high) => range("double", low, high, &f64::MIN, &f64::MAX),
        Kind::Text => "text".to_owned(),
        Kind::Password => "text, hidden".to_owned(),
        Kind::OneOf(choices) => choices.join(" | "),
        Kind::ListOf([]) => "list".to_owned(),
        Kind::ListOf(choices) => format!("list of {}", choices.join(", ")),
        Kind::GzipLevel => "int -1, 1..9".to_owned(),
        Kind::ThrottledReplicas => "list of PARTITION:NODE, or *".to_owned(),
        Kind::Only(_) => "only the default".to_owned(),
        Kind::OffsetReset => "earliest | latest | none | by_duration:PnDTnHnMn.nS".to_owned(),
        Kind::Release => "Kafka client release 2.4..4.4".to_owned(),
    }
}

#[doc = stub!(config_table)]
#[pyfunction]
pub fn config_table(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    let class = config_key_class(py)?;
    let row = |scope: &str, key: &ConfigKey| class.call1((scope, key.name, kind_text(key.kind), key.default, key.doc));
    SCOPES
        .iter()
        .flat_map(|&(scope, name)| keys(scope).iter().map(move |key| (name, key)))
        .map(|(name, key)| row(name, key))
        .collect()
}
