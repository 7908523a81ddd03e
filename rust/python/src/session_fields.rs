//! Messages of a session as dicts with Kafka's names of fields.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_log::checkpoint::encode_uuid;
use fletchlog_protocol::Value;
use fletchlog_protocol::tree::{Node, Tree};
use fletchlog_protocol::values::consumer_protocol::PROTOCOL_TYPE;
use fletchlog_protocol::values::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use fletchlog_session::{Batch, Message, Session, batches_of};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

/// The text of a topic's id.
pub fn topic_id(id: &[u8; 16]) -> String {
    encode_uuid(id)
}

/// A message as a dict.
pub fn message<'py>(py: Python<'py>, session: &Session, message: &Message) -> PyResult<Bound<'py, PyDict>> {
    let of = Fields {
        py,
        session,
        message,
        is_consumer: is_consumer(&message.tree),
    };
    of.fields(&message.tree)
}

/// Whether the metadata and assignments of a message may be those of consumers: older versions do not name the protocol type.
fn is_consumer(tree: &Tree) -> bool {
    match tree.get("protocol_type") {
        Some(Node::String(named)) => named.is_empty() || **named == *PROTOCOL_TYPE,
        _ => true,
    }
}

struct Fields<'a, 'py> {
    py: Python<'py>,
    session: &'a Session,
    message: &'a Message,
    is_consumer: bool,
}

impl<'py> Fields<'_, 'py> {
    fn fields(&self, tree: &Tree) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(self.py);
        let mut id = None;
        let mut is_named = false;
        for (spec, node) in tree.fields(self.message.version) {
            if let ("topic_id", Node::Uuid(given)) = (spec.name, node) {
                id = Some(*given);
            }
            is_named |= matches!(spec.name, "topic" | "name" | "topic_name") && node.text().is_some();
            let is_consumer = self.is_consumer && is_consumer(tree);
            let value = self.value(spec.name, node, is_consumer)?;
            fields.set_item(PyString::intern(self.py, spec.name), value)?;
        }
        if let Some(name) = id.filter(|_| !is_named).and_then(|id| self.session.topic(&id)) {
            fields.set_item(PyString::intern(self.py, "topic"), &*name)?;
        }
        Ok(fields)
    }

    fn value(&self, field: &str, node: &Node, is_consumer: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match node {
            Node::Null => py.None().into_bound(py),
            Node::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
            Node::Int(value) => value.into_pyobject(py)?.into_any(),
            Node::Float(value) => value.into_pyobject(py)?.into_any(),
            Node::Uuid(id) => PyString::new(py, &encode_uuid(id)).into_any(),
            Node::String(text) => PyString::new(py, text).into_any(),
            Node::Bytes(bytes) => self.bytes(field, bytes, is_consumer)?,
            Node::Array(elements) => {
                let list = PyList::empty(py);
                for element in elements {
                    list.append(self.value(field, element, is_consumer)?)?;
                }
                list.into_any()
            }
            Node::Struct(tree) => self.fields(tree)?.into_any(),
        })
    }

    fn bytes(&self, field: &str, bytes: &Bytes, is_consumer: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        if field == "records" {
            let list = PyList::empty(py);
            for batch in batches_of(bytes.clone(), self.message.is_stripped) {
                list.append(batch_fields(py, &batch)?)?;
            }
            return Ok(list.into_any());
        }
        let read = match (is_consumer, field) {
            (true, "metadata" | "member_metadata") => subscription(py, bytes)?,
            (true, "assignment" | "member_assignment") => assignment(py, bytes)?,
            _ => None,
        };
        Ok(read.map_or_else(|| PyBytes::new(py, bytes).into_any(), Bound::into_any))
    }
}

fn version_of(bytes: &Bytes) -> Option<i16> {
    Some(i16::from_be_bytes(*bytes.first_chunk()?))
}

/// Partitions by topic.
fn partitions<'py>(
    py: Python<'py>,
    topics: impl IntoIterator<Item = (Arc<str>, Vec<i32>)>,
) -> PyResult<Bound<'py, PyDict>> {
    let partitions = PyDict::new(py);
    for (topic, numbers) in topics {
        partitions.set_item(&*topic, numbers)?;
    }
    Ok(partitions)
}

fn user_data<'py>(py: Python<'py>, bytes: Option<&Bytes>) -> Option<Bound<'py, PyBytes>> {
    bytes.map(|bytes| PyBytes::new(py, bytes))
}

/// What a member tells its group; `None`: these are other bytes.
fn subscription<'py>(py: Python<'py>, bytes: &Bytes) -> PyResult<Option<Bound<'py, PyDict>>> {
    let (Some(version), Ok(read)) = (version_of(bytes), ConsumerProtocolSubscription::decode(bytes.clone())) else {
        return Ok(None);
    };
    let fields = PyDict::new(py);
    fields.set_item("version", version)?;
    fields.set_item("topics", read.topics.iter().map(|topic| &**topic).collect::<Vec<_>>())?;
    let owned = read
        .owned_partitions
        .into_iter()
        .map(|topic| (topic.topic, topic.partitions));
    fields.set_item("owned_partitions", partitions(py, owned)?)?;
    fields.set_item("generation_id", read.generation_id)?;
    fields.set_item("rack_id", read.rack_id.as_deref())?;
    fields.set_item("user_data", user_data(py, read.user_data.as_ref()))?;
    Ok(Some(fields))
}

/// What a member gets of its leader; `None`: these are other bytes.
fn assignment<'py>(py: Python<'py>, bytes: &Bytes) -> PyResult<Option<Bound<'py, PyDict>>> {
    let (Some(version), Ok(read)) = (version_of(bytes), ConsumerProtocolAssignment::decode(bytes.clone())) else {
        return Ok(None);
    };
    let fields = PyDict::new(py);
    fields.set_item("version", version)?;
    let assigned = read
        .assigned_partitions
        .into_iter()
        .map(|topic| (topic.topic, topic.partitions));
    fields.set_item("assigned_partitions", partitions(py, assigned)?)?;
    fields.set_item("user_data", user_data(py, read.user_data.as_ref()))?;
    Ok(Some(fields))
}

fn batch_fields<'py>(py: Python<'py>, batch: &Batch) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    macro_rules! set {
        ($($name:literal: $value:expr),* $(,)?) => {
            $(fields.set_item(PyString::intern(py, $name), $value)?;)*
        };
    }
    set! {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.records,
        "size": batch.size,
        "magic": batch.magic,
        "codec": batch.codec,
        "first_timestamp": batch.first_timestamp,
        "max_timestamp": batch.max_timestamp,
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
    }
    if let Some(bytes) = &batch.bytes {
        set! { "bytes": PyBytes::new(py, bytes) }
    }
    Ok(fields)
}
