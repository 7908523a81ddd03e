//! Conversions between Python's values and the engine's.

use std::sync::Arc;

use fletchlog_api::config_table::keys;
use fletchlog_api::{Config, ConfigResource, OffsetAndMetadata, Scope, nearest_name};
use fletchlog_broker::TransactionDescription;
use fletchlog_client::Metric;
use fletchlog_client::consumer::OffsetAndTimestamp;
use fletchlog_client::producer::{ConsumerGroupMetadata, RecordMetadata};
use fletchlog_records::TopicPartition;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyIterator, PyList, PyMapping, PyMemoryView, PyString, PyTuple};

use crate::errors::{Failure, errors_module};
use crate::named_tuple;
use crate::once::once;

/// A class of a module of the package, looked up once.
fn class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    once(py, cell, || py.import(module)?.getattr(name).map(Bound::unbind)).map(|c| c.bind(py).clone())
}

/// Imports the modules whose classes clients need later. If a child is forked while a thread of its parent imports one for the first time,
/// the module stays locked in the child forever.
pub fn import_classes(py: Python<'_>) -> PyResult<()> {
    errors_module(py)?;
    topic_partition_class(py).map(drop)
}

macro_rules! type_class {
    ($function:ident, $module:literal, $name:literal) => {
        #[doc = concat!("`", $module, ".", $name, "`.")]
        pub fn $function(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
            static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            class(py, &CLASS, $module, $name)
        }
    };
}

type_class!(topic_partition_class, "fletchlog.types", "TopicPartition");
type_class!(offset_and_metadata_class, "fletchlog.types", "OffsetAndMetadata");
type_class!(offset_and_timestamp_class, "fletchlog.types", "OffsetAndTimestamp");
type_class!(record_metadata_class, "fletchlog.types", "RecordMetadata");
type_class!(group_metadata_class, "fletchlog.types", "ConsumerGroupMetadata");
type_class!(
    transaction_description_class,
    "fletchlog.admin",
    "TransactionDescription"
);
type_class!(record_class, "fletchlog.types", "Record");
type_class!(share_record_class, "fletchlog.types", "ShareRecord");
type_class!(run_class, "fletchlog.types", "Run");
type_class!(acl_binding_class, "fletchlog.admin", "AclBinding");
type_class!(topic_description_class, "fletchlog.admin", "TopicDescription");
type_class!(partition_description_class, "fletchlog.admin", "PartitionDescription");
type_class!(cleaned_partition_class, "fletchlog.admin", "CleanedPartition");
type_class!(group_listing_class, "fletchlog.admin", "GroupListing");
type_class!(group_description_class, "fletchlog.admin", "GroupDescription");
type_class!(group_member_class, "fletchlog.admin", "GroupMember");
type_class!(partition_lag_class, "fletchlog.admin", "PartitionLag");
type_class!(share_group_offset_class, "fletchlog.admin", "ShareGroupOffset");
type_class!(cut_class, "fletchlog.files", "Cut");
type_class!(segment_report_class, "fletchlog.files", "SegmentReport");
type_class!(producer_state_class, "fletchlog.files", "ProducerState");
type_class!(config_entry_class, "fletchlog.admin", "ConfigEntry");
type_class!(config_key_class, "fletchlog.admin", "ConfigKey");
type_class!(metrics_class, "fletchlog.types", "Metrics");
type_class!(problem_class, "fletchlog.files", "Problem");
type_class!(partition_report_class, "fletchlog.files", "PartitionReport");
type_class!(segment_inspection_class, "fletchlog.files", "SegmentInspection");

/// A topic-partition as its Python tuple.
pub fn partition_to_py<'py>(py: Python<'py>, tp: &TopicPartition) -> PyResult<Bound<'py, PyAny>> {
    topic_partition_class(py)?.call1((&*tp.topic, tp.partition))
}

/// A list of topic-partitions.
pub fn partitions_to_py<'py>(py: Python<'py>, tps: &[TopicPartition]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(
        py,
        tps.iter()
            .map(|tp| partition_to_py(py, tp))
            .collect::<PyResult<Vec<_>>>()?,
    )
}

/// Takes a `TopicPartition` or a plain `(topic, partition)`.
pub fn partition_from_py(value: &Bound<'_, PyAny>) -> PyResult<TopicPartition> {
    let expected = || {
        let hint = match value.is_instance_of::<PyString>() {
            true => format!("; write ({value:?}, 0)"),
            false => String::new(),
        };
        PyTypeError::new_err(format!(
            "expected TopicPartition(topic, partition), got {}{hint}",
            describe(value)
        ))
    };
    let tuple = value.cast::<PyTuple>().map_err(|_| expected())?;
    let (topic, partition): (String, Bound<'_, PyAny>) = tuple.extract().map_err(|_| expected())?;
    let partition: i64 = int(&partition).map_err(|_| expected())?;
    let partition = i32::try_from(partition).ok().filter(|p| *p >= 0).ok_or_else(|| {
        Failure::argument(format!(
            "partition {partition} of topic {topic} is not a partition number; they start at 0"
        ))
    })?;
    Ok(TopicPartition::new(topic, partition))
}

/// Takes any iterable of topic-partitions, or a single one.
pub fn partitions_from_py(value: &Bound<'_, PyAny>) -> PyResult<Vec<TopicPartition>> {
    if is_partition(value) {
        return Ok(vec![partition_from_py(value)?]);
    }
    if value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!(
            "expected a list of TopicPartition(topic, partition), got str; write [({value:?}, 0)]"
        )));
    }
    each("a list of TopicPartition(topic, partition)", value)?
        .map(|item| partition_from_py(&item?))
        .collect()
}

/// The iterator of a collection.
pub fn each<'py>(expected: &str, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    value.try_iter().map_err(|error| {
        if !error.is_instance_of::<PyTypeError>(value.py()) {
            return error;
        }
        PyTypeError::new_err(format!("expected {expected}, got {}", describe(value)))
    })
}

/// Whether the value is one topic-partition rather than a collection of them.
pub fn is_partition(value: &Bound<'_, PyAny>) -> bool {
    value
        .cast::<PyTuple>()
        .is_ok_and(|t| t.len() == 2 && t.get_item(0).is_ok_and(|first| first.is_instance_of::<PyString>()))
}

/// Takes topic names.
pub fn topics_from_py(value: &Bound<'_, PyAny>) -> PyResult<Vec<Arc<str>>> {
    names_from_py("topic", value)
}

/// Takes names of a kind. A bare string is refused: it would be read letter by letter.
pub fn names_from_py(kind: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<Arc<str>>> {
    if value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!(
            "expected a list of {kind} names, got str; write [{value:?}]"
        )));
    }
    each(&format!("a list of {kind} names"), value)?
        .map(|item| {
            let item = item?;
            let name = item
                .cast::<PyString>()
                .map_err(|_| PyTypeError::new_err(format!("expected a {kind} name, got {}", describe(&item))))?;
            Ok(Arc::from(name.to_cow()?.as_ref()))
        })
        .collect()
}

/// An int of 64 bits. A bool is refused, although it is an int to Python: it is a mistake, and would be 0 or 1.
///
/// # Errors
/// TypeError; OverflowError if the int has more bits.
pub fn long(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    match value.extract() {
        Ok(number) if !value.is_instance_of::<PyBool>() => Ok(number),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Err(error),
        _ => Err(PyTypeError::new_err(format!(
            "expected an int, got {}",
            describe(value)
        ))),
    }
}

/// An int argument, for `from_py_with`, as [`long`].
pub fn int<T: TryFrom<i64>>(value: &Bound<'_, PyAny>) -> PyResult<T> {
    let number = match long(value) {
        Ok(number) => T::try_from(number).ok(),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => None,
        Err(error) => return Err(error),
    };
    number.ok_or_else(|| Failure::argument(format!("{} is out of range", describe(value))).into())
}

/// As [`int`], or None.
pub fn optional_int<T: TryFrom<i64>>(value: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    (!value.is_none()).then(|| int(value)).transpose()
}

/// The type and the value for messages, such as "int 5".
pub fn describe(value: &Bound<'_, PyAny>) -> String {
    let kind = value
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |n| n.to_string());
    let text = value.repr().map_or_else(|_| String::new(), |r| r.to_string());
    if text.len() > 60 {
        kind
    } else {
        format!("{kind} {text}")
    }
}

/// Properties as text: str, bool, int, float, and lists of str joined by commas.
pub fn properties_from_py(config: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(String, String)>> {
    let Some(config) = config else { return Ok(Vec::new()) };
    pairs_from_py(config, property_value)
}

/// Changes of properties: a value of `None` removes one.
pub fn changes_from_py(config: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Option<String>)>> {
    pairs_from_py(config, |name, value| match value.is_none() {
        true => Ok(None),
        false => property_value(name, value).map(Some),
    })
}

/// Checks the names of properties to be reset: the broker ignores those that it does not know. `described` gets those of the resource.
///
/// # Errors
/// An unknown name; those of `described`.
pub fn check_resets<E: Into<Failure>>(
    of: &ConfigResource,
    changes: &[(String, Option<String>)],
    described: impl FnOnce() -> Result<Vec<String>, E>,
) -> Result<(), Failure> {
    let table = match of {
        ConfigResource::Topic(_) => keys(Scope::Topic),
        ConfigResource::AllBrokers | ConfigResource::Broker(_) => keys(Scope::Broker),
        ConfigResource::Group(_) | ConfigResource::ClientMetrics(_) => &[],
    };
    let is_known = |name: &str| table.iter().any(|key| key.name == name);
    let resets = changes
        .iter()
        .filter(|(_, value)| value.is_none())
        .map(|(name, _)| name);
    let unknown: Vec<&String> = resets.filter(|name| !is_known(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let known = described().map_err(Into::into)?;
    let Some(name) = unknown.into_iter().find(|name| !known.contains(name)) else {
        return Ok(());
    };
    let names = table.iter().map(|key| key.name).chain(known.iter().map(String::as_str));
    let meant = nearest_name(name, names).map(|meant| format!("; did you mean `{meant}`?"));
    let text = format!("there is no property `{name}` to reset{}", meant.unwrap_or_default());
    Err(Failure::of("config", text))
}

/// The resource of a node; `None`: of all nodes.
pub fn broker_resource(node: Option<i32>) -> ConfigResource {
    node.map_or(ConfigResource::AllBrokers, ConfigResource::Broker)
}

/// The resource to describe; at most one may be given. `None`: none is given, so a node is described.
pub fn described_resource(
    topic: Option<String>,
    node: Option<i32>,
    group: Option<String>,
) -> PyResult<Option<ConfigResource>> {
    match (topic, node, group) {
        (None, None, None) => Ok(None),
        (Some(topic), None, None) => Ok(Some(ConfigResource::Topic(topic))),
        (None, Some(node), None) => Ok(Some(ConfigResource::Broker(node))),
        (None, None, Some(group)) => Ok(Some(ConfigResource::Group(group))),
        _ => Err(Failure::argument("describe_config takes a topic, or node=, or group=: one of them").into()),
    }
}

/// A mapping as a dict; `None` if the object is something else.
///
/// Avoids `cast::<PyMapping>`, which runs Python code of `collections.abc`, prints any exception and then returns "no mapping": a Ctrl-C
/// that arrives there would be lost.
pub fn as_dict<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Ok(dict) = object.cast::<PyDict>() {
        return Ok(Some(dict.clone()));
    }
    let py = object.py();
    if !object.is_instance(&py.get_type::<PyMapping>())? {
        return Ok(None);
    }
    Ok(Some(py.get_type::<PyDict>().call1((object,))?.cast_into()?))
}

fn pairs_from_py<T>(
    config: &Bound<'_, PyAny>,
    value_of: impl Fn(&str, &Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<(String, T)>> {
    let config = as_dict(config)?.ok_or_else(|| {
        PyTypeError::new_err(format!(
            "a configuration is a dict of Kafka's property names, got {}",
            describe(config)
        ))
    })?;
    let mut properties = Vec::new();
    for item in config.items().iter() {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let name = name
            .cast::<PyString>()
            .map_err(|_| PyTypeError::new_err(format!("a property's name is a str, got {}", describe(&name))))?
            .to_string();
        let value = value_of(&name, &value)?;
        properties.push((name, value));
    }
    Ok(properties)
}

fn property_value(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_cow()?.into_owned());
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        return Ok(value.str()?.to_string());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value
            .try_iter()?
            .map(|item| Ok(item?.cast::<PyString>()?.to_string()))
            .collect::<PyResult<Vec<_>>>()
            .map_err(|_| PyTypeError::new_err(format!("configuration `{name}`: a list holds str only")))?;
        return Ok(items.join(","));
    }
    // An object for a property of another client: only the name matters.
    if fletchlog_api::takes_objects(name) {
        return Ok(String::new());
    }
    Err(PyTypeError::new_err(format!(
        "configuration `{name}`: expected str, bool, int, float or a list of str, got {}; leave a property out to get its default",
        describe(value)
    )))
}

/// Validates properties against the table of one scope.
pub fn config_from_py(scope: Scope, config: Option<&Bound<'_, PyAny>>) -> PyResult<Config> {
    parsed(scope, &properties_from_py(config)?)
}

/// Properties of a `Cluster`, which takes those of any client. Those that only a producer has are silently left out.
pub fn cluster_config_from_py(config: Option<&Bound<'_, PyAny>>) -> PyResult<Config> {
    let has = |scope, name: &str| keys(scope).iter().any(|key| key.name == name);
    let mut properties = properties_from_py(config)?;
    properties.retain(|(name, _)| has(Scope::Consumer, name) || !has(Scope::Producer, name));
    parsed(Scope::Consumer, &properties)
}

fn parsed(scope: Scope, properties: &[(String, String)]) -> PyResult<Config> {
    let parsed = Config::parse(scope, properties.iter().map(|(n, v)| (n.as_str(), v.as_str())));
    let config = parsed.map_err(Failure::from)?;
    if !config.ignored().is_empty() {
        let one = |(name, instead): &(&str, &str)| format!("{name} ({instead})");
        let all: Vec<String> = config.ignored().iter().map(one).collect();
        log::warn!(
            "configuration of another client that changes nothing here: {}",
            all.join(", ")
        );
    }
    Ok(config)
}

/// A committed offset.
pub fn offset_and_metadata_to_py<'py>(py: Python<'py>, offset: &OffsetAndMetadata) -> PyResult<Bound<'py, PyAny>> {
    offset_and_metadata_class(py)?.call1((offset.offset, &*offset.metadata, offset.leader_epoch))
}

/// Takes an `OffsetAndMetadata`, or an int that has neither metadata nor leader epoch. Metadata of `None` are none, as in Java's `OffsetAndMetadata`.
pub fn offset_from_py(tp: &TopicPartition, value: &Bound<'_, PyAny>) -> PyResult<OffsetAndMetadata> {
    let expected = |error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            let text = format!("{tp}: {} is out of range: an offset has 64 bits", describe(value));
            return Failure::argument(text).into();
        }
        PyTypeError::new_err(format!(
            "{tp}: expected OffsetAndMetadata or int, got {}",
            describe(value)
        ))
    };
    let (offset, metadata, leader_epoch) = if value.is_instance_of::<PyTuple>() {
        value.extract::<(i64, Option<String>, i32)>().map_err(expected)?
    } else {
        (long(value).map_err(expected)?, None, -1)
    };
    Ok(OffsetAndMetadata {
        offset,
        leader_epoch,
        metadata: Arc::from(metadata.unwrap_or_default()),
    })
}

/// Takes `{tp: int}`.
pub fn starts_from_py(value: &Bound<'_, PyAny>) -> PyResult<Vec<(TopicPartition, i64)>> {
    let offsets = group_offsets_from_py(value)?;
    Ok(offsets.into_iter().map(|(tp, offset)| (tp, offset.offset)).collect())
}

/// As [`offsets_from_py`]; negative ones are refused, as the constructor of Java's `OffsetAndMetadata` does.
pub fn group_offsets_from_py(value: &Bound<'_, PyAny>) -> PyResult<Vec<(TopicPartition, OffsetAndMetadata)>> {
    let offsets = offsets_from_py(value)?;
    match offsets.iter().find(|(_, offset)| offset.offset < 0) {
        None => Ok(offsets),
        Some((tp, offset)) => Err(Failure::argument(format!(
            "{tp}: offset {} is negative; give the offset of the next record to read",
            offset.offset
        ))
        .into()),
    }
}

/// Takes `{tp: OffsetAndMetadata | int}`.
pub fn offsets_from_py(value: &Bound<'_, PyAny>) -> PyResult<Vec<(TopicPartition, OffsetAndMetadata)>> {
    let dict = value.cast::<PyDict>().map_err(|_| {
        let is_record = || value.is_instance(&record_class(value.py())?);
        let hint = match is_record().unwrap_or(false) {
            true => "; to commit a record write {(record.topic, record.partition): record.offset + 1}",
            false => "",
        };
        PyTypeError::new_err(format!(
            "expected {{TopicPartition: OffsetAndMetadata or int}}, got {}{hint}",
            describe(value)
        ))
    })?;
    dict.iter()
        .map(|(tp, offset)| {
            let tp = partition_from_py(&tp)?;
            let offset = offset_from_py(&tp, &offset)?;
            Ok((tp, offset))
        })
        .collect()
}

/// The result of a lookup by time.
pub fn offset_and_timestamp_to_py(py: Python<'_>, found: OffsetAndTimestamp) -> PyResult<Bound<'_, PyAny>> {
    offset_and_timestamp_class(py)?.call1((found.offset, found.timestamp, found.leader_epoch))
}

/// The position at which a record was stored.
pub fn record_metadata_to_py<'py>(py: Python<'py>, metadata: &RecordMetadata) -> PyResult<Bound<'py, PyAny>> {
    let fields = (
        &*metadata.topic,
        metadata.partition,
        metadata.offset,
        metadata.timestamp,
    );
    named_tuple::new(record_metadata_class(py)?.cast()?, fields.into_pyobject(py)?)
}

/// The consumer whose offsets a transaction commits.
pub fn group_metadata_to_py<'py>(py: Python<'py>, group: &ConsumerGroupMetadata) -> PyResult<Bound<'py, PyAny>> {
    group_metadata_class(py)?.call1((
        &*group.member_id,
        group.generation_id,
        &*group.group_id,
        group.group_instance_id.as_deref(),
    ))
}

/// Takes what `Consumer.group_metadata` returned.
pub fn group_metadata_from_py(value: &Bound<'_, PyAny>) -> PyResult<ConsumerGroupMetadata> {
    let hint = if value.is_none() {
        "; the consumer needs a group.id"
    } else {
        ""
    };
    let fields = value.cast::<PyTuple>().ok().and_then(|t| t.extract().ok());
    let (member, generation_id, group, instance): (String, i32, String, Option<String>) = fields.ok_or_else(|| {
        PyTypeError::new_err(format!(
            "expected what consumer.group_metadata() returns, got {}{hint}",
            describe(value)
        ))
    })?;
    Ok(ConsumerGroupMetadata {
        group_id: group.into(),
        generation_id,
        member_id: member.into(),
        group_instance_id: instance.map(Into::into),
    })
}

/// A transactional id and its state.
pub fn transaction_to_py<'py>(py: Python<'py>, known: &TransactionDescription) -> PyResult<Bound<'py, PyAny>> {
    transaction_description_class(py)?.call1((
        &*known.transactional_id,
        known.state,
        known.producer_id,
        known.producer_epoch,
        known.timeout_ms,
        known.start_ms,
        partitions_to_py(py, &known.partitions)?,
        known.coordinator,
    ))
}

/// Converts a whole number that must be at least `least` to the engine's type.
pub fn number_from_py<T: TryFrom<i64>>(name: &str, value: i64, least: i64) -> Result<T, Failure> {
    T::try_from(value).ok().filter(|_| value >= least).ok_or_else(|| {
        Failure::argument(format!(
            "{name} is {value}; give a whole number from {least} on, within its range"
        ))
    })
}

/// "1 record", "2 records".
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A client's metrics under Kafka's names.
pub fn metrics_to_py(py: Python<'_>, metrics: Vec<Metric>) -> PyResult<Bound<'_, PyAny>> {
    metrics_class(py)?.call1((metrics,))
}

/// The first three items, and the number of the others.
pub fn some<T: std::fmt::Display>(items: &[T]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = items.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = items.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}

/// Takes bytes, bytearray or any object with the buffer protocol.
pub fn bytes_from_py(name: &str, value: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if let Ok(bytes) = value.extract::<PyBackedBytes>() {
        return Ok(bytes);
    }
    if value.is_instance_of::<PyMemoryView>() {
        return Ok(value
            .call_method0(pyo3::intern!(value.py(), "tobytes"))?
            .extract::<PyBackedBytes>()?);
    }
    Err(PyTypeError::new_err(format!(
        "{name}: expected bytes, got {}; encode it first",
        describe(value)
    )))
}

/// A key or value: bytes or None.
pub fn optional_bytes_from_py(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<PyBackedBytes>> {
    value.map(|value| bytes_from_py(name, value)).transpose()
}

/// Headers: a list of (key, value or None), or a dict.
pub fn headers_from_py(value: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<(String, Option<PyBackedBytes>)>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let items = if let Ok(dict) = value.cast::<PyDict>() {
        dict.items().into_any()
    } else {
        value.clone()
    };
    let expected = |item: &Bound<'_, PyAny>| {
        PyTypeError::new_err(format!(
            "headers: expected a list of (str, bytes or None), got {}",
            describe(item)
        ))
    };
    items
        .try_iter()
        .map_err(|_| expected(value))?
        .map(|item| {
            let item = item?;
            let (key, value): (String, Option<Bound<'_, PyAny>>) = item.extract().map_err(|_| expected(&item))?;
            Ok((key, optional_bytes_from_py("header value", value.as_ref())?))
        })
        .collect()
}

/// Why a handle cannot be pickled.
pub fn unpicklable(class: &str, spec: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "a {class} cannot be pickled or copied: it holds files, locks or threads of this process. Send {spec} and open it there"
    ))
}
