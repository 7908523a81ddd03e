//! Traces as Arrow tables: what a consumer or producer did and why.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Int16Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, Field};
use fletchlog_api::Config;
use fletchlog_client::consumer::TraceEvent as ConsumerEvent;
use fletchlog_client::producer::TraceEvent as ProducerEvent;
use fletchlog_records::TopicPartition;

use crate::errors::Failure;
use crate::table::Table;

/// An error when tracing is off: an empty table would look like "nothing happened".
pub fn ensure_on(traced: bool, what: &str) -> Result<(), Failure> {
    if traced {
        return Ok(());
    }
    Err(Failure::state(format!(
        "this {what} keeps no trace; create it with {{\"fletchlog.trace\": True}}"
    )))
}

/// The properties that were set, as schema metadata `fletchlog.config.<name>`, and `fletchlog.trace` = whose trace it is.
pub fn with_config(table: Table, whose: &str, config: &Config) -> Table {
    let mut metadata = HashMap::from([("fletchlog.trace".to_owned(), whose.to_owned())]);
    metadata.extend(
        config
            .explicit()
            .map(|(name, value)| (format!("fletchlog.config.{name}"), value.to_owned())),
    );
    table.with_metadata(metadata)
}

/// A table from named columns; a column is nullable where it holds a null.
pub fn table(columns: Vec<(&str, ArrayRef)>) -> Result<Table, Failure> {
    Ok(Table::new(batch(columns)?))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
}

/// A column of any array type that collects from values.
pub fn column<A, V>(values: impl Iterator<Item = V>) -> ArrayRef
where
    A: arrow_array::Array + FromIterator<V> + 'static,
{
    Arc::new(values.collect::<A>())
}

/// -1 stands for "does not apply".
fn known(value: i64) -> Option<i64> {
    (value >= 0).then_some(value)
}

/// One row per event of a consumer; the partitions of an event are a list of structs.
pub fn consumer_table(events: &[ConsumerEvent]) -> Result<Table, Failure> {
    let each = || events.iter().flat_map(|e| &e.partitions);
    let partitions = StructArray::from(batch(vec![
        ("topic", column::<StringArray, _>(each().map(|p| Some(&*p.tp.topic)))),
        ("partition", column::<Int32Array, _>(each().map(|p| number(&p.tp)))),
        ("offset", column::<Int64Array, _>(each().map(|p| known(p.offset)))),
        ("records", column::<Int64Array, _>(each().map(|p| known(p.records)))),
        ("bytes", column::<Int64Array, _>(each().map(|p| known(p.bytes)))),
        ("batches", column::<Int64Array, _>(each().map(|p| known(p.batches)))),
        ("error", column::<StringArray, _>(each().map(|p| Some(p.error)))),
        ("gone", column::<BooleanArray, _>(each().map(|p| Some(p.gone)))),
    ])?);
    let lists = ListArray::try_new(
        Arc::new(Field::new("item", partitions.data_type().clone(), false)),
        OffsetBuffer::from_lengths(events.iter().map(|e| e.partitions.len())),
        Arc::new(partitions),
        None,
    )?;
    let topic = |e: &'_ ConsumerEvent| e.tp.as_ref().map(|tp| tp.topic.to_string());
    let kind = |e: &ConsumerEvent| Some(format!("{:?}", e.kind).to_lowercase());
    table(vec![
        ("poll", column::<UInt64Array, _>(events.iter().map(|e| Some(e.poll)))),
        ("kind", column::<StringArray, _>(events.iter().map(kind))),
        (
            "node",
            column::<Int32Array, _>(events.iter().map(|e| (e.node >= 0).then_some(e.node))),
        ),
        ("full", column::<BooleanArray, _>(events.iter().map(|e| e.full))),
        ("topic", column::<StringArray, _>(events.iter().map(topic))),
        (
            "partition",
            column::<Int32Array, _>(events.iter().map(|e| e.tp.as_ref().and_then(number))),
        ),
        (
            "offset",
            column::<Int64Array, _>(events.iter().map(|e| known(e.offset))),
        ),
        (
            "last_offset",
            column::<Int64Array, _>(events.iter().map(|e| known(e.last_offset))),
        ),
        (
            "epoch",
            column::<Int32Array, _>(events.iter().map(|e| (e.epoch >= 0).then_some(e.epoch))),
        ),
        (
            "records",
            column::<Int64Array, _>(events.iter().map(|e| known(e.records))),
        ),
        ("text", column::<StringArray, _>(events.iter().map(|e| Some(&*e.text)))),
        ("partitions", Arc::new(lists)),
    ])
}

/// Number of a partition; `None` where a topic was given.
fn number(tp: &TopicPartition) -> Option<i32> {
    (tp.partition >= 0).then_some(tp.partition)
}

/// One row per event of a producer.
pub fn producer_table(events: &[ProducerEvent]) -> Result<Table, Failure> {
    let tp = |e: &'_ ProducerEvent| e.tp.clone();
    table(vec![
        (
            "time_ms",
            column::<Int64Array, _>(events.iter().map(|e| Some(e.time_ms))),
        ),
        (
            "kind",
            column::<StringArray, _>(events.iter().map(|e| Some(e.kind.name()))),
        ),
        (
            "topic",
            column::<StringArray, _>(events.iter().map(|e| tp(e).map(|tp| tp.topic.to_string()))),
        ),
        (
            "partition",
            column::<Int32Array, _>(events.iter().map(|e| tp(e).map(|tp| tp.partition))),
        ),
        ("node", column::<Int32Array, _>(events.iter().map(|e| e.node))),
        ("batch", column::<Int64Array, _>(events.iter().map(|e| known(e.batch)))),
        (
            "records",
            column::<Int32Array, _>(events.iter().map(|e| Some(e.records))),
        ),
        (
            "producer_id",
            column::<Int64Array, _>(events.iter().map(|e| known(e.producer.0))),
        ),
        (
            "producer_epoch",
            column::<Int16Array, _>(events.iter().map(|e| (e.producer.1 >= 0).then_some(e.producer.1))),
        ),
        (
            "base_sequence",
            column::<Int32Array, _>(events.iter().map(|e| (e.producer.2 >= 0).then_some(e.producer.2))),
        ),
        (
            "attempts",
            column::<Int32Array, _>(events.iter().map(|e| Some(e.attempts))),
        ),
        (
            "base_offset",
            column::<Int64Array, _>(events.iter().map(|e| known(e.base_offset))),
        ),
        (
            "error",
            column::<StringArray, _>(events.iter().map(|e| e.error.as_deref())),
        ),
    ])
}
